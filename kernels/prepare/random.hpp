// Where every input element comes from: a pure function of (seed, tensor, index), the same bits on
// any thread count, compiler and device.
//
// It rests on three things: Philox in integers; exp, log, sine and cosine as our own fp64 series
// (IEEE additions, multiplications, divisions and square roots round the same everywhere); and no
// contraction of a·b + c, so files that include this are compiled with -ffp-contract=off (host) or
// -fmad=false (nvcc).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/prepare/recipe.hpp"

#ifdef __CUDACC__
#define GDN_HOST_DEVICE __host__ __device__
#else
#define GDN_HOST_DEVICE
#endif

namespace gdn {

// The second half of a Philox counter: one stream for each quantity that is drawn.
enum class Draw : std::uint32_t {
  q,
  k,
  v,
  raw_g,
  beta,
  initial_state,
  gate_event,
  decay,
  time_step
};

struct Words {
  std::uint32_t word[4];
};

struct Normals {
  double value[4];
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
GDN_HOST_DEVICE inline Words philox(Words counter, std::uint64_t seed) {
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

GDN_HOST_DEVICE inline Words draw(std::uint64_t seed, Draw stream, std::uint64_t block) {
  return philox({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                  static_cast<std::uint32_t>(stream), 0}},
                seed);
}

// In (0, 1), never its ends.
GDN_HOST_DEVICE inline double to_uniform(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

// e^x for |x| < 700: x = n·ln 2 + r, then the Taylor series of e^r by Horner, |r| <= 0.347.
GDN_HOST_DEVICE inline double series_exp(double x) {
  const double scaled = x * 1.4426950408889634;
  const int n = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;  // ln 2 in two parts
  double sum = 1;
  for (int i = 14; i >= 1; --i) sum = 1 + (sum * r) / i;
  const std::uint64_t bits = static_cast<std::uint64_t>(1023 + n) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return sum * power;
}

// ln((1 + s) / (1 - s)) = 2·(s + s³/3 + s⁵/5 + …) for |s| <= 0.172.
GDN_HOST_DEVICE inline double series_atanh2(double s) {
  const double square = s * s;
  double sum = 0;
  for (int i = 23; i >= 1; i -= 2) sum = sum * square + 1.0 / i;
  return (2 * s) * sum;
}

// ln x for finite positive normal x.
GDN_HOST_DEVICE inline double series_log(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000F'FFFF'FFFF'FFFFu) | 0x3FF0'0000'0000'0000u;
  double mantissa;  // 1 <= mantissa < 2, then √½ <= mantissa < √2
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa >= 1.4142135623730951) {
    mantissa = mantissa * 0.5;
    exponent += 1;
  }
  return exponent * 0.6931471805599453 + series_atanh2((mantissa - 1) / (mantissa + 1));
}

// ln(1 + x) for x >= 0, without losing a small x.
GDN_HOST_DEVICE inline double series_log1p(double x) {
  return x < 0.4 ? series_atanh2(x / (2 + x)) : series_log(1 + x);
}

// cos and sin of 2π·turn for turn in [0, 1): the nearest quarter turn, then Taylor on |a| <= π/4.
GDN_HOST_DEVICE inline void series_cos_sin(double turn, double& cosine, double& sine) {
  const int quarter = static_cast<int>(turn * 4 + 0.5);
  const double a = (turn * 4 - quarter) * 1.5707963267948966;
  const double square = a * a;
  double c = 1;
  double s = 1;
  for (int i = 18; i >= 2; i -= 2) {
    c = 1 - (c * square) / (i * (i - 1));
    s = 1 - (s * square) / (i * (i + 1));
  }
  s = s * a;
  switch (quarter & 3) {
    case 0:
      cosine = c;
      sine = s;
      return;
    case 1:
      cosine = -s;
      sine = c;
      return;
    case 2:
      cosine = -c;
      sine = -s;
      return;
    default:
      cosine = s;
      sine = -c;
      return;
  }
}

// Four standard normals (Box and Muller 1958), for elements 4·block … 4·block + 3.
GDN_HOST_DEVICE inline Normals normals(std::uint64_t seed, Draw stream, std::uint64_t block) {
  const Words bits = draw(seed, stream, block);
  Normals result;
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = sqrt(-2 * series_log(to_uniform(bits.word[2 * pair])));
    double cosine;
    double sine;
    series_cos_sin(to_uniform(bits.word[2 * pair + 1]), cosine, sine);
    result.value[2 * pair] = radius * cosine;
    result.value[2 * pair + 1] = radius * sine;
  }
  return result;
}

GDN_HOST_DEVICE inline double normal_at(std::uint64_t seed, Draw stream, std::uint64_t index) {
  return normals(seed, stream, index / 4).value[index % 4];
}

GDN_HOST_DEVICE inline double uniform_at(std::uint64_t seed, Draw stream, std::uint64_t index) {
  return to_uniform(draw(seed, stream, index / 4).word[index % 4]);
}

GDN_HOST_DEVICE inline double softplus(double x) {
  return x > 0 ? x + series_log1p(series_exp(-x)) : series_log1p(series_exp(x));
}

// raw_g of one token and value head. `token` counts along the packed axis, `position` within the
// sequence.
GDN_HOST_DEVICE inline float raw_gate(const Recipe& recipe, std::int64_t token,
                                      std::int64_t position, int head, int value_heads) {
  const std::uint64_t index = static_cast<std::uint64_t>(token) * value_heads + head;
  const double random_decay = -softplus(-normal_at(recipe.seed, Draw::raw_g, index)) / 16;
  switch (recipe.gates) {
    case Gates::random_decay:
      return static_cast<float>(random_decay);
    case Gates::mixed:
      return position % 2 == 0 ? 0.0F : static_cast<float>(random_decay);
    case Gates::zero:
      return 0.0F;
    case Gates::model: {  // dt log-uniform in [0.001, 0.1]; A uniform in (0, 16); one each per head
      const double decay = 16 * uniform_at(recipe.seed, Draw::decay, head);
      const double dt = series_exp(
          -6.907755278982137 + 4.605170185988092 * uniform_at(recipe.seed, Draw::time_step, head));
      const double bias = dt + series_log(1 - series_exp(-dt));
      return static_cast<float>(-decay *
                                softplus(normal_at(recipe.seed, Draw::raw_g, index) + bias));
    }
    case Gates::strong:
      return static_cast<float>(-1 - 11 * uniform_at(recipe.seed, Draw::raw_g, index));
    case Gates::reset:
      return uniform_at(recipe.seed, Draw::gate_event, token) < 0.05
                 ? -50.0F
                 : static_cast<float>(random_decay);
    case Gates::infinite:
      return uniform_at(recipe.seed, Draw::gate_event, token) < 0.02
                 ? -HUGE_VALF
                 : static_cast<float>(random_decay);
  }
  return 0.0F;
}

// beta of element `index` of [token][value_head]: beta_max · sigmoid(normal).
GDN_HOST_DEVICE inline float write_strength(const Recipe& recipe, std::uint64_t index) {
  return static_cast<float>(recipe.beta_max /
                            (1 + series_exp(-normal_at(recipe.seed, Draw::beta, index))));
}

}  // namespace gdn
