// The instances of CUDA variants as parameters of tests on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/variant.hpp"

namespace gdn::test {

struct Rung {
  std::string id;
  Instance instance;
};

inline void PrintTo(const Rung& rung, std::ostream* out) { *out << rung.id; }

// Those that can be had, and of which `is_tried`.
inline std::vector<Rung> rungs_of(
    std::initializer_list<Variant (*)()> variants,
    const std::function<bool(const Instance&)>& is_tried = [](const Instance&) { return true; }) {
  std::vector<Rung> all;
  for (const auto& make : variants) {
    const Variant variant = make();
    for (const Instance& instance : variant.instances)
      if (instance.obstacle.empty() && is_tried(instance))
        all.push_back({variant_id(variant, instance), instance});
  }
  return all;
}

// "register_state_form_w_stages_2_value_width_128"
inline std::string rung_name(const testing::TestParamInfo<Rung>& info) {
  std::string name;
  for (const char c : info.param.id)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace gdn::test
