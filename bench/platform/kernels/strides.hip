// Loads from shared memory: thread t reads the eight words from t·stride + k on, for
// k = 0, 8, 16 … up to limit (which is far away where threads stride on, and stride
// where each has a block of words of its own), then from 0 again. out: each thread's
// sum; cycles: the block's.
#define WORDS 8192
G_KERNEL G_BOUNDS(BLOCK) loads(u32 *out, u64 *cycles, u32 stride, u32 limit, u32 rounds) {
  __shared__ u32 s[WORDS + 8];
  for (u32 i = tid(); i < WORDS + 8; i += BLOCK) s[i] = value(i, 7);
  bar();
  u32 base = tid() * stride, sum = 0, k = 0;
  u64 t = ticks();
  for (u32 r = 0; r < rounds; r++) {
    const u32 *p = s + ((base + k) & (WORDS - 1));
    G_UNROLL for (u32 u = 0; u < 8; u++) sum += p[u];
    k = k + 8 >= limit ? 0 : k + 8;
  }
  bar();
  t = ticks() - t;
  out[tid()] = sum;
  if (tid() == 0) cycles[0] = t;
}
