// A worker and the case that lies on it. Both are had anew when one of them is lost, so that what
// an instance does costs its own row alone.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/case.hpp"
#include "src/paired.hpp"
#include "src/worker.hpp"

namespace gdn {

// One row that is wanted.
struct Planned {
  const Case* c;
  const Variant* variant;
  const Instance* instance;
  Scope scope;
  Timing timing;
  std::optional<TunedAs> tuned;    // where --variant tuned means this one
  std::optional<ChosenAs> chosen;  // where --variant auto does
};

Row blank_row(const Planned& planned);
std::string row_key(const Planned& planned);

class Bench {
 public:
  explicit Bench(const WorkerOptions& options);

  const Device& device() const { return device_; }
  const nlohmann::json& of_backend() const { return of_backend_; }
  const nlohmann::json& build() const { return build_; }

  void start_anew();  // with a fresh process
  // Lays a case out before something is asked of it: what goes wrong shows then.
  void lay_out_ahead(const Case& c);

  // These never throw for what an instance does: the row says it.
  Row measure(const Planned& planned);

  // An instance that stays checked and warm (Workbench::open), as long as nothing goes wrong on
  // this bench: a death of the worker, or another case, ends all stands.
  class Stand {
   public:
    bool stands() const { return bench_ != nullptr && epoch_ == bench_->epoch_; }
    const Row& row() const { return row_; }  // without a time
    // Some samples; none where something went wrong, which the row then says.
    std::vector<double> take();
    // Checks once more: afterwards the row may not pass any more.
    void check();
    void close();  // the same, and ends it

   private:
    friend class Bench;
    Bench* bench_ = nullptr;
    void settle(bool ends);

    std::uint64_t epoch_ = 0;
    int number_ = 0;
    Row row_;
  };
  Stand open(const Planned& planned);

 private:
  void lay_out(const Case& c);
  template <class Ask>
  Row attempt(Row row, const Case& c, Ask ask);
  void forget_case();

  WorkerOptions options_;
  std::unique_ptr<Worker> worker_;
  Device device_;
  nlohmann::json of_backend_, build_;
  std::optional<Case> laid_out_;
  std::string input_hash_;
  std::uint64_t epoch_ = 0;  // counts what ended all stands
};

}  // namespace gdn
