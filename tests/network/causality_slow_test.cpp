#include "causality.h"

namespace dormouse::network {
namespace {

using namespace testing;

TEST(CausalitySlow, NoByteChangesALogitBeforeItInNanoAtAnyDepthInEitherForm) { expect_preset_is_causal("nano"); }
TEST(CausalitySlow, NoByteChangesALogitBeforeItInSmallAtAnyDepthInEitherForm) { expect_preset_is_causal("small"); }
TEST(CausalitySlow, NoByteChangesALogitBeforeItInBaseAtAnyDepthInEitherForm) { expect_preset_is_causal("base"); }

}  // namespace
}  // namespace dormouse::network
