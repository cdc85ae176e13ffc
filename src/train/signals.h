// INT, TERM and HUP: they remove what is half written and end the process at once with 128 + n; during training the first one asks for
// a clean end, the second one ends the process. A broken pipe asks for a clean end too. Under nohup HUP stays ignored.
#pragma once

namespace dormouse::train {

// Before the first thread: blocks these signals in this thread and all that follow, and waits for them in a thread of its own. No
// handler may run on a thread that computes: oneDNN's f32 product kernels point rsp into a heap block (jit_avx*_gemm_f32.cpp), and the
// kernel would write the signal frame over the heap below it.
void watch_signals();

void begin_orderly_stop();  // from here on signals are noted, see stop_signal()
void end_orderly_stop();    // from here on they end the process at once again
int stop_signal();          // 0: none yet

}  // namespace dormouse::train
