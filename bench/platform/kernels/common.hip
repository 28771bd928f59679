// What the microbenchmarks' kernels share; it stands before each of them.
#include "prelude.h"

// Random whole numbers from 1 to 256, the same on host and device: sums and
// products of a few of them are exact, so that results can be compared bit by bit.
G_FN u32 mix(u32 x) { // finalizer of a hash: every bit of x moves half of the result's
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}
G_FN u32 value(u32 i, u32 seed) { return (mix(i + seed * 0x9e3779b9u) >> 24) + 1; }

G_FN u32 thread() { return bidx() * BLOCK + tid(); }

// The shader's clock, in cycles; 0 where none counts far enough.
#if !G_AMD
G_FN u64 ticks() {
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
#elif defined(__GFX11__) || defined(__GFX12__)
G_FN u64 ticks() { return 0; }
#else
G_FN u64 ticks() { return __builtin_readcyclecounter(); }
#endif
