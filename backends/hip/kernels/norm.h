// RMSNorm's parts, the same for a launch of its own and for products that norm
// their input themselves: results are equal bit for bit.
#pragma once
#define NORM_NT 512 // threads of a row

G_FN float norm_square(f4 v, float ss) { return g_fma(v.w, v.w, g_fma(v.z, v.z, g_fma(v.y, v.y, g_fma(v.x, v.x, ss)))); }
// 1 / √(mean + eps) of d elements, from the sum of their squares
G_FN float norm_scale(float ss, u32 d, float eps) { return g_rsqrt(ss / (float)d + eps); }
// the same from the sums of squares of N threads. s has N / G_WAVE words.
template <int N> G_FN float norm_root(float ss, u32 d, float eps, float *s) { return norm_scale(block_sum<N>(ss, s), d, eps); }

// The same from the elements x + r, r null or a row of as many: thread t takes
// elements 4t … 4t+3, and 4N further on again.
template <int N> G_FN float norm_factor(const float *x, const float *r, u32 d, float eps, float *s) {
  float ss = 0;
  if (d % 4 == 0 && ((u64)x | (u64)r) % 16 == 0) { // the same sums, by wider loads
    for (u32 i = 4 * tid(); i < d; i += 4 * N) {
      f4 v = *(const f4 *)(x + i);
      if (r) {
        const f4 u = *(const f4 *)(r + i);
        v = f4{v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w};
      }
      ss = norm_square(v, ss);
    }
    return norm_root<N>(ss, d, eps, s);
  }
  for (u32 i = 4 * tid(); i < d; i += 4 * N) {
    G_UNROLL for (u32 j = 0; j < 4; j++) {
      if (i + j >= d) break;
      float v = x[i + j];
      if (r) v += r[i + j];
      ss = g_fma(v, v, ss);
    }
  }
  return norm_root<N>(ss, d, eps, s);
}

// elements i … i+3 of a norm's weights, ones where there are none
G_FN f4 norm_weights(const void *w, u32 type, u32 i) {
  if (!w) return f4{1, 1, 1, 1};
  if (type == T_F32 && (u64)w % 16 == 0 && i % 4 == 0) return *(const f4 *)((const float *)w + i);
  return f4{load_float(w, type, i), load_float(w, type, i + 1), load_float(w, type, i + 2), load_float(w, type, i + 3)};
}
// Results are (x·w)·by, in this order everywhere.
G_FN f4 norm_by(f4 v, f4 w, float by) { return f4{v.x * w.x * by, v.y * w.y * by, v.z * w.z * by, v.w * w.w * by}; }
G_FN float norm_one(float v, float by, const void *w, u32 type, u32 i) { return (w ? v * load_float(w, type, i) : v) * by; }
