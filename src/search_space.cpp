#include "src/search_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "src/error.hpp"
#include "src/folder.hpp"
#include "src/suggest.hpp"
#include "src/yaml_tree.hpp"

namespace gdn {
namespace {

using Values = std::vector<std::string>;
using Combination = std::vector<Knob>;

struct KnobValues {
  std::string name;
  Values values;
  Place place;
};

struct Constraint {
  std::string name;
  std::vector<KnobValues> when, only;
};

// The part of a space that is about one variant.
struct VariantSpace {
  const Variant* variant = nullptr;
  Place place;
  std::vector<KnobValues> knobs;
  std::vector<Constraint> constraints;
};

// `; did you mean "stages"?`, else what there is.
std::string among(std::string_view word, const Values& known) {
  const std::string guess = did_you_mean(word, known);
  return guess.empty() ? fmt::format("; there is {}", fmt::join(known, ", ")) : guess;
}

bool is_scalar(const YamlNode& node) {
  return node.kind == YamlNode::Kind::plain || node.kind == YamlNode::Kind::quoted;
}

Place place_of(const YamlNode& node) {  // a value that is missing has none of its own
  return node.kind == YamlNode::Kind::null ? node.key_place : node.place;
}

Values knob_names(const Variant& variant) {
  Values names;
  for (const Instance& instance : variant.instances)
    for (const Knob& knob : instance.knobs)
      if (std::ranges::find(names, knob.name) == names.end()) names.push_back(knob.name);
  return names;
}

Values knob_values(const Variant& variant, const std::string& name) {
  Values values;
  for (const Instance& instance : variant.instances)
    for (const Knob& knob : instance.knobs)
      if (knob.name == name && std::ranges::find(values, knob.value) == values.end())
        values.push_back(knob.value);
  return values;
}

std::string text_of(const Combination& knobs) {
  std::string text;
  for (const Knob& knob : knobs)
    text += fmt::format("{}{}={}", text.empty() ? "" : ":", knob.name, knob.value);
  return text;
}

class Reader {
 public:
  Reader(const std::string& source, std::span<const Variant> ladder)
      : source_(source), ladder_(ladder) {}

  Target target(const YamlNode& root) const {
    const YamlNode& node = field(root, "target", "target: cuda");
    const std::string word = scalar(node, "cpu or cuda");
    if (word == name_of(Target::cpu)) return Target::cpu;
    if (word == name_of(Target::cuda)) return Target::cuda;
    fail(node.place, fmt::format("target {} is none{}", excerpt(word),
                                 among(word, {std::string(name_of(Target::cpu)),
                                              std::string(name_of(Target::cuda))})));
  }

  std::vector<VariantSpace> variants(const YamlNode& root, Target target) const {
    const YamlNode& node = field(root, "variants", "variants: {chunked: {}}");
    require_map(node, "{chunked: {}}");
    std::vector<VariantSpace> spaces;
    for (const YamlNode& item : node.items) spaces.push_back(variant(item, target));
    return spaces;
  }

  void require_keys(const YamlNode& map, const Values& known) const {
    for (const YamlNode& item : map.items)
      if (std::ranges::find(known, item.key) == known.end())
        fail(item.key_place,
             fmt::format("unknown field {}{}", excerpt(item.key), among(item.key, known)));
  }

  void require_map(const YamlNode& node, const char* example) const {
    if (node.kind != YamlNode::Kind::map)
      fail(place_of(node), fmt::format("{}not a map; write for example {}",
                                       node.key.empty() ? "" : "`" + node.key + "` is ", example));
  }

  [[noreturn]] void fail(Place place, const std::string& message) const {
    fail_at(source_, place, message);
  }

 private:
  const YamlNode& field(const YamlNode& map, const char* key, const char* example) const {
    const auto found = std::ranges::find(map.items, key, &YamlNode::key);
    if (found == map.items.end())
      fail(map.place, fmt::format("field `{}` is missing; add for example `{}`", key, example));
    return *found;
  }

  std::string scalar(const YamlNode& node, const char* wanted) const {
    if (!is_scalar(node) || node.text.empty())
      fail(place_of(node), fmt::format("`{}` is no word; give {}", node.key, wanted));
    return node.text;
  }

  // One value or a list of them, each of which is known.
  Values values(const YamlNode& node, const Values& known, const std::string& whose) const {
    std::vector<const YamlNode*> items;
    if (node.kind == YamlNode::Kind::list)
      for (const YamlNode& item : node.items) items.push_back(&item);
    else
      items.push_back(&node);
    if (items.empty())
      fail(node.place,
           fmt::format("`{}` has no values; give some of {}", node.key, fmt::join(known, ", ")));
    Values read;
    for (const YamlNode* item : items) {
      if (!is_scalar(*item))
        fail(place_of(*item), fmt::format("`{}` has a value that is no word or number; write [{}]",
                                          node.key, fmt::join(known, ", ")));
      if (std::ranges::find(known, item->text) == known.end())
        fail(item->place, fmt::format("{} has no {}={}{}", whose, node.key, excerpt(item->text),
                                      among(item->text, known)));
      if (std::ranges::find(read, item->text) != read.end())
        fail(item->place,
             fmt::format("`{}` has the value {} twice; remove one", node.key, excerpt(item->text)));
      read.push_back(item->text);
    }
    return read;
  }

  VariantSpace variant(const YamlNode& node, Target target) const {
    VariantSpace space{.variant = nullptr, .place = node.key_place, .knobs = {}, .constraints = {}};
    Values known;
    for (const Variant& variant : ladder_) {
      if (variant.target != target) continue;
      known.push_back(variant.name);
      if (variant.name == node.key) space.variant = &variant;
    }
    if (space.variant == nullptr)
      fail(node.key_place, fmt::format("the ladder has no {} variant {}{}", name_of(target),
                                       excerpt(node.key), among(node.key, known)));
    require_map(node, "{} or {knobs: {stages: [2, 3]}}");
    require_keys(node, {"knobs", "constraints"});
    for (const YamlNode& item : node.items)
      if (item.key == "knobs") space.knobs = knobs(item, *space.variant);
    require_every_knob(node, space);
    for (const YamlNode& item : node.items)
      if (item.key == "constraints") space.constraints = constraints(item, space);
    return space;
  }

  std::vector<KnobValues> knobs(const YamlNode& node, const Variant& variant) const {
    require_map(node, "{stages: [2, 3]}");
    const Values known = knob_names(variant);
    std::vector<KnobValues> knobs;
    for (const YamlNode& item : node.items) {
      if (known.empty())
        fail(item.key_place,
             fmt::format("`{}` has no knobs; write `{}: {{}}`", variant.name, variant.name));
      if (std::ranges::find(known, item.key) == known.end())
        fail(item.key_place, fmt::format("`{}` has no knob {}{}", variant.name, excerpt(item.key),
                                         among(item.key, known)));
      knobs.push_back(
          {item.key, values(item, knob_values(variant, item.key), variant.name), item.key_place});
    }
    return knobs;
  }

  // A space that leaves a knob open would not say which instance it means.
  void require_every_knob(const YamlNode& node, const VariantSpace& space) const {
    for (const std::string& name : knob_names(*space.variant))
      if (std::ranges::find(space.knobs, name, &KnobValues::name) == space.knobs.end())
        fail(node.key_place,
             fmt::format("knob `{}` of `{}` is missing; add `{}: [{}]` to its knobs", name,
                         space.variant->name, name,
                         fmt::join(knob_values(*space.variant, name), ", ")));
  }

  std::vector<Constraint> constraints(const YamlNode& node, const VariantSpace& space) const {
    if (node.kind != YamlNode::Kind::list)
      fail(place_of(node), "`constraints` is not a list; write `- {name: …, only: …, why: …}`");
    std::vector<Constraint> all;
    for (const YamlNode& item : node.items) {
      constexpr const char* example = "{name: registers, only: {stages: 2}, why: it spills}";
      require_map(item, example);
      require_keys(item, {"name", "when", "only", "why"});
      Constraint constraint;
      const YamlNode& name = field(item, "name", "name: registers");
      constraint.name = scalar(name, "a name");
      if (std::ranges::find(all, constraint.name, &Constraint::name) != all.end())
        fail(name.place, fmt::format("`{}` has two constraints {}; rename one", space.variant->name,
                                     excerpt(constraint.name)));
      scalar(field(item, "why", "why: it spills"), "the reason");
      constraint.only = conditions(field(item, "only", "only: {stages: 2}"), space);
      const auto when = std::ranges::find(item.items, "when", &YamlNode::key);
      if (when != item.items.end()) constraint.when = conditions(*when, space);
      all.push_back(std::move(constraint));
    }
    return all;
  }

  // Of the values that the space gives its knobs.
  std::vector<KnobValues> conditions(const YamlNode& node, const VariantSpace& space) const {
    require_map(node, "{stages: 2}");
    Values known;
    for (const KnobValues& knob : space.knobs) known.push_back(knob.name);
    if (node.items.empty())
      fail(node.place,
           fmt::format("`{}` is empty; name one of {}", node.key, fmt::join(known, ", ")));
    std::vector<KnobValues> read;
    for (const YamlNode& item : node.items) {
      const auto knob = std::ranges::find(space.knobs, item.key, &KnobValues::name);
      if (knob == space.knobs.end())
        fail(item.key_place, fmt::format("`{}` has no knob {}{}", space.variant->name,
                                         excerpt(item.key), among(item.key, known)));
      read.push_back({item.key, values(item, knob->values, "its knobs"), item.key_place});
    }
    return read;
  }

  const std::string& source_;
  std::span<const Variant> ladder_;
};

bool holds(const std::vector<KnobValues>& conditions, const Combination& knobs) {
  return std::ranges::all_of(conditions, [&](const KnobValues& condition) {
    const auto knob = std::ranges::find(knobs, condition.name, &Knob::name);
    return std::ranges::find(condition.values, knob->value) != condition.values.end();
  });
}

// Every combination of the values that no constraint leaves out, the last knob running fastest.
std::vector<Combination> combinations(const VariantSpace& space) {
  std::vector<Combination> all = {{}};
  for (const KnobValues& knob : space.knobs) {
    std::vector<Combination> longer;
    for (const Combination& so_far : all)
      for (const std::string& value : knob.values) {
        longer.push_back(so_far);
        longer.back().push_back({knob.name, value});
      }
    all = std::move(longer);
  }
  std::erase_if(all, [&](const Combination& knobs) {
    return std::ranges::any_of(space.constraints, [&](const Constraint& constraint) {
      return holds(constraint.when, knobs) && !holds(constraint.only, knobs);
    });
  });
  return all;
}

// The instance with these knobs, in whatever order; null where there is none.
const Instance* instance_with(const Variant& variant, const Combination& knobs) {
  const auto found = std::ranges::find_if(variant.instances, [&](const Instance& instance) {
    return std::ranges::is_permutation(instance.knobs, knobs);
  });
  return found == variant.instances.end() ? nullptr : &*found;
}

bool can_be_had(const Variant& variant, const Combination& knobs) {
  const Instance* instance = instance_with(variant, knobs);
  return instance != nullptr && instance->obstacle.empty();
}

// The line to add so that these knobs, which cannot be had, are left out: the other values of one
// of them, with the rest as they are; "" where no value of one knob alone would do.
std::string remedy(const VariantSpace& space, const Combination& knobs) {
  for (std::size_t changed = knobs.size(); changed-- > 0;) {
    Values possible;
    for (const std::string& value : space.knobs[changed].values) {
      Combination other = knobs;
      other[changed].value = value;
      if (can_be_had(*space.variant, other)) possible.push_back(value);
    }
    if (possible.empty()) continue;
    std::vector<std::string> rest;
    for (std::size_t i = 0; i < knobs.size(); ++i)
      if (i != changed) rest.push_back(fmt::format("{}: {}", knobs[i].name, knobs[i].value));
    const std::string when =
        rest.empty() ? "" : fmt::format("when: {{{}}}, ", fmt::join(rest, ", "));
    return fmt::format("add the constraint `- {{name: …, {}only: {{{}: [{}]}}, why: …}}`", when,
                       knobs[changed].name, fmt::join(possible, ", "));
  }
  return "take one of these values out";
}

void require_compiled(const Reader& reader, const VariantSpace& space, const Combination& knobs) {
  const Instance* instance = instance_with(*space.variant, knobs);
  if (instance != nullptr && instance->obstacle.empty()) return;
  const std::string why = instance == nullptr
                              ? "was not compiled"
                              : fmt::format("cannot be had ({})", instance->obstacle);
  reader.fail(space.place, fmt::format("`{}` allows {}, which {}; {}", space.variant->name,
                                       text_of(knobs), why, remedy(space, knobs)));
}

std::vector<SelectedVariant> in_ladder_order(std::vector<SelectedVariant> candidates) {
  // The ladder and the instances of a variant lie in arrays.
  std::ranges::sort(candidates, [](const SelectedVariant& a, const SelectedVariant& b) {
    return std::pair(a.variant, a.instance) < std::pair(b.variant, b.instance);
  });
  const auto doubles =
      std::ranges::unique(candidates, {}, [](const SelectedVariant& s) { return s.instance; });
  candidates.erase(doubles.begin(), doubles.end());
  return candidates;
}

std::vector<std::string> ids_of(const std::vector<SelectedVariant>& selected) {
  std::vector<std::string> ids;
  for (const SelectedVariant& s : selected) ids.push_back(variant_id(*s.variant, *s.instance));
  return ids;
}

}  // namespace

std::optional<std::vector<SelectedVariant>> parse_space(std::string_view yaml,
                                                        const std::string& source, Target target,
                                                        std::span<const Variant> ladder) {
  const Reader reader(source, ladder);
  const YamlNode root = parse_yaml(yaml, source);
  reader.require_map(root, "`target: cuda`, `variants: {chunked: {}}`");
  reader.require_keys(root, {"target", "variants"});
  if (reader.target(root) != target) return std::nullopt;
  std::vector<SelectedVariant> candidates;
  for (const VariantSpace& space : reader.variants(root, target))
    for (const Combination& knobs : combinations(space)) {
      require_compiled(reader, space, knobs);
      candidates.push_back({space.variant, instance_with(*space.variant, knobs)});
    }
  if (candidates.empty())
    reader.fail(root.place, "the space has no candidate; name a variant, or loosen a constraint");
  return in_ladder_order(std::move(candidates));
}

std::vector<std::string> search_space(const std::string& file, Target target) {
  if (!file.empty()) {
    auto candidates = parse_space(read_yaml_file(file), file, target, ladder());
    if (!candidates)
      throw UserError(
          fmt::format("--space {}: it is for the other target, this backend is {}; give another "
                      "--space or --backend",
                      file, name_of(target)));
    return ids_of(*candidates);
  }
  const std::filesystem::path folder = folder_named("tuning", "GDNBENCH_TUNING", "search spaces");
  std::vector<SelectedVariant> all;
  for (const auto& path : yaml_files_in(folder))
    if (const auto candidates =
            parse_space(read_yaml_file(path.string()), path.string(), target, ladder()))
      std::ranges::copy(*candidates, std::back_inserter(all));
  if (all.empty())
    throw UserError(fmt::format("{}: no search space for the {} backend; give one with --space",
                                folder.string(), name_of(target)));
  return ids_of(in_ladder_order(std::move(all)));
}

std::vector<std::string> meant_by(const std::vector<std::string>& globs,
                                  const std::vector<std::string>& candidates) {
  if (globs.empty()) return candidates;
  std::vector<std::string> selected;
  std::vector<std::string> known;
  std::set<std::string> unused(globs.begin(), globs.end());
  for (const std::string& id : candidates) {
    const std::string name = id.substr(0, id.find(':'));
    known.insert(known.end(), {name, id});
    bool wanted = false;
    for (const std::string& glob : globs)
      if (glob == name || matches_glob(glob, id)) {
        wanted = true;
        unused.erase(glob);
      }
    if (wanted) selected.push_back(id);
  }
  if (!unused.empty())
    throw UserError(fmt::format(
        "--variant {}: there is no such candidate{}; `gdnbench tune --dry-run` shows them",
        *unused.begin(), did_you_mean(*unused.begin(), known)));
  return selected;
}

}  // namespace gdn
