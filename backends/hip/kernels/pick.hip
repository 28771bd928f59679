// The choice of tokens: the k largest of a long row, such as a vocabulary's logits, and the log-probabilities of some.
#include "prelude.h"
#include "log.h"
#define NT 1024

// Waits for the kernel before this one, where the launch lets it start early.
G_FN void settle() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// order maps floats to whole numbers of the same order: NaNs come before all
// numbers, both zeros are equal.
G_FN u32 order(float f) {
  u32 u = f2u(f == 0 ? 0.0f : f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0xfffffff0u;
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// p, e = the k largest of each row and their places, in falling order, of equal
// ones the lower place first: a block a row, one search a choice. A candidate is
// its order above its place, inverted, so that the largest is the one wanted.
G_KERNEL G_BOUNDS(NT) pick(float *p, int *e, const float *x, Rows xr, u32 k) {
  __shared__ u64 best[NT];
  settle();
  const u32 d = xr.cols, row = bidx(), t = tid();
  const float *a = x + at(xr, row);
  u64 last = ~(u64)0;
  for (u32 n = 0; n < k; n++) {
    u64 top = 0;
#pragma unroll 4
    for (u32 i = t; i < d; i += NT) {
      u64 c = (u64)order(a[i]) << 32 | (u32)~i;
      if (c < last && c > top) top = c;
    }
    best[t] = top;
    bar();
    for (u32 o = NT / 2; o; o >>= 1) {
      if (t < o && best[t + o] > best[t]) best[t] = best[t + o];
      bar();
    }
    last = best[0];
    bar();
    if (t == 0) {
      u32 i = ~(u32)last;
      p[(u64)row * k + n] = a[i];
      e[(u64)row * k + n] = (int)i;
    }
  }
}

// AT_ONCE are elements that a thread asks for together.
#define AT_ONCE 4
G_FN void fetch(float v[AT_ONCE], const float *a, u32 i, u32 d) {
  G_UNROLL for (u32 j = 0; j < AT_ONCE; j++) v[j] = i + j * NT < d ? a[i + j * NT] : u2f(0xff800000u);
}

// y = the logarithms of the softmax of a row at the places that tokens names, minus infinity where it names none: a block
// a row. What is no number makes the sum none.
G_KERNEL G_BOUNDS(NT) logprob(float *y, const float *x, Rows xr, const u32 *tokens, u32 n) {
  __shared__ float s[NT / G_WAVE];
  settle();
  const u32 d = xr.cols, row = bidx(), t = tid();
  const float *a = x + at(xr, row);
  float top = a[0], v[AT_ONCE];
  for (u32 i = t; i < d; i += AT_ONCE * NT) {
    fetch(v, a, i, d);
    G_UNROLL for (u32 j = 0; j < AT_ONCE; j++) top = g_max(top, v[j]);
  }
  top = wave_max(top);
  if (lane() == 0) s[t / G_WAVE] = top;
  bar();
  for (u32 i = 0; i < NT / G_WAVE; i++) top = g_max(top, s[i]);
  bar();
  float sum = 0;
  for (u32 i = t; i < d; i += AT_ONCE * NT) {
    fetch(v, a, i, d);
    G_UNROLL for (u32 j = 0; j < AT_ONCE; j++) sum += g_exp(v[j] - top);
  }
  const float log = g_log(block_sum<NT>(sum, s));
  for (u32 i = t; i < n; i += NT) {
    const u64 k = (u64)row * n + i;
    const u32 token = tokens[k];
    y[k] = token < d ? a[token] - top - log : u2f(0xff800000u);
  }
}
