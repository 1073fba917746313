// Where sequences are cut, and where the segments begin, counted by hand or by the definition.
#include "kernels/cuda/segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "tests/support.hpp"

namespace gdn {
namespace {

using test::problem_of;

int chunks_in(int length) { return (length + 63) / 64; }
int own(const Piece& piece) { return piece.end - piece.first; }

// Every chunk is in one segment, an empty sequence has one segment, and the longest come first.
void expect_cover(const Problem& problem, const std::vector<Piece>& pieces) {
  std::map<int, std::vector<Piece>> of_sequence;
  for (const Piece& piece : pieces) of_sequence[piece.sequence].push_back(piece);
  ASSERT_EQ(static_cast<int>(of_sequence.size()), problem.sequences());
  for (auto& [sequence, segments] : of_sequence) {
    std::ranges::sort(segments, {}, &Piece::first);
    int next = 0;
    for (const Piece& piece : segments) {
      EXPECT_EQ(piece.token, problem.offsets[sequence]);
      EXPECT_EQ(piece.length, problem.length(sequence));
      EXPECT_EQ(piece.first, next);
      EXPECT_TRUE(own(piece) > 0 || piece.length == 0);
      next = piece.end;
    }
    EXPECT_EQ(next, chunks_in(problem.length(sequence)));
  }
  const auto work = [](const Piece& piece) { return own(piece) + (piece.first > 0 ? 3 : 0); };
  EXPECT_TRUE(std::ranges::is_sorted(pieces, std::greater(), work));
}

TEST(Segments, OfOneSequenceHaveAsManyChunksEachWithTheirWarmUp) {
  const std::vector<Piece> pieces = cut(problem_of({63 * 64}, 1, 1, false), 4);
  ASSERT_EQ(pieces.size(), 4U);  // 3 + 4 · 15 chunks: 18, of which the others warm up for 3
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(pieces[i].first, i == 0 ? 0 : 3 + 15 * i);
    EXPECT_EQ(pieces[i].end, 3 + 15 * (i + 1));
  }
}

TEST(Segments, AreNoMoreThanThereAreChunksBehindAWarmUp) {
  for (const auto& [chunks, segments] :
       {std::pair{0, 1}, {1, 1}, {3, 1}, {4, 1}, {5, 2}, {6, 3}, {12, 9}, {200, 16}}) {
    const Problem problem = problem_of({chunks * 64 - (chunks > 0 ? 63 : 0)}, 1, 1, false);
    EXPECT_EQ(static_cast<int>(cut(problem, 16).size()), segments) << chunks << " chunks";
  }
}

// On an H200, 132 multiprocessors: counted by hand for the public cases, one CTA a value head.
TEST(Segments, MakeOneWaveOfThePublicCases) {
  const auto count = [](const std::vector<int>& lengths, int heads) {
    return static_cast<int>(cut_for(problem_of(lengths, heads, heads, false), 132, heads).size());
  };
  EXPECT_EQ(count({1025}, 8), 7);    // 14 chunks behind the warm-up, 2 each
  EXPECT_EQ(count({8192}, 4), 32);   // 125, 4 each: 3 each would be 42 of 33
  EXPECT_EQ(count({2048}, 16), 8);   // 29, 4 each: 3 each would be 10 of 8
  EXPECT_EQ(count({32768}, 8), 16);  // 509, 32 each
  EXPECT_EQ(count({8192, 8192, 8192, 8192}, 8), 16);
  EXPECT_EQ(count({8192}, 64), 2);
  EXPECT_EQ(count({16384}, 32), 4);
  EXPECT_EQ(count({16384}, 128), 1);  // uncut, it fills the device
}

TEST(Segments, ALongSequenceAmongManyDoesNotHoldTheOthersUp) {
  std::vector<int> lengths(1023, 64);
  lengths.push_back(64 * 1024);
  const std::vector<Piece> pieces = cut_for(problem_of(lengths, 1, 1, false), 132, 1);
  // 2047 chunks are 16 a processor; 1021 behind the warm-up are 64 segments of at most 16.
  EXPECT_EQ(pieces.size(), 1023U + 64U);
  EXPECT_LE(own(pieces.front()), 20);
  expect_cover(problem_of(lengths, 1, 1, false), pieces);
}

TEST(Segments, CoverEachChunkOnceOfRandomShapes) {
  std::mt19937 random(64);
  for (int i = 0; i < 500; ++i) {
    std::vector<int> lengths(i == 0 ? 1024 : random() % 12);
    for (int& length : lengths) length = static_cast<int>(random() % 4 == 0 ? 0 : random() % 9000);
    const int heads = 1 + static_cast<int>(random() % 64);
    const Problem problem = problem_of(lengths, 1, heads, false);
    SCOPED_TRACE("shape " + std::to_string(i));
    expect_cover(problem, cut(problem, 1 + static_cast<int>(random() % 20)));
    const std::vector<Piece> pieces = cut_for(problem, 132, heads);
    expect_cover(problem, pieces);
    const auto sequences = std::ranges::count_if(lengths, [](int length) { return length > 0; });
    const auto segments =
        std::ranges::count_if(pieces, [](const Piece& piece) { return piece.length > 0; });
    if (sequences * heads <= 132) {
      EXPECT_LE(segments * heads, 132);
    }
  }
}

// Threads that do one after the other what a warp does at once.
struct Alone {
  static constexpr int size = 1;
  static int rank() { return 0; }
  static float scan(float x) { return x; }
  static int first_of(bool x) { return x ? 0 : size; }
  static float last_of(float x) { return x; }
};

int start_of(const std::vector<float>& gates, int first, float threshold) {
  return warm_up_start(first, threshold, Alone(), [&](int chunk) { return gates.at(chunk); });
}

TEST(WarmUp, GoesBackUntilTheGatesComeToTheThreshold) {
  const std::vector<float> threes(10, -3);
  EXPECT_EQ(start_of(threes, 8, -12), 4);     // −12 is enough
  EXPECT_EQ(start_of(threes, 8, -12.5F), 3);  // a fifth chunk
  EXPECT_EQ(start_of(threes, 8, -24), 0);
  EXPECT_EQ(start_of(threes, 8, -25), 0);  // the beginning, where it is exact
  EXPECT_EQ(start_of(threes, 3, -12), 0);
  EXPECT_EQ(start_of(threes, 0, -12), 0);
}

TEST(WarmUp, OfOneChunkWhereTheLastForgetsAll) {
  EXPECT_EQ(start_of({0, 0, -128, 0}, 3, -12), 2);
  EXPECT_EQ(start_of({0, 0, -128, 0}, 4, -12), 2);
}

TEST(WarmUp, EndsAtTheBeginningWhereNothingIsForgotten) {
  EXPECT_EQ(start_of(std::vector<float>(1000, 0), 1000, -12), 0);
  EXPECT_EQ(start_of(std::vector<float>(1000, NAN), 1000, -12), 0);
}

// Whatever the gates: enough is forgotten, and a chunk less would not do.
TEST(WarmUp, IsEnoughAndNoLonger) {
  std::mt19937 random(9);
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> gates(1 + random() % 100);
    for (float& g : gates) g = -static_cast<float>(random() % 64) / (i % 2 == 0 ? 8 : 128);
    const int first = static_cast<int>(random() % (gates.size() + 1));
    const int start = start_of(gates, first, -12);
    double sum = 0;
    for (int chunk = start + 1; chunk < first; ++chunk) sum += gates[chunk];
    EXPECT_TRUE(start == first || sum > -12);
    if (start < first) sum += gates[start];
    EXPECT_TRUE(start == 0 || sum <= -12);
  }
}

// Four threads that do at once what a warp's 32 do.
struct Four {
  static constexpr int size = 4;
  struct Shared {
    std::barrier<> meet{size};
    float x[size];
  };
  Shared& shared;
  int own;

  int rank() const { return own; }
  template <class See>
  auto see(float x, See see) const {
    shared.x[own] = x;
    shared.meet.arrive_and_wait();
    const auto seen = see(shared.x);
    shared.meet.arrive_and_wait();
    return seen;
  }
  float scan(float x) const {
    return see(x, [&](const float* all) { return std::accumulate(all, all + own + 1, 0.F); });
  }
  int first_of(bool x) const {
    return see(x ? 1.F : 0.F, [&](const float* all) {
      return static_cast<int>(std::find(all, all + size, 1.F) - all);
    });
  }
  float last_of(float x) const {
    return see(x, [&](const float* all) { return all[size - 1]; });
  }
};

TEST(WarmUp, IsTheSameForSeveralThreadsTogether) {
  std::mt19937 random(32);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> gates(1 + random() % 30);
    for (float& g : gates) g = -static_cast<float>(random() % 64) / 16;  // sums are exact
    const int first = static_cast<int>(random() % (gates.size() + 1));
    Four::Shared shared;
    std::array<int, Four::size> starts{};
    {
      std::vector<std::jthread> threads;
      for (int own = 0; own < Four::size; ++own)
        threads.emplace_back([&, own] {
          starts[own] = warm_up_start(first, -12, Four{shared, own},
                                      [&](int chunk) { return gates.at(chunk); });
        });
    }
    for (const int start : starts) ASSERT_EQ(start, start_of(gates, first, -12)) << "of " << first;
  }
}

}  // namespace
}  // namespace gdn
