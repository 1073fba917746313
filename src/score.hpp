// The points of the lab that the operator's exercise came from, for users who came from it.
#pragma once

#include <optional>
#include <string>

#include "src/result.hpp"

namespace gdn {

struct LabScore {
  double points = 0;
  bool estimated = false;  // below 60 the lab's curve starts at an unpublished time
};

// Points of a core row in `lab` timing of one of the lab's eight cases; absent for any other row.
// p = t100/t, p60 = t100/t60: 120 for p >= 2; 100 + 20(p − 1) for 1 < p < 2;
// 60 + 40(e^{1.5u} − 1)/(e^{1.5} − 1), u = (p − p60)/(1 − p60), for p60 < p <= 1; 60·p/p60 below.
std::optional<LabScore> lab_score(const Row& row);
LabScore lab_points(double t_s, double t60_s, double t100_s);

// A line a variant: points of each case and their mean; or why there are none.
std::string lab_summary(const Report& report);

}  // namespace gdn
