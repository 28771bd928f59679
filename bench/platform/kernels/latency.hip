// A pointer chase by one thread: warm steps, then steps that are counted, in
// multiples of 32. at: where to start, and then where it ended; cycles.
G_KERNEL G_BOUNDS(32) chase(u64 *at, u32 warm, u32 steps) {
  if (tid()) return;
  const u64 *p = (const u64 *)at[0];
  for (u32 i = 0; i < warm; i += 32) G_UNROLL for (u32 u = 0; u < 32; u++) p = (const u64 *)*p;
  // The clock is read when the warm steps are done.
  if (p == (const u64 *)1) at[1] = 0;
  u64 t = ticks();
  for (u32 i = 0; i < steps; i += 32) G_UNROLL for (u32 u = 0; u < 32; u++) p = (const u64 *)*p;
  if (p == (const u64 *)1) at[1] = 0;
  t = ticks() - t;
  at[0] = (u64)p;
  at[1] = t;
}
// spin keeps one thread busy, for the clock's rate: out holds a number and the cycles.
G_KERNEL G_BOUNDS(32) spin(u64 *out, u32 rounds) {
  float x = (float)tid();
  u64 t = ticks();
  for (u32 i = 0; i < rounds; i++) x = g_fma(x, 0.5f, 1.0f);
  out[0] = (u64)x;
  out[1] = ticks() - t;
}
