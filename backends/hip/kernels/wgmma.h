// Hopper's asynchronous matrix instructions (sm_90a). Four waves multiply 64
// rows of a by N rows of b, both with k contiguous in shared memory, in lines of
// 64 elements that are permuted as the hardware's 128-byte swizzle has it.
#pragma once
#include "ldmatrix.h"

// where line c of 16 bytes of a row lies, in bytes
G_FN u32 swizzled(u32 row, u32 c) { return row * 128 + ((c ^ (row & 7)) << 4); }
// where tiles can begin in memory from p on, which has 1024 bytes more than they need
G_FN u32 tiles_at(const void *p) { return (shared_at(p) + 1023) & ~1023u; }
// what tells the hardware of a tile that begins at a multiple of 1024 bytes: eight
// rows are 1024 bytes, the swizzle is that of 128 bytes
G_FN u64 tile_descriptor(u32 at) { return (u64)(at >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62; }
G_FN void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
G_FN void mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
G_FN void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> G_FN void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

#if MMA_BF16
#define WG_TYPES "bf16.bf16"
#else
#define WG_TYPES "f16.f16"
#endif
#define WG4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG8(i) WG4(i), WG4(i + 4)
#define WG16(i) WG8(i), WG8(i + 8)
#define WG32(i) WG16(i), WG16(i + 16)
#define WG64(i) WG32(i), WG32(i + 32)
#define WN_0_7 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WN_0_15 WN_0_7 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WN_0_31 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WN_32_63 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WN_64_95 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WN_96_127 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WN_64_71 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WN_72_79 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WN_80_87 "%80, %81, %82, %83, %84, %85, %86, %87"
// d += a·bᵀ: 64 by N by 16; of d a lane holds rows lane/4 and lane/4 + 8 of its
// wave's 16, and of every eight columns two
#define WGMMA(n, names, a_name, b_name, ...)                                                                              \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." WG_TYPES " {" names "}, " a_name ", " b_name ", 1, 1, 1, 0, 0;" \
               : __VA_ARGS__ : "l"(a), "l"(b) : "memory")
G_FN void wgmma(float (&d)[16], u64 a, u64 b) { WGMMA(32, WN_0_15, "%16", "%17", WG16(0)); }
G_FN void wgmma(float (&d)[32], u64 a, u64 b) { WGMMA(64, WN_0_31, "%32", "%33", WG32(0)); }
G_FN void wgmma(float (&d)[64], u64 a, u64 b) { WGMMA(128, WN_0_31 ", " WN_32_63, "%64", "%65", WG64(0)); }
G_FN void wgmma(float (&d)[88], u64 a, u64 b) {
  WGMMA(176, WN_0_31 ", " WN_32_63 ", " WN_64_71 ", " WN_72_79 ", " WN_80_87, "%88", "%89", WG64(0), WG16(64), WG8(80));
}
G_FN void wgmma(float (&d)[96], u64 a, u64 b) {
  WGMMA(192, WN_0_31 ", " WN_32_63 ", " WN_64_95, "%96", "%97", WG64(0), WG32(64));
}
G_FN void wgmma(float (&d)[128], u64 a, u64 b) {
  WGMMA(256, WN_0_31 ", " WN_32_63 ", " WN_64_95 ", " WN_96_127, "%128", "%129", WG64(0), WG64(64));
}
