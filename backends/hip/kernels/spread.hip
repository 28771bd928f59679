// Tensors spread over each other, parts of tensors, sums of rows, small integers, matrices of heads.
#include "prelude.h"
#include "log.h"
#define NT 256

// How four nested loops go through a tensor: elements from one index to the next, 0 where it is spread.
struct Steps { u32 s0, s1, s2, s3; };
G_FN u64 step_to(const Steps &s, u32 i0, u32 i1, u32 i2, u32 i3) {
  return (u64)i0 * s.s0 + (u64)i1 * s.s1 + (u64)i2 * s.s2 + (u64)i3 * s.s3;
}

#define SPREAD(NAME, VALUE)                                                                            \
  G_KERNEL G_BOUNDS(NT) NAME(float *z, Steps zs, const void *x, u32 xtype, Steps xs, const void *y, u32 ytype,      \
                             Steps ys, u32 n, u32 n1, u32 n2, u32 n3) {                                \
    begin_next();                                                                                      \
    wait_previous();                                                                                   \
    u32 i = bidx() * NT + tid();                                                                       \
    if (i >= n) return;                                                                                \
    u32 i3 = i % n3, r = i / n3, i2 = r % n2, i1 = r / n2 % n1, i0 = r / n2 / n1;                      \
    float a = load_float(x, xtype, step_to(xs, i0, i1, i2, i3));                                       \
    float b = y ? load_float(y, ytype, step_to(ys, i0, i1, i2, i3)) : 0.0f;                            \
    (void)b;                                                                                           \
    z[step_to(zs, i0, i1, i2, i3)] = VALUE;                                                            \
  }
SPREAD(spread_add, a + b)
SPREAD(spread_mul, a *b)
SPREAD(spread_sub, a - b)
SPREAD(spread_div, a / b)
SPREAD(spread_min, a < b ? a : b)
SPREAD(spread_max, a > b ? a : b)
SPREAD(spread_greater, a > b ? 1.0f : 0.0f)
SPREAD(spread_copy, a)

// Sums, means, largest elements and running sums of rows: a block a row.
#define ROWS_HEAD                                                                                      \
  begin_next();                                                                                        \
  wait_previous();                                                                                     \
  __shared__ float part[NT];                                                                           \
  const u32 t = tid();                                                                                 \
  const float *a = x + at(xr, bidx())
G_KERNEL G_BOUNDS(NT) row_sum(float *z, const float *x, Rows xr) {
  ROWS_HEAD;
  float s = 0;
  for (u32 i = t; i < xr.cols; i += NT) s += a[i];
  s = block_sum<NT>(s, part);
  if (t == 0) z[bidx()] = s;
}
G_KERNEL G_BOUNDS(NT) row_mean(float *z, const float *x, Rows xr) {
  ROWS_HEAD;
  float s = 0;
  for (u32 i = t; i < xr.cols; i += NT) s += a[i];
  s = block_sum<NT>(s, part);
  if (t == 0) z[bidx()] = s / (float)xr.cols;
}
G_KERNEL G_BOUNDS(NT) row_largest(float *z, const float *x, Rows xr) {
  ROWS_HEAD;
  float s = a[0];
  for (u32 i = t; i < xr.cols; i += NT) s = g_max(s, a[i]);
  s = block_max<NT>(s, part);
  if (t == 0) z[bidx()] = s;
}
G_KERNEL G_BOUNDS(NT) row_cumsum(float *z, const float *x, Rows xr) {
  ROWS_HEAD;
  // each thread has columns that follow each other
  const u32 per = (xr.cols + NT - 1) / NT, from = g_min(t * per, xr.cols), end = g_min(from + per, xr.cols);
  float s = 0;
  for (u32 i = from; i < end; i++) s += a[i];
  part[t] = s;
  bar();
  s = 0;
  for (u32 i = 0; i < t; i++) s += part[i];
  for (u32 i = from; i < end; i++) {
    s += a[i];
    z[(u64)bidx() * xr.cols + i] = s;
  }
}

// z[u] = x[e[u]] in each row
G_KERNEL G_BOUNDS(NT) select_of(float *z, const float *x, Rows xr, const int *e, u32 n, u32 cols, u32 *status,
                                u32 launch) {
  begin_next();
  wait_previous();
  u32 i = bidx() * NT + tid();
  if (i >= n) return;
  int c = e[i];
  if (c < 0 || (u32)c >= xr.cols) {
    fail(status, launch, i, c);
    c = 0;
  }
  z[i] = x[at(xr, i / cols) + c];
}

G_KERNEL G_BOUNDS(NT) shift_of(int *z, const int *x, u32 n, u32 by) {
  begin_next();
  wait_previous();
  u32 i = bidx() * NT + tid();
  if (i < n) z[i] = (int)((u32)x[i] + by);
}
G_KERNEL G_BOUNDS(NT) real_of(float *z, const int *x, u32 n) {
  begin_next();
  wait_previous();
  u32 i = bidx() * NT + tid();
  if (i < n) z[i] = (float)x[i];
}

// z[s,h,j] = w[h,j]·x[s,h] + b[h,j]: a wave an element
G_KERNEL G_BOUNDS(NT) per_head(float *z, const float *x, u32 xstride, const void *w, u32 wtype, const void *b,
                               u32 btype, u32 n, u32 heads, u32 outs, u32 k) {
  begin_next();
  wait_previous();
  const u32 i = bidx() * (NT / G_WAVE) + tid() / G_WAVE;
  const u32 j = g_min(i, n - 1), at_w = j % (heads * outs), h = at_w / outs;
  const float *a = x + (u64)(j / (heads * outs)) * xstride + (u64)h * k;
  float s = 0;
  for (u32 c = lane(); c < k; c += G_WAVE) s = g_fma(load_float(w, wtype, (u64)at_w * k + c), a[c], s);
  s = wave_sum(s);
  if (lane() == 0 && i < n) z[i] = b ? s + load_float(b, btype, at_w) : s;
}

// y = a x² + beta x for x > 0, else b (e^min(x, eps) - 1 - x) + beta x, with a = softplus(p) and
// b = beta + softplus(n), each of one element
G_KERNEL G_BOUNDS(NT) xielu(float *z, const float *x, u32 n, u32 row, u32 stride, const void *wp, u32 ptype,
                            const void *wn, u32 ntype, const void *wb, u32 btype, const void *we, u32 etype, float beta,
                            float eps) {
  begin_next();
  wait_previous();
  u32 i = bidx() * NT + tid();
  if (i >= n) return;
  if (wb) beta = load_float(wb, btype, 0);
  if (we) eps = load_float(we, etype, 0);
  const float up = g_softplus(load_float(wp, ptype, 0)), down = beta + g_softplus(load_float(wn, ntype, 0));
  const float a = x[spread(i, row, stride)];
  z[i] = a > 0.0f ? g_fma(up * a, a, beta * a) : g_fma(down, g_expm1(a < eps ? a : eps) - a, beta * a);
}
