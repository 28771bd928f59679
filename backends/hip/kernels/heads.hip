// Recurrences whose heads have a matrix as their state, of one row; rows.hip is for more. LANES threads share a row or a
// column of it, REGS elements each (EVEN: exactly), in registers from a sequence's first row of the step to its last.
// REGS=0: a row or column is too long for that and stays in the slot that is written, whatever the rows.
//
// SSM, DELTA or DPLR says which operator it is; MANY: elements have decays of their own, else heads have; RANK: dplr has
// a and b; EARLY: its result is of the state before.
#include "slots.h"

#if REGS
#define STATE float state_of[REGS]
#define H(e) state_of[e]
#define EACH(n) G_UNROLL for (u32 e = 0; e < REGS; e++)
#define THERE(i, n) (EVEN || (i) < (n))
#else
#define STATE
#define H(e) to[(u64)AT(e) * apart]
#define EACH(n) for (u32 e = 0; AT(e) < (n); e++)
#define THERE(i, n) mine // two threads must not change one element
#endif

// LOAD takes the state of the sequence that begins in row s, STORE leaves it in the slot that is written.
#define LOAD(n)                                                                                                    \
  if (now != ON) {                                                                                                 \
    const float *from = state + (u64)(now < 0 ? 0 : now) * width + at;                                             \
    EACH(n) if (THERE(AT(e), n)) H(e) = now < 0 ? 0.0f : from[(u64)AT(e) * apart];                                 \
  }
#if REGS
#define STORE(n)                                                                                                   \
  if (mine && last(plan, s)) EACH(n) if (THERE(AT(e), n)) to[(u64)AT(e) * apart] = H(e)
#else
#define STORE(n)
#endif

#ifdef SSM
// h[p,n] = exp(dt a[n]) h[p,n] + dt x[p] b[n], y[p] = Σn h[p,n] c[n]. A row's elements lie beside each other.
// m: columns of a, share: heads of a group of b and c.
#define ROW_LANES 8
#define AT(e) (l + (e) * ROW_LANES)
G_KERNEL G_BOUNDS(NT) ssm(float *state, Plan plan, float *y, const float *x, u32 xstride, const float *dt, u32 dtstride,
                          const void *a, u32 atype, const float *b, u32 bstride, const float *c, u32 cstride, u32 heads,
                          u32 p, u32 n, u32 m, u32 share, u32 width) {
  begin_next();
  wait_previous();
  const u32 l = tid() % ROW_LANES, i = bidx() * (NT / ROW_LANES) + tid() / ROW_LANES;
  const u32 row = g_min(i, heads * p - 1), h = row / p, apart = 1;
  const u64 at = (u64)row * n;
  const bool mine = i == row;
  STATE;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      if (l == 0 && mine) y[(u64)s * heads * p + row] = 0.0f;
      continue;
    }
    float *to = state + (u64)target(plan, s) * width + at;
    LOAD(n);
    const float step = dt[(u64)s * dtstride + h], in = step * x[(u64)s * xstride + row];
    const float *bs = b + (u64)s * bstride + h / share * n, *cs = c + (u64)s * cstride + h / share * n;
    float sum = 0.0f, decay = g_exp(step * load_float(a, atype, (u64)h * m));
    EACH(n) {
      const u32 j = AT(e);
      if (THERE(j, n)) {
        if (MANY) decay = g_exp(step * load_float(a, atype, (u64)h * m + j));
        const float v = g_fma(decay, H(e), in * bs[j]);
        H(e) = v;
        sum = g_fma(v, cs[j], sum);
      }
    }
    G_UNROLL for (u32 o = ROW_LANES / 2; o; o >>= 1) sum += shfl_xor(sum, o);
    if (l == 0 && mine) y[(u64)s * heads * p + row] = sum;
    STORE(n);
  }
}
#endif
#ifndef SSM
// Elements of a column lie dv apart: COLUMNS columns beside each other fill what memory gives at once.
#define COLUMN_LANES 4
#define COLUMNS 8
#define AT(e) (l + (e) * COLUMN_LANES)
#define COLUMN                                                                                                     \
  const u32 l = tid() / COLUMNS % COLUMN_LANES, group = tid() / (COLUMNS * COLUMN_LANES);                          \
  const u32 mark = (bidx() * (NT / COLUMNS / COLUMN_LANES) + group) * COLUMNS + tid() % COLUMNS;                   \
  const u32 c = g_min(mark, heads * dv - 1), h = c / dv, apart = dv;                                               \
  const u64 at = (u64)h * dk * dv + c % dv;                                                                        \
  const bool mine = mark == c
#define OVER_LANES(v) G_UNROLL for (u32 o = COLUMNS; o < COLUMNS * COLUMN_LANES; o <<= 1) v += shfl_xor(v, o)

#ifdef DELTA
// h = diag(exp(g)) h, h += k (beta (v - kᵀh)), y = qᵀh. dg: decays of a head.
G_KERNEL G_BOUNDS(NT) delta(float *state, Plan plan, float *y, const float *q, u32 qstride, const float *keys,
                            u32 kstride, const float *v, u32 vstride, const float *g, u32 gstride, const float *beta,
                            u32 bstride, u32 heads, u32 dk, u32 dv, u32 dg, u32 width) {
  begin_next();
  wait_previous();
  COLUMN;
  STATE;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      if (l == 0 && mine) y[(u64)s * heads * dv + c] = 0.0f;
      continue;
    }
    float *to = state + (u64)target(plan, s) * width + at;
    LOAD(dk);
    const float *ks = keys + (u64)s * kstride + h * dk, *qs = q + (u64)s * qstride + h * dk;
    const float *gs = g + (u64)s * gstride + h * dg;
    float decay = now == FRESH ? 0.0f : g_exp(gs[0]), seen = 0.0f, sum = 0.0f;
    EACH(dk) {
      const u32 i = AT(e);
      if (THERE(i, dk)) {
        if (MANY) decay = now == FRESH ? 0.0f : g_exp(gs[i]);
        const float m = decay * H(e);
        H(e) = m;
        seen = g_fma(ks[i], m, seen);
      }
    }
    OVER_LANES(seen);
    const float add = beta[(u64)s * bstride + h] * (v[(u64)s * vstride + c] - seen);
    EACH(dk) {
      const u32 i = AT(e);
      if (THERE(i, dk)) {
        const float m = g_fma(ks[i], add, H(e));
        H(e) = m;
        sum = g_fma(qs[i], m, sum);
      }
    }
    OVER_LANES(sum);
    if (l == 0 && mine) y[(u64)s * heads * dv + c] = sum;
    STORE(dk);
  }
}

#endif

#ifdef DPLR
// h = diag(exp(g)) h + b (aᵀh) + k vᵀ, y = qᵀh, of the h before where EARLY. dg: decays of a head.
G_KERNEL G_BOUNDS(NT) dplr(float *state, Plan plan, float *y, const float *q, u32 qstride, const float *keys,
                           u32 kstride, const float *v, u32 vstride, const float *g, u32 gstride, const float *a,
                           u32 astride, const float *b, u32 bstride, u32 heads, u32 dk, u32 dv, u32 dg, u32 width) {
  begin_next();
  wait_previous();
  COLUMN;
  STATE;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      if (l == 0 && mine) y[(u64)s * heads * dv + c] = 0.0f;
      continue;
    }
    float *to = state + (u64)target(plan, s) * width + at;
    LOAD(dk);
    const float *ks = keys + (u64)s * kstride + h * dk, *qs = q + (u64)s * qstride + h * dk;
    const float *gs = g + (u64)s * gstride + h * dg;
    const float *as = a + (u64)s * astride + h * dk, *bs = b + (u64)s * bstride + h * dk;
    const float value = v[(u64)s * vstride + c];
    float decay = now == FRESH ? 0.0f : g_exp(gs[0]), seen = 0.0f, sum = 0.0f;
    if (RANK || EARLY) {
      EACH(dk) {
        const u32 i = AT(e);
        if (THERE(i, dk)) {
          if (RANK) seen = g_fma(as[i], H(e), seen);
          if (EARLY) sum = g_fma(qs[i], H(e), sum);
        }
      }
      OVER_LANES(seen);
    }
    EACH(dk) {
      const u32 i = AT(e);
      if (THERE(i, dk)) {
        if (MANY) decay = now == FRESH ? 0.0f : g_exp(gs[i]);
        float m = g_fma(decay, H(e), ks[i] * value);
        if (RANK) m = g_fma(bs[i], seen, m);
        H(e) = m;
        if (!EARLY) sum = g_fma(qs[i], m, sum);
      }
    }
    OVER_LANES(sum);
    if (l == 0 && mine) y[(u64)s * heads * dv + c] = sum;
    STORE(dk);
  }
}
#endif
#endif
