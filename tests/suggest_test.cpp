#include "src/suggest.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gdn {
namespace {

const std::vector<std::string> known = {"tokens", "batch", "query_heads", "value_heads", "seed"};

TEST(Suggest, FindsTheNearestName) {
  EXPECT_EQ(closest("token", known), "tokens");    // a letter missing
  EXPECT_EQ(closest("tokenss", known), "tokens");  // one too many
  EXPECT_EQ(closest("tikens", known), "tokens");   // a wrong one
  EXPECT_EQ(closest("toeksn", known), "tokens");   // two swaps
  EXPECT_EQ(closest("TOKENS", known), "tokens");   // shouted
  EXPECT_EQ(closest("value-head", known), "value_heads");
  EXPECT_EQ(closest("quary_heads", known), "query_heads");
}

TEST(Suggest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(closest("", known), std::nullopt);
  EXPECT_EQ(closest("x", known), std::nullopt);
  EXPECT_EQ(closest("dropout", known), std::nullopt);
  EXPECT_EQ(closest(std::string(1'000'000, 't'), known), std::nullopt);
  EXPECT_EQ(closest("tokens", std::vector<std::string>{}), std::nullopt);
}

TEST(Suggest, FollowsAMessage) {
  EXPECT_EQ(did_you_mean("sed", known), "; did you mean \"seed\"?");
  EXPECT_EQ(did_you_mean("dropout", known), "");
}

TEST(Suggest, ShowsForeignTextInOneLine) {
  EXPECT_EQ(excerpt("a\nb\x1b[31m"), "\"a?b?[31m\"");
  EXPECT_EQ(excerpt(std::string(100, 'a')), "\"" + std::string(48, 'a') + "...\"");
}

TEST(Suggest, MatchesGlobsOverWholeIds) {
  EXPECT_TRUE(matches_glob("*", "models:tokens=2048:value_heads=32"));
  EXPECT_TRUE(matches_glob("models:*:value_heads=3?", "models:tokens=2048:value_heads=32"));
  EXPECT_TRUE(matches_glob("wide:threads=512", "wide:threads=512"));
  EXPECT_TRUE(matches_glob("[a-c]*", "batch"));
  EXPECT_FALSE(matches_glob("wide", "wide:threads=512"));
  EXPECT_FALSE(matches_glob("Wide", "wide"));
}

}  // namespace
}  // namespace gdn
