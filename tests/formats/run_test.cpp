// Run directories of earlier versions resume, and learn on as they did then.
#include "../fault/support.h"

namespace dormouse::testing {
namespace {

class FormatsTest : public ProgramTest {
 protected:
  // The last value of `key` on stdout.
  double number(const std::string& key) const {
    const auto at = out_.rfind("\"" + key + "\":");
    return at == std::string::npos ? 0 : std::strtod(out_.c_str() + at + key.size() + 3, nullptr);
  }
};

TEST_F(FormatsTest, TheRunOfVersion01IsShownScoredAndResumedToItsEnd) {
  fs::copy(fs::path(DORMOUSE_TEST_DIR) / "formats" / "0.1", folder(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  EXPECT_EQ(step_of(run_file("run", "checkpoint.safetensors")), 180);
  EXPECT_EQ(step_of(run_file("run", "previous.safetensors")), 120);
  EXPECT_EQ(step_of(run_file("run", "stable.safetensors")), 130);
  ASSERT_EQ(run({"info", "run"}), 0) << err_;
  EXPECT_TRUE(contains(out_, "checksums verified") && contains(out_, "so far: 180 of 200 steps")) << out_;
  ASSERT_EQ(run({"info", "run/checkpoint.safetensors"}), 0) << err_;
  EXPECT_TRUE(contains(out_, "checksums verified") && contains(out_, "equations = 1")) << out_;
  ASSERT_EQ(run({"eval", "run/best.safetensors", "--data", "text.txt", "--json", "-t", "1"}), 0) << err_;
  EXPECT_NEAR(number("bpb"), 2.0899, 1e-3);
  ASSERT_EQ(run(resume("run", {"--json"})), 0) << err_;
  EXPECT_TRUE(contains(err_, "resumed at step 180")) << err_;
  EXPECT_NEAR(number("bpb"), 1.3776, 0.02) << "not the state, or not the arithmetic, of version 0.1";
}

}  // namespace
}  // namespace dormouse::testing
