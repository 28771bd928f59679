#ifndef ONCE
#define ONCE 0
#endif
// Each block reads the same 2n doubles, times times. zero is 0, which the
// compiler does not know: it must load anew in every round.
G_KERNEL G_BOUNDS(BLOCK) sum(const double *b, double *out, u32 n, u32 times, u32 zero) {
  double s[LOADS];
  G_UNROLL for (u32 u = 0; u < LOADS; u++) s[u] = 0;
  const double *p = b + tid();
  _Pragma("unroll 8") for (u32 k = 0; k < times; k++) {
    p += zero;
    const double *q = p + n;
#if ONCE // n is BLOCK * LOADS: a loop would take longer than the loads
    const u32 i = 0;
#else
    for (u32 i = 0; i < n; i += BLOCK * LOADS)
#endif
      G_UNROLL for (u32 u = 0; u < LOADS; u++) s[u] += p[i + u * BLOCK] * q[i + u * BLOCK];
  }
  double all = 0;
  G_UNROLL for (u32 u = 0; u < LOADS; u++) all += s[u];
  out[thread()] = all;
}
