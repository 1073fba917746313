// Kernels of which a CTA goes through one of the segments that the host has cut (segments.hpp), for
// a head and a slice of its values: rungs 9 and 11.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/processors.cuh"
#include "kernels/cuda/segments.hpp"

namespace gdn {

// A CTA's segment, and the chain of which it is one.
template <class Chain>
struct OwnPiece {
  Piece piece;
  Chain chain;

  // Of all `pieces`, for whose heads and slices CTAs stand side by side.
  __device__ OwnPiece(const Piece* pieces, int query_heads, int value_heads) {
    const int ctas = value_heads * Chain::slices, cta = static_cast<int>(blockIdx.x) % ctas;
    piece = pieces[blockIdx.x / ctas];
    chain = {piece.sequence, cta % Chain::slices * (head_dim / Chain::slices),
             place_of({piece.sequence, 0, piece.token, piece.length}, cta / Chain::slices,
                      query_heads, value_heads)};
  }
};

// `segments` a sequence; 0: as many as make one wave; with 1 nothing is cut, and nothing dropped.
// Kernel::arguments(problem, tensors, pieces, threshold) are what Kernel is launched with. OfFolded
// is the same kernel for a folded A; void: there is none.
template <class Kernel, class OfFolded = void>
Instance instance_of_pieces(int segments, int threshold, std::vector<Knob> knobs) {
  const auto ctas_of = [](const Problem& problem) {
    return problem.value_heads * Kernel::Chain::slices;
  };
  const auto pieces_of = [=](const Problem& problem) {
    return segments > 0 ? cut(problem, segments) : cut_for(problem, processors(), ctas_of(problem));
  };
  knobs.push_back({"segments", segments > 0 ? std::to_string(segments) : "auto"});
  knobs.push_back({"threshold", std::to_string(threshold)});
  std::ranges::sort(knobs, {}, &Knob::name);  // as in its id
  return {.knobs = std::move(knobs),
          .stages = {stage_of<Kernel>()},
          .folded_stages = []() -> std::vector<Stage> {
            if constexpr (std::is_void_v<OfFolded>)
              return {};
            else
              return {stage_of<OfFolded>()};
          }(),
          .workspace_bytes =
              [=](const Problem& problem) { return pieces_of(problem).size() * sizeof(Piece); },
          .setup =
              [=](const Problem& problem, const Tensors& x, void* workspace) {
                const std::vector<Piece> pieces = pieces_of(problem);
                throw_on_error(cudaMemcpy(workspace, pieces.data(), pieces.size() * sizeof(Piece),
                                          cudaMemcpyHostToDevice),
                               Kernel::name);
                throw_on_error(cudaDeviceSynchronize(), Kernel::name);  // it may still be copying
                const auto launch_of = [&]<class Own>(std::type_identity<Own>) {
                  return launcher<Own>(
                      static_cast<std::int64_t>(pieces.size()) * ctas_of(problem),
                      Own::arguments(problem, x, static_cast<const Piece*>(workspace),
                                     static_cast<float>(threshold)));
                };
                if constexpr (!std::is_void_v<OfFolded>) {
                  if (x.folded) return launch_of(std::type_identity<OfFolded>());
                }
                return launch_of(std::type_identity<Kernel>());
              },
          .obstacle = "",
          .bound = segments == 1 ? ""
                                 : "drops at most e^" + std::to_string(threshold) +
                                       " of the state before a segment's warm-up"};
}

}  // namespace gdn
