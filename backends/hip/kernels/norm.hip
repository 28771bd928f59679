// Norms and softmax: a block of NT threads a row.
#include "prelude.h"

// y = x / √(mean(x²) + eps) · w; with r, x is x + r, stored in sum as well. A
// thread keeps up to PER elements in registers, so that rows are read once;
// longer rows are read again.
G_KERNEL G_BOUNDS(NT) rmsnorm(float *__restrict__ y, const float *__restrict__ x, Rows xr, const float *__restrict__ r,
                              Rows rr, float *__restrict__ sum, const void *__restrict__ w, u32 wtype, float eps) {
  __shared__ float part[NT / G_WAVE];
  const u32 d = xr.cols, row = bidx(), t = tid();
  x += at(xr, row);
  y += (u64)row * d;
  if (r) {
    r += at(rr, row);
    sum += (u64)row * d;
  }
  float v[PER], wv[PER], ss = 0;
  G_UNROLL for (u32 j = 0; j < PER; j++) {
    u32 i = t + j * NT;
    v[j] = i < d ? x[i] : 0.0f;
    if (r && i < d) v[j] += r[i];
    wv[j] = 1;
    if (w && i < d) wv[j] = load_float(w, wtype, i);
  }
  G_UNROLL for (u32 j = 0; j < PER; j++) {
    ss += v[j] * v[j];
    if (r && t + j * NT < d) sum[t + j * NT] = v[j];
  }
  for (u32 i = t + PER * NT; i < d; i += NT) {
    float a = x[i];
    if (r) {
      a += r[i];
      sum[i] = a;
    }
    ss += a * a;
  }
  ss = block_sum<NT>(ss, part);
  const float by = g_rsqrt(ss / (float)d + eps);
  G_UNROLL for (u32 j = 0; j < PER; j++) {
    if (t + j * NT < d) y[t + j * NT] = v[j] * by * wv[j];
  }
  for (u32 i = t + PER * NT; i < d; i += NT) {
    float a = (r ? x[i] + r[i] : x[i]) * by;
    y[i] = w ? a * load_float(w, wtype, i) : a;
  }
}

// y = (x - mean) / √(variance + eps) · w + b
G_KERNEL G_BOUNDS(NT) layernorm(float *__restrict__ y, const float *__restrict__ x, Rows xr,
                                const void *__restrict__ w, u32 wtype, const void *__restrict__ b,
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
G_KERNEL G_BOUNDS(NT) softmax(float *__restrict__ y, const float *__restrict__ x, Rows xr) {
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
