// Random matrices in any type, and their products y = x·wᵀ and y = x·w in f64, an element a thread.
G_FN float number(u32 i, u32 seed) { return (float)(int)mix(i ^ seed) * 0x1p-31f; } // -1 to 1
#if KIND == 0
typedef float In;
G_FN In from(float v) { return v; }
G_FN float to(In v) { return v; }
#elif KIND == 1
typedef u16 In;
G_FN In from(float v) { return f2h(v); }
G_FN float to(In v) { return h2f(v); }
#elif KIND == 2
typedef u16 In;
G_FN In from(float v) { return f2b(v); }
G_FN float to(In v) { return b2f(v); }
#else
typedef u8 In; // e4m3: all codes from 2^-6 to below 2
G_FN In from(float v) {
  u32 bits = f2u(v);
  return (u8)((bits >> 24 & 128) | (8 + (bits >> 5) % 56));
}
G_FN float to(In v) { return f8<4, 7, false, false>(v); }
#endif
G_KERNEL G_BOUNDS(BLOCK) fill(In *a, u32 n, u32 seed) {
  u32 i = thread();
  if (i < n) a[i] = from(number(i, seed));
}
// Square matrices of n rows; n is a multiple of 32. y: what is right, in f32.
G_FN void product(float *y, const In *x, const In *w, u32 n, bool transposed) {
  __shared__ float a[32][33], b[32][33];
  u32 c = tid() % 32, r = tid() / 32, col = bidx() % (n / 32) * 32, row = bidx() / (n / 32) * 32;
  double s = 0;
  for (u32 k = 0; k < n; k += 32) {
    a[r][c] = to(x[(u64)(row + r) * n + k + c]);
    if (transposed) b[c][r] = to(w[(u64)(col + r) * n + k + c]);
    else b[r][c] = to(w[(u64)(k + r) * n + col + c]);
    bar();
    G_UNROLL for (u32 u = 0; u < 32; u++) s += (double)a[r][u] * (double)b[u][c];
    bar();
  }
  y[(u64)(row + r) * n + col + c] = (float)s;
}
G_KERNEL G_BOUNDS(1024) right_nt(float *y, const In *x, const In *w, u32 n) { product(y, x, w, n, true); }
G_KERNEL G_BOUNDS(1024) right_nn(float *y, const In *x, const In *w, u32 n) { product(y, x, w, n, false); }
