#include "kernels/cuda/segments.hpp"

#include <algorithm>
#include <functional>

namespace gdn {
namespace {

// Of a segment, warm-up not included, where the processors are free to do more: shorter ones would
// save little time and take more warm-ups.
constexpr int least_chunks = 2;

int ceiling(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Of a sequence, such that none has more than `own` chunks beside its warm-up. The first
// expected_warm_up chunks of the sequence stand for the first segment's.
int segments_of(int chunks, int own) {
  return std::max(1, ceiling(chunks - expected_warm_up, own));
}

int cost(const Piece& piece) {
  return piece.end - piece.first + std::min(piece.first, expected_warm_up);
}

template <class Count>
std::vector<Piece> cut_into(const Problem& problem, Count segments_of) {
  std::vector<Piece> pieces;
  for (int s = 0; s < problem.sequences(); ++s) {
    const int length = problem.length(s), chunks = chunks_of(length), count = segments_of(chunks);
    const std::int64_t dealt = chunks - expected_warm_up;
    for (int i = 0, first = 0; i < count; ++i) {
      const int end =
          i + 1 == count ? chunks : expected_warm_up + static_cast<int>(dealt * (i + 1) / count);
      pieces.push_back({s, problem.offsets[s], length, first, end});
      first = end;
    }
  }
  std::ranges::stable_sort(pieces, std::greater(), cost);
  return pieces;
}

// How many chunks a segment has beside its warm-up, at most.
int own_chunks(const Problem& problem, int processors, int ctas) {
  std::int64_t chunks = 0;
  for (int s = 0; s < problem.sequences(); ++s) chunks += chunks_of(problem.length(s));
  const auto fits = [&](int own) {
    std::int64_t segments = 0;
    for (int s = 0; s < problem.sequences(); ++s) {
      if (problem.length(s) > 0) segments += segments_of(chunks_of(problem.length(s)), own);
    }
    return segments * ctas <= processors;
  };
  const std::int64_t longest = problem.chain_chunks();
  for (int own = least_chunks; own < longest; ++own) {
    if (fits(own)) return own;
  }
  return std::max(least_chunks, ceiling(chunks * ctas, processors));
}

}  // namespace

std::vector<Piece> cut(const Problem& problem, int segments) {
  return cut_into(problem,
                  [=](int chunks) { return std::clamp(chunks - expected_warm_up, 1, segments); });
}

std::vector<Piece> cut_for(const Problem& problem, int processors, int ctas) {
  const int own = own_chunks(problem, processors, ctas);
  return cut_into(problem, [=](int chunks) { return segments_of(chunks, own); });
}

}  // namespace gdn
