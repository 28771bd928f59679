// a = f·b, one element a thread; and the same rounds times to and fro in one launch
// of blocks that stay, with a barrier over the grid between.
G_KERNEL G_BOUNDS(BLOCK) scale(double *a, const double *b, u32 n, float f) {
  u32 i = thread();
  if (i < n) a[i] = (double)f * b[i];
}
#if G_AMD
G_FN u32 look(u32 *p) { return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); }
#else
G_FN u32 look(u32 *p) {
  u32 r;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
  return r;
}
#endif
// count was zero before the launch; volatile keeps the compiler from taking loads
// over the barrier.
G_KERNEL G_BOUNDS(BLOCK) persistent(volatile double *a, volatile double *b, u32 *count, u32 n, u32 blocks, u32 rounds) {
  for (u32 r = 0; r < rounds; r++) {
    volatile double *to = r & 1 ? b : a, *from = r & 1 ? a : b;
    double f = r & 1 ? 2.0 : 0.5;
    for (u32 i = thread(); i < n; i += blocks * BLOCK) to[i] = f * from[i];
    fence_device();
    bar();
    if (tid() == 0) {
      count_up(count);
      while (look(count) < (r + 1) * blocks) {}
    }
    bar();
  }
}
// check counts the elements that are not factor times the number that fill gave.
G_KERNEL G_BOUNDS(BLOCK) check(const double *a, u32 n, float factor, u32 *wrong) {
  u32 i = thread();
  if (i < n && a[i] != (double)factor * value(i, 1)) count_up(wrong);
}
