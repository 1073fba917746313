// The CPU forms' view of a part of a chunk, and the loop that hands such views out.
#include "kernels/cpu/chunk.hpp"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <tuple>

#include "tests/support.hpp"

namespace gdn::cpu {
namespace {

using test::HostCase;
using test::problem_of;

constexpr int query_heads = 2;
constexpr int value_heads = 4;

// `length` tokens of a case from `token` on, as a sequence of their own.
HostCase cut(const HostCase& from, int token, int length) {
  HostCase part(problem_of({length}, query_heads, value_heads, false), {});
  const auto copy = [&](const auto& all, auto& to, int each) {
    std::copy_n(all.begin() + token * each, length * each, to.begin());
  };
  copy(from.q, part.q, query_heads * head_dim);
  copy(from.k, part.k, query_heads * head_dim);
  copy(from.v, part.v, value_heads * head_dim);
  copy(from.raw_g, part.raw_g, value_heads);
  copy(from.beta, part.beta, value_heads);
  return part;
}

// What a part shows is what the preparation makes of the same tokens where nothing stands before.
TEST(ChunkView, APartIsAChunkOfItsOwn) {
  for (const Gates gates : {Gates::random_decay, Gates::zero, Gates::strong, Gates::reset}) {
    HostCase whole(problem_of({100}, query_heads, value_heads, false), {.gates = gates});
    whole.run_on_cpu(preparation(Target::cpu, whole.problem));
    const Tensors tensors = whole.tensors();
    for (const auto& [first, length] : {std::pair{0, 32}, {32, 32}, {16, 16}, {48, 7}}) {
      HostCase alone = cut(whole, first, length);
      alone.run_on_cpu(preparation(Target::cpu, alone.problem));
      const Tensors truth = alone.tensors();
      for (int head = 0; head < value_heads; ++head) {
        const ChunkView part{whole.problem, tensors, {0, 0, first, length}, head, first};
        const ChunkView chunk{alone.problem, truth, {0, 0, 0, length}, head};
        EXPECT_EQ(part.q(), chunk.q());
        EXPECT_EQ(part.k(), chunk.k());
        EXPECT_EQ(part.v(), chunk.v());
        EXPECT_EQ(part.beta(), chunk.beta());
        EXPECT_LE((part.g() - chunk.g()).cwiseAbs().maxCoeff(), 2e-3) << name_of(gates);
        EXPECT_LE((part.A() - chunk.A()).norm(), 1e-3F * chunk.A().norm()) << name_of(gates);
      }
    }
  }
}

TEST(Chains, GoThroughEveryTokenInParts) {
  HostCase c(problem_of({0, 100, 7}, 1, 2, false), {});
  std::map<std::pair<int, int>, std::vector<std::tuple<int, int, int>>> seen;
  std::mutex one_at_a_time;
  const auto step = [&](const ChunkView& view, State&) {
    const std::scoped_lock lock(one_at_a_time);
    seen[{view.chunk.sequence, view.head}].emplace_back(view.chunk.token, view.length(),
                                                        view.first);
  };
  for_each_chain(c.problem, c.tensors(), step, 32, 2);
  ASSERT_EQ(seen.size(), 4U);
  const std::vector<std::tuple<int, int, int>> of_100 = {
      {0, 32, 0}, {32, 32, 32}, {64, 32, 0}, {96, 4, 32}};
  const std::vector<std::tuple<int, int, int>> of_7 = {{100, 7, 0}};
  for (const int head : {0, 1}) {
    EXPECT_EQ((seen[{1, head}]), of_100);
    EXPECT_EQ((seen[{2, head}]), of_7);
  }
}

TEST(Chains, TakeAllThreadsOrHalfOfThem) {
  HostCase c(problem_of({1}, 1, 8, false), {});
  int threads = 0;
  const auto step = [&](const ChunkView& view, State&) {
    if (view.head == 0) threads = omp_get_num_threads();
  };
  const int before = omp_get_max_threads();
  for (const auto& [most, half] : {std::pair{6, 3}, {5, 2}, {1, 1}}) {
    omp_set_num_threads(most);
    const std::vector<Instance> instances = chain_instances("step", step);
    ASSERT_EQ(instances.size(), 2U);
    EXPECT_EQ(instances[0].knobs, (std::vector<Knob>{{"threads", "all"}}));
    EXPECT_EQ(instances[1].knobs, (std::vector<Knob>{{"threads", "half"}}));
    c.run_on_cpu(instances[0]);
    EXPECT_EQ(threads, most);
    c.run_on_cpu(instances[1]);
    EXPECT_EQ(threads, half);
  }
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace gdn::cpu
