// Elementwise kernels and reductions over f32 vectors of any length n.
#include "exp.h"

// EACH runs BODY for i = 0, VL, … with full loads, then once with n - i lanes.
// LOAD(p) and STORE(p, v) mean the right thing in both.
#define EACH(BODY)                                  \
  {                                                 \
    long i = 0;                                     \
    ROLLED for (; i + VL <= n; i += VL) {           \
      const long lanes = VL;                        \
      BODY                                          \
    }                                               \
    if (i < n) {                                    \
      const long lanes = n - i;                     \
      BODY                                          \
    }                                               \
  }
#define LOAD(p) (lanes == VL ? ld_f32((p) + i) : ldn_f32((p) + i, lanes))
#define STORE(p, v) do { vf t_ = (v); if (lanes == VL) st((p) + i, t_); else stn((p) + i, t_, lanes); } while (0)

float dot(const float *a, const float *b, long n) {
  vf s[4];
  UNROLL for (int u = 0; u < 4; u++) s[u] = vset(0);
  long i = 0;
  ROLLED for (; i + 4 * VL <= n; i += 4 * VL)
    UNROLL for (int u = 0; u < 4; u++) s[u] = fma(ld_f32(a + i + u * VL), ld_f32(b + i + u * VL), s[u]);
  ROLLED for (; i + VL <= n; i += VL) s[0] = fma(ld_f32(a + i), ld_f32(b + i), s[0]);
  if (i < n) s[1] = fma(ldn_f32(a + i, n - i), ldn_f32(b + i, n - i), s[1]);
  return vsum((s[0] + s[1]) + (s[2] + s[3]));
}

// max_f32 is -inf for n = 0.
float max_f32(const float *x, long n) {
  vf m = vset(-__builtin_inff());
  long i = 0;
  ROLLED for (; i + VL <= n; i += VL) m = vmax(ld_f32(x + i), m);
  float r = fold(m, 1);
  ROLLED for (; i < n; i++) r = x[i] > r ? x[i] : r;
  return r;
}

void add(float *y, const float *a, const float *b, long n) { EACH(STORE(y, LOAD(a) + LOAD(b));) }
void mul(float *y, const float *a, const float *b, long n) { EACH(STORE(y, LOAD(a) * LOAD(b));) }
void scale(float *y, const float *x, long n, float a) { vf s = vset(a); EACH(STORE(y, LOAD(x) * s);) }
void axpy(float *y, const float *x, long n, float a) { vf s = vset(a); EACH(STORE(y, fma(LOAD(x), s, LOAD(y)));) }
// scale_mul: y = (x·a)·g, the second half of an RMSNorm.
void scale_mul(float *y, const float *x, const float *g, long n, float a) {
  vf s = vset(a);
  EACH(STORE(y, (LOAD(x) * s) * LOAD(g));)
}

// turn_pairs: y[i] = x[i]·c[i] + x[i^1]·s[i], n being even.
void turn_pairs(float *y, const float *x, const float *c, const float *s, long n) {
  EACH(vf v = LOAD(x); STORE(y, fma(v, LOAD(c), swap(v) * LOAD(s)));)
}

// turn_halves: y[i] = x[i]·c[i] - x[n+i]·s[i], y[n+i] = x[i]·s[i] + x[n+i]·c[i].
void turn_halves(float *y, const float *x, const float *c, const float *s, long n) {
  EACH(vf a = LOAD(x); vf b = LOAD(x + n); vf u = LOAD(c); vf v = LOAD(s); STORE(y, fnma(b, v, a * u)); STORE(y + n, fma(a, v, b * u));)
}

// vexp0 leaves out what is nothing beside e^0: subnormal numbers, and products
// that are, cost a hundred cycles each on some processors.
INLINE vf vexp0(vf x) { return where_lt(x, vset(-60.f), vset(0), vexp(x)); }

// expsum: y = e^(x-m), 0 where x-m < -60; returns Σ y.
float expsum(float *y, const float *x, long n, float m) {
  vf s = vset(0), mv = vset(m);
  long i = 0;
  ROLLED for (; i + VL <= n; i += VL) {
    vf e = vexp0(ld_f32(x + i) - mv);
    st(y + i, e);
    s += e;
  }
  float r = vsum(s);
  if (i < n) {
    float t[VL] __attribute__((aligned(64)));
    vf e = vexp0(ldn_f32(x + i, n - i) - mv);
    st(t, e);
    stn(y + i, e, n - i);
    ROLLED for (long j = 0; j < n - i; j++) r += t[j];
  }
  return r;
}
void exp_f32(float *y, const float *x, long n) { EACH(STORE(y, vexp(LOAD(x)));) }

// vexpneg is vexp0 for x <= 0: 2^n is no subnormal where the result is kept, so one step will do.
INLINE vf vexpneg(vf x) {
  vi n = round_i(x * vset(1.44269504f));
  vf nf = from_i(n);
  vf r = fnma(nf, vset(0x1.62e4p-1f), x);
  r = fnma(nf, vset(0x1.7f7d1cp-20f), r);
  vf p = fma(r, vset(1.f / 5040), vset(1.f / 720));
  p = fma(p, r, vset(1.f / 120));
  p = fma(p, r, vset(1.f / 24));
  p = fma(p, r, vset(1.f / 6));
  p = fma(p, r, vset(0.5f));
  p = fma(p * r, r, r);
  p += vset(1.f);
  return where_lt(x, vset(-60.f), vset(0), (vf)addi((vi)p, shl(n, 23)));
}

// softmax_tile: of n rows of MICRO_MR scores each, column by column: most becomes the largest yet, change
// e^(what it was - most), scores e^(score - most), 0 below e^-60, sum what it was times change and
// what is added. Returns whether most has changed in any column.
long softmax_tile(float *s, float *most, float *sum, float *change, long n) {
  vf m[2], old[2], z[2], y[2];
  UNROLL for (int v = 0; v < 2; v++) m[v] = old[v] = ld_f32(most + v * VL);
  ROLLED for (long r = 0; r < n; r++)
    UNROLL for (int v = 0; v < 2; v++) m[v] = vmax(ld_f32(s + r * MICRO_MR + v * VL), m[v]);
  vf changed = vset(0);
  UNROLL for (int v = 0; v < 2; v++) {
    vf f = vexpneg(old[v] - m[v]);
    changed += where_lt(old[v], m[v], vset(1), vset(0));
    st(most + v * VL, m[v]);
    st(change + v * VL, f);
    z[v] = ld_f32(sum + v * VL) * f;
    y[v] = vset(0);
  }
  long r = 0;
  ROLLED for (; r + 2 <= n; r += 2)
    UNROLL for (int v = 0; v < 2; v++) {
      float *p = s + r * MICRO_MR + v * VL;
      vf a = vexpneg(ld_f32(p) - m[v]), b = vexpneg(ld_f32(p + MICRO_MR) - m[v]);
      st(p, a);
      st(p + MICRO_MR, b);
      z[v] += a;
      y[v] += b;
    }
  UNROLL for (int v = 0; v < 2; v++) {
    if (r < n) {
      float *p = s + r * MICRO_MR + v * VL;
      vf a = vexpneg(ld_f32(p) - m[v]);
      st(p, a);
      z[v] += a;
    }
    st(sum + v * VL, z[v] + y[v]);
  }
  return vsum(changed) != 0;
}

// mul_tile: y[r*MICRO_MR+i] *= f[i] for r < n.
void mul_tile(float *y, const float *f, long n) {
  const vf a = ld_f32(f), b = ld_f32(f + VL);
  ROLLED for (long r = 0; r < n; r++, y += MICRO_MR) {
    st(y, ld_f32(y) * a);
    st(y + VL, ld_f32(y + VL) * b);
  }
}

// sigmoid-like gates: y = g(x)·u, or g(x) where u is null.
#define GATE(NAME, F)                                                  \
  void NAME(float *y, const float *x, const float *u, long n) {        \
    if (u) EACH(STORE(y, F(LOAD(x)) * LOAD(u));) else EACH(STORE(y, F(LOAD(x)));) \
  }
INLINE vf silu1(vf x) { return x / (vset(1) + vexp(vset(0) - x)); }
// ½x(1 + tanh z) = x / (1 + e^(-2z)), z = √(2/π)·(x + 0.044715x³): no cancellation.
INLINE vf gelu_tanh1(vf x) {
  vf z = x * fma(x * x, vset(0.044715f * 1.5957691216f), vset(1.5957691216f));
  return x / (vset(1) + vexp(vset(0) - z));
}
// x·Φ(x) with erfc by the Chebyshev fit of Press et al., Numerical Recipes,
// §6.2 (erfcc): fractional error below 1.2e-7 everywhere, so the tail on the
// left keeps its digits.
INLINE vf gelu_erf1(vf x) {
  vf z = x * vset(0.70710678118f);
  vf zn = vset(0) - z;
  z = where_lt(z, vset(0), zn, z);
  z = where_lt(vset(15), z, vset(15), z); // erfc is 0 there
  vf t = vset(1) / fma(z, vset(0.5f), vset(1));
  vf p = fma(t, vset(0.17087277f), vset(-0.82215223f));
  p = fma(p, t, vset(1.48851587f));
  p = fma(p, t, vset(-1.13520398f));
  p = fma(p, t, vset(0.27886807f));
  p = fma(p, t, vset(-0.18628806f));
  p = fma(p, t, vset(0.09678418f));
  p = fma(p, t, vset(0.37409196f));
  p = fma(p, t, vset(1.00002368f));
  p = fma(p, t, vset(-1.26551223f));
  // z² loses digits where it is large; e^-z² = e^-hi · e^-lo keeps them.
  vf hi = z * z, lo = fma(z, z, vset(0) - hi);
  vf half = vset(0.5f) * t * vexp(p - hi) * (vset(1) - lo);
  vf phi = where_lt(x, vset(0), half, vset(1) - half);
  return x * phi;
}
GATE(silu, silu1)
GATE(gelu_tanh, gelu_tanh1)
GATE(gelu_erf, gelu_erf1)

// read_all reads n bytes (a multiple of 16·VL is looked at) and gives a number
// that depends on all of them: the yardstick of a read loop. It reads so many
// parts of the memory side by side, a step of each in turn, and what is left.
float read_all(const uint8_t *p, long n, long streams) {
  vi a = viset(0), b = a, c = a, d = a;
  const long part = n / (streams * READ_STEP) * READ_STEP;
  n -= streams * part;
  ROLLED for (long i = 0; i < part; i += READ_STEP, p += READ_STEP) {
    const uint8_t *q = p;
    ROLLED for (long s = 0; s < streams; s++, q += part)
      UNROLL for (int k = 0; k < READ_STEP; k += 16 * VL) {
        a |= ld_i(q + k);
        b |= ld_i(q + k + 4 * VL);
        c |= ld_i(q + k + 8 * VL);
        d |= ld_i(q + k + 12 * VL);
      }
  }
  p += (streams - 1) * part;
  ROLLED for (long k = 0; k + 16 * VL <= n; k += 16 * VL) {
    a |= ld_i(p + k);
    b |= ld_i(p + k + 4 * VL);
    c |= ld_i(p + k + 8 * VL);
    d |= ld_i(p + k + 12 * VL);
  }
  return vsum(from_i((a | b) | (c | d)));
}

// peak_f32: n rounds of independent multiply-adds on registers, what products
// in f32 cannot exceed; returns how many. p has 64 bytes to read, and to write.
long peak_f32(float *p, long n) {
  vf a[12], x = ld_f32(p), y = x;
  UNROLL for (int i = 0; i < 12; i++) a[i] = vset((float)i);
  ROLLED for (long r = 0; r < n; r++)
    UNROLL for (int i = 0; i < 12; i++) a[i] = fma(a[i], x, y);
  UNROLL for (int i = 1; i < 12; i++) a[0] += a[i];
  st(p, a[0]);
  return n * 12 * VL;
}
