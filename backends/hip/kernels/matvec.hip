// y[c][n] = Σk w[n,k]·x[c][k] (+ b[n]) (+ r[c][n]) for NC columns of x: a block
// gives NR rows of w, its threads share the elements. Reads every weight once,
// 16 bytes a lane where the type has them. With ids, column c is one expert's
// place: row n of expert ids[c].
#include "prelude.h"
#include "weights.h"
#define NT 128

G_FN f4 load_x(const float *x, u32 e, u32 k) {
#if X_SCALAR || W_SCALAR
  f4 v;
  v.x = e < k ? x[e] : 0.0f;
  v.y = e + 1 < k ? x[e + 1] : 0.0f;
  v.z = e + 2 < k ? x[e + 2] : 0.0f;
  v.w = e + 3 < k ? x[e + 3] : 0.0f;
  return v;
#else
  return *(const f4 *)(x + e);
#endif
}

// adds unit u's products
G_FN void multiply(float (&acc)[NR][NC], u32 k, const Row (&rows)[NR], const float *const (&xs)[NC], u32 u) {
  Quad q[NR][W_NQ];
  G_UNROLL for (int r = 0; r < NR; r++) w_unit(rows[r], u, q[r]);
  G_UNROLL for (int i = 0; i < W_NQ; i++) {
    u32 e = w_pos(u) + W_STEP * i;
    G_UNROLL for (int c = 0; c < NC; c++) {
      f4 v = load_x(xs[c], e, k);
      float sum = v.x + v.y + v.z + v.w;
      G_UNROLL for (int r = 0; r < NR; r++) {
        const Quad &a = q[r][i];
        float d = a.v[0] * v.x;
        d = g_fma(a.v[1], v.y, d);
        d = g_fma(a.v[2], v.z, d);
        d = g_fma(a.v[3], v.w, d);
        acc[r][c] = W_PLAIN ? acc[r][c] + d : g_fma(a.s, d, acc[r][c]);
        if (W_OFFSET) acc[r][c] = g_fma(a.o, sum, acc[r][c]);
      }
    }
  }
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) matvec(float *__restrict__ y, const float *x, Rows xr, Weights w, u32 n, u32 columns,
                             const void *bias, const float *res, Rows rr,
                             const int *ids, u32 experts, u32 share, u32 *status, u32 launch) {
  begin_next();
  wait_previous();
  __shared__ float part[NT / G_WAVE][NR * NC];
  const u32 n0 = bidx() * NR, c0 = bidy() * NC;
  u64 first = 0, expert = 0;
  if (ids) {
    int id = ids[c0];
    if (id < 0 || (u32)id >= experts) {
      if (tid() == 0) fail(status, launch, c0, id);
      id = 0;
    }
    expert = (u64)id;
    first = expert * n;
  }
  const float *xs[NC];
  Row rows[NR];
  G_UNROLL for (int c = 0; c < NC; c++) xs[c] = x + at(xr, g_min(c0 + c, columns - 1) / share);
  G_UNROLL for (int r = 0; r < NR; r++) rows[r] = w_row(w, first + g_min(n0 + r, n - 1));
  float acc[NR][NC];
  G_UNROLL for (int r = 0; r < NR; r++) {
    G_UNROLL for (int c = 0; c < NC; c++) acc[r][c] = 0;
  }
  const u32 units = (w.k + 4 * W_NQ - 1) / (4 * W_NQ);
  u32 u = tid();
  for (; u + (UNROLL - 1) * NT < units; u += UNROLL * NT) {
    G_UNROLL for (u32 j = 0; j < UNROLL; j++) multiply(acc, w.k, rows, xs, u + j * NT);
  }
  for (; u < units; u += NT) multiply(acc, w.k, rows, xs, u);
  G_UNROLL for (int r = 0; r < NR; r++) {
    G_UNROLL for (int c = 0; c < NC; c++) {
      float v = wave_sum(acc[r][c]);
      if (lane() == 0) part[tid() / G_WAVE][r * NC + c] = v;
    }
  }
  bar();
  const u32 t = tid();
  if (t >= NR * NC) return;
  const u32 row = n0 + t / NC, col = c0 + t % NC;
  if (row >= n || col >= columns) return;
  float v = 0;
  G_UNROLL for (int i = 0; i < NT / G_WAVE; i++) v += part[i][t];
  if (BIAS) v += load_float(bias, BIAS - 1, expert * n + row);
  if (res) v += res[at(rr, col) + row];
  y[(u64)col * n + row] = v;
}
