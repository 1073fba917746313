// A of a chunk alone, as warps make it (inverse.cuh), against an inverse in fp64.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <random>

#include "kernels/cuda/inverse.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/sm90/wgmma.cuh"
#include "tests/emulator/emulator.hpp"

namespace gdn::sm90 {
namespace {

// One chunk, of which everything comes by plain loads.
struct InverseAlone {
  static constexpr const char* name = "inverse";
  static constexpr int threads = 128, blocks_per_processor = 1;
  struct Arguments {
    const BFloat16* k;  // [64][128]
    const float* g;     // [64], prefix sums
    const float* beta;  // [64]
    BFloat16 *A, *low;  // [64][64], and what rounding took from A
    bool* ill_conditioned;
  };
  struct Shared {
    Tile<chunk_tokens, head_dim> K;
    Inverse::Square A;
    Tile<chunk_tokens, chunk_tokens> P, low;
    Inverse::Diagonal diagonal;
    RatioGates gates;
    float beta[chunk_tokens];
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const int token = static_cast<int>(threadIdx.x);
    if (token < chunk_tokens) {
      TokenGates{arguments.g[token], arguments.beta[token], arguments.g[chunk_tokens - 1]}
          .ratios()
          .put(shared.gates);
      shared.beta[token] = arguments.beta[token];
    }
    load_plainly<threads, head_dim>(shared.K, arguments.k, head_dim, chunk_tokens);
    sm80::commit_copies();
    sm80::wait_copies<0>();
    Inverse::clear_above(shared.A);
    publish_to_async();
    __syncthreads();
    Sum kk[chunk_tokens / 8];
    products_begin();
    for (int k = 0; k < head_dim; k += 16) {
      multiply<Major::k, Major::k>(kk, shared.K.k_major(0, k), shared.K.k_major(0, k), k > 0);
    }
    products_commit();
    products_wait<0>();
    Inverse inverse = {shared.A, shared.P, shared.diagonal};
    if (shared.gates.exact()) {
      inverse.put_system<true>(kk, shared.gates, shared.beta);
    } else {
      inverse.put_system<false>(kk, shared.gates, shared.beta);
    }
    Inverse::Row a;
    a[0] = inverse.invert_diagonal();
    __syncthreads();
    inverse.solve_row(a);
    Inverse::put_low(a, shared.low);
    __syncthreads();
    if (token == 0) *arguments.ill_conditioned = inverse.ill_conditioned();
    for (int i = token; i < chunk_tokens * chunk_tokens / 8; i += threads) {
      const int row = i / 8, column = i % 8 * 8;
      *reinterpret_cast<uint4*>(arguments.A + row * chunk_tokens + column) =
          shared.A.unit(row, column);
      *reinterpret_cast<uint4*>(arguments.low + row * chunk_tokens + column) =
          shared.low.unit(row, column);
    }
  }
};

using Matrix = Eigen::MatrixXd;

struct Chunk64 {
  std::vector<BFloat16> k = std::vector<BFloat16>(chunk_tokens * head_dim);
  std::vector<float> g = std::vector<float>(chunk_tokens), beta = g;

  // Keys of unit length in random directions, or all equal; log α between `least` and 0.
  Chunk64(bool equal, double least, double from, double to) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    double sum = 0;
    for (int t = 0; t < chunk_tokens; ++t) {
      Eigen::VectorXd key = Eigen::VectorXd::NullaryExpr(head_dim, [&] { return normal(random); });
      key.normalize();
      for (int d = 0; d < head_dim; ++d)
        k[t * head_dim + d] = equal && t > 0 ? k[d] : to_bfloat16(static_cast<float>(key[d]));
      g[t] = static_cast<float>(sum += least * uniform(random));
      beta[t] = static_cast<float>(from + (to - from) * uniform(random));
    }
  }
  Matrix inverse() const {
    Matrix N = Matrix::Identity(chunk_tokens, chunk_tokens);
    for (int i = 0; i < chunk_tokens; ++i)
      for (int j = 0; j < i; ++j) {
        double product = 0;
        for (int d = 0; d < head_dim; ++d)
          product += double{to_float(k[i * head_dim + d])} * to_float(k[j * head_dim + d]);
        N(i, j) = beta[i] * std::exp(double{g[i]} - g[j]) * product;
      }
    return N.inverse();
  }
  // Relative rms of A, alone and with its low half, and whether the chunk is ill-conditioned. The
  // elements above the diagonal are 0.
  struct Findings {
    double error, split_error;
    bool ill_conditioned;
  };
  Findings run() {
    std::vector<BFloat16> A(chunk_tokens * chunk_tokens, BFloat16{0xFFFF}), low = A;
    Findings found = {};
    launcher<InverseAlone>(1, {k.data(), g.data(), beta.data(), A.data(), low.data(),
                               &found.ill_conditioned})(nullptr);
    const Matrix truth = inverse();
    for (int i = 0; i < chunk_tokens; ++i)
      for (int j = 0; j < chunk_tokens; ++j) {
        const double high = to_float(A[i * chunk_tokens + j]);
        const double both = high + to_float(low[i * chunk_tokens + j]);
        if (j > i) {
          EXPECT_EQ(high, 0) << i << ", " << j;
          EXPECT_EQ(both, 0) << i << ", " << j;
        }
        found.error += std::pow(high - truth(i, j), 2);
        found.split_error += std::pow(both - truth(i, j), 2);
      }
    found.error = std::sqrt(found.error) / truth.norm();
    found.split_error = std::sqrt(found.split_error) / truth.norm();
    return found;
  }
};

// No more than rounding A itself to bf16 costs, 2^-9 at most for each element; and where it is
// ill-conditioned that is known, and the low half has what rounding took.
TEST(EmulatedInverse, IsAsGoodAsItsRounding) {
  struct Case {
    bool equal;
    double least, from, to;
  };
  for (const auto& [equal, least, from, to] : std::vector<Case>{{false, -0.06, 0, 1},
                                                                {false, 0, 0, 2},
                                                                {false, -12, 0, 1},
                                                                {false, -128, 0, 1},
                                                                {true, 0, 0.9, 1},
                                                                {true, 0, 1, 2},
                                                                {true, 0, 1.9, 2},
                                                                {true, -0.06, 1.9, 2}}) {
    SCOPED_TRACE((equal ? "equal keys" : "keys") + std::string(", gates from ") +
                 std::to_string(least) + ", beta from " + std::to_string(from) + " to " +
                 std::to_string(to));
    emulator::set_seed(1);
    const Chunk64::Findings found = Chunk64(equal, least, from, to).run();
    EXPECT_LE(found.error, 2e-3);
    EXPECT_LE(found.split_error, 2e-4);
    EXPECT_EQ(found.ill_conditioned, equal);
  }
}

}  // namespace
}  // namespace gdn::sm90
