// y = x·wᵀ·scale (+ b) (+ r) for one row of x with weights of 8-bit floats that lie as
// [K/16, N, 16]: decoding. A block takes groups of eight rows, its waves share their
// elements: a wave reads lines of 16 bytes of eight rows, 128 bytes together, always AHEAD
// of them under way, from one group to the next. Sums of waves meet in shared memory at the end.
//
// MATS, PAIRED, PAIRED_OF, NORM and the arguments are vec.hip's. Groups of a pair of
// matrices follow one another.
#include "prelude.h"
#include "pair.h"
#include "norm.h"
#include "weights.h"
#include "f8.h"
#define NT NORM_NT
#define WAVES (NT / G_WAVE)
#define KEEP 4
#define TOGETHER 8                 // rows
#define LINES (G_WAVE / TOGETHER)  // of them, that a wave reads at once

struct Matrix {
  const u8 *w;
  const float *scale;
  float *y;
  const void *bias;
  u64 line;        // bytes from 16 elements to the next
  u32 scales, pad; // 0 or one a row
  u32 n, first;    // rows, and the number of its first group
};
struct Matrices { Matrix m[MATS]; };

// where a lane's row of group g begins; of a pair of matrices, of the which-th
G_FN const u8 *lines_of(const Matrices &all, u32 g, u32 which, u64 &line) {
  const u8 *w = all.m[0].w;
  u32 n = all.m[0].n, first = 0;
  line = all.m[0].line;
  G_UNROLL for (u32 i = 1; i < MATS; i++) {
    if (PAIRED ? which != i : g < all.m[i].first) continue;
    w = all.m[i].w;
    n = all.m[i].n;
    line = all.m[i].line;
    if (!PAIRED) first = all.m[i].first;
  }
  return w + g_min((g - first) * TOGETHER + lane() % TOGETHER, n - 1) * 16;
}
// a row's sum over the waves, with what follows it
G_FN float whole(const float *scale, u32 scales, const void *bias, const float *part, u32 row) {
  float v = 0;
  G_UNROLL for (u32 i = 0; i < WAVES; i++) v += part[i * TOGETHER];
  v *= u2f((127 + F8_DOWN) << 23);
  if (scales) v *= scale[row];
  if (BIAS) v += load_float(bias, BIAS - 1, row);
  (void)bias;
  return v;
}

// the sum of 16 products
G_FN float line_dot(const u4 &c, const f4 *x, float sum) {
  const u32 words[4] = {c.x, c.y, c.z, c.w};
  G_UNROLL for (int i = 0; i < 4; i++) {
    const f4 v = x[i];
    const u32 a = f8_halves(words[i], 0), b = f8_halves(words[i], 1);
    sum = g_fma(h2f((u16)a), v.x, sum);
    sum = g_fma(h2f((u16)(a >> 16)), v.y, sum);
    sum = g_fma(h2f((u16)b), v.z, sum);
    sum = g_fma(h2f((u16)(b >> 16)), v.w, sum);
  }
  return sum;
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) f8_vec(const float *x, u32 k, Matrices all, u32 groups, const float *res,
                                      const void *nw, u32 ntype, float eps, float *h, float *out) {
  extern __shared__ u4 shared_memory[];
  begin_next();
  const u32 lines = round_up(k, 128) / 16, wave = tid() / G_WAVE;
  f4 *const xs = (f4 *)shared_memory;
  float *const parts = (float *)(xs + lines * 4);
  // The block's groups, and the lines of each that are the lane's: first, then every stride-th.
  const u32 mine = bidx() < groups ? (groups - bidx() + gdimx() - 1) / gdimx() : 0;
  const u32 sums = mine * (PAIRED ? 2 : 1); // that a wave gives
  const u32 first = wave * LINES + lane() / TOGETHER, stride = WAVES * LINES, turns = (lines + stride - 1) / stride;
  const u32 total = sums * turns;
  // what is loaded next
  u32 asked = 0, g = bidx(), which = 0, turn = 0;
  u64 line = 0;
  const u8 *from = mine ? lines_of(all, g, 0, line) : nullptr;
  auto ask = [&](u4 &v) {
    if (asked++ >= total) return;
    v = *(const u4 *)(from + g_min(first + turn * stride, lines - 1) * line); // past the last line it is not used
    if (++turn == turns) {
      turn = 0;
      if (PAIRED) which ^= 1;
      if (!which) g += gdimx();
      if (asked < total) from = lines_of(all, g, which, line);
    }
  };
  u4 ahead[AHEAD];
  G_UNROLL for (u32 i = 0; i < AHEAD; i++) ask(ahead[i]);
#if NORM
  __shared__ float red[WAVES];
  f4 keep[KEEP];
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    if (i < k) keep[j] = norm_weights(nw, ntype, i);
  }
#endif
  wait_previous();
#if NORM
  float ss = 0;
  for (u32 i = 4 * tid(); i < k; i += 4 * NT) {
    const f4 v = *(const f4 *)(x + i);
    ss = norm_square(v, ss);
    xs[i / 4] = v;
  }
  const float by = norm_root<NT>(ss, k, eps, red);
  for (u32 i = 4 * tid(), j = 0; i < lines * 16; i += 4 * NT, j++) {
    f4 v = f4{0, 0, 0, 0};
    if (i < k) {
      f4 nv = keep[0];
      G_UNROLL for (u32 e = 1; e < KEEP; e++) {
        if (j == e) nv = keep[e];
      }
      if (j >= KEEP) nv = norm_weights(nw, ntype, i);
      v = norm_by(xs[i / 4], nv, by);
      if (h && bidx() == 0) *(f4 *)(h + i) = v;
    }
    xs[i / 4] = v;
  }
#else
  (void)nw, (void)ntype, (void)eps, (void)h;
  for (u32 i = 4 * tid(); i < lines * 16; i += 4 * NT) {
#if X_SCALAR
    xs[i / 4] = f4{i < k ? x[i] : 0.0f, i + 1 < k ? x[i + 1] : 0.0f, i + 2 < k ? x[i + 2] : 0.0f, i + 3 < k ? x[i + 3] : 0.0f};
#else
    if (i < k) xs[i / 4] = *(const f4 *)(x + i);
    else xs[i / 4] = f4{0, 0, 0, 0};
#endif
  }
#endif
  bar();
  u32 done = 0, used = 0; // of the group that is multiplied
  float sum = 0;
  float *part = parts + wave * TOGETHER + lane();
  for (u32 t = 0; t < total; t += AHEAD) {
    G_UNROLL for (u32 j = 0; j < AHEAD; j++) {
      if (t + j >= total) break;
      const u4 now = ahead[j];
      ask(ahead[j]);
      const u32 i = first + done * stride;
      if (i < lines) sum = line_dot(now, xs + i * 4, sum);
      if (++done < turns) continue;
      done = 0;
      G_UNROLL for (u32 o = TOGETHER; o < G_WAVE; o *= 2) sum += shfl_xor(sum, o);
      if (lane() < TOGETHER) part[used * (WAVES * TOGETHER)] = sum;
      used++;
      sum = 0;
    }
  }
  bar();
  for (u32 i = tid(); i < mine * TOGETHER; i += NT) {
    const u32 group = bidx() + i / TOGETHER * gdimx();
#if PAIRED
    const u32 row = group * TOGETHER + i % TOGETHER;
    if (row >= all.m[0].n) continue;
    const float *const sum0 = parts + i / TOGETHER * (2 * WAVES * TOGETHER) + i % TOGETHER;
    const float a = whole(all.m[0].scale, all.m[0].scales, all.m[0].bias, sum0, row), 
                b = whole(all.m[MATS - 1].scale, all.m[MATS - 1].scales, all.m[MATS - 1].bias, sum0 + WAVES * TOGETHER, row);
    if (all.m[0].y) {
      all.m[0].y[row] = a;
      all.m[MATS - 1].y[row] = b;
    }
    out[row] = PAIRED_OF(a, b);
#else
    (void)out;
    const float *const sum0 = parts + i / TOGETHER * (WAVES * TOGETHER) + i % TOGETHER;
    int m = 0;
    G_UNROLL for (int j = 1; j < MATS; j++) {
      if (group >= all.m[j].first) m = j;
    }
    G_UNROLL for (int j = 0; j < MATS; j++) {
      if (j != m) continue;
      const u32 row = (group - all.m[j].first) * TOGETHER + i % TOGETHER;
      if (row >= all.m[j].n) continue;
      float v = whole(all.m[j].scale, all.m[j].scales, all.m[j].bias, sum0, row);
      if (res) v += res[row];
      all.m[j].y[row] = v;
    }
#endif
  }
}
