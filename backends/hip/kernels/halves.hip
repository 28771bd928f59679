// Rows in half precision for gemm.hip, padded with zeros to kp columns. A row is
// scaled by a power of two such that its largest element lies in [2^13, 2^14): no
// row overflows, and none loses bits for being small. factor undoes it.
#include "prelude.h"
#include "norm.h"
#include "scale.h"
#include "weights.h"
#if NORM
#define NT NORM_NT
#else
#define NT 256
#endif

struct alignas(8) four16 { u16 c[4]; };
G_FN four16 halves_of(f4 v, float up) {
  return four16{{TO16(v.x * up), TO16(v.y * up), TO16(v.z * up), TO16(v.w * up)}};
}

#if ROUND
// Of activations: a block a row. With NORM of rmsnorm(x, nw), which goes to h too
// where that is not null, with the bits that norm.hip gives.
G_KERNEL G_BOUNDS(NT) round_rows(u16 *__restrict__ out, float *__restrict__ factor, const float *x, Rows xr, u32 kp,
                                 const void *nw, u32 ntype, float eps, float *h) {
  __shared__ float red[NT / G_WAVE];
  begin_next();
  wait_previous();
  const u32 r = bidx(), k = xr.cols;
  const float *a = x + at(xr, r);
  out += (u64)r * kp;
  f4 keep[KEEP];
  float top = 0, by = 1;
#if NORM
  by = norm_factor<NT>(a, nullptr, k, eps, red);
  if (h) h += (u64)r * k;
#endif
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    f4 v = f4{0, 0, 0, 0};
#if X_SCALAR
    v.x = i < k ? a[i] : 0.0f;
    v.y = i + 1 < k ? a[i + 1] : 0.0f;
    v.z = i + 2 < k ? a[i + 2] : 0.0f;
    v.w = i + 3 < k ? a[i + 3] : 0.0f;
#else
    if (i < k) v = *(const f4 *)(a + i);
#if NORM
    if (i < k) v = norm_by(v, norm_weights(nw, ntype, i), by);
    if (h && i < k) *(f4 *)(h + i) = v;
#endif
#endif
    keep[j] = v;
    top = g_max(top, g_max(g_max(g_abs(v.x), g_abs(v.y)), g_max(g_abs(v.z), g_abs(v.w))));
  }
  for (u32 i = tid() + 4 * KEEP * NT; i < k; i += NT) top = g_max(top, g_abs(a[i]));
  top = block_max<NT>(top, red);
  (void)by;
  const float up = BF16 ? 1.0f : scale_for<13>(top);
  if (tid() == 0) factor[r] = 1.0f / up;
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    if (i < kp) *(four16 *)(out + i) = halves_of(keep[j], up);
  }
  for (u32 i = tid() + 4 * KEEP * NT; i < kp; i += NT) out[i] = TO16(i < k ? a[i] * up : 0.0f);
}
#else
// Of weights: a wave a row. Plain floats are not scaled: halves hold those of
// eight bits and of f16 exactly. A block's elements are scaled by what they can be at most.
#define AT_ONCE (W_NQ > 2 ? 2 : 4) // units of a lane
// With soon nothing that still runs uses out and factor: only the launch's end waits for
// those before it.
G_FN void widen_row(u16 *__restrict__ out, float *__restrict__ factor, const Weights &w, u32 r, u32 kp) {
  const Row row = w_row(w, r);
  out += (u64)r * kp;
  const u32 units = (w.k + 4 * W_NQ - 1) / (4 * W_NQ);
  float up = 1;
#if !W_PLAIN
  float top = 0;
  for (u32 b = lane(); b < w.k / W_BLOCK; b += G_WAVE) top = g_max(top, w_bound(row, b));
  up = scale_for<13>(wave_max(top));
#endif
  if (lane() == 0) factor[r] = 1.0f / up;
#if W_TYPE == W_Q4_K // eight elements in a row a lane, so that stores are of whole lines: measured for this type
  for (u32 u0 = lane(); u0 < w.k / 8; u0 += 2 * G_WAVE) {
    Quad q[2][2];
    G_UNROLL for (u32 j = 0; j < 2; j++) {
      const u32 e = 8 * g_min(u0 + j * G_WAVE, w.k / 8 - 1);
      G_UNROLL for (u32 i = 0; i < 2; i++) q[j][i] = w_quad(row, e + 4 * i);
    }
    G_UNROLL for (u32 j = 0; j < 2; j++) {
      const u32 u = u0 + j * G_WAVE;
      if (u >= w.k / 8) break;
      u32 v[4];
      G_UNROLL for (u32 i = 0; i < 2; i++) {
        q[j][i].s *= up;
        q[j][i].o *= up;
        w_apply(q[j][i]);
        v[2 * i] = TO16(q[j][i].v[0]) | (u32)TO16(q[j][i].v[1]) << 16;
        v[2 * i + 1] = TO16(q[j][i].v[2]) | (u32)TO16(q[j][i].v[3]) << 16;
      }
      *(u4 *)(out + 8 * u) = u4{v[0], v[1], v[2], v[3]};
    }
  }
#else
  for (u32 u0 = lane(); u0 < units; u0 += AT_ONCE * G_WAVE) {
    Quad q[AT_ONCE][W_NQ];
    G_UNROLL for (u32 j = 0; j < AT_ONCE; j++) w_unit(row, g_min(u0 + j * G_WAVE, units - 1), q[j]);
    G_UNROLL for (u32 j = 0; j < AT_ONCE; j++) {
      const u32 u = u0 + j * G_WAVE;
      if (u >= units) break;
      G_UNROLL for (int i = 0; i < W_NQ; i++) {
        const u32 e = w_pos(u) + W_STEP * i;
        q[j][i].s *= up;
        q[j][i].o *= up;
        w_apply(q[j][i]);
        if (e < kp) *(four16 *)(out + e) = halves_of(f4{q[j][i].v[0], q[j][i].v[1], q[j][i].v[2], q[j][i].v[3]}, 1);
      }
    }
  }
#endif
  for (u32 e = 4 * (units * W_NQ + lane()); e < kp; e += 4 * G_WAVE) *(four16 *)(out + e) = four16{{0, 0, 0, 0}};
}
G_KERNEL G_BOUNDS(NT) widen(u16 *__restrict__ out, float *__restrict__ factor, Weights w, u32 n, u32 kp, u32 soon) {
  begin_next();
  if (!soon) wait_previous();
  const u32 r = bidx() * (NT / G_WAVE) + tid() / G_WAVE;
  if (r < n) widen_row(out, factor, w, r, kp);
  if (soon && bidx() == 0) wait_previous();
}

#if W_TYPE == W_Q4_K
// For each 32 elements of rows scaled by 1/(SHRINK·factor) what decode.h multiplies a code
// by, and behind it what it adds, as halves. What rounding the former does to the middle of 16 codes is made good by the latter.
G_KERNEL G_BOUNDS(NT) subscales(u4 *__restrict__ out, const float *factor, Weights w, u32 n, u32 soon) {
  begin_next();
  if (!soon) wait_previous();
  const u32 blocks = w.k / 256, i = bidx() * NT + tid();
  if (i < n * blocks) {
    const u32 r = i / blocks;
    const float up = 1.0f / (SHRINK * factor[r]);
    const u4 head = ((const u4 *)w_row(w, r).p1)[i % blocks];
    u32 v[8];
    G_UNROLL for (u32 sub = 0; sub < 8; sub++) {
      float s, o;
      w_sub(head, sub, s, o);
      const float code = sub % 2 ? HIGH_UP : LOW_UP;
      const u16 by = f2h(s * up * code);
      v[sub] = by | (u32)f2h((s - h2f(by) / (up * code)) * (7.5f * up) + o * up) << 16;
    }
    out[2 * i] = u4{v[0], v[1], v[2], v[3]};
    out[2 * i + 1] = u4{v[4], v[5], v[6], v[7]};
  }
  if (soon && bidx() == 0) wait_previous();
}
#endif
#endif
