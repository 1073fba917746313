// A comparison as JUnit XML, which CI services show row by row: what makes `compare` exit with 1 or
// 2 is a failure, what makes it exit with 3 an error (no verdict), skipped rows are skipped.
#include "src/error.hpp"
#include "src/report/render.hpp"

#ifdef GDNBENCH_WITH_PUGIXML

#include <fmt/format.h>

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "src/report/table.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

const char* element_of(const ComparedRow& row) {
  switch (exit_of(row)) {
    case Exit::regression:
    case Exit::incorrect:
      return "failure";
    case Exit::inconclusive:
      return "error";
    default:
      return row.verdict == Verdict::skipped ? "skipped" : nullptr;
  }
}

std::string explanation(const ComparedRow& row) {
  std::string text(name_of(row.verdict));
  if (!row.reason.empty()) text += ": " + row.reason;
  if (row.base_s > 0 && row.head_s > 0) {
    text += fmt::format(" (BASE {}, HEAD {})", format_time(row.base_s), format_time(row.head_s));
  }
  return printable(text);
}

}  // namespace

std::string junit(const Comparison& comparison) {
  pugi::xml_document document;
  auto declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";

  const auto count = [&](std::string_view element) {
    return std::count_if(comparison.rows.begin(), comparison.rows.end(), [&](const auto& row) {
      const char* own = element_of(row);
      return own != nullptr && own == element;
    });
  };
  auto suite = document.append_child("testsuites").append_child("testsuite");
  suite.append_attribute("name") = "gdnbench compare";
  suite.append_attribute("tests") = comparison.rows.size();
  suite.append_attribute("failures") = count("failure");
  suite.append_attribute("errors") = count("error");
  suite.append_attribute("skipped") = count("skipped");

  for (const ComparedRow& row : comparison.rows) {
    auto test = suite.append_child("testcase");
    const std::string name =
        fmt::format("{} {} {}", printable(row.variant), name_of(row.scope), name_of(row.timing));
    test.append_attribute("classname") = printable(row.case_name).c_str();
    test.append_attribute("name") = name.c_str();
    test.append_attribute("time") = fmt::format("{:.9f}", row.head_s).c_str();
    if (const char* element = element_of(row)) {
      auto outcome = test.append_child(element);
      outcome.append_attribute("type") = std::string(name_of(row.verdict)).c_str();
      outcome.append_attribute("message") = explanation(row).c_str();
    } else {
      test.append_child("system-out").text() = explanation(row).c_str();
    }
  }
  std::string notes = summary(comparison);
  for (const std::string& warning : comparison.warnings) {
    notes += "\nwarning: " + printable(warning);
  }
  suite.append_child("system-out").text() = notes.c_str();

  std::ostringstream text;
  document.save(text, "  ", pugi::format_default, pugi::encoding_utf8);
  return text.str();
}

}  // namespace gdn

#else

namespace gdn {

std::string junit(const Comparison&) {
  throw UserError(
      "--junit: this gdnbench was built without pugixml; install libpugixml-dev, configure and "
      "build again");
}

}  // namespace gdn

#endif
