// Several files of one kind as one: what shards of a search or a run wrote is put together.
#pragma once

#include <string>
#include <vector>

namespace gdn {

struct NamedText {
  std::string path;  // for errors
  std::string text;
};

// Wisdom files of one device, tuning records, or results of `run --json` (also journals), told
// apart by their schema. What several files say in the same words stands there once.
// Throws UserError for files of different kinds, devices or builds, for records of different
// spaces, for one that cannot be read, and where two files say different things of the same problem
// or row: both places are named, and nothing is taken in silence. With `newer` the later file
// counts in that place.
//   wisdom   an entry a problem
//   records  all lines about a problem come from one file; the header is the first file's, with
//            the candidates of all
//   results  rows by row_key; a case has the same inputs everywhere. Fingerprint and options keep
//            what the files agree on
std::string merged(const std::vector<NamedText>& files, bool newer);

}  // namespace gdn
