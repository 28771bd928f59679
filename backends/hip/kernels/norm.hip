// Norms and softmax: a block of NT threads a row.
#include "prelude.h"
#include "norm.h"

// y = x / √(mean(x²) + eps) · w; with r, x is x + r, stored in sum as well.
G_KERNEL G_BOUNDS(NORM_NT) rmsnorm(float *__restrict__ y, const float *x, Rows xr, const float *r,
                                   Rows rr, float *__restrict__ sum, const void *w, u32 wtype, float eps) {
  begin_next();
  wait_previous();
  __shared__ float part[NORM_NT / G_WAVE];
  const u32 d = xr.cols, row = bidx();
  x += at(xr, row);
  y += (u64)row * d;
  if (r) {
    r += at(rr, row);
    sum += (u64)row * d;
  }
  const float by = norm_factor<NORM_NT>(x, r, d, eps, part);
  for (u32 i = 4 * tid(); i < d; i += 4 * NORM_NT) {
    G_UNROLL for (u32 j = 0; j < 4; j++) {
      if (i + j >= d) break;
      float v = x[i + j];
      if (r) sum[i + j] = v += r[i + j];
      y[i + j] = norm_one(v, by, w, wtype, i + j);
    }
  }
}

// y = (x - mean) / √(variance + eps) · w + b
G_KERNEL G_BOUNDS(NT) layernorm(float *__restrict__ y, const float *x, Rows xr,
                                const void *w, u32 wtype, const void *b,
                                u32 btype, float eps) {
  begin_next();
  wait_previous();
  __shared__ float part[NT / G_WAVE];
  const u32 d = xr.cols, row = bidx();
  const float *a = x + at(xr, row);
  y += (u64)row * d;
  float s = 0;
  for (u32 i = tid(); i < d; i += NT) s += a[i];
  const float mean = block_sum<NT>(s, part) / (float)d;
  s = 0;
  for (u32 i = tid(); i < d; i += NT) s += (a[i] - mean) * (a[i] - mean);
  const float by = g_rsqrt(block_sum<NT>(s, part) / (float)d + eps);
  for (u32 i = tid(); i < d; i += NT) {
    float v = (a[i] - mean) * by;
    if (w) v *= load_float(w, wtype, i);
    if (b) v += load_float(b, btype, i);
    y[i] = v;
  }
}

// y = exp(x - max) / Σ exp(x - max)
G_KERNEL G_BOUNDS(NT) softmax(float *__restrict__ y, const float *x, Rows xr) {
  begin_next();
  wait_previous();
  __shared__ float part[NT / G_WAVE];
  const u32 d = xr.cols, row = bidx();
  const float *a = x + at(xr, row);
  y += (u64)row * d;
  float top = -3.4e38f;
  for (u32 i = tid(); i < d; i += NT) top = g_max(top, a[i]);
  top = block_max<NT>(top, part);
  float s = 0;
  for (u32 i = tid(); i < d; i += NT) {
    float v = g_exp(a[i] - top);
    y[i] = v;
    s += v;
  }
  const float by = 1.0f / block_sum<NT>(s, part);
  for (u32 i = tid(); i < d; i += NT) y[i] *= by;
}
