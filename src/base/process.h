// What a process inherits and must not stumble over.
#pragma once

namespace dormouse::base {

// Descriptors 0, 1 and 2 that the parent closed would be given to the next files opened, and log lines written into a checkpoint:
// they are taken first, so that reading or writing them fails. SIGXFSZ is ignored: a file above the size limit is an error to report.
void settle_process();

}  // namespace dormouse::base
