// Block b reads chunk b mod run: LOADS doubles a thread. The last run blocks say
// what they found.
G_KERNEL G_BOUNDS(BLOCK) sum(const double *__restrict__ b, double *__restrict__ out, u32 run, u32 blocks) {
  u32 chunk = bidx() % run;
  const double *p = b + (u64)chunk * (BLOCK * LOADS) + tid();
  double s = 0;
  G_UNROLL for (u32 u = 0; u < LOADS; u += 2) s += p[u * BLOCK] * p[(u + 1) * BLOCK];
  // The sum is asked for everywhere, or the loads could be left out where it is not stored.
  if (bidx() + run >= blocks || s < 0) out[chunk * BLOCK + tid()] = s;
}
// check computes the sums from the numbers themselves, in whole numbers.
G_KERNEL G_BOUNDS(BLOCK) check(const double *out, u32 run, u32 *wrong) {
  u32 first = bidx() * (BLOCK * LOADS) + tid(), s = 0;
  for (u32 u = 0; u < LOADS; u += 2) s += value(first + u * BLOCK, 1) * value(first + (u + 1) * BLOCK, 1);
  if (out[thread()] != (double)s) count_up(wrong);
}
