// Matrix instructions of four waves (sm_90a) whose first operand lies in registers: d +=
// a·bᵀ of 64 rows, of which a wave holds 16, by N by 16 halves; b is a tile in
// shared memory as wgmma.h has it, with TURNED 1 one whose rows are k.
#pragma once
#include "wgmma.h"
#define WGMMA_RS(n, names, a_names, b_name, turned, ...)                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names "}, {" a_names "}, " b_name ", 1, 1, 1, " #turned ";" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory")
G_FN void wgmma_rs(float (&d)[8], const u32 (&a)[4], u64 b) {
  WGMMA_RS(16, WN_0_7, "%8, %9, %10, %11", "%12", 0, WG8(0));
}
G_FN void wgmma_rs(float (&d)[16], const u32 (&a)[4], u64 b) {
  WGMMA_RS(32, WN_0_15, "%16, %17, %18, %19", "%20", 0, WG16(0));
}
template <int TURNED = 0> G_FN void wgmma_rs(float (&d)[32], const u32 (&a)[4], u64 b) {
  if (TURNED) WGMMA_RS(64, WN_0_31, "%32, %33, %34, %35", "%36", 1, WG32(0));
  else WGMMA_RS(64, WN_0_31, "%32, %33, %34, %35", "%36", 0, WG32(0));
}
template <int TURNED = 0> G_FN void wgmma_rs(float (&d)[64], const u32 (&a)[4], u64 b) {
  if (TURNED) WGMMA_RS(128, WN_0_31 ", " WN_32_63, "%64, %65, %66, %67", "%68", 1, WG64(0));
  else WGMMA_RS(128, WN_0_31 ", " WN_32_63, "%64, %65, %66, %67", "%68", 0, WG64(0));
}
G_FN void wgmma_rs(float (&d)[128], const u32 (&a)[4], u64 b) {
  WGMMA_RS(256, WN_0_31 ", " WN_32_63 ", " WN_64_95 ", " WN_96_127, "%128, %129, %130, %131", "%132", 0, WG64(0), WG64(64));
}
