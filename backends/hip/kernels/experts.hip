// The chosen experts of one token, with weights in blocks and x rounded to eight bits (int8.h). first: y[s,i] =
// OF(a[e_s,i]·x, b[e_s,i]·x) for every place s of the choice, where OF is a function of one product or, with PAIRED, of two;
// x is one row of k elements, or with all > k one for each place. second: y[i] = Σs p[s]·(w[e_s,i]·x[s] + bias[e_s,i])
// (+ v[i]·u) (+ r[i] + t[i]): what experts give is weighed and added up, with a product of all tokens' own matrix (SHARED)
// and what stands beside.
//
// A wave takes a row, or two of a pair, of which it has UNROLL units under way; x lies in shared memory, that of second all of
// it behind each other and weighed.
#include "prelude.h"
#include "pair.h"
#include "log.h"
#include "weights.h"
#include "int8.h"
#define NT 256
#define WAVES (NT / G_WAVE)
#define PLACES 64 // of a choice

// functions that OF is made of, as point.hip and general.hip have them
G_FN float of_scale(float v, float p) { return v * p; }
G_FN float of_silu(float v) { return v * g_sigmoid(v); }
G_FN float of_relu(float v) { return v < 0.0f ? 0.0f : v; }
G_FN float of_relu2(float v) { return v < 0.0f ? 0.0f : v * v; }
G_FN float of_softplus(float v) { return g_softplus(v); }
G_FN float of_affine(float v, float p, float q) { return g_fma(p, v, q); }
G_FN float of_clamp(float v, float p, float q) { return v < p ? p : v > q ? q : v; }
G_FN float of_add(float v, float u) { return v + u; }
G_FN float of_mul(float v, float u) { return v * u; }

typedef Codes8<W_TYPE> Raw;
G_FN u32 unit_count(u32 k) { return k / (4 * Raw::QUADS); }

// A stack of matrices: output i of expert e is its row i·step + from, of `rows`.
struct Stack {
  Weights w;
  const void *bias;
  u32 step, from, rows, unused;
};
G_FN u64 stack_row(const Stack &a, u32 e, u32 i) { return (u64)e * a.rows + i * a.step + a.from; }

// the chosen experts, to shared memory
G_FN void read_choice(u32 *chosen, const int *ids, u32 places, u32 experts, u32 *status, u32 launch) {
  const u32 t = tid();
  if (t >= places) return;
  int e = ids[t];
  if (e < 0 || (u32)e >= experts) {
    if (bidx() == 0) fail(status, launch, t, e);
    e = 0;
  }
  chosen[t] = (u32)e;
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) first(float *y, const float *x, u32 k, u32 all, Stack a, Stack b, const int *ids, u32 experts,
                                     u32 places, u32 n, u32 *status, u32 launch) {
  extern __shared__ u4 shared_memory[];
  __shared__ u32 chosen[PLACES];
  begin_next();
  wait_previous();
  read_choice(chosen, ids, places, experts, status, launch);
  const Shared8 xs(shared_memory, all);
  for (u32 i = 4 * tid(); i < round_up(all, 4 * G_WAVE); i += 4 * NT)
    xs.store(i, i < all ? *(const f4 *)(x + i) : f4{0, 0, 0, 0}, i < all);
  bar();
  const u32 units = unit_count(k), own = all > k ? units : 0, count = places * n, stride = gdimx() * WAVES;
  for (u32 p = (tid() / G_WAVE) * gdimx() + bidx(); p < count; p += stride) {
    const u32 s = p / n, i = p - s * n, e = chosen[s], base = s * own;
    const u64 at_a = stack_row(a, e, i), at_b = stack_row(b, e, i);
    const Row ra = w_row(a.w, at_a), rb = w_row(b.w, at_b);
    float va = 0, vb = 0;
    for (u32 u0 = lane(); u0 < units; u0 += UNROLL * G_WAVE) {
      Raw qa[UNROLL], qb[UNROLL];
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        const u32 u = g_min(u0 + j * G_WAVE, units - 1);
        qa[j] = Raw::load(ra, u);
        if (PAIRED) qb[j] = Raw::load(rb, u);
      }
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        const u32 u = u0 + j * G_WAVE, at = base + g_min(u, units - 1); // no branch, into which loads would be moved
        const float da = qa[j].dot(xs, at);
        va += u < units ? da : 0.0f;
        if (PAIRED) {
          const float db = qb[j].dot(xs, at);
          vb += u < units ? db : 0.0f;
        }
      }
    }
    va = wave_sum(va);
    if (PAIRED) vb = wave_sum(vb);
    if (lane() != 0) continue;
    if (BIAS) {
      va += load_float(a.bias, BIAS - 1, at_a);
      if (PAIRED) vb += load_float(b.bias, BIAS - 1, at_b);
    }
    y[p] = OF(va, vb);
  }
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) second(float *y, u32 n, const float *x, const float *p, u32 k, Stack w, const int *ids,
                                      u32 experts, u32 places, Weights v, const float *u, u32 m, const float *r,
                                      const float *t, u32 *status, u32 launch) {
  extern __shared__ u4 shared_memory[];
  __shared__ u32 chosen[PLACES];
  __shared__ float weight[PLACES];
  begin_next();
  wait_previous();
  read_choice(chosen, ids, places, experts, status, launch);
  if (tid() < places) weight[tid()] = p[tid()];
  bar();
  const u32 own = places * k, end = own + m;
  const Shared8 xs(shared_memory, end);
  for (u32 i = 4 * tid(); i < round_up(end, 4 * G_WAVE); i += 4 * NT) {
    f4 q = f4{0, 0, 0, 0};
    if (i < own) {
      const f4 c = *(const f4 *)(x + i);
      const float by = weight[i / k];
      q = f4{c.x * by, c.y * by, c.z * by, c.w * by};
    } else if (i < end) {
      q = *(const f4 *)(u + (i - own));
    }
    xs.store(i, q, i < end);
  }
  bar();
  const u32 units = unit_count(k), all = places * units, more = m ? unit_count(m) : 0, stride = gdimx() * WAVES;
  for (u32 i = (tid() / G_WAVE) * gdimx() + bidx(); i < n; i += stride) {
    float sum = 0, beside = 0;
    if (lane() == 0) beside = (r ? r[i] : 0.0f) + (t ? t[i] : 0.0f);
    if (BIAS) {
      for (u32 s = lane(); s < places; s += G_WAVE)
        sum = g_fma(weight[s], load_float(w.bias, BIAS - 1, stack_row(w, chosen[s], i)), sum);
    }
    u32 s = 0, c = lane(); // the lane's next unit: of place s number c
    while (c >= units) c -= units, s++;
    for (u32 c0 = lane(); c0 < all; c0 += UNROLL * G_WAVE) {
      Raw q[UNROLL];
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        q[j] = Raw::load(w_row(w.w, stack_row(w, chosen[g_min(s, places - 1)], i)), c);
        c += G_WAVE;
        while (c >= units) c -= units, s++;
      }
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        const u32 at = c0 + j * G_WAVE;
        const float d = q[j].dot(xs, g_min(at, all - 1));
        sum += at < all ? d : 0.0f;
      }
    }
    if (SHARED) {
      const Row row = w_row(v, i);
      for (u32 c0 = lane(); c0 < more; c0 += UNROLL * G_WAVE) {
        Raw q[UNROLL];
        G_UNROLL for (u32 j = 0; j < UNROLL; j++) q[j] = Raw::load(row, g_min(c0 + j * G_WAVE, more - 1));
        G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
          const u32 at = c0 + j * G_WAVE;
          const float d = q[j].dot(xs, all + g_min(at, more - 1));
          sum += at < more ? d : 0.0f;
        }
      }
    }
    sum = wave_sum(sum);
    if (lane() == 0) y[i] = beside + sum;
  }
}
