// Matrix instructions of four waves (sm_90a) for attention: d of 64 rows, of which a wave
// holds 16, by 64 or 128. Halves of a lie in registers, as mma16 has them; b is a tile in
// shared memory whose lines of 64 halves are permuted as wgmma.h has them.
#pragma once
#include "wgmma.h"
#define WGMMA_RS(n, names, a_names, b_name, first, turned, ...)                                                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names "}, {" a_names "}, " b_name ", " first ", 1, 1, " turned ";" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory")

// d += a·bᵀ, k contiguous in b
G_FN void wgmma_scores(float (&d)[32], const u32 (&a)[4], u64 b) {
  WGMMA_RS(64, WN_0_31, "%32, %33, %34, %35", "%36", "1", "0", WG32(0));
}
// the same of a that lies in shared memory too; with FIRST d is not added to
template <bool FIRST> G_FN void wgmma_scores(float (&d)[32], u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WN_0_31 "}, %32, %33, %34, 1, 1, 0, 0;"
               : WG32(0)
               : "l"(a), "l"(b), "n"(FIRST ? 0 : 1)
               : "memory");
}
// d += a·b, n contiguous in b
G_FN void wgmma_turned(float (&d)[32], const u32 (&a)[4], u64 b) {
  WGMMA_RS(64, WN_0_31, "%32, %33, %34, %35", "%36", "1", "1", WG32(0));
}
G_FN void wgmma_turned(float (&d)[64], const u32 (&a)[4], u64 b) {
  WGMMA_RS(128, WN_0_31 ", " WN_32_63, "%64, %65, %66, %67", "%68", "1", "1", WG64(0));
}
// tells the hardware of a tile whose rows are k, in panels of 64 columns and `bytes` each
G_FN u64 turned_descriptor(u32 at, u32 bytes) { return (u64)(at >> 4 & 0x3fff) | (u64)(bytes >> 4) << 16 | 64ull << 32 | 1ull << 62; }
G_FN void put_shared(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
// results are there: nothing that reads them is moved to before
template <int N> G_FN void settle(float (&d)[N]) {
  G_UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
