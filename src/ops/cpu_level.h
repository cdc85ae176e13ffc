// Which instruction sets the kernels use: the best the machine has, or lower on request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dormouse::ops {

// Levels that this machine has and this build has kernels for, lowest first: scalar ssse3 sse4 avx2 avx512 (avx512 includes the bf16 and
// VNNI dot products where present).
std::vector<std::string> available_cpu_levels();

// Forces `level` (from --cpu or DORMOUSE_CPU) for Highway, our own dispatch and oneDNN; "" = best, honouring DORMOUSE_CPU. Call
// before the first kernel. Unknown or unavailable level: base::UsageError. Tests may switch levels between calls; oneDNN
// takes its level once, at its first use, and at every other level the own GEMM runs in its place.
void set_cpu_level(std::string_view level);
std::string cpu_level();
bool native_bf16();  // AVX512_BF16 present and not disabled by the level
bool native_vnni();  // AVX512_VNNI likewise: its instructions for Compute::i16 and for decoding
bool native_i16();   // Compute::i16: level avx2 or above

std::string gemm_library();  // "oneDNN 2.6.3" or "own", at the present level

}  // namespace dormouse::ops
