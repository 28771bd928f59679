// ILP chains of dependent operations a thread, in one block. out: the chains' sum
// for each thread; cycles: of each warp's first thread.
#if !G_AMD && !defined(__clang__)
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#endif
G_FN float root(float x) { return __builtin_sqrtf(x); }
G_FN double root(double x) { return __builtin_sqrt(x); }
G_KERNEL G_BOUNDS(1024) chains(ELEM *out, u64 *cycles, u32 rounds, float f, float g) {
  ELEM x[ILP], p = (ELEM)f, q = (ELEM)g;
  (void)p, (void)q; // not all operations take them
  G_UNROLL for (u32 j = 0; j < ILP; j++) x[j] = (ELEM)(1 + (tid() + j) % 64) * (ELEM)0.03125;
  bar();
  u64 t = ticks();
  for (u32 r = 0; r < rounds; r++)
    G_UNROLL for (u32 u = 0; u < 16; u++) G_UNROLL for (u32 j = 0; j < ILP; j++) {
#if OP == 0
      x[j] = g_fma(x[j], p, q);
#elif OP == 1
      x[j] = q / x[j];
#else
      x[j] = root(x[j]);
#endif
    }
  t = ticks() - t;
  ELEM s = 0;
  G_UNROLL for (u32 j = 0; j < ILP; j++) s += x[j];
  out[tid()] = s;
  if (tid() % G_WAVE == 0) cycles[tid() / G_WAVE] = t;
}
