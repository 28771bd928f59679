// Tokens of recurrences: what is read and written of a state stays in registers, or in the nearest cache.
#include "exp.h"

#define LD(p) (lanes == VL ? ld_f32(p) : ldn_f32(p, lanes))
#define ST(p, v) do { if (lanes == VL) st(p, v); else stn(p, v, lanes); } while (0)

// sees: s[u] = Σ_i x[i]·h[i, u] over rows of h, ld apart.
INLINE void sees(vf *s, const float *x, const float *h, long rows, long ld, const int V, long lanes) {
  UNROLL for (int u = 0; u < V; u++) s[u] = vset(0);
  ROLLED for (long i = 0; i < rows; i++, h += ld) {
    vf f = vset(x[i]);
    UNROLL for (int u = 0; u < V; u++) s[u] = fma(LD(h + u * VL), f, s[u]);
  }
}

// turn: h[i] = d[i]·h[i] + k[i]·v, + b[i]·r with RANK, and sum = Σ_i q[i]·h[i] without BEFORE.
INLINE void turn(float *h, const float *x, const vf *v, const vf *r, vf *sum, long rows, long ld, const int V, long lanes,
                 const int RANK, const int BEFORE) {
  const float *q = x + rows, *k = q + rows, *b = k + 2 * rows;
  ROLLED for (long i = 0; i < rows; i++, h += ld) {
    vf d = vset(x[i]), f = vset(k[i]), g, e;
    if (RANK) g = vset(b[i]);
    if (!BEFORE) e = vset(q[i]);
    UNROLL for (int u = 0; u < V; u++) {
      vf m = fma(LD(h + u * VL), d, v[u] * f);
      if (RANK) m = fma(r[u], g, m);
      if (!BEFORE) sum[u] = fma(m, e, sum[u]);
      ST(h + u * VL, m);
    }
  }
}

// columns takes V vectors of a state's columns, or the first lanes of one, through a token.
INLINE void columns(float *h, const float *x, const float *values, float *y, long rows, long ld, long flags, float by,
                    const int V, long lanes) {
  vf v[4], r[4], sum[4];
  UNROLL for (int u = 0; u < V; u++) {
    v[u] = LD(values + u * VL);
    sum[u] = r[u] = vset(0);
  }
  if (flags & 1) sees(r, x + 3 * rows, h, rows, ld, V, lanes);
  if (flags & 4) sees(sum, x + rows, h, rows, ld, V, lanes);
  if (!(flags & 2)) UNROLL for (int u = 0; u < V; u++) v[u] = fma(r[u], vset(by), v[u]);
  switch (flags >> 1 & 3) {
  case 0: turn(h, x, v, r, sum, rows, ld, V, lanes, 0, 0); break;
  case 1: turn(h, x, v, r, sum, rows, ld, V, lanes, 1, 0); break;
  case 2: turn(h, x, v, r, sum, rows, ld, V, lanes, 0, 1); break;
  default: turn(h, x, v, r, sum, rows, ld, V, lanes, 1, 1);
  }
  UNROLL for (int u = 0; u < V; u++) ST(y + u * VL, sum[u]);
}

// matrix_step: a token of a state h [rows, cols]. x holds decays d, q, k, a and b of rows elements each, and v of cols:
//
//	r = aᵀh, with flag 1, else 0
//	h = d h + k vᵀ + b rᵀ with flag 2, else d h + k (v + by r)ᵀ
//	y = qᵀh, with flag 4 of the h before
//
// shape = rows | cols << 16 | flags << 32.
void matrix_step(float *h, const float *x, float *y, long shape, float by) {
  const long rows = shape & 0xffff, cols = shape >> 16 & 0xffff, flags = shape >> 32;
  const float *v = x + 5 * rows;
  long j = 0;
  ROLLED for (; j + 4 * VL <= cols; j += 4 * VL) columns(h + j, x, v + j, y + j, rows, cols, flags, by, 4, VL);
  ROLLED for (; j < cols; j += VL) columns(h + j, x, v + j, y + j, rows, cols, flags, by, 1, cols - j < VL ? cols - j : VL);
}

// channel_steps: a token of channels whose states h [channels, n] have decays a [channels, n] each. x holds dt and x of
// each channel, w what goes in and out, b and c of n elements:
//
//	h[i] = e^(dt·a[i]) h[i] + dt·x·b[i],   y = Σ_i h[i]·c[i]
//
// shape = n | channels << 16.
void channel_steps(float *h, const float *a, const float *x, const float *w, float *y, long shape) {
  const long n = shape & 0xffff, channels = shape >> 16;
  ROLLED for (long c = 0; c < channels; c++, h += n, a += n) {
    vf dt = vset(x[c]), in = vset(x[c] * x[channels + c]), sum = vset(0);
    ROLLED for (long i = 0; i < n; i += VL) {
      const long lanes = n - i < VL ? n - i : VL;
      vf m = fma(vexp(LD(a + i) * dt), LD(h + i), in * LD(w + i));
      ST(h + i, m);
      sum = fma(m, LD(w + n + i), sum);
    }
    y[c] = vsum(sum);
  }
}

// rows_step: a token of a state h [rows, n] that decays alike everywhere. x is what goes into each row, w what goes in
// and out, b and c of n elements:
//
//	h[r, i] = d·h[r, i] + x[r]·b[i],   y[r] = Σ_i h[r, i]·c[i]
//
// shape = n | rows << 16.
INLINE void some_rows(float *h, const float *x, const float *w, vf *s, long n, vf d, const int ROWS) {
  UNROLL for (int r = 0; r < ROWS; r++) s[r] = vset(0);
  ROLLED for (long i = 0; i < n; i += VL) {
    const long lanes = n - i < VL ? n - i : VL;
    vf b = LD(w + i), c = LD(w + n + i);
    UNROLL for (int r = 0; r < ROWS; r++) {
      vf m = fma(LD(h + r * n + i), d, b * vset(x[r]));
      ST(h + r * n + i, m);
      s[r] = fma(m, c, s[r]);
    }
  }
}
void rows_step(float *h, const float *x, const float *w, float *y, long shape, float decay) {
  const long n = shape & 0xffff, rows = shape >> 16;
  const vf d = vset(decay);
  long r = 0;
  vf s[VL];
  ROLLED for (; r + VL <= rows; r += VL) {
    some_rows(h + r * n, x + r, w, s, n, d, VL);
    transpose(s);
    UNROLL for (int k = 1; k < VL; k *= 2)
      UNROLL for (int i = 0; i < VL; i += 2 * k) s[i] += s[i + k];
    st(y + r, s[0]);
  }
  ROLLED for (; r < rows; r++) {
    some_rows(h + r * n, x + r, w, s, n, d, 1);
    y[r] = vsum(s[0]);
  }
}

// wkv_step: a token of n channels, whose states are a numerator, a denominator and the exponent that both are divided
// by, far elements apart. w holds n decays, then n bonuses u:
//
//	m = max(top, u + k),   y = (e^(top-m) num + e^(u+k-m) v) / (e^(top-m) den + e^(u+k-m))
//	m = max(top - w, k),   num = e^(top-w-m) num + e^(k-m) v,   den likewise with 1 for v,   top = m
//
// shape = n | far << 16.
void wkv_step(float *h, const float *keys, const float *values, const float *w, float *y, long shape) {
  const long n = shape & 0xffff, far = shape >> 16;
  ROLLED for (long i = 0; i < n; i += VL) {
    const long lanes = n - i < VL ? n - i : VL;
    vf num = LD(h + i), den = LD(h + far + i), top = LD(h + 2 * far + i), k = LD(keys + i), v = LD(values + i);
    vf now = k + LD(w + n + i), m = vmax(top, now);
    vf old = vexp(top - m), is = vexp(now - m);
    ST(y + i, fma(old, num, is * v) / fma(old, den, is));
    top -= LD(w + i);
    m = vmax(top, k);
    old = vexp(top - m);
    is = vexp(k - m);
    ST(h + i, fma(old, num, is * v));
    ST(h + far + i, fma(old, den, is));
    ST(h + 2 * far + i, m);
  }
}
