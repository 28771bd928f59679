// Hopper's copies of tiles by tensor maps (TMA), barriers between groups of waves,
// and clusters of blocks.
#pragma once
#include "bulk.h"
struct alignas(64) Map { u64 w[16]; }; // CUtensorMap
// A parameter whose address copies can be given: NVRTC has a word for it; clang
// would copy it to local memory, so that its name in PTX is asked for.
#if defined(__clang__)
#define G_CONSTANT const
#define param_address(p, name)                                                                  \
  ({                                                                                            \
    u64 at_;                                                                                    \
    asm("{ .reg .b64 t; mov.b64 t, " name "; cvta.param.u64 %0, t; }" : "=l"(at_));             \
    at_;                                                                                        \
  })
#else
#define G_CONSTANT const __grid_constant__
#define param_address(p, name) ((u64)&(p))
#endif

G_FN void arrivals_init(u32 at, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
// arrives at the barrier that lies at the same place in block `rank` of the cluster. Within a block
// that releases what was written, by default; to the other block nothing written is handed on,
// only that reads have ended, and an arrival that released writes to the cluster would take a microsecond.
template <int C> G_FN void arrive_at(u32 at, u32 rank) {
  if (C == 1) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; }" ::"r"(at) : "memory");
    return;
  }
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(at),
               "r"(rank)
               : "memory");
}
// copies from shared memory to the same place in another block of the cluster, where the
// barrier that lies at `arrival` there counts the bytes
G_FN void copy_to_block(u32 at, u32 bytes, u32 arrival, u32 rank) {
  asm volatile("{ .reg .b32 to, there; mapa.shared::cluster.u32 to, %0, %3; mapa.shared::cluster.u32 there, %2, %3;\n"
               "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%0], %1, [there]; }" ::"r"(at),
               "r"(bytes), "r"(arrival), "r"(rank)
               : "memory");
}
// writes shared memory of one's own, and reads what lies at the same place in block `rank` of the cluster
G_FN void shared_store(u32 at, f2 v) {
  asm volatile("st.shared::cta.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}
G_FN f2 shared_load(u32 at, u32 rank) {
  f2 v;
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %2, %3; ld.shared::cluster.v2.f32 {%0, %1}, [r]; }"
               : "=f"(v.x), "=f"(v.y)
               : "r"(at), "r"(rank)
               : "memory");
  return v;
}
// all threads of the cluster
template <int C> G_FN void meet() {
  if (C == 1) {
    bar();
    return;
  }
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
template <int N> G_FN void registers_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> G_FN void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
// asks for the box of a map that begins at column x of row y
G_FN void tile_copy(u32 to, u64 map, u32 x, u32 y, u32 arrival) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(arrival)
               : "memory");
}
// the same for every block of the cluster whose bit is set, at the same place in each
G_FN void tile_copy_all(u32 to, u64 map, u32 x, u32 y, u32 arrival, u32 blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(arrival), "h"((u16)blocks)
               : "memory");
}
