// y = x·wᵀ (+ b) (+ r) by tiles with plain multiply-adds, as tile.hip, for products
// large enough to fill a device with tiles of 128 by 128: a thread gives 8 by 8, in
// steps of 16 elements. The next step is loaded while one is multiplied.
#include "prelude.h"
#include "weights.h"
#define NT 256
#define BM 128
#define BN 128
#define BK 16
#if G_AMD // its compiler would load all of a step at once, and run out of registers
#define UNROLL_STEP _Pragma("unroll 1")
#else
#define UNROLL_STEP G_UNROLL
#endif
#define LINE (BM + 4) // four more keep stores of a wave on different banks

struct Step { f4 a[2], b[2]; };

G_KERNEL G_BOUNDS2(NT, 2) tile128(float *__restrict__ y, const float *x, Rows xr, Weights w, u32 n, u32 columns,
                                  const void *bias, const float *res, Rows rr) {
  __shared__ f4 am[2][BK][LINE / 4], bm[2][BK][LINE / 4];
  begin_next();
  wait_previous();
  const u32 t = tid(), m0 = bidy() * BM, n0 = bidx() * BN;
  const u32 row = t / 4, col = t % 4 * 4; // of what the thread loads, and 64 rows further
  const float *xs[2];
  Row ws[2];
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    xs[i] = x + at(xr, g_min(m0 + row + 64 * i, columns - 1));
    ws[i] = w_row(w, g_min(n0 + row + 64 * i, n - 1));
  }
  float acc[8][8];
  G_UNROLL for (int i = 0; i < 8; i++) {
    G_UNROLL for (int j = 0; j < 8; j++) acc[i][j] = 0;
  }
  Step s;
  auto fetch = [&](u32 k0) {
    const u32 k = k0 + col;
    G_UNROLL for (u32 i = 0; i < 2; i++) {
      s.a[i] = s.b[i] = f4{0, 0, 0, 0};
#if X_SCALAR || W_SCALAR
      if (k < w.k) s.a[i].x = xs[i][k];
      if (k + 1 < w.k) s.a[i].y = xs[i][k + 1];
      if (k + 2 < w.k) s.a[i].z = xs[i][k + 2];
      if (k + 3 < w.k) s.a[i].w = xs[i][k + 3];
#else
      if (k < w.k) s.a[i] = *(const f4 *)(xs[i] + k);
#endif
      if (k < w.k) {
        Quad q = w_quad(ws[i], k);
        w_apply(q);
        s.b[i] = f4{q.v[0], q.v[1], q.v[2], q.v[3]};
      }
    }
  };
  auto store = [&](u32 stage) {
    float *a = (float *)am[stage] + col * LINE + row, *b = (float *)bm[stage] + col * LINE + row;
    G_UNROLL for (u32 i = 0; i < 2; i++) {
      a[64 * i] = s.a[i].x;
      a[64 * i + LINE] = s.a[i].y;
      a[64 * i + 2 * LINE] = s.a[i].z;
      a[64 * i + 3 * LINE] = s.a[i].w;
      b[64 * i] = s.b[i].x;
      b[64 * i + LINE] = s.b[i].y;
      b[64 * i + 2 * LINE] = s.b[i].z;
      b[64 * i + 3 * LINE] = s.b[i].w;
    }
  };
  // A thread has four rows and, 64 further, four more; columns likewise.
  const u32 tx = t % 16, ty = t / 16;
  fetch(0);
  store(0);
  bar();
  u32 stage = 0;
  for (u32 k0 = 0; k0 < w.k; k0 += BK, stage ^= 1) {
    if (k0 + BK < w.k) fetch(k0 + BK);
    UNROLL_STEP for (u32 k = 0; k < BK; k++) {
      const f4 a0 = am[stage][k][ty], a1 = am[stage][k][ty + 16], b0 = bm[stage][k][tx], b1 = bm[stage][k][tx + 16];
      const float a[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
      const float b[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
      G_UNROLL for (u32 i = 0; i < 8; i++) {
        G_UNROLL for (u32 j = 0; j < 8; j++) acc[i][j] = g_fma(a[i], b[j], acc[i][j]);
      }
    }
    if (k0 + BK < w.k) store(stage ^ 1);
    bar();
  }
  G_UNROLL for (u32 i = 0; i < 8; i++) {
    const u32 m = m0 + ty * 4 + i % 4 + i / 4 * 64;
    if (m >= columns) continue;
    G_UNROLL for (u32 j = 0; j < 8; j++) {
      const u32 c = n0 + tx * 4 + j % 4 + j / 4 * 64;
      if (c >= n) continue;
      float v = acc[i][j];
      if (BIAS) v += load_float(bias, BIAS - 1, c);
      if (res) v += res[at(rr, m) + c];
      y[(u64)m * n + c] = v;
    }
  }
}
