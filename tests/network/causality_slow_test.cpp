#include "causality.h"

namespace dormouse::network {
namespace {

using namespace testing;

TEST(CausalitySlow, NoByteChangesALogitBeforeItInNanoAtAnyDepthInAnyForm) { expect_preset_is_causal("nano"); }
TEST(CausalitySlow, NoByteChangesALogitBeforeItInSmallAtAnyDepthInAnyForm) { expect_preset_is_causal("small"); }
TEST(CausalitySlow, NoByteChangesALogitBeforeItInBaseAtAnyDepthInAnyForm) { expect_preset_is_causal("base"); }

}  // namespace
}  // namespace dormouse::network
