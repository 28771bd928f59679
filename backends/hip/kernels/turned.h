// What attention by matrix instructions of four waves (sm_90a) needs beside products: sums that
// begin, tiles whose rows are k, and results that the compiler lets alone until they are there.
#pragma once
#include "f8wgmma.h"

// d = a·bᵀ, both in shared memory, where d is not added to
G_FN void wgmma_first(float (&d)[32], u64 a, u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WN_0_31 "}, %32, %33, 0, 1, 1, 0, 0;" : WG32(0) : "l"(a), "l"(b) : "memory");
}
// tells the hardware of a tile whose rows are k, in panels of 64 columns and `bytes` each
G_FN u64 turned_descriptor(u32 at, u32 bytes) { return (u64)(at >> 4 & 0x3fff) | (u64)(bytes >> 4) << 16 | 64ull << 32 | 1ull << 62; }
G_FN void put_shared(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
// results are there: nothing that reads them is moved to before
template <int N> G_FN void settle(float (&d)[N]) {
  G_UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
