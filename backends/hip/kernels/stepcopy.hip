// Copies between the two sides of step memory, the device's and pinned memory of the
// host, at the beginning and at the end of a captured program.
#include "prelude.h"
#define NT 256
#define RANGES 4

struct Moves {
  u64 to[RANGES], from[RANGES];
  u32 bytes[RANGES]; // multiples of 4, as are addresses; 0 where there is no range
};

// What the host wrote is read anew in every run, and past caches.
G_FN u32 fresh(const u32 *p) {
  u32 v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
G_FN u4 fresh4(const u4 *p) {
  u4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// At the beginning told is null. Launches behind begin only when all is copied, as some
// read positions before they wait for the launch before them; with soon the first of them begins
// at once, and lets others begin no sooner than its wait ends.
// At the end the word in the host's memory is counted up once all bytes are there.
G_KERNEL G_BOUNDS(NT) move(Moves m, u32 *count, u32 *told, u32 soon) {
  if (soon) begin_next();
  u32 run = 0;
  if (told && tid() == 0) run = fresh(told) + 1;
  wait_previous();
  const u32 t = bidx() * NT + tid(), threads = gdimx() * NT;
  G_UNROLL for (u32 i = 0; i < RANGES; i++) {
    const u32 bytes = m.bytes[i];
    if (((m.to[i] | m.from[i] | bytes) & 15) == 0) {
      for (u32 j = t; j < bytes / 16; j += threads) ((u4 *)m.to[i])[j] = fresh4((const u4 *)m.from[i] + j);
    } else {
      for (u32 j = t; j < bytes / 4; j += threads) ((u32 *)m.to[i])[j] = fresh((const u32 *)m.from[i] + j);
    }
  }
  if (!told) {
    fence_device();
    bar();
    begin_next();
    return;
  }
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  bar();
  if (tid() == 0 && count_round(count, gdimx() - 1) == gdimx() - 1)
    asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%0], %1;" ::"l"(told), "r"(run) : "memory");
}
