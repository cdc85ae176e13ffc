// INT, TERM and HUP ask for a clean end; the second one ends the process at once.
#pragma once

namespace dormouse::train {

void install_signal_handlers();
int stop_signal();  // 0: none yet

}  // namespace dormouse::train
