// Preparation: g and A of every chunk and value head, in one launch, a warp for each.
//
//   L   = KKᵀ                              once for the value heads of a team     Products
//   g_i = Σ_{m <= i} max(raw_g_m, −128)                                           sum_gates
//   N   = strictly_lower(B · exp(g_i − g_j) ∘ L)          its diagonal blocks     put_system
//   D_w = (I + N_ww)⁻¹                     those four, of 16 × 16     HalfDiagonals or Columns
//   A_10 = −D_1 N_10 D_0,  A_32 = −D_3 N_32 D_2                                   solve
//   [A_20 A_21; A_30 A_31] = −[D_2 0; A_32 D_3] [N_20 N_21; N_30 N_31] [D_0 0; A_10 D_1]
//
// The rest of N is never made. Let R be the g of the first token of the later of two parts. Then
// exp(g_i − g_j) = exp(g_i − R) exp(R − g_j) for i in the later and j in the earlier one, and
// neither factor is above 1, whatever the gates. So −A_II N_IJ A_JJ = Z L_IJ F, where
//   Z = −A_II diag(β_i exp(g_i − R)),  F = diag(exp(R − g_j)) A_JJ,
// and L_IJ serves all heads of a team.
//
// For a kernel that takes A folded it becomes F A G (variant.hpp) before it is rounded. In a gentle
// chunk, as most are, there are no gates in it: N is B L, and put_system and solve have fewer
// factors. In another one rows and columns have factors as well as all else, from where put_system
// has had its own. With β folded in as well and columns of gentle chunks multiplied by −β that took
// by ncu 3 % fewer instructions and as much time as unfolded, and with strong gates 32 µs, not 30,
// in the forward of wide_gva_state; with gates read again from memory, and factors by shuffles, 43.
//
// This is what runs on any device from Ampere on, and what chunk_inverse_hopper.cu builds on.
//
// A CTA is four warps, in teams of 4, 2 or 1. A team has one chunk, one query head and up to as
// many of its value heads. Together its warps bring K and the gates, make L and store g; after the
// last of three barriers each warp is by itself. Products take the same registers as `Left` or as
// the transpose to the right (sm80/mma.cuh), so that what one yields is what the next one takes:
// A_10 comes transposed.
//
// Precision: only differences of gates <= 0 are exponentiated. An ordinary chunk of a head is one
// where the squares below the diagonals of its four D come to no more than most_squares
// (variant.hpp), and no β is above 2 and no ‖k‖² above 1.5, as with keys of unit length. Its
// products take operands that are rounded to fp16 once. In a simulation, of keys in random
// directions, of keys more and more alike and of some that are equal, that adds 1e-4 to 2.1e-4 of A
// to A's own rounding to bf16, of 5e-4 to 8e-4.
// None is beyond fp16: a row or column of D has a norm of no more than √6, so that |L| <= 1.5,
// |Z L| <= 30 and |A_10| <= 288, and below them, with A_32 in Z, |Z L| <= 13,900.
// In others, such as those with β near 2 and equal keys, where terms of either sign nearly cancel,
// one pass loses two digits and a series for D all of them. Substitution in fp32 makes D there, and
// products take three of the four products of two bf16 halves, 16 bits: what that costs is seen
// (1.5e-3 of A), but is no more than A's own rounding. Either is a warp's own choice.
// Where keys are so much alike that the chunk is ill-conditioned, that rounding is too much for the
// sums that A goes into, and A_low has what it took. No ordinary chunk is: what squares are less by
// does not count there. To find out takes some 50 instructions of a warp, and 60 more in others.
//
// What limits it is L1. On an H200, with K read from global memory block by block, g stored by each
// warp for itself and conflicts of banks, this took 44 to 46 µs for 8192 tokens, 16 query and 64
// value heads; 23.4 for 32768 tokens, 2 and 8; 8.1 for 8192 tokens, 4 and 4; 4.9 for few. Of the
// first, L1 was busy for 81 % of the time, the schedulers for 32 %, DRAM for 38 %.
// Its cycles are, as counted for a chunk and head in a team of four, then and now:
//   wavefronts of shared memory  541    538   K 0, 112; gates 54, 22; N 112, 72; substitution 64;
//                                             D 84, 66; factors 32; L 66; A 128, 104
//   lines of global memory       322    146   K 160, 32; gates 32; g 64, 16; A 64; chunk 2
//   filling L1 from L2            64     32   gates 32, K 32, 0
// 927 and 716: 62 such heads a multiprocessor are 25 µs, and at the same share of the time 31 to 34
// were predicted, 18, 7.5 and 4.8 for the other shapes. Measured 38, 21, 8.4 and 4.6: L1 is busy
// for 69 % of it, the schedulers for 41 %. What was left was latency, of ~1790 instructions of a
// warp at four warps a scheduler. Of these an ordinary head has ~1250: what follows D had 690, with
// three passes, and has 330; N and D had 360, with substitution of 16 rows, and have 300. Its
// wavefronts are 464: substitution 32, D 24. Predicted for the last two shapes: 7.3 and 4.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/gates.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/place.cuh"
#include "kernels/cuda/processors.cuh"
#include "kernels/host_device.hpp"
#include "kernels/sm80/dependent.cuh"
#include "kernels/sm80/half.cuh"
#include "kernels/sm80/tile.cuh"

namespace gdn {
namespace sm80 {

struct Preparation {
  static constexpr const char* name = "preparation";
  static constexpr int threads = 128, warps = threads / 32;
  static constexpr int blocks_per_processor = 4;
  static constexpr int block = 16, blocks = chunk_tokens / block;
  static constexpr float most_beta = 2, most_square = 1.5F;  // of ordinary heads, ‖k‖²

  struct Arguments {
    Tensors tensors;
    int query_heads, heads_per_query;
    int teams, team;  // of a CTA, warps of each: 1 and 4, 2 and 2, or 4 and 1
    int groups;       // teams that share the value heads of a query head
    int group_heads;  // value heads of each but the last of them: a warp each
    unsigned works;   // chunks · query_heads · groups, a team each
  };

  // −N_ww, [w][24 row + column]: blocks in other banks. D_w, [w][column_start(column) ^ row].
  using SystemBlocks = float[blocks][block * 24 - 4];
  using InverseBlocks = float[blocks][block * block];
  // −N_ww, and the two blocks of 8 × 8 on D_w's diagonal in fp16, [w][which][column]: eight rows.
  struct Diagonal {
    SystemBlocks N;
    uint4 D[blocks][2][8];
  };

  // Of a warp, one after the other.
  union Square {  // 8,192 bytes
    Diagonal diagonal;
    InverseBlocks D;
    Tile<chunk_tokens, chunk_tokens> A;
  };
  using Keys = Tile<chunk_tokens, head_dim>;

  // L of a chunk and query head, as the registers of lanes hold it.
  struct System {              // 9,216 bytes
    float4 upper[6][2][32];    // the two Sums of L_jm, j < m, by their number
    float4 left[blocks][32];   // L_ww: of rows g and g+8, columns 2t and 2t+1
    float2 right[blocks][32];  // of row g+8, columns 2t+8 and 2t+9
  };
  static __device__ constexpr int number(int m, int j) { return m - j == 3 ? 5 : j + m - 1; }

  // Of a warp's tokens, of which those beyond the end repeat the last one's g, with β = 0.
  struct Factors {             // 1,280 bytes
    float g[chunk_tokens];     // log2(e) · (g − that of the block's first token); first g itself
    float2 row[chunk_tokens];  // the same, and −β
    // Behind put_system, where A is folded with gates: of its rows where g was, and of its columns
    // where row was, as they are where it is split and then as they are elsewhere.
    __device__ float (&fold_rows())[chunk_tokens] { return g; }
    __device__ float (&fold_columns(bool is_split))[chunk_tokens] {
      return reinterpret_cast<float(*)[chunk_tokens]>(row)[is_split ? 0 : 1];
    }
    // exp(−|g − R|), times −β behind R: R is that of the first token of the later block of a pair
    // of blocks, or of the chunk's later half. First raw g and β.
    float pair[chunk_tokens], half[chunk_tokens];
  };

  // Where a column of D starts: with these, 16 bytes of eight columns, 8 bytes of four rows by four
  // columns and 4 bytes of eight rows by four even or odd columns are each all in other banks.
  static __device__ int column_start(int c) {
    const int late = c / 4 % 2;
    return c / 8 * 128 + late * 64 + c % 2 * 32 + (c % 4 ^ late) * 8 + late * 4;
  }

  // What a team has in shared memory. Before L, K is there, over it and the first warp's square.
  static_assert(sizeof(Keys) <= sizeof(System) + sizeof(Square));
  struct Plan {
    Keys& keys;
    System& system;
    Square* squares;   // [team]
    Factors* factors;  // [team]

    static GDNBENCH_HOST_DEVICE constexpr int bytes(int team) {
      return static_cast<int>(sizeof(System) + team * (sizeof(Square) + sizeof(Factors)));
    }
    static __device__ Plan at(unsigned char* start, int team) {
      auto* const squares = reinterpret_cast<Square*>(start + sizeof(System));
      return {*reinterpret_cast<Keys*>(start), *reinterpret_cast<System*>(start), squares,
              reinterpret_cast<Factors*>(squares + team)};
    }
  };

  struct Shared {  // 47,104 to 74,752 bytes
    alignas(1024) unsigned char plans[warps * (sizeof(System) + sizeof(Square) + sizeof(Factors))];
  };

  struct Block {  // [16 × 16]
    Sum x[2];
  };

  static __device__ int lane() { return threadIdx.x % 32; }

  static __device__ Left rounded(const Block& a) { return left(a.x[0], a.x[1]); }
  static __device__ Left rounded(const HalfLeft& a) {
    Left rounded;
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const float2 pair = unpack_halves(a.x[x]);
      rounded.x[x] = pack(pair.x, pair.y);
    }
    return rounded;
  }
  // The transpose as a Left.
  static __device__ Left turned(const Left& a) {
    return {transposed(a.x[0]), transposed(a.x[2]), transposed(a.x[1]), transposed(a.x[3])};
  }

  // ---- gates

  // What a thread has to bring and to store: head `own` of the team's, tokens `token` and + 32.
  // Heads that share a query head are neighbours in memory: `team` lanes have a token's.
  struct Share {
    int own, token, place;  // in what a head has in shared memory
    int at, stride;         // in gates, which are fewer than 2^31 where A is on a device
    bool real[2];

    __device__ Share(const Place& at, int member, int team, int heads) {
      const int thread = 32 * member + lane();
      own = thread & (team - 1), token = thread >> team / 2;
      place = staggered(token, own, team);
      this->at = (at.token + token) * at.value_heads + at.head + own - member;
      stride = 32 * at.value_heads;
      for (int e = 0; e < 2; ++e) real[e] = token + 32 * e < at.length && own < heads;
    }
  };
  // Where a token is, so that the tokens of all heads that a warp has at once are in other banks.
  static __device__ int staggered(int token, int own, int team) {
    return token ^ (32 >> team / 2) * own;
  }

  struct Raw {
    float g[2], beta[2];
  };
  static __device__ Raw load_gates(const Tensors& x, const Share& share) {
    Raw raw;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      raw.g[e] = share.real[e] ? x.raw_g[share.at + e * share.stride] : 0;
      raw.beta[e] = share.real[e] ? x.beta[share.at + e * share.stride] : 0;
    }
    return raw;
  }
  static __device__ void put_raw(const Raw& raw, const Share& share, Factors* to) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      to[share.own].pair[share.place + 32 * e] = raw.g[e];
      to[share.own].half[share.place + 32 * e] = raw.beta[e];
    }
  }
  // g out of the team's `from`, a head's each.
  template <class From>
  static __device__ void store_gates(const Tensors& x, const Share& share, const From* from) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (share.real[e]) {
        x.g[share.at + e * share.stride] = from[share.own].g[share.place + 32 * e];
      }
    }
  }

  // Two tokens a lane.
  struct Gates {
    float2 g, beta;
  };
  static __device__ float2& pair_of(float (&values)[chunk_tokens], int token) {
    return *reinterpret_cast<float2*>(values + token);
  }

  // Prefix sums of raw g, put where `sums` says, which may be in the same place.
  static __device__ Gates sum_gates(float (&raw_g)[chunk_tokens], float (&raw_beta)[chunk_tokens],
                                    float (&sums)[chunk_tokens], int member, int team) {
    const int place = staggered(2 * lane(), member, team);
    const float2 beta = pair_of(raw_beta, place);
    float2 g = pair_of(raw_g, place);
    g.x = fmaxf(g.x, -128.0F);
    g.y = g.x + fmaxf(g.y, -128.0F);
    float sum = g.y;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(~0U, sum, step);
      if (lane() >= step) sum += before;
    }
    const float before = __shfl_up_sync(~0U, sum, 1);
    if (lane() > 0) g.x += before, g.y += before;
    pair_of(sums, place) = g;
    return {g, beta};
  }

  static __device__ void put_gates(const Gates& own, Factors& to) {
    const auto [g, beta] = own;
    // Of one token or the other: exp(−|g − start|), times −β in the later part.
    const auto put = [&](float(&values)[chunk_tokens], float start, bool later) {
      const float low = exponential(-fabsf(g.x - start)), high = exponential(-fabsf(g.y - start));
      pair_of(values, 2 * lane()) = {later ? low * -beta.x : low, later ? high * -beta.y : high};
    };
    const float block_start = __shfl_sync(~0U, g.x, lane() & 24);
    const float2 relative = {log2_e * (g.x - block_start), log2_e * (g.y - block_start)};
    pair_of(to.g, 2 * lane()) = relative;
    *reinterpret_cast<float4*>(to.row + 2 * lane()) = {relative.x, -beta.x, relative.y, -beta.y};
    put(to.pair, __shfl_sync(~0U, g.x, (lane() & 16) + 8), lane() & 8);
    put(to.half, __shfl_sync(~0U, g.x, 16), lane() & 16);
  }

  // Of a gentle chunk −β alone, where `pair` is.
  static __device__ void put_betas(const Gates& own, Factors& to) {
    pair_of(to.pair, 2 * lane()) = {-own.beta.x, -own.beta.y};
  }
  // What Fold takes, of all but a gentle chunk. Tokens beyond the end may have another g than the
  // last one, by a rounding, with which a diagonal might be rounded otherwise than by who reads it.
  static __device__ void put_fold(const Gates& own, int length, Factors& to) {
    const int end = min(length, chunk_tokens) - 1;
    const float last = __shfl_sync(~0U, end % 2 == 0 ? own.g.x : own.g.y, end / 2);
    const float2 exact = {RatioGates::column(own.g.x), RatioGates::column(own.g.y)};
    pair_of(to.fold_rows(), 2 * lane()) = {RatioGates::row(own.g.x, last),
                                           RatioGates::row(own.g.y, last)};
    pair_of(to.fold_columns(true), 2 * lane()) = exact;
    pair_of(to.fold_columns(false), 2 * lane()) = {exact.x / RatioGates::excess(own.g.x, last),
                                                   exact.y / RatioGates::excess(own.g.y, last)};
  }
  // Whether the chunk's gates are gentle, of which there are other factors then; for all lanes.
  template <bool folds>
  static __device__ bool put_factors(const Gates& own, Factors& to) {
    if (folds && __shfl_sync(~0U, own.g.y, 31) >= RatioGates::least_of_gentle) [[likely]] {
      put_betas(own, to);
      return true;
    }
    put_gates(own, to);
    return false;
  }
  // Gates that are wanted once more, which is seldom: of memory, where g is by then.
  static __device__ Gates gates_in_memory(const Tensors& x, const Place& at) {
    const int token = 2 * opaque(lane()), last = at.length - 1;
    return {{x.g[at.gate(min(token, last))], x.g[at.gate(min(token + 1, last))]},
            {token <= last ? x.beta[at.gate(token)] : 0,
             token < last ? x.beta[at.gate(token + 1)] : 0}};
  }

  // ---- L

  // The team's part of K, rows beyond the end as 0.
  template <int team>
  static __device__ void load_keys(const Tensors& x, const Place& at, int member, Keys& to) {
    const int thread = 32 * member + lane(), row = thread / Keys::units;
    const int unit = thread % Keys::units;
    const std::uint32_t start = to.address(row, 0, 0, 8 * unit);
    const BFloat16* from = x.k + at.query() + row * at.query_stride() + 8 * unit;
#pragma unroll
    for (int first = 0; first < chunk_tokens; first += 2 * team) {
      copy_16((start ^ first % 8 * 16) + first * Keys::row_bytes, from, row + first < at.length);
      from += 2 * team * at.query_stride();
    }
    commit_copies();
  }

  // Block row `role` of L, as far as it falls to this role: L_rr, L_rm with m = r+1, and for the
  // roles 0 and 1 with m = r+2. A warp of a team has the roles `member`, `member` + team, … and
  // takes each block of K once.
  template <int team>
  struct Products {
    static constexpr int roles = blocks / team;
    Block l[roles][3] = {};

    template <bool late>  // roles 2 and 3 alone
    __device__ void multiply(Keys& keys, int role) {
      constexpr int rows = late ? 2 : roles == 1 ? 3 : blocks;
      std::uint32_t row[rows];
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        row[m] = keys.address(lane() % 16, lane() / 16, (role + m) % blocks * block, 0);
      }
#pragma unroll(team == 1 ? 1 : head_dim / block)
      for (int k = 0; k < head_dim; k += block) {
        Left key[rows];
#pragma unroll
        for (int m = 0; m < rows; ++m) ldmatrix(key[m].x, (row[m] ^ k % 64 * 2) + k / 64 * 128);
#pragma unroll
        for (int n = 0; n < roles; ++n) {
#pragma unroll
          for (int m = 0; m < (late || n >= (roles + 1) / 2 ? 2 : 3); ++m) {
            mma(l[n][m].x, key[n * team], right(key[(n * team + m) % blocks]));
          }
        }
      }
    }

    __device__ void put(int first, System& to) const {
#pragma unroll
      for (int n = 0; n < roles; ++n) {
        const int role = first + n * team;
#pragma unroll
        for (int m = 0; m < (n >= (roles + 1) / 2 ? 2 : 3); ++m) {
          if (m == 2 && role >= 2) break;
          put_product(l[n][m].x, role, (role + m) % blocks, to);
        }
      }
    }
  };

  // L_ww.
  static __device__ void put_diagonal(const Sum (&l)[2], int w, System& to) {
    to.left[w][lane()] = {l[0].x[0], l[0].x[1], l[0].x[2], l[0].x[3]};
    to.right[w][lane()] = {l[1].x[2], l[1].x[3]};
  }
  // L_ij, i < j, by its number.
  static __device__ void put_upper(const Sum (&l)[2], int number, System& to) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      to.upper[number][n][lane()] = {l[n].x[0], l[n].x[1], l[n].x[2], l[n].x[3]};
    }
  }
  // Block (i, j) of L: on the diagonal, above it, or (3, 0).
  static __device__ void put_product(const Sum (&l)[2], int i, int j, System& to) {
    if (i == j) return put_diagonal(l, i, to);
    if (i < j) return put_upper(l, number(j, i), to);
    auto& own = to.upper[number(i, j)];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {  // row g + x / 2 · 8 of L is a column of what is kept
        const int row = lane() % 4 * 2 + x % 2, column = lane() / 4;
        auto* const sum = reinterpret_cast<float*>(&own[x / 2][4 * row + column / 2]);
        sum[2 * n + column % 2] = l[n].x[x];
      }
    }
  }

  // ---- the diagonal blocks

  // What this lane has of −N_ww's block of 8 × 8 below the diagonal, in fp16, and whether no key
  // that it sees is too long.
  struct Between {
    std::uint32_t n[blocks];
    bool short_keys;
  };
  // −N_ww, of a gentle chunk without gates. What stands above its diagonal is never read.
  template <bool gentle>
  static __device__ Between put_system(const System& system, Factors& own, SystemBlocks& to) {
    const int g = lane() / 4, t = lane() % 4;
    Between between = {{}, true};
    float2 n[blocks][3];
#pragma unroll
    for (int w = 0; w < blocks; ++w) {
      const float4 left = system.left[w][lane()];
      n[w][0] = {left.x, left.y}, n[w][1] = {left.z, left.w}, n[w][2] = system.right[w][lane()];
#pragma unroll
      for (int e = 0; e < 3; e += 2) {
        between.short_keys &= n[w][e].x <= most_square && n[w][e].y <= most_square;
      }
#pragma unroll
      for (int e = 0; e < 3; ++e) {
        const int i = block * w + g + (e + 1) / 2 * 8, j = block * w + 2 * t + e / 2 * 8;
        if constexpr (gentle) {
          n[w][e].x *= own.pair[i], n[w][e].y *= own.pair[i];
        } else {
          const float2 earlier = pair_of(own.g, j);
          const float2 row = own.row[i];
          n[w][e].x *= row.y * power_of_2(row.x - earlier.x);
          n[w][e].y *= row.y * power_of_2(row.x - earlier.y);
        }
      }
    }
#pragma unroll
    for (int w = 0; w < blocks; ++w) {
      between.n[w] = pack_halves(n[w][1].x, n[w][1].y);
#pragma unroll
      for (int e = 0; e < 3; ++e) {
        const int i = g + (e + 1) / 2 * 8, j = 2 * t + e / 2 * 8;
        *reinterpret_cast<float2*>(&to[w][24 * i + j]) = n[w][e];
      }
    }
    return between;
  }

  // D_w of any head by forward substitution, block w by lanes 8w … 8w+7, which have columns c and
  // c+8 each.
  struct Columns {
    float x[block], y[block];  // y: of column c+8, from row 8 on

    __device__ explicit Columns(const SystemBlocks& N) {
      const int own = opaque(lane()), c = own % 8, w = own / 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = y[i + 8] = i == c ? 1.0F : 0.0F;
        x[i + 8] = 0;
      }
#pragma unroll
      for (int i = 1; i < block; ++i) {
#pragma unroll
        for (int first = 0; first < i; first += 4) {
          const float4 of = *reinterpret_cast<const float4*>(N[w] + 24 * i + first);
          const float row[] = {of.x, of.y, of.z, of.w};
#pragma unroll
          for (int m = first; m < min(first + 4, i); ++m) {
            x[i] += row[m - first] * x[m];
            if (m >= 8) y[i] += row[m - first] * y[m];
          }
        }
      }
    }
    __device__ void put(InverseBlocks& D) const {
      float* const d = D[lane() / 8];
      const int start = column_start(lane() % 8);
#pragma unroll
      for (int i = 0; i < block; i += 4) {
        *reinterpret_cast<float4*>(d + (start ^ i)) = {x[i], x[i + 1], x[i + 2], x[i + 3]};
        if (i >= 8) {
          *reinterpret_cast<float4*>(d + 128 + (start ^ i)) = {y[i], y[i + 1], y[i + 2], y[i + 3]};
        }
      }
    }
  };

  // ---- A

  template <int count>
  static __device__ float squares_of(const Block (&a)[count]) {
    float sum = 0;
#pragma unroll
    for (const Block& block : a) {
      sum += sm80::squares_of(block.x[0]) + sm80::squares_of(block.x[1]);
    }
    return sum;
  }
  // Of what lanes have the sum, less the squares of A's diagonal.
  static __device__ float below_diagonal(float squares) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) squares += __shfl_xor_sync(~0U, squares, lanes);
    return squares - chunk_tokens;
  }

  // D_w and D_wᵀ out of where Columns put them.
  struct Diagonals {
    const InverseBlocks& D;

    __device__ Block operator[](int w) const {
      const int own = opaque(lane()), row = own / 4, column = own % 4 * 2;
      const int even = column_start(column) ^ row, odd = column_start(column + 1) ^ row;
      const float* const d = D[w];
      return {{{{d[even], d[odd], d[even ^ 8], d[odd ^ 8]}},
               {{0, 0, d[128 + (even ^ 8)], d[128 + (odd ^ 8)]}}}};
    }
    __device__ Block transposed(int w) const {
      const int own = opaque(lane()), start = column_start(own / 4) ^ own % 4 * 2;
      const auto pair = [&](int at) { return *reinterpret_cast<const float2*>(D[w] + at); };
      const float2 top = pair(start), right = pair(start ^ 8), bottom = pair(128 + (start ^ 8));
      return {{{{top.x, top.y, 0, 0}}, {{right.x, right.y, bottom.x, bottom.y}}}};
    }
  };
  // The same in fp16, for ordinary heads. Of blocks of 8 × 8, [D 0; X D'] is the inverse of
  // [I+N 0; M I+N'], where Xᵀ = −(Dᵀ Mᵀ) D'ᵀ. D and D' come by substitution, column c of block w's
  // in lane 8w + c, and X by products, for two w at once.
  struct HalfDiagonals {
    HalfLeft D[blocks], Dt[blocks];
    float squares;  // of what this lane made of D

    __device__ HalfDiagonals(Diagonal& own, const Between& between) : squares(put_columns(own)) {
      __syncwarp();
      std::uint32_t upper[blocks], lower[blocks], upper_t[blocks], lower_t[blocks];
      const auto start = place(own);
      ldmatrix_transposed(upper, start), ldmatrix(upper_t, start);
      ldmatrix_transposed(lower, start + 128), ldmatrix(lower_t, start + 128);
#pragma unroll
      for (int w = 0; w < blocks; w += 2) {
        Sum product = {}, x = {};
        mma(product, HalfLeft{{upper_t[w], 0, 0, upper_t[w + 1]}},
            HalfRight{{between.n[w], between.n[w + 1]}});
        mma(x,
            HalfLeft{{pack_halves(product.x[0], product.x[1]), 0, 0,
                      pack_halves(product.x[2], product.x[3])}},
            HalfRight{{lower[w], lower[w + 1]}});
        squares += sm80::squares_of(x);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::uint32_t x_t = pack_halves(x.x[2 * e], x.x[2 * e + 1]);
          D[w + e] = {{upper[w + e], sm80::transposed(x_t), 0, lower[w + e]}};
          Dt[w + e] = {{upper_t[w + e], 0, x_t, lower_t[w + e]}};
        }
      }
    }
    static __device__ std::uint32_t place(Diagonal& of) {
      const int own = opaque(lane());
      return static_cast<std::uint32_t>(__cvta_generic_to_shared(&of.D[own / 8][0][own % 8]));
    }
    // Yields the squares of this lane's.
    static __device__ float put_columns(Diagonal& to) {
      const int own = opaque(lane()), c = own % 8, w = own / 8;
      float x[2][8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[0][i] = x[1][i] = i == c ? 1.0F : 0.0F;
#pragma unroll
      for (int i = 1; i < 8; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int first = 0; first < i; first += 4) {
            const float4 of =
                *reinterpret_cast<const float4*>(to.N[w] + 24 * (i + 8 * h) + 8 * h + first);
            const float row[] = {of.x, of.y, of.z, of.w};
#pragma unroll
            for (int m = first; m < min(first + 4, i); ++m) x[h][i] += row[m - first] * x[h][m];
          }
        }
      }
      float squares = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        to.D[w][h][c] = {pack_halves(x[h][0], x[h][1]), pack_halves(x[h][2], x[h][3]),
                         pack_halves(x[h][4], x[h][5]), pack_halves(x[h][6], x[h][7])};
        for (const float element : x[h]) squares += element * element;
      }
      return squares;
    }
    __device__ const HalfLeft& operator[](int w) const { return D[w]; }
    __device__ const HalfLeft& transposed(int w) const { return Dt[w]; }
  };

  // What products take, as two halves of bf16 or as one fp16. Its register `zero` is 0.
  template <class Operand, int zero = 4>
  static __device__ Operand operand(const Block& a) {
    if constexpr (std::is_same_v<Operand, SplitLeft>) {
      return split<zero>(a.x);
    } else {
      return half_left<zero>(a.x);
    }
  }
  // Columns times the factors of block w's tokens.
  template <class Operand, int zero = 4>
  static __device__ Operand scaled(Block a, const float (&factors)[chunk_tokens], int w) {
    const float* const f = factors + block * w + lane() % 4 * 2;
    scale_columns(a.x[0], *reinterpret_cast<const float2*>(f));
    scale_columns(a.x[1], *reinterpret_cast<const float2*>(f + 8));
    return operand<Operand, zero>(a);
  }
  template <class Operand, int zero>
  static __device__ HalfLeft scaled(const HalfLeft& a, const float (&factors)[chunk_tokens],
                                    int w) {
    const float* const f = factors + block * w + lane() % 4 * 2;
    HalfLeft scaled;
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const float2 factor = *reinterpret_cast<const float2*>(f + x / 2 * 8);
      scaled.x[x] = x == zero ? 0 : product_of_halves(a.x[x], pack_halves(factor.x, factor.y));
    }
    return scaled;
  }
  static __device__ Block block_of(const HalfLeft& a) {
    Block b;
    sums_of(a, {1, 1}, b.x);
    return b;
  }
  static __device__ const Block& block_of(const Block& a) { return a; }

  // What becomes of A before it is rounded: of block (w, j), and of its transpose.
  struct AsItIs {
    __device__ AsItIs(const Factors&, bool) {}
    template <class B>
    __device__ const B& operator()(const B& a, int, int) const {
      return a;
    }
    template <class B>
    __device__ const B& transposed(const B& a, int, int) const {
      return a;
    }
  };
  // F A G.
  struct Fold {
    const float *rows, *columns;

    __device__ Fold(Factors& own, bool is_split)
        : rows(own.fold_rows()), columns(own.fold_columns(is_split)) {}
    template <class B>
    __device__ Block operator()(const B& of, int w, int j) const {
      Block a = block_of(of);
      by_rows(a, rows + block * w);
      by_columns(a, columns + block * j);
      return a;
    }
    __device__ Block transposed(Block a, int w, int j) const {
      by_columns(a, rows + block * w);
      by_rows(a, columns + block * j);
      return a;
    }
    static __device__ void by_rows(Block& a, const float* factors) {
      const float upper = factors[lane() / 4], lower = factors[lane() / 4 + 8];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        a.x[n].x[0] *= upper, a.x[n].x[1] *= upper;
        a.x[n].x[2] *= lower, a.x[n].x[3] *= lower;
      }
    }
    static __device__ void by_columns(Block& a, const float* factors) {
      const float* const f = factors + lane() % 4 * 2;
      scale_columns(a.x[0], *reinterpret_cast<const float2*>(f));
      scale_columns(a.x[1], *reinterpret_cast<const float2*>(f + 8));
    }
  };
  // The transpose of L_mj, by its number.
  static __device__ Block product(const System& system, int number) {
    Block l;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 x = system.upper[number][n][lane()];
      l.x[n] = {{x.x, x.y, x.z, x.w}};
    }
    return l;
  }
  // The same as operands: in fp16 all at once, so that L's place is free, and else when one is
  // asked for.
  struct HalfSystem {
    HalfLeft l[6];

    __device__ const HalfLeft& operator()(int m, int j) const { return l[number(m, j)]; }
    // Until it is here: what is computed of it decides a branch, which comes before all behind.
    // Two halves of 16 ones are no numbers, and L has numbers alone.
    __device__ void await() const {
      std::uint32_t all = ~0U;
#pragma unroll
      for (const HalfLeft& block : l) all &= block.x[0] & block.x[1] & block.x[2] & block.x[3];
      if (all == ~0U) __trap();
    }
  };
  struct SplitSystem {
    const System& system;

    __device__ SplitLeft operator()(int m, int j) const {
      return operand<SplitLeft>(product(system, number(m, j)));
    }
  };

  // d += a bᵀ.
  static __device__ void multiply(Block& d, const SplitLeft& a, const SplitLeft& b) {
    mma(d.x, a.low, right(b.high));
    mma(d.x, a.high, right(b.low));
    mma(d.x, a.high, right(b.high));
  }
  static __device__ void multiply(Block& d, const HalfLeft& a, const HalfLeft& b) {
    mma(d.x, a, right(b));
  }

  // Puts block (w, j) of A, rounded, or its transpose into a tile. What depends on the lane is one
  // register, as in Tile::address.
  struct PutPairs {
    BFloat16* tile;
    int place;

    __device__ explicit PutPairs(Square& square) : tile(square.A.x) {
      const int row = lane() / 4;
      place = opaque(chunk_tokens * row + 8 * row + lane() % 4 * 2);
    }
    __device__ void put(int w, int j, const Left& a) const {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int at = (place ^ 8 * (2 * j + x / 2)) + chunk_tokens * (block * w + x % 2 * 8);
        *reinterpret_cast<std::uint32_t*>(tile + at) = a.x[x];
      }
    }
    __device__ void put_transposed(int w, int j, const Left& a) const { put(w, j, turned(a)); }
    __device__ HalfSystem halves(const System& system) const {
      HalfSystem halves;
#pragma unroll
      for (int i = 0; i < 6; ++i) halves.l[i] = operand<HalfLeft>(product(system, i));
      return halves;
    }
    // When neither L nor what else was in the square is needed any more.
    __device__ void release() const {}
  };

  // What rounding takes from an ill-conditioned chunk's A, straight into memory: it is seldom.
  struct PutLow {
    const Tensors& x;
    const Place& at;

    // Whether it is one, by what is near the diagonal.
    __device__ bool is_wanted(const Block (&D)[blocks], const Block (&below)[2]) const {
      return x.A_low != nullptr &&
             below_diagonal(squares_of(D) - squares_of(below) / 2) > most_squares;
    }
    // Block (1, 0) from its transpose, and what is above the diagonal.
    __device__ void put_transposed_and_zeros(const Block& a) const {
      put(1, 0, turned(split(a.x).low));
#pragma unroll
      for (int w = 0; w < blocks; ++w) {
#pragma unroll
        for (int j = w + 1; j < blocks; ++j) put(w, j, Left{});
      }
    }
    __device__ void put(int w, int j, const Block& a) const { put(w, j, split(a.x).low); }
    __device__ void put(int w, int j, const Left& a) const {
      const int own = opaque(lane());  // or places would be kept, for what is seldom
      const int row = block * w + own / 4, stride = at.inverse_stride();
      BFloat16* to = x.A_low + at.inverse() + row * stride + block * j + own % 4 * 2;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (row + e % 2 * 8 >= at.length) continue;
        *reinterpret_cast<std::uint32_t*>(to + e % 2 * 8 * stride + e / 2 * 8) = a.x[e];
      }
    }
    __device__ void put_none(BFloat16 mark) const {
      if (x.A_low != nullptr && lane() == 0) x.A_low[at.inverse() + 1] = mark;
    }
  };

  // A block with its factors of `pair` or `half`. Of a gentle chunk these are −β in the later part
  // alone, for both.
  template <class Operand, bool gentle, int zero = 4, class B>
  static __device__ Operand later(const B& a, const Factors& own, bool of_pair, int w) {
    return scaled<Operand, zero>(a, gentle || of_pair ? own.pair : own.half, w);
  }
  template <class Operand, bool gentle, int zero = 4, class B>
  static __device__ Operand earlier(const B& a, const Factors& own, bool of_pair, int w) {
    if constexpr (!gentle) {
      return scaled<Operand, zero>(a, of_pair ? own.pair : own.half, w);
    } else if constexpr (std::is_same_v<B, HalfLeft>) {
      return a;
    } else {
      return operand<Operand, zero>(a);
    }
  }

  // A, of which D is there, in its place.
  template <class Operand, bool folds, bool gentle, class L, class From, class Put>
  static __device__ void solve(const L& l, Factors& own, const From& of, const Put& to,
                               const PutLow& low) {
    const std::decay_t<decltype(of[0])> D[] = {of[0], of[1], of[2], of[3]},
                                        Dt[] = {of.transposed(0), of.transposed(1),
                                                of.transposed(2)};
    __syncwarp();
    Block u[2] = {}, below[2] = {};  // A_10ᵀ, A_32
    multiply(u[0], later<Operand, gentle, 2>(D[1], own, true, 1), l(1, 0));
    multiply(u[1], later<Operand, gentle, 2>(D[3], own, true, 3), l(3, 2));
    multiply(below[0], earlier<Operand, gentle, 1>(Dt[0], own, true, 0), operand<Operand>(u[0]));
    multiply(below[1], operand<Operand>(u[1]), earlier<Operand, gentle, 1>(Dt[2], own, true, 2));
    bool is_split = false;
    if constexpr (std::is_same_v<Operand, SplitLeft>) {
      is_split = low.is_wanted(D, below);
      if (!is_split) low.put_none(plain_mark);
    } else {
      low.put_none(gentle ? gentle_mark : plain_mark);
    }
    const std::conditional_t<folds && !gentle, Fold, AsItIs> fold(own, is_split);
    const auto put = [&](int w, int j, const auto& a) {
      const auto folded = fold(a, w, j);
      to.put(w, j, rounded(folded));
      if constexpr (std::is_same_v<Operand, SplitLeft>) {
        if (is_split) low.put(w, j, folded);
      }
    };
#pragma unroll
    for (int w = 0; w < blocks; ++w) put(w, w, D[w]);
    const Block turned = fold.transposed(below[0], 1, 0);
    to.put_transposed(1, 0, rounded(turned));
    put(3, 2, below[1]);
    if constexpr (std::is_same_v<Operand, SplitLeft>) {
      if (is_split) low.put_transposed_and_zeros(turned);
    }

    const Operand z[] = {later<Operand, gentle, 2>(D[2], own, false, 2),
                         later<Operand, gentle>(below[1], own, false, 2),
                         later<Operand, gentle, 2>(D[3], own, false, 3)};
    const Operand f[] = {earlier<Operand, gentle, 1>(Dt[0], own, false, 0),
                         earlier<Operand, gentle>(below[0], own, false, 1),
                         earlier<Operand, gentle, 1>(Dt[1], own, false, 1)};
    Block v[2][2] = {}, a[2][2] = {};  // rows 2 and 3, columns 0 and 1
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const Operand upper = l(2, j);
      multiply(v[0][j], z[0], upper);
      multiply(v[1][j], z[1], upper);
      multiply(v[1][j], z[2], l(3, j));
    }
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const Operand v0 = operand<Operand>(v[w][0]), v1 = operand<Operand>(v[w][1]);
      multiply(a[w][0], v0, f[0]);
      multiply(a[w][1], v1, f[2]);
      multiply(a[w][0], v1, f[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) put(2 + w, j, a[w][j]);
    }
  }

  // store_rows, but that shared memory holds no blocks above the diagonal, which are 0, and that
  // what else stands there is read whether it is wanted or not.
  static __device__ void store(BFloat16* tensor, int stride, int length, Square& square) {
    const int row = lane() / 8, column = lane() % 8 * 8;
    BFloat16* to = tensor + row * stride + column;
#pragma unroll
    for (int i = 0; i < chunk_tokens; i += 4) {
      uint4 x = {};
      if (column < (i / block + 1) * block) {
        x = *reinterpret_cast<const uint4*>(square.A.unit(row + i, column));
      }
      if (i < length - row) *reinterpret_cast<uint4*>(to) = x;
      to += 4 * stride;
    }
  }

  // ---- a team

  // What a team has to do: `heads` of its warps have a head, of which this one would have `at`.
  struct Work {
    Place at;
    int heads;
  };
  // Of a query head and those of its value heads that a team has.
  static __device__ Work work_of(const Arguments& arguments, unsigned query_group,
                                 const Chunk& chunk, int member) {
    const unsigned query_head = query_group / arguments.groups;
    const int first = query_group % arguments.groups * arguments.group_heads;
    return {{chunk.token, chunk.length,
             static_cast<int>(query_head) * arguments.heads_per_query + first + member,
             static_cast<int>(query_head), arguments.query_heads,
             arguments.query_heads * arguments.heads_per_query},
            min(arguments.group_heads, arguments.heads_per_query - first)};
  }
  static __device__ unsigned of_chunk(const Arguments& arguments) {
    return arguments.query_heads * arguments.groups;
  }

  // All that a team does together: L, and g of its heads, of which a warp keeps its own.
  template <int team>
  static __device__ Gates begin(const Tensors& x, Place& at, int member, int heads,
                                const Plan& plan) {
    if (team == 1) member = 0;  // which the compiler would not know
    load_keys<team>(x, at, member, plan.keys);
    {
      const Share share(at, member, team, heads);
      put_raw(load_gates(x, share), share, plan.factors);
    }
    wait_copies<0>();
    __syncthreads();
    Factors& own = plan.factors[member];
    const Gates gates = sum_gates(own.pair, own.half, own.g, member, team);
    Products<team> products;
    if (team == 4 && member >= 2) {
      products.template multiply<true>(plan.keys, member);
    } else {
      products.template multiply<false>(plan.keys, member);
    }
    __syncthreads();  // K has been read, and L comes in its place
    products.put(member, plan.system);
    at.token = opaque(at.token), at.head = opaque(at.head);  // no 64-bit numbers kept until here
    store_gates(x, Share(at, member, team, heads), plan.factors);
    __syncthreads();
    return gates;
  }

  // A of a head whose factors are there, put where `to` says.
  template <bool folds, class Put>
  static __device__ void invert(const Gates& gates, bool gentle, const System& system,
                                Square& square, Factors& factors, const Put& to,
                                const PutLow& low) {
    const bool short_writes = fabsf(gates.beta.x) <= most_beta && fabsf(gates.beta.y) <= most_beta;
    // All of the usual way stands together: few instructions are in a cache when they are wanted.
    if (folds && gentle) [[likely]] {
      if (invert_ordinary<folds, true>(gates, short_writes, system, square, factors, to, low))
          [[likely]]
        return;
      put_gates(gates_in_memory(low.x, low.at), factors);
      __syncwarp();
    }
    if (invert_ordinary<folds, false>(gates, short_writes, system, square, factors, to, low))
      return;
    const Columns columns(square.diagonal.N);
    __syncwarp();
    columns.put(square.D);
    __syncwarp();
    solve<SplitLeft, folds, false>(SplitSystem{system}, factors, Diagonals{square.D}, to, low);
    to.release();
    __syncwarp();
  }
  // If it is an ordinary head, and whether it is.
  template <bool folds, bool gentle, class Put>
  static __device__ bool invert_ordinary(const Gates& gates, bool short_writes,
                                         const System& system, Square& square, Factors& factors,
                                         const Put& to, const PutLow& low) {
    const Between between = put_system<gentle>(system, factors, square.diagonal.N);
    __syncwarp();
    if constexpr (folds && !gentle) put_fold(gates, low.at.length, factors);
    const HalfDiagonals halves(square.diagonal, between);
    const bool far_apart = below_diagonal(halves.squares) <= most_squares;
    const bool is_ordinary = __all_sync(~0U, between.short_keys & short_writes & far_apart);
    if (is_ordinary) {
      const HalfSystem l = to.halves(system);
      l.await();
      to.release();
      solve<HalfLeft, folds, gentle>(l, factors, halves, to, low);
    }
    __syncwarp();
    return is_ordinary;
  }

  template <bool folds>
  static __device__ void run(const Arguments& arguments, Shared& shared) {
    let_next_launch_begin();
    const Tensors& x = arguments.tensors;
    const int warp = dealt_warp(), team = arguments.team;
    const int member = warp & (team - 1), own_team = warp * arguments.teams / warps;
    const Plan plan = Plan::at(shared.plans + own_team * Plan::bytes(team), team);
    const unsigned work = blockIdx.x * arguments.teams + own_team;
    Work own = {};
    if (work < arguments.works) {
      const unsigned chunk = work / of_chunk(arguments), query_group = work % of_chunk(arguments);
      own = work_of(arguments, query_group, x.chunks[chunk], member);
    }
    auto& [at, heads] = own;
    const bool has_head = member < heads;
    const Gates gates = team == 4   ? begin<4>(x, at, member, heads, plan)
                        : team == 2 ? begin<2>(x, at, member, heads, plan)
                                    : begin<1>(x, at, member, heads, plan);
    if (!has_head) return;
    Square& square = plan.squares[member];
    const bool gentle = put_factors<folds>(gates, plan.factors[member]);
    __syncwarp();
    invert<folds>(gates, gentle, plan.system, square, plan.factors[member], PutPairs(square),
                  PutLow{x, at});
    store(x.A + at.inverse(), at.inverse_stride(), at.length, square);
  }

  // ---- on the host

  static Arguments arguments(const Problem& problem, const Tensors& tensors, int teams) {
    const auto chunks = static_cast<std::int64_t>(problem.chunks().size());
    const int heads = problem.heads_per_query();
    const int groups = (heads + warps - 1) / warps;
    return {tensors,
            problem.query_heads,
            heads,
            teams,
            warps / teams,
            groups,
            (heads + groups - 1) / groups,
            static_cast<unsigned>(chunks * problem.query_heads * groups)};
  }
  static std::int64_t blocks_of(const Arguments& arguments) {
    return (std::int64_t{arguments.works} + arguments.teams - 1) / arguments.teams;
  }
  static int shared_of(const Arguments& arguments) {
    return arguments.teams * Plan::bytes(arguments.team);
  }

  // Whether teams of four warps are more than go side by side.
  static bool fills_device(const Problem& problem) {
    return static_cast<std::int64_t>(problem.chunks().size()) * problem.query_heads >
           std::int64_t{blocks_per_processor} * processors();
  }
  // Up to four heads of a query head are a team of four warps. Fewer make fewer warps a team where
  // the device is full without that.
  static int teams_of(const Problem& problem) {
    const int heads = problem.heads_per_query();
    return !fills_device(problem) || heads > 2 ? 1 : warps / heads;
  }
};

// Which may fold A.
template <bool folds>
struct PortablePreparation : Preparation {
  static __device__ void run(const Arguments& arguments, Shared& shared) {
    Preparation::run<folds>(arguments, shared);
  }
};

static_assert(sizeof(Preparation::Square) == 8192 && sizeof(Preparation::Factors) == 1280 &&
              sizeof(Preparation::System) == 9216 && sizeof(Preparation::Shared) == 74752);

}  // namespace sm80
}  // namespace gdn
