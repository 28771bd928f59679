// Matrix instructions of four waves (sm_90a) for 8-bit floats: part (+)= a·bᵀ of 64 rows of w by N
// rows of x by 32 elements, both from shared memory; x is e4m3, w what W_TYPE says.
// Their sums keep 14 bits (DeepSeek-V3 Technical Report, 3.3.2): those of a slot are added to sums of f32.
#pragma once
#include "wgmma.h"
#if W_TYPE == W_E5M2
#define F8_TYPES "e5m2.e4m3"
#else
#define F8_TYPES "e4m3.e4m3"
#endif
// what tells the hardware of lines of 16 elements of rows, one row behind the other, and the next line's bytes behind a line
G_FN u64 lines_descriptor(u32 at, u32 line) { return (u64)(at >> 4 & 0x3fff) | (u64)(line >> 4) << 16 | 8ull << 32; }
#define WGMMA_F8(n, names, a_name, b_name, more_name, ...)                                                      \
  asm volatile("{ .reg .pred more; setp.ne.u32 more, " more_name ", 0;\n"                                        \
               "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32." F8_TYPES " {" names "}, " a_name ", " b_name ", more, 1, 1; }" \
               : __VA_ARGS__ : "l"(a), "l"(b), "r"(more) : "memory")
G_FN void wgmma_f8(float (&d)[8], u64 a, u64 b, u32 more) { WGMMA_F8(16, WN_0_7, "%8", "%9", "%10", WG8(0)); }
G_FN void wgmma_f8(float (&d)[16], u64 a, u64 b, u32 more) {
  WGMMA_F8(32, WN_0_15, "%16", "%17", "%18", WG16(0));
}
G_FN void wgmma_f8(float (&d)[32], u64 a, u64 b, u32 more) { WGMMA_F8(64, WN_0_31, "%32", "%33", "%34", WG32(0)); }
G_FN void wgmma_f8(float (&d)[64], u64 a, u64 b, u32 more) { WGMMA_F8(128, WN_0_31 ", " WN_32_63, "%64", "%65", "%66", WG64(0)); }
