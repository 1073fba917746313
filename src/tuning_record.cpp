#include "src/tuning_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>

#include "src/error.hpp"
#include "src/report/json_field.hpp"
#include "src/report/json_text.hpp"
#include "src/wisdom.hpp"

namespace gdn {

void require_next(const Field& first, std::size_t before) {
  if (first.count<std::size_t>() == before) return;
  first.refuse(fmt::format(
      "{} is wanted, as many samples as stand before it; an answer is missing or stands twice",
      before));
}

namespace {

constexpr std::array statuses = {Status::passed, Status::incorrect, Status::failed,
                                 Status::skipped};

constexpr JsonKind record_file = {.name = "a tuning record",
                                  .when_cut = "give the file that `tune --record` wrote"};

std::string line_of(const Json& json) { return dump(json) + '\n'; }

Json with_flags(Json line, const std::vector<std::string>& flags) {
  if (!flags.empty()) line["flags"] = flags;
  return line;
}

std::vector<std::string> flags_in(const Field& line) {
  const Field flags = line["flags"];
  return flags.given() ? flags.names() : std::vector<std::string>();
}

Json json_of(const Json& problem, const Answer& answer) {
  const Json line = {{"problem", problem},
                     {"candidate", answer.candidate},
                     {"status", name_of(answer.status)},
                     {"reason", answer.reason},
                     {"first", answer.first},
                     {"samples_s", answer.samples_s},
                     {"setup_s", answer.setup_s},
                     {"sampling_s", answer.sampling_s},
                     {"seconds", answer.seconds}};
  return with_flags(line, answer.flags);
}

Json json_of(const Json& problem, const Meeting& meeting) {
  Json lost = Json::array();
  for (const Loser& loser : meeting.lost)
    lost.push_back({{"candidate", loser.candidate},
                    {"status", name_of(loser.status)},
                    {"reason", loser.reason}});
  const Json line = {{"problem", problem},
                     {"a", meeting.a},
                     {"b", meeting.b},
                     {"a_s", meeting.pairs.a_s},
                     {"b_s", meeting.pairs.b_s},
                     {"seconds", meeting.seconds},
                     {"lost", lost}};
  return with_flags(line, meeting.flags);
}

std::vector<double> times_in(const Field& field) {
  std::vector<double> times = field.quantities();
  if (std::ranges::any_of(times, [](double time) { return time <= 0; }))
    field.refuse("times above 0 are wanted");
  return times;
}

Answer answer_from(const Field& line) {
  Answer answer = {.candidate = line["candidate"].text(),
                   .status = line["status"].one_of(statuses),
                   .reason = line["reason"].text(),
                   .first = line["first"].count<std::size_t>(),
                   .samples_s = times_in(line["samples_s"]),
                   .flags = flags_in(line),
                   .setup_s = line["setup_s"].quantity(),
                   .sampling_s = line["sampling_s"].quantity()};
  const Field seconds = line["seconds"];  // older records have none
  answer.seconds = seconds.given() ? seconds.quantity() : answer.setup_s + answer.sampling_s;
  return answer;
}

Meeting meeting_from(const Field& line) {
  Meeting meeting = {.a = line["a"].text(),
                     .b = line["b"].text(),
                     .pairs = {times_in(line["a_s"]), times_in(line["b_s"])},
                     .seconds = line["seconds"].quantity(),
                     .lost = {},
                     .flags = flags_in(line)};
  if (meeting.pairs.a_s.size() != meeting.pairs.b_s.size())
    line["b_s"].refuse("as many as in a_s are wanted");
  for (const Field& loser : line["lost"].items())
    meeting.lost.push_back(
        {loser["candidate"].text(), loser["status"].one_of(statuses), loser["reason"].text()});
  return meeting;
}

RecordedProblem& problem_in(TuningRecord& record, const Json& problem) {
  const auto known = std::ranges::find(record.problems, problem, &RecordedProblem::problem);
  if (known != record.problems.end()) return *known;
  record.problems.push_back({.problem = problem, .answers = {}, .meetings = {}});
  return record.problems.back();
}

std::size_t samples_of(const RecordedProblem& problem, const std::string& candidate) {
  std::size_t samples = 0;
  for (const Answer& answer : problem.answers)
    if (answer.candidate == candidate) samples += answer.samples_s.size();
  return samples;
}

void read_line(const Field& line, TuningRecord& record) {
  if (line["finished"].given()) {
    problem_in(record, line["finished"].object().raw()).finished = true;
    return;
  }
  RecordedProblem& problem = problem_in(record, line["problem"].object().raw());
  if (!line["candidate"].given()) {
    problem.meetings.push_back(meeting_from(line));
    return;
  }
  Answer answer = answer_from(line);
  require_next(line["first"], samples_of(problem, answer.candidate));
  problem.answers.push_back(std::move(answer));
}

void read_header(const Field& line, TuningRecord& record) {
  if (const std::string schema = line["schema"].text(); schema != record_schema)
    line["schema"].refuse(fmt::format("{} is wanted and not {}", record_schema, schema));
  if (const Field at = line["measured_at"]; at.given()) {
    if (!is_time_stamp(at.text())) at.refuse("a time like 2025-11-29T20:40:58Z is wanted");
    record.measured_at = at.text();
  }
  record.fingerprint = line["fingerprint"].object().raw();
  const Field options = line["options"].object();
  record.options = options.raw();
  record.candidates = options["candidates"].names();
  options["variant"].names();  // refuses what a resume or a merge would stumble over
}

void add(Evaluation& evaluation, const Answer& answer) {
  evaluation.status = answer.status;
  evaluation.reason = answer.reason;
  std::ranges::copy(answer.samples_s, std::back_inserter(evaluation.samples_s));
  add_flags(answer.flags, evaluation.flags);
  evaluation.setup_s += answer.setup_s;
  evaluation.sampling_s += answer.sampling_s;
}

// What a line is to say of its own samples: not what was wrong with earlier ones.
std::vector<std::string> new_flags(const Evaluation& now, const Evaluation& before) {
  std::vector<std::string> flags;
  for (const std::string& flag : now.flags)
    if (std::ranges::find(before.flags, flag) == before.flags.end()) flags.push_back(flag);
  return flags;
}

void give_up(Evaluation& evaluation, const Loser& loser) {
  evaluation.status = loser.status;
  evaluation.reason = loser.reason;
}

// A merge may have put the candidates into another order.
Json with_set_of_candidates(Json options) {
  Json& candidates = options.at("candidates");
  candidates = candidates.get<std::set<std::string>>();
  return options;
}

class Recording : public Evaluator {
 public:
  Recording(Evaluator& inner, RecordFile& file, Json problem)
      : inner_(inner), file_(file), problem_(std::move(problem)) {
    RecordedProblem before = file.known_of(problem_);
    answers_ = std::move(before.answers);
    meetings_ = std::move(before.meetings);
  }

  const Evaluation& evaluate(const std::string& candidate, std::size_t samples) override {
    Known& known = known_[candidate];
    const std::size_t there = known.so_far.samples_s.size();
    if (known.so_far.status != Status::passed || there >= samples) return known.so_far;
    const auto recorded = std::ranges::find(answers_, candidate, &Answer::candidate);
    Answer answer;
    if (recorded != answers_.end()) {
      answer = std::move(*recorded);
      answers_.erase(recorded);
    } else {
      answer = measured(candidate, known, samples - there);
      file_.append(problem_, answer);
    }
    add(known.so_far, answer);
    spent_s_ += answer.seconds;
    return known.so_far;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
             double noise_floor) override {
    const auto recorded = std::ranges::find_if(
        meetings_, [&](const Meeting& meeting) { return meeting.a == a && meeting.b == b; });
    Meeting meeting;
    if (recorded != meetings_.end()) {
      meeting = std::move(*recorded);
      meetings_.erase(recorded);
    } else {
      meeting = measured(a, b, plan, noise_floor);
      file_.append(problem_, meeting);
    }
    for (const Loser& loser : meeting.lost) give_up(known_[loser.candidate].so_far, loser);
    for (const std::string& candidate : {a, b})
      add_flags(meeting.flags, known_[candidate].so_far.flags);
    spent_s_ += meeting.seconds;
    return std::move(meeting.pairs);
  }

  double spent_s() const override { return spent_s_; }

 private:
  struct Known {
    Evaluation so_far;                   // as handed out
    std::size_t taken = 0;               // samples that the inner evaluator has given
    double setup_s = 0, sampling_s = 0;  // and what it had spent on the candidate by then
  };

  Answer measured(const std::string& candidate, Known& known, std::size_t more) {
    const double before_s = inner_.spent_s();
    const Evaluation& now = inner_.evaluate(candidate, known.taken + more);
    Answer answer = {.candidate = candidate,
                     .status = now.status,
                     .reason = now.reason,
                     .first = known.so_far.samples_s.size(),
                     .samples_s = {},
                     .flags = new_flags(now, known.so_far),
                     .setup_s = now.setup_s - known.setup_s,
                     .sampling_s = now.sampling_s - known.sampling_s,
                     .seconds = inner_.spent_s() - before_s};
    std::ranges::copy(now.samples_s.begin() + static_cast<std::ptrdiff_t>(known.taken),
                      now.samples_s.end(), std::back_inserter(answer.samples_s));
    known.taken = now.samples_s.size();
    known.setup_s = now.setup_s;
    known.sampling_s = now.sampling_s;
    return answer;
  }

  Meeting measured(const std::string& a, const std::string& b, const PairPlan& plan,
                   double noise_floor) {
    const double before_s = inner_.spent_s();
    Meeting meeting = {
        .a = a, .b = b, .pairs = inner_.pair(a, b, plan, noise_floor), .lost = {}, .flags = {}};
    meeting.seconds = inner_.spent_s() - before_s;
    for (const std::string& candidate : {a, b}) {
      const Evaluation& now = inner_.evaluate(candidate, 0);
      add_flags(new_flags(now, known_[candidate].so_far), meeting.flags);
      if (meeting.pairs.a_s.empty() && now.status != Status::passed)
        meeting.lost.push_back({candidate, now.status, now.reason});
    }
    return meeting;
  }

  Evaluator& inner_;
  RecordFile& file_;
  Json problem_;
  std::vector<Answer> answers_;  // of the record, not yet handed out
  std::vector<Meeting> meetings_;
  std::map<std::string, Known> known_;
  double spent_s_ = 0;
};

class Replay : public Evaluator {
 public:
  explicit Replay(const RecordedProblem& record)
      : whole_(record.evaluations()), meetings_(record.meetings) {}

  const Evaluation& evaluate(const std::string& candidate, std::size_t samples) override {
    const auto recorded = whole_.find(candidate);
    Evaluation& known = known_[candidate];
    if (recorded == whole_.end()) {
      known.status = Status::skipped;
      known.reason = "not in the record";
      return known;
    }
    const Evaluation& whole = recorded->second;
    const double before_s = known.setup_s + known.sampling_s;
    known.status = whole.status;
    known.reason = whole.reason;
    known.flags = whole.flags;
    known.setup_s = whole.setup_s;
    if (whole.status == Status::passed)
      hand_out(whole, samples, known);
    else
      known.sampling_s = whole.sampling_s;
    spent_s_ += known.setup_s + known.sampling_s - before_s;
    return known;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan&, double) override {
    for (const Meeting& meeting : meetings_) {
      if (meeting.pairs.a_s.empty()) continue;
      const bool same = meeting.a == a && meeting.b == b;
      if (!same && !(meeting.a == b && meeting.b == a)) continue;
      spent_s_ += meeting.seconds;
      return same ? meeting.pairs : Pairs{meeting.pairs.b_s, meeting.pairs.a_s};
    }
    return made_of_samples(a, b);
  }

  double spent_s() const override { return spent_s_; }

 private:
  static void hand_out(const Evaluation& whole, std::size_t samples, Evaluation& known) {
    const std::size_t n =
        std::max(known.samples_s.size(), std::min(samples, whole.samples_s.size()));
    known.samples_s.assign(whole.samples_s.begin(),
                           whole.samples_s.begin() + static_cast<std::ptrdiff_t>(n));
    known.sampling_s = cost_of(whole, n);
  }

  static double cost_of(const Evaluation& whole, std::size_t samples) {
    if (whole.samples_s.empty()) return whole.sampling_s;
    return whole.sampling_s * static_cast<double>(samples) /
           static_cast<double>(whole.samples_s.size());
  }

  Pairs made_of_samples(const std::string& a, const std::string& b) {
    const Evaluation& of_a = whole_.at(a);
    const Evaluation& of_b = whole_.at(b);
    Pairs pairs;
    if (a == b) {
      for (std::size_t i = 0; i + 1 < of_a.samples_s.size(); i += 2) {
        pairs.a_s.push_back(of_a.samples_s[i]);
        pairs.b_s.push_back(of_a.samples_s[i + 1]);
      }
      spent_s_ += cost_of(of_a, 2 * pairs.a_s.size());
      return pairs;
    }
    const std::size_t n = std::min(of_a.samples_s.size(), of_b.samples_s.size());
    pairs.a_s.assign(of_a.samples_s.begin(),
                     of_a.samples_s.begin() + static_cast<std::ptrdiff_t>(n));
    pairs.b_s.assign(of_b.samples_s.begin(),
                     of_b.samples_s.begin() + static_cast<std::ptrdiff_t>(n));
    spent_s_ += cost_of(of_a, n) + cost_of(of_b, n);
    return pairs;
  }

  std::map<std::string, Evaluation> whole_;  // by candidate: all that the record has
  std::vector<Meeting> meetings_;
  std::map<std::string, Evaluation> known_;  // and what was handed out
  double spent_s_ = 0;
};

}  // namespace

Json to_json(const TuningProblem& problem) {
  const Problem& shape = problem.c.problem;
  Json lengths = Json::array();
  for (int sequence = 0; sequence < shape.sequences(); ++sequence)
    lengths.push_back(shape.length(sequence));
  return {{"case", problem.c.name},
          {"lengths", lengths},
          {"query_heads", shape.query_heads},
          {"value_heads", shape.value_heads},
          {"initial_state", shape.initial_state},
          {"gates", name_of(problem.c.recipe.gates)},
          {"beta_max", problem.c.recipe.beta_max},
          {"seed", problem.c.recipe.seed},
          {"scope", name_of(problem.scope)},
          {"timing", name_of(problem.timing)}};
}

TuningProblem problem_from_json(const Json& json) {
  const Field field(json, "problem");
  TuningProblem problem;
  problem.c.name = field["case"].text();
  if (problem.c.name.empty()) field["case"].refuse("a name is wanted");
  Problem& shape = problem.c.problem;
  std::int64_t tokens = 0;
  for (const Field& length : field["lengths"].items()) {
    tokens += length.count<std::int32_t>();
    if (tokens > std::numeric_limits<std::int32_t>::max()) length.refuse("too many tokens in all");
    shape.offsets.push_back(static_cast<std::int32_t>(tokens));
  }
  if (tokens == 0) field["lengths"].refuse("a token is wanted at least");
  shape.query_heads = field["query_heads"].count<int>();
  shape.value_heads = field["value_heads"].count<int>();
  if (shape.query_heads < 1) field["query_heads"].refuse("a head is wanted at least");
  if (shape.value_heads < 1 || shape.value_heads % shape.query_heads != 0)
    field["value_heads"].refuse("a multiple of query_heads is wanted");
  shape.initial_state = field["initial_state"].truth();
  Recipe& recipe = problem.c.recipe;
  const auto gates = std::ranges::find(gates_names, field["gates"].text());
  if (gates == gates_names.end()) field["gates"].refuse("no profile of gates");
  recipe.gates = static_cast<Gates>(gates - gates_names.begin());
  recipe.beta_max = field["beta_max"].count<int>();
  recipe.seed = field["seed"].count<std::uint64_t>();
  problem.scope = field["scope"].one_of(std::array{Scope::core, Scope::forward});
  problem.timing =
      field["timing"].one_of(std::array{Timing::cold, Timing::hot, Timing::graph, Timing::lab});
  return problem;
}

std::map<std::string, Evaluation> RecordedProblem::evaluations() const {
  std::map<std::string, Evaluation> all;
  for (const Answer& answer : answers) add(all[answer.candidate], answer);
  for (const Meeting& meeting : meetings) {
    for (const Loser& loser : meeting.lost) give_up(all[loser.candidate], loser);
    for (const std::string& candidate : {meeting.a, meeting.b})
      if (const auto known = all.find(candidate); known != all.end())
        add_flags(meeting.flags, known->second.flags);
  }
  return all;
}

RecordedProblem TuningRecord::of(const Json& problem) const {
  const auto known = std::ranges::find(problems, problem, &RecordedProblem::problem);
  if (known != problems.end()) return *known;
  return {.problem = problem, .answers = {}, .meetings = {}};
}

TuningRecord read_record(const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 30;
  const std::string text = read_text(path, most_bytes, "the record of a `tune --record`");
  TuningRecord record;
  std::size_t line_number = 0;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    ++line_number;
    const std::string_view line(text.data() + at, end - at);
    const Json json = parse_json(line, path, record_file, line_number);
    try {
      if (line_number == 1)
        read_header(Field(json), record);
      else
        read_line(Field(json), record);
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}:{}: {}; give the file that `tune --record` wrote", path,
                                  line_number, e.what()));
    }
    record.whole_bytes = end + 1;
  }
  if (line_number == 0)
    throw UserError(path + ": has no whole line; remove it, and start anew with --record");
  return record;
}

RecordFile RecordFile::create(const std::string& path, const Json& fingerprint,
                              const Json& options) {
  RecordFile record(path, true);
  if (record.file_.size() > 0)
    throw UserError(fmt::format(
        "{0}: is there already; go on with --resume {0}, remove it, or choose another --record",
        path));
  record.file_.append(line_of({{"schema", record_schema},
                               {"measured_at", utc_now()},
                               {"fingerprint", fingerprint},
                               {"options", options}}));
  return record;
}

RecordFile RecordFile::reopen(const std::string& path) {
  RecordFile record(path, false);
  record.before_ = read_record(path);
  return record;
}

void RecordFile::go_on(const Json& fingerprint, const Json& options) {
  std::string changed = first_difference(before_.fingerprint, fingerprint, "fingerprint");
  if (changed.empty())
    changed = first_difference(with_set_of_candidates(before_.options),
                               with_set_of_candidates(options), "options");
  if (!changed.empty())
    throw UserError(fmt::format(
        "--resume {}: it belongs to another search: {}; use the build, device, cases and spaces it "
        "was started with, or start anew",
        file_.path(), changed));
  file_.cut(before_.whole_bytes);
}

RecordedProblem RecordFile::known_of(const Json& problem) const {
  const std::lock_guard lock(*mutex_);
  return before_.of(problem);
}

void RecordFile::append(const Json& problem, const Answer& answer) {
  const std::lock_guard lock(*mutex_);
  file_.append(line_of(json_of(problem, answer)));
}

void RecordFile::append(const Json& problem, const Meeting& meeting) {
  const std::lock_guard lock(*mutex_);
  file_.append(line_of(json_of(problem, meeting)));
}

void RecordFile::finish(const Json& problem) {
  const std::lock_guard lock(*mutex_);
  RecordedProblem& known = problem_in(before_, problem);
  if (!known.finished) file_.append(line_of({{"finished", problem}}));
  known.finished = true;
}

std::unique_ptr<Evaluator> recording_evaluator(Evaluator& inner, RecordFile& file,
                                               const Json& problem) {
  return std::make_unique<Recording>(inner, file, problem);
}

std::unique_ptr<Evaluator> replay_evaluator(const RecordedProblem& record) {
  return std::make_unique<Replay>(record);
}

}  // namespace gdn
