// Choices by chance: penalties, noise and masks over rows of logits, of which the largest are taken.
#include "prelude.h"
#include "log.h"
#define NT 256

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011).
G_FN void philox(u32 c[4], u32 k0, u32 k1) {
  for (u32 i = 0; i < 10; i++) {
    const u64 a = (u64)c[0] * 0xd2511f53u, b = (u64)c[2] * 0xcd9e8d57u;
    c[0] = (u32)(b >> 32) ^ c[1] ^ k0;
    c[1] = (u32)b;
    c[2] = (u32)(a >> 32) ^ c[3] ^ k1;
    c[3] = (u32)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
}

// -ln(1 - u) of a word: u is the word / 2^32 in 24 bits, not 0. By its series near zero, where 1 - u would lose it.
G_FN float exponential(u32 word) {
  if (word >= 1u << 24) word &= ~0xffu;
  if (word == 0) word = 1;
  const float u = (float)word * 2.3283064e-10f;
  if (u > 0.03125f) return -g_log(1.0f - u);
  float p = 0.2f;
  p = g_fma(p, u, 0.25f);
  p = g_fma(p, u, 0.333333333f);
  p = g_fma(p, u, 0.5f);
  return g_fma(p * u, u, u);
}

// y = x for a rate of 0, else rate x - ln(-ln(1 - u)), u by the row's key; minus infinity where a token is not
// allowed. A thread takes four tokens, whose numbers come from one counter.
G_KERNEL G_BOUNDS(NT) draw(float *__restrict__ y, const float *x, Rows xr, const float *rate, const u32 *keys,
                           const u32 *allowed, u32 words) {
  begin_next();
  wait_previous();
  const u32 row = bidx(), from = 4 * (bidy() * NT + tid());
  if (from >= xr.cols) return;
  const u32 *k = keys + 4 * (u64)row;
  const u32 bits = allowed[(u64)row * words + from / 32] >> (from & 31);
  const float by = rate[row], *a = x + at(xr, row);
  u32 c[4] = {k[2], k[3], from / 4, 1};
  if (by != 0.0f) philox(c, k[0], k[1]);
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const u32 v = from + i;
    if (v >= xr.cols) return;
    float z = a[v];
    if (by != 0.0f) z = g_fma(by, z, -g_log(exponential(c[i])));
    y[(u64)row * xr.cols + v] = bits >> i & 1 ? z : u2f(0xff800000u);
  }
}

// y = x, of the tokens that a row names x / by + plus where x > 0, x by + plus elsewhere. A block takes 1024 columns of a
// row, and those of the row's names that lie in them.
G_KERNEL G_BOUNDS(NT) adjust(float *y, const float *x, Rows xr, const u32 *tokens, const float *by, const float *plus,
                             u32 names) {
  begin_next();
  wait_previous();
  const u32 row = bidx(), from = 4 * NT * bidy(), to = g_min(from + 4 * NT, xr.cols);
  const float *a = x + at(xr, row);
  float *b = y + (u64)row * xr.cols;
  for (u32 i = from + tid(); i < to; i += NT) b[i] = a[i];
  bar();
  for (u32 i = tid(); i < names; i += NT) {
    const u64 k = (u64)row * names + i;
    const u32 v = tokens[k];
    if (v < from || v >= to) continue;
    const float z = a[v];
    b[v] = (z > 0.0f ? z / by[k] : z * by[k]) + plus[k];
  }
}
