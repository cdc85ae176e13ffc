// One run from the first byte to the summary.
#pragma once

#include "train/config.h"

namespace dormouse::train {

// Starts, resumes or extends a run. Returns the exit code: 0 finished (or was finished already), 128+n stopped
// by signal n after a save. Everything else is a base::Error. json: metrics objects also go to stdout. --threads takes effect here; the CPU
// level must be set before.
int run(const Request& request, bool json);

}  // namespace dormouse::train
