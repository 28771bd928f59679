#ifndef STEPS
#define STEPS 0
#endif
// Two chains of STEPS multiply-adds for each element that is read and written. Their
// factors are so close to 1 that each step still changes the result after a thousand.
G_KERNEL G_BOUNDS(BLOCK) chains(ELEM *__restrict__ a, const ELEM *__restrict__ b, u32 n) {
  u32 i = thread();
  if (i >= n) return;
  ELEM v = b[i], x = (ELEM)1 - v * (ELEM)0x1p-18, s = v * (ELEM)0x1p-8, t = (ELEM)1;
#if STEPS > 64
  _Pragma("unroll 1") for (u32 k = 0; k < STEPS; k += 64) G_UNROLL for (u32 u = 0; u < 64; u++) {
#else
  G_UNROLL for (int k = 0; k < STEPS; k++) {
#endif
    s = g_fma(s, x, (ELEM)0.25);
    t = g_fma(t, x, (ELEM)0.75);
  }
  a[i] = s + t;
}
// check compares with a table of what the 256 possible numbers give, to a relative
// error of limit.
G_KERNEL G_BOUNDS(BLOCK) check(const ELEM *a, const ELEM *table, u32 n, float limit, u32 *wrong) {
  u32 i = thread();
  if (i >= n) return;
  ELEM want = table[value(i, 1) - 1], e = a[i] - want;
  if (!(e <= want * (ELEM)limit && -e <= want * (ELEM)limit)) count_up(wrong);
}
