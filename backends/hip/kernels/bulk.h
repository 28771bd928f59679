// Hopper's bulk copies: one lane asks for a range of global memory, which comes to
// shared memory by itself; a barrier there counts its bytes. Addresses and sizes
// are multiples of 16.
#pragma once
#include "ldmatrix.h"
// a barrier for one thread that announces bytes
G_FN void arrival_init(u32 at) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory"); }
// barriers are seen by copies that are asked for behind this
G_FN void arrival_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
G_FN void arrival_expect(u32 at, u32 bytes) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(at), "r"(bytes) : "memory");
}
G_FN void bulk_copy(u32 to, const void *from, u32 bytes, u32 arrival) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(arrival)
               : "memory");
}
// the same of what is read once, which is the first to leave the second-level cache again
G_FN void bulk_copy_once(u32 to, const void *from, u32 bytes, u32 arrival) {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(arrival), "l"(policy)
               : "memory");
}
// waits for the bytes of a barrier's phase, 0 and 1 in turns
G_FN void arrival_wait(u32 at, u32 phase) {
  asm volatile(
      "{ .reg .pred done;\n"
      "AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN_%=; }" ::"r"(at),
      "r"(phase)
      : "memory");
}
G_FN u32 first_lane(u32 v) {
  u32 r;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;" : "=r"(r) : "r"(v));
  return r;
}
G_FN void wave_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
