// Norms and softmax: a block a row.
#include "prelude.h"
#define NT 256

// y = x / √(mean(x²) + eps) · w; with r, x is x + r, stored in sum as well.
G_KERNEL G_BOUNDS(NT) rmsnorm(float *y, const float *x, Rows xr, const float *r, Rows rr, float *sum,
                              const void *w, u32 wtype, float eps) {
  __shared__ float part[NT / G_WAVE];
  const u32 d = xr.cols, row = bidx();
  const float *a = x + at(xr, row);
  y += (u64)row * d;
  float ss = 0;
  if (r) {
    r += at(rr, row);
    sum += (u64)row * d;
    for (u32 i = tid(); i < d; i += NT) {
      float v = a[i] + r[i];
      sum[i] = v;
      ss += v * v;
    }
    a = sum; // each thread reads what it wrote
  } else {
    for (u32 i = tid(); i < d; i += NT) ss += a[i] * a[i];
  }
  ss = block_sum<NT>(ss, part);
  const float by = g_rsqrt(ss / (float)d + eps);
  for (u32 i = tid(); i < d; i += NT) {
    float v = a[i] * by;
    y[i] = w ? v * load_float(w, wtype, i) : v;
  }
}

// y = (x - mean) / √(variance + eps) · w + b
G_KERNEL G_BOUNDS(NT) layernorm(float *y, const float *x, Rows xr, const void *w, u32 wtype, const void *b,
                                u32 btype, float eps) {
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
G_KERNEL G_BOUNDS(NT) softmax(float *y, const float *x, Rows xr) {
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
