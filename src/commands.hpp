// The commands of the tool. Each returns its exit code and throws UserError for what the user can
// mend.
#pragma once

#include "src/options.hpp"

namespace gdn {

int run(const RunOptions& options);
int tune(const TuneOptions& options);
int list(const ListOptions& options);
int inputs(const InputsOptions& options);
int compare(const CompareCommand& command);
int profile(const ProfileOptions& options);
int doctor(const DoctorOptions& options);
int report(const ReportCommand& command);
int wisdom(const WisdomCommand& command);
int merge(const MergeCommand& command);

}  // namespace gdn
