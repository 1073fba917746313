#include "src/bench.hpp"

#include <utility>

#include "src/error.hpp"
#include "src/inputs.hpp"
#include "src/workbench.hpp"

namespace gdn {

Row blank_row(const Planned& planned) {
  return blank_row(*planned.c, *planned.variant, *planned.instance, planned.scope, planned.timing,
                   planned.variant->target);
}

std::string row_key(const Planned& planned) { return row_key(blank_row(planned)); }

Bench::Bench(const WorkerOptions& options)
    : options_(options),
      worker_(std::make_unique<Worker>(options)),
      device_(worker_->device()),
      of_backend_(worker_->of_backend()),
      build_(worker_->build()) {}

void Bench::start_anew() {
  worker_.reset();
  forget_case();
}

void Bench::forget_case() {
  laid_out_.reset();
  ++epoch_;
}

void Bench::lay_out(const Case& c) {
  if (!worker_) worker_ = std::make_unique<Worker>(options_);
  if (laid_out_ == c) return;
  forget_case();
  input_hash_.clear();
  input_hash_ = worker_->load(c);
  laid_out_ = c;
}

void Bench::lay_out_ahead(const Case& c) {
  if (!too_large(c.problem, device_.memory_bytes).empty()) return;
  try {
    lay_out(c);
  } catch (const WorkerDied&) {
    start_anew();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception&) {
  }
}

// The row that `ask` gives, or `row` with what went wrong.
template <class Ask>
Row Bench::attempt(Row row, const Case& c, Ask ask) {
  if (row.reason = too_large(c.problem, device_.memory_bytes); !row.reason.empty()) {
    row.status = Status::skipped;
    return row;
  }
  try {
    lay_out(c);
    row.input_hash = input_hash_;
    row = ask();
    // What went wrong may have written anywhere, and an error of the device sticks: the next row
    // gets a fresh case, and after a failure a fresh worker.
    if (row.status == Status::failed) start_anew();
    if (row.status == Status::incorrect) forget_case();
  } catch (const WorkerDied& e) {
    give_up(row, Status::failed, e.what());
    start_anew();
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& e) {
    give_up(row, Status::failed, e.what());
  }
  return row;
}

Row Bench::measure(const Planned& planned) {
  return attempt(blank_row(planned), *planned.c, [&] {
    return worker_->measure(blank_row(planned).variant, planned.scope, planned.timing);
  });
}

Bench::Stand Bench::open(const Planned& planned) {
  Stand stand;
  stand.row_ = attempt(blank_row(planned), *planned.c, [&] {
    const Workbench::Opened opened =
        worker_->open_stand(blank_row(planned).variant, planned.scope, planned.timing);
    if (opened.number) {
      stand.bench_ = this;
      stand.number_ = *opened.number;
    }
    return opened.row;
  });
  stand.epoch_ = epoch_;
  return stand;
}

std::vector<double> Bench::Stand::take() {
  std::vector<double> samples;
  if (!stands()) return samples;
  try {
    samples = bench_->worker_->take(number_);
    if (samples.empty()) close();
  } catch (const std::exception& e) {
    give_up(row_, Status::failed, e.what());
    bench_->start_anew();
  }
  return samples;
}

void Bench::Stand::check() { settle(false); }

void Bench::Stand::close() {
  settle(true);
  bench_ = nullptr;
}

void Bench::Stand::settle(bool ends) {
  if (!stands()) return;
  try {
    row_ = bench_->worker_->settle(number_, ends);
    if (row_.status == Status::failed) bench_->start_anew();
    if (row_.status == Status::incorrect) bench_->forget_case();
  } catch (const std::exception& e) {
    give_up(row_, Status::failed, e.what());
    bench_->start_anew();
  }
}

}  // namespace gdn
