// What the finished program does to files, streams and signals, and to what is typed.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "src/error.hpp"
#include "src/file.hpp"
#include "src/inputs.hpp"
#include "src/result.hpp"
#include "src/safetensors.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::chunked;
using test::each_first;
using test::Ended;
using test::expect_refused;
using test::faulty_tool;
using test::Folder;
using test::has;
using test::names_in;
using test::on_terminal;
using test::Process;
using test::read_file;
using test::run_arguments;
using test::run_program;
using test::run_shell;
using test::tool;
using test::write_text;

constexpr const char* mine =
    "name: mine\ntokens: 3\nquery_heads: 1\nvalue_heads: 1\ninitial_state: false\ngates: zero\n";
constexpr const char* huge =
    "name: huge\ntokens: 16777216\nquery_heads: 1024\nvalue_heads: 1024\ninitial_state: false\n"
    "gates: zero\n";

template <class Act>
std::string refusal_of(const Act& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// The journal as a kill after its first rows would have left it.
void unfinish(const std::string& journal, int rows) {
  write_text(journal, test::first_lines(read_file(journal), 1 + rows));
}

TEST(WriteFile, GoesWhereLinksLeadAndKeepsTheMode) {
  Folder folder;
  write_text(folder / "real", "old");
  fs::permissions(folder / "real", fs::perms(0600));
  fs::create_symlink("real", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_EQ(read_file(folder / "real"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(fs::status(folder / "real").permissions(), fs::perms(0600));

  fs::create_symlink("not_yet", folder / "dangling");
  write_file(folder / "dangling", "there");
  EXPECT_EQ(read_file(folder / "not_yet"), "there");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  const std::string longest = folder / std::string(255, 'n');
  write_file(longest, "long");
  EXPECT_EQ(read_file(longest), "long");
  EXPECT_EQ(names_in(folder.path()).size(), 5u);  // no temporary is left
}

TEST(WriteFile, HandsBytesToPipesAndDevices) {
  Folder folder;
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const Descriptor reader(open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK));
  write_file(folder / "fifo", "bytes");
  char bytes[8] = {};
  EXPECT_EQ(read(reader.get(), bytes, sizeof bytes), 5);
  EXPECT_STREQ(bytes, "bytes");
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
  EXPECT_HAS(refusal_of([] { write_file("/dev/full", "x"); }), "No space left");
}

TEST(WriteFile, KeepsWhatIsReadOnly) {
  Folder folder;
  write_text(folder / "kept", "old");
  fs::permissions(folder / "kept", fs::perms(0444));
  EXPECT_HAS(refusal_of([&] { write_file(folder / "kept", "new"); }), "read-only");
  EXPECT_EQ(read_file(folder / "kept"), "old");
  expect_refused(run_shell(folder, "$RUN --json kept"), "kept: is read-only");
  expect_refused(run_shell(folder, "$RUN --csv ."), "is a folder");
  expect_refused(run_shell(folder, "$RUN --csv kept/x"), "kept/x");
}

TEST(WriteFile, LeavesNothingBehindWhenTheDiskIsFull) {
  Folder folder;
  const Ended ended = run_shell(
      folder, "ulimit -f 8; $T inputs --case edge_lengths:tokens=64 --output in.safetensors");
  expect_refused(ended, "in.safetensors: cannot be written (File too large)");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"stderr.txt", "stdout.txt"}));
}

TEST(WriteFile, ThatIsKilledLeavesTheOldFileAndNoOther) {
  Folder folder;
  write_text(folder / "kept", "old");
  if (Descriptor(open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600)).get() < 0)
    GTEST_SKIP() << "this file system has no files without a name";
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{1 << 16, 1 << 16}, none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &limit);
    write_file(folder / "kept", std::string(1 << 20, 'x'));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"kept"});
  EXPECT_EQ(read_file(folder / "kept"), "old");
}

TEST(Outputs, OverwriteNeitherInputsNorEachOther) {
  Folder folder;
  ASSERT_EQ(run_shell(folder,
                      "$RUN --json a.json && cp a.json b.json && ln -s a.json link && "
                      "ln a.json hard && mkdir d && "
                      "$T inputs --case edge_lengths:tokens=1 -o in.st")
                .exit_code,
            0);
  write_text(folder / "t.yaml", mine);
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"$T run --inputs in.st --json in.st", "would overwrite --inputs"},
           {"$T run --inputs ./in.st --csv d/../in.st", "would overwrite --inputs"},
           {"$T run --case ./t.yaml --markdown t.yaml", "would overwrite --case"},
           {"$T inputs --case t.yaml -o t.yaml", "would overwrite --case"},
           {"GDNBENCH_CASES=. $T inputs --case mine -o t.yaml", "would overwrite --case"},
           {"$T compare a.json b.json --markdown a.json", "would overwrite BASE"},
           {"$T compare a.json b.json --junit link", "would overwrite BASE"},
           {"$T compare a.json b.json --junit hard", "would overwrite BASE"},
           {"$T compare a.json b.json --junit x --markdown x", "the same file"},
           {"$T compare a.json b.json --junit - --markdown -", "standard output"},
           {"$T report a.json --markdown a.json", "would overwrite FILE"},
           {"$RUN --json same --csv same", "the same file"},
           {"$RUN --json s --csv s.jsonl", "the same file"},
           {"$RUN --json - --csv -", "standard output"},
           {"$RUN --json - --csv /dev/stdout", "standard output"}}) {
    std::map<std::string, std::string> before;
    for (const char* name : {"a.json", "b.json", "in.st", "t.yaml"})
      before[name] = read_file(folder / name);
    expect_refused(run_shell(folder, line), message);
    for (const auto& [name, text] : before) EXPECT_EQ(read_file(folder / name), text) << line;
  }
  EXPECT_FALSE(fs::exists(folder / "same"));
  EXPECT_EQ(run_shell(folder, "$RUN --json /dev/null --csv /dev/null").exit_code, 0);
  EXPECT_FALSE(fs::exists("/dev/null.jsonl"));
  EXPECT_EQ(json::parse(run_shell(folder, "$RUN --json /dev/stdout").out)["results"].size(), 1u);
}

// A report makes everything before it writes anything, and reads no document from a pipe.
TEST(Files, AReportThatIsRefusedLeavesNothing) {
  Folder folder;
  ASSERT_EQ(run_shell(folder, "$RUN --timing hot --json r.json").exit_code, 0);
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"$T report r.json --csv x --markdown y --knobs z --timing hot --beside none", "none"},
           {"$T report r.json --csv x --markdown y --knobs z --timing graph",
            "give other results, --scope or --timing"},
           {"$T report r.json --csv x --beside r.json", "give that, too"},
           {"$T report r.json --csv x --knobs z --timing hot --beside copy", "two of the files"},
           {"mkfifo p; $T report r.json --ladder p --timing hot", "--ladder p: give the file"}}) {
    write_text(folder / "copy", read_file(folder / "r.json"));
    expect_refused(run_shell(folder, line), message);
    for (const char* name : {"x", "y", "z"}) EXPECT_FALSE(fs::exists(folder / name)) << line;
  }
}

// A journal that asks for what the command line would refuse, or that another build wrote.
TEST(Files, AJournalIsHeldToTheSameLimits) {
  Folder folder;
  ASSERT_EQ(run_shell(folder, "$RUN --timing hot --json r.json").exit_code, 0);
  const std::string journal = read_file(folder / "r.json.jsonl");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = journal;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_text(folder / "j.jsonl", text.replace(at, from.size(), to));
    return run_shell(folder, "$T run --resume j.jsonl --json j.json");
  };
  expect_refused(with("\"rounds\":1,", "\"rounds\":0,"), "its number of rounds");
  expect_refused(with("\"rounds\":1,", "\"rounds\":101,"), "its number of rounds");
  expect_refused(with("\"batch\":1,", "\"batch\":0,"), "its batch");
  expect_refused(with("\"timing\":[\"hot\"]", "\"timing\":[]"), "no scope or timing");
  expect_refused(with("\"rounds\":1,", ""), "belongs to another run");
}

// Waits for the first rows; nothing within 30 s is a failure.
void wait_for_line(const std::string& path) {
  for (int i = 0; i < 3000 && !has(read_file(path), "\n"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(Journal, HasOneWriter) {
  Folder folder;
  Process first(folder, faulty_tool,
                run_arguments({"--case", "edge_lengths:tokens=1", "--scope", "core", "--variant",
                               "hangs", "--deadline", "100", "--json", "r.json"}));
  wait_for_line(folder / "r.json.jsonl");
  const std::string before = read_file(folder / "r.json.jsonl");
  expect_refused(run_shell(folder, "$RUN --json r.json"), "another run is writing it");
  expect_refused(run_shell(folder, "$T run --resume r.json.jsonl"), "another run is writing it");
  EXPECT_EQ(read_file(folder / "r.json.jsonl"), before);
  first.kill_now();
  first.wait();
}

// A run that was killed may leave a child behind for a moment, which still has the lock.
TEST(Journal, IsWaitedForAMoment) {
  Folder folder;
  ASSERT_EQ(run_shell(folder, "$RUN --json r.json").exit_code, 0);
  const int lock = open((folder / "r.json.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  Process resumed(folder, tool, {"run", "--resume", "r.json.jsonl"});
  while (!resumed.has_open(folder / "r.json.jsonl") && !resumed.has_ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  close(lock);
  const Ended ended = resumed.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST(Journal, IsARegularFile) {
  Folder folder;
  ASSERT_EQ(mkfifo((folder / "r.json.jsonl").c_str(), 0600), 0);
  expect_refused(run_shell(folder, "$RUN --json r.json"), "not a regular file");
  expect_refused(run_shell(folder, "$T run --resume r.json.jsonl"), "not a regular file");
  expect_refused(run_shell(folder, "$T run --resume ."), "cannot be written");
}

TEST(Journal, AForeignOrTornOneIsNoDeadEnd) {
  Folder folder;
  for (const char* text : {"dear diary\n", "{\"schema\":\"gdnbench/1\",\"finge"}) {
    write_text(folder / "r.json.jsonl", text);
    expect_refused(run_shell(folder, "$RUN --json r.json"), "remove it, or choose another --json");
    EXPECT_EQ(read_file(folder / "r.json.jsonl"), text);
    expect_refused(run_shell(folder, "$T run --resume r.json.jsonl"), "start anew");
  }
}

TEST(Resume, RefusesACaseThatHasChanged) {
  Folder folder;
  write_text(folder / "t.yaml", mine);
  const std::string run =
      std::string("$T run --variant '") + each_first +
      "' --backend cpu --timeout 2 --max-noise 1000 --case t.yaml --json r.json";
  ASSERT_EQ(run_shell(folder, run).exit_code, 0);
  unfinish(folder / "r.json.jsonl", 2);
  const std::string journal = read_file(folder / "r.json.jsonl");
  write_text(folder / "t.yaml", std::string(mine) + "seed: 7\n");
  const Ended ended = run_shell(folder, "$T run --resume r.json.jsonl");
  expect_refused(ended, "cases: mine was \"seed: 1\" and is \"seed: 7\"");
  EXPECT_EQ(read_file(folder / "r.json.jsonl"), journal);
  // The same case goes on, from any folder.
  write_text(folder / "t.yaml", mine);
  fs::create_directory(folder / "d");
  EXPECT_EQ(run_shell(folder, "cd d && $T run --resume ../r.json.jsonl").exit_code, 0);
  EXPECT_EQ(read_report(folder / "r.json").rows.size(), 6u);
}

TEST(Resume, RefusesInputsThatHaveChanged) {
  Folder folder;
  ASSERT_EQ(run_shell(folder,
                      "$T inputs --case edge_lengths:tokens=1 -o in.st && "
                      "$T run --backend cpu --timeout 2 --max-noise 1000 --inputs in.st "
                      "--variant recurrent:threads=all --json r.json && mkdir d")
                .exit_code,
            0);
  unfinish(folder / "r.json.jsonl", 1);
  EXPECT_EQ(run_shell(folder, "cd d && $T run --resume ../r.json.jsonl").exit_code, 0);
  unfinish(folder / "r.json.jsonl", 1);
  ASSERT_EQ(run_shell(folder, "$T inputs --case edge_lengths:tokens=1 --seed 9 -o in.st").exit_code,
            0);
  expect_refused(run_shell(folder, "$T run --resume r.json.jsonl"), "cases: file:in was");
}

TEST(Resume, TakesEveryOptionFromTheJournal) {
  Folder folder;
  ASSERT_EQ(
      run_shell(folder, "$RUN --timing lab --dump dumped --score lab --json r.json").exit_code, 0);
  for (const char* option : {"--variant xform", "--timeout 3", "--dump d", "--score lab",
                             "--seed 3", "-c short", "--rounds 2"})
    expect_refused(run_shell(folder, std::string("$T run --resume r.json.jsonl ") + option),
                   "--resume goes on with what the run was asked for: leave --");
  unfinish(folder / "r.json.jsonl", 0);
  fs::remove_all(folder / "dumped");
  const Ended ended = run_shell(folder, "$T run --resume r.json.jsonl --csv r.csv");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "Lab score");
  EXPECT_TRUE(fs::exists(folder / "dumped/edge_lengths:tokens=1." + chunked + ".core.safetensors"));
  EXPECT_HAS(read_file(folder / "r.csv"), "chunked");
}

TEST(Resume, AFinishedJournalStaysAsItIs) {
  Folder folder;
  ASSERT_EQ(run_shell(folder, "$RUN --json r.json").exit_code, 0);
  const std::string journal = read_file(folder / "r.json.jsonl");
  EXPECT_EQ(run_shell(folder, "$T run --resume r.json.jsonl").exit_code, 0);
  EXPECT_EQ(read_file(folder / "r.json.jsonl"), journal);
}

// The measuring lasts until long after the folder of the results is gone.
TEST(Resume, AJournalWhoseResultsWereNotWrittenIsNotOverwritten) {
  Folder folder;
  fs::create_directory(folder / "away");
  fs::create_symlink("away/r.json", folder / "r.json");
  const test::Words arguments =
      run_arguments({"--case", "edge_lengths:tokens=1", "--scope", "core", "--variant",
                     "recurrent,hangs", "--deadline", test::deadline_s, "--json", "r.json"});
  Process process(folder, faulty_tool, arguments);
  wait_for_line(folder / "r.json.jsonl");
  fs::remove(folder / "away");
  expect_refused(process.wait(), "the results are whole in r.json.jsonl");
  const std::string journal = read_file(folder / "r.json.jsonl");

  fs::create_directory(folder / "away");
  expect_refused(run_program(folder, faulty_tool, arguments), "go on with --resume r.json.jsonl");
  EXPECT_EQ(read_file(folder / "r.json.jsonl"), journal);
  EXPECT_EQ(run_program(folder, faulty_tool, {"run", "--resume", "r.json.jsonl"}).exit_code, 2);
  EXPECT_EQ(read_report(folder / "away/r.json").rows.size(), 2u);
  EXPECT_TRUE(read_journal(folder / "r.json.jsonl").finished);
}

TEST(Files, OneThatCannotBeWrittenCostsNoOther) {
  Folder folder;
  expect_refused(run_shell(folder, "$RUN --csv /dev/full --markdown r.md"),
                 "/dev/full: cannot be written");
  EXPECT_HAS(read_file(folder / "r.md"), "chunked");
}

TEST(Streams, AFullStandardOutputIsAnError) {
  Folder folder;
  ASSERT_EQ(run_shell(folder, "$RUN --json r.json").exit_code, 0);
  for (const char* line : {"$RUN", "$RUN --csv -", "$T compare r.json r.json", "$T list cases",
                           "$T report r.json", "$T --help", "$T --version"})
    expect_refused(run_shell(folder, std::string(line) + " >/dev/full"),
                   "standard output: cannot be written: No space left on device");
  EXPECT_EQ(run_shell(folder, "$RUN 2>/dev/full").exit_code, 0);
  EXPECT_EQ(run_shell(folder, "$T rum 2>/dev/full").exit_code, 4);
}

TEST(Streams, ClosedOnesHoldNothingUp) {
  Folder folder;
  for (const char* closed : {"2>&-", ">&-", "<&-", "<&- >&- 2>&-"}) {
    const Ended ended = run_shell(folder, std::string("$RUN --json r.json ") + closed);
    EXPECT_EQ(ended.exit_code, 0) << closed << ended.err;
    EXPECT_EQ(read_report(folder / "r.json").rows.size(), 1u) << closed;
    fs::remove(folder / "r.json");
  }
}

TEST(Streams, AReaderThatLeavesCostsNoResults) {
  Folder folder;
  run_shell(folder, "{ $RUN --json r.json; echo $? >code; } | true");
  EXPECT_EQ(read_file(folder / "code"), "0\n");
  EXPECT_EQ(read_report(folder / "r.json").rows.size(), 1u);
}

TEST(Streams, EscapesAreForTerminalsThatKnowThem) {
  Folder folder;
  const auto run = [&](const std::string& environment, const std::string& program) {
    const Ended ended =
        run_shell(folder, environment + " " + program +
                              " run --backend cpu --timeout 2 --max-noise 1000 --min-samples 6"
                              " --case edge_lengths:tokens=1 --scope core --variant '" +
                              each_first + "'");
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended;
  };
  const Ended able = run("TERM=xterm NO_COLOR=", on_terminal);
  EXPECT_HAS(able.out, "\033[32m");
  EXPECT_HAS(able.err, "\r\033[K[1/3] edge_lengths:tokens=1  recurrent:\r\033[K");  // 39 columns
  EXPECT_FALSE(has(able.err, "passed")) << able.err;
  const Ended plain = run("TERM=xterm NO_COLOR=1", on_terminal);
  EXPECT_FALSE(has(plain.out, "\033")) << plain.out;
  EXPECT_HAS(plain.err, "\r\033[K[1/3] edge_lengths");
  for (const Ended& without :
       {run("TERM=dumb NO_COLOR=", on_terminal), run("TERM= NO_COLOR=", on_terminal),
        run("TERM=xterm NO_COLOR=", tool)}) {
    EXPECT_FALSE(has(without.out + without.err, "\033")) << without.out << without.err;
    EXPECT_HAS(without.err,
               "[3/3] edge_lengths:tokens=1 xform:chunk=64:threads=all core cold: passed");
  }
}

TEST(Signals, SayHowToGoOn) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Folder folder;
    Process process(
        folder, faulty_tool,
        run_arguments({"--case", "edge_lengths:tokens=1", "--scope", "core", "--variant",
                       "recurrent,hangs", "--deadline", "100", "--json", "my results.json"}));
    wait_for_line(folder / "my results.json.jsonl");
    for (int i = 0; i < 3000 && !has(read_file(folder / "stderr.txt"), "[1/2]"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 128 + signal);
    EXPECT_HAS(ended.err, "go on with: gdnbench run --resume 'my results.json.jsonl'");
  }
}

TEST(Selection, ScopesAndTimingsCountOnce) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool,
      run_arguments({"--case", "edge_lengths:tokens=1", "--variant", chunked, "--scope",
                     "core,core", "--scope", "core", "--timing", "hot,cold,hot", "--json", "-"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  std::vector<std::string> timings;
  const json report = json::parse(ended.out);
  for (const json& row : report["results"]) timings.push_back(row["timing"]);
  EXPECT_EQ(timings, (std::vector<std::string>{"hot", "cold"}));
}

TEST(Selection, ACaseThatIsTooLargeSkipsItsOwnRows) {
  Folder folder;
  fs::create_directory(folder / "cases");
  write_text(folder / "cases/huge.yaml", huge);
  write_text(folder / "cases/mine.yaml", mine);
  const std::string in_folder = "export GDNBENCH_CASES=cases; ";
  const std::string run = in_folder + "$T run --backend cpu --timeout 2 --max-noise 1000 ";
  EXPECT_HAS(run_shell(folder, in_folder + "$T list cases").out, "huge");
  const Ended all =
      run_shell(folder, run + "--variant " + chunked + " --scope core --case '*' --json r.json");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  const std::vector<Row> rows = read_report(folder / "r.json").rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, Status::skipped);
  EXPECT_HAS(rows[0].reason, "GiB for inputs, outputs and reference, and there are ");
  EXPECT_EQ(rows[1].status, Status::passed);
  expect_refused(run_shell(folder, run + "--case huge"), "huge needs ");
  expect_refused(run_shell(folder, run + "--case mine,huge"), "huge needs ");
  expect_refused(run_shell(folder, in_folder + "$T inputs --case huge -o x"), "huge needs ");
}

// Inputs of a case, with other shapes.
struct Shapes {
  std::vector<std::int64_t> q, raw_g;
  std::vector<std::int32_t> offsets;
};

std::string refusal_of_inputs(const Folder& folder, const Shapes& shapes) {
  const auto count = [](const std::vector<std::int64_t>& shape) {
    std::size_t product = 1;
    for (const std::int64_t size : shape) product *= static_cast<std::size_t>(size);
    return product;
  };
  std::vector<std::int64_t> v_shape = shapes.q;
  v_shape[v_shape.size() - 2] = shapes.raw_g.back();
  const std::vector<BFloat16> q(count(shapes.q)), v(count(v_shape));
  const std::vector<float> g(count(shapes.raw_g));
  SafeTensors content;
  content.tensors = {{"q", "BF16", shapes.q, std::as_bytes(std::span(q))},
                     {"k", "BF16", shapes.q, std::as_bytes(std::span(q))},
                     {"v", "BF16", v_shape, std::as_bytes(std::span(v))},
                     {"raw_g", "F32", shapes.raw_g, std::as_bytes(std::span(g))},
                     {"beta", "F32", shapes.raw_g, std::as_bytes(std::span(g))}};
  if (!shapes.offsets.empty())
    content.tensors.push_back({"cu_seqlens",
                               "I32",
                               {static_cast<std::int64_t>(shapes.offsets.size())},
                               std::as_bytes(std::span(shapes.offsets))});
  write_safetensors(folder / "in.st", content);
  return refusal_of([&] { read_inputs(folder / "in.st"); });
}

TEST(Inputs, TokensLieInTheOrderOfQ) {
  Folder folder;
  EXPECT_EQ(refusal_of_inputs(folder, {{70, 1, 128}, {70, 2}, {}}), "accepted");
  EXPECT_EQ(refusal_of_inputs(folder, {{70, 1, 128}, {1, 70, 2}, {}}), "accepted");
  EXPECT_EQ(refusal_of_inputs(folder, {{2, 35, 1, 128}, {2, 35, 2}, {}}), "accepted");
  EXPECT_EQ(refusal_of_inputs(folder, {{2, 35, 1, 128}, {70, 2}, {}}), "accepted");
  EXPECT_HAS(refusal_of_inputs(folder, {{70, 1, 128}, {35, 2, 2}, {}}),
             "raw_g has shape [35, 2, 2]: beside q and v it must be [70, 2]");
  EXPECT_HAS(refusal_of_inputs(folder, {{2, 35, 1, 128}, {35, 2, 2}, {}}), "must be [2, 35, 2]");
}

TEST(Inputs, TooManySequencesAndTooMuchMemoryAreRefused) {
  Folder folder;
  std::vector<std::int32_t> offsets(65537, 0);
  offsets.back() = 1;
  EXPECT_EQ(refusal_of_inputs(folder, {{1, 1, 128}, {1, 1}, offsets}), "accepted");
  EXPECT_EQ(refusal_of_inputs(folder, {{1, 1, 128}, {1, 1024}, offsets}), "accepted");
  expect_refused(run_shell(folder, "$T run --backend cpu --inputs in.st"), "in.st: needs ");
  offsets.insert(offsets.begin(), 0);
  EXPECT_HAS(refusal_of_inputs(folder, {{1, 1, 128}, {1, 1}, offsets}),
             "65537 sequences are too many");
}

TEST(Usage, ADumpWhoseNameIsTooLongIsRefusedBeforeMeasuring) {
  Folder folder;
  const std::string inputs = std::string(230, 'x') + ".safetensors";
  ASSERT_EQ(
      run_shell(folder, "$T inputs --case edge_lengths:tokens=64 --output " + inputs).exit_code, 0);
  const Ended ended =
      run_shell(folder, "$T run --backend cpu --inputs " + inputs + " --dump d --json r.json");
  expect_refused(ended, "would be a file's name of more than 255 bytes");
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"d", "stderr.txt", "stdout.txt", inputs}));
}

// Elsewhere than in the CPU's rows as well: inputs are made by as many threads.
TEST(Usage, ThreadsThatCannotBeHadAreRefused) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer takes more memory than a limit leaves";
#endif
  Folder folder;
  for (const std::string command : {"$RUN", "$T inputs --case short_tail_state --output in"}) {
    const Ended ended = run_shell(folder, "ulimit -v 3000000; OMP_NUM_THREADS=3000 " + command);
    expect_refused(ended, "of 3000 threads can be had");
    EXPECT_HAS(ended.err, "ulimit -u");
  }
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"stderr.txt", "stdout.txt"}));
}

TEST(Usage, EveryRefusalNamesWhatWasTypedAndTheRemedy) {
  Folder folder;
  write_text(folder / "file", "");
  write_text(folder / "self.yaml", mine);
  const std::string component(300, 'x');
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"mkdir d && cd d && rmdir ../d && $RUN --json r.json", "r.json: "},
           {"n=$(printf 'x\\377.yaml'); cp self.yaml $n; $T run --backend cpu --case ./$n",
            "not UTF-8"},
           {"n=$(printf 'x\\377'); cp self.yaml $n; $T run --backend cpu --inputs $n", "not UTF-8"},
           {"$RUN --dump $(printf 'x\\377')", "not UTF-8"},
           {"OMP_NUM_THREADS=100000 $RUN", "OMP_NUM_THREADS: 100000 threads"},
           {"$RUN --json " + component, "File name too long"},
           {"$RUN --dump " + component, "File name too long"},
           {"GDNBENCH_CASES=" + component + " $RUN", "no such folder"},
           {"$RUN --deadline nan", "--deadline: \"nan\" is not a number in 0.1 … 86400"},
           {"$RUN --deadline 1e-9", "--deadline"},
           {"$RUN --max-noise=inf", "--max-noise"},
           {"$RUN --min-samples 7", "--min-samples: At Most 1"},
           {"$T run --case x --timeout inf", "--timeout"},
           {"$T run --case x --timeout 1e9", "--timeout"},
           {"$T compare a b --threshold nan", "--threshold"},
           {"$T compare a b --threshold 0", "--threshold"},
           {"$RUN --json ''", "--json: an empty path"},
           {"$RUN --dump ''", "--dump: an empty path"},
           {"$T inputs --case mine -o ''", "--output: an empty path"},
           {"$T inputs --case short_tail_state -o -", "give a file"},
           {"$RUN --seed 1e3", "--seed 1e3:1:1: `seed` is \"1e3\""},
           {"$RUN --dump file", "file: no folder that can be written to"},
           {"$RUN --dump file/d", "file/d: no folder that can be written to"}}) {
    const Ended ended = run_shell(folder, line);
    expect_refused(ended, message);
    EXPECT_EQ(ended.out, "") << line;
  }
  for (const char* line : {"$RUN --timeout 3", "$RUN --device 1e2", "$RUN --timeout=x"})
    EXPECT_FALSE(has(run_shell(folder, line).err, "did you mean")) << line;
  EXPECT_HAS(run_shell(folder, "$T run --caze=x").err, "did you mean \"--case\"");
  if (geteuid() != 0) {
    fs::permissions(folder / "self.yaml", fs::perms(0));
    expect_refused(run_shell(folder, "$T run --case self.yaml"), "Permission denied");
  }
}

}  // namespace
}  // namespace gdn
