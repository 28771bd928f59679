// y = x·wᵀ (+ b) (+ r) by tiles with plain multiply-adds: 64 rows of x by 64
// rows of w a block, 4 by 4 a thread, in steps of 32 elements. Serves every
// type of weight on every target.
#include "prelude.h"
#include "weights.h"
#define NT 256
#define BM 64
#define BN 64
#define BK 32

G_KERNEL G_BOUNDS(NT) tile(float *y, const float *x, Rows xr, Weights w, u32 n, u32 columns,
                           const void *bias, const float *res, Rows rr) {
  begin_next();
  wait_previous();
  // One column more than needed keeps threads of a wave on different banks.
  __shared__ float xs[BK][BM + 1], ws[BK][BN + 1];
  const u32 t = tid(), m0 = bidy() * BM, n0 = bidx() * BN;
  const u32 tx = t % 16, ty = t / 16;
  float acc[4][4];
  G_UNROLL for (int i = 0; i < 4; i++) {
    G_UNROLL for (int j = 0; j < 4; j++) acc[i][j] = 0;
  }
  for (u32 k0 = 0; k0 < w.k; k0 += BK) {
    G_UNROLL for (u32 i = 0; i < BM * BK / NT; i++) {
      u32 at_k = t % BK, row = t / BK + i * (NT / BK);
      u32 k = k0 + at_k, m = m0 + row;
      xs[at_k][row] = m < columns && k < w.k ? x[at(xr, m) + k] : 0.0f;
    }
    G_UNROLL for (u32 i = 0; i < BN * BK / 4 / NT; i++) {
      u32 at_k = t % (BK / 4) * 4, row = t / (BK / 4) + i * (NT / (BK / 4));
      Quad q = {};
      if (n0 + row < n && k0 + at_k < w.k) {
        q = w_quad(w_row(w, n0 + row), k0 + at_k);
        w_apply(q);
      }
      G_UNROLL for (u32 j = 0; j < 4; j++) ws[at_k + j][row] = q.v[j];
    }
    bar();
    G_UNROLL for (u32 k = 0; k < BK; k++) {
      float a[4], b[4];
      G_UNROLL for (u32 i = 0; i < 4; i++) a[i] = xs[k][ty + 16 * i];
      G_UNROLL for (u32 j = 0; j < 4; j++) b[j] = ws[k][tx + 16 * j];
      G_UNROLL for (u32 i = 0; i < 4; i++) {
        G_UNROLL for (u32 j = 0; j < 4; j++) acc[i][j] = g_fma(a[i], b[j], acc[i][j]);
      }
    }
    bar();
  }
  G_UNROLL for (u32 i = 0; i < 4; i++) {
    G_UNROLL for (u32 j = 0; j < 4; j++) {
      u32 m = m0 + ty + 16 * i, c = n0 + tx + 16 * j;
      if (m >= columns || c >= n) continue;
      float v = acc[i][j];
      if (BIAS) v += load_float(bias, BIAS - 1, c);
      if (res) v += res[at(rr, m) + c];
      y[(u64)m * n + c] = v;
    }
  }
}
