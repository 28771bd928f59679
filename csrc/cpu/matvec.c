// Matrix times vector over plain rows, as weights lie in files. Rows are read
// one after the other: a single forward stream is what the prefetchers of Zen 4
// keep up with. Several rows at once measured slower there out of cache, though
// faster in it; software prefetches helped only where arithmetic is the limit.
#include "blocks.h"

// NAME: y[r] = Σ_i w[r*ldw+i]·x[i] for r < rows, i < k. ldw counts elements.
//
// HEADS: y[h*ldy+r] = Σ_i w[r*ldw+h/share*k+i]·x[h*k+i] for h < groups·share: rows of w are groups side
// by side, with share rows of x each; shape = rows | k<<16 | groups<<32 | share<<48.
#define MATVEC(NAME, HEADS, T, LD, LDN)                                                               \
  INLINE float NAME##_row(const T *w, const float *x, long k) {                                       \
    vf a[4];                                                                                          \
    UNROLL for (int u = 0; u < 4; u++) a[u] = vset(0);                                                \
    long i = 0;                                                                                       \
    ROLLED for (; i + 8 * VL <= k; i += 8 * VL)                                                       \
      UNROLL for (int u = 0; u < 8; u++) a[u % 4] = fma(LD(w + i + u * VL), ld_f32(x + i + u * VL), a[u % 4]); \
    ROLLED for (; i + VL <= k; i += VL) a[0] = fma(LD(w + i), ld_f32(x + i), a[0]);                   \
    if (i < k) a[1] = fma(LDN(w + i, k - i), ldn_f32(x + i, k - i), a[1]);                            \
    return vsum((a[0] + a[1]) + (a[2] + a[3]));                                                       \
  }                                                                                                   \
  void NAME(const T *w, const float *x, float *y, long rows, long k, long ldw) {                      \
    ROLLED for (; rows > 0; rows--, w += ldw, y++) *y = NAME##_row(w, x, k);                          \
  }                                                                                                   \
  void HEADS(const T *w, const float *x, float *y, long ldw, long ldy, long shape) {                  \
    const long k = shape >> 16 & 0xffff, share = shape >> 48;                                         \
    ROLLED for (long rows = shape & 0xffff; rows > 0; rows--, w += ldw, y++) {                        \
      const T *group = w;                                                                             \
      const float *xh = x;                                                                            \
      float *yh = y;                                                                                  \
      ROLLED for (long g = shape >> 32 & 0xffff; g > 0; g--, group += k) {                            \
        ROLLED for (long i = 0; i < k; i += 64 / (long)sizeof(T)) __builtin_prefetch(group + ldw + i, 0, 2); \
        ROLLED for (long h = share; h > 0; h--, xh += k, yh += ldy) *yh = NAME##_row(group, xh, k);   \
      }                                                                                               \
    }                                                                                                 \
  }
MATVEC(mv_f32, mvh_f32, float, ld_f32, ldn_f32)
MATVEC(mv_f16, mvh_f16, uint16_t, ld_f16, ldn_f16)
MATVEC(mv_bf16, mvh_bf16, uint16_t, ld_bf16, ldn_bf16)

// Bytes to fetch ahead of the block formats, whose arithmetic takes longer
// than their bytes.
#define AHEAD 4096

// Formats of 32 elements with one f16 scale in front: a block's dot product is
// taken on unscaled numbers, then scaled. Two blocks at a time keep two chains
// of additions going. ldw counts bytes.
#define MATVEC32(NAME, BYTES, UNPACK)                                                                 \
  INLINE vf NAME##_block(const uint8_t *p, const float *x, vf acc) {                                  \
    vf q[32 / VL];                                                                                    \
    UNPACK(p + 2, q);                                                                                 \
    vf t = q[0] * ld_f32(x);                                                                          \
    UNROLL for (int u = 1; u < 32 / VL; u++) t = fma(q[u], ld_f32(x + u * VL), t);                    \
    return fma(t, all_f16(p), acc);                                                                   \
  }                                                                                                   \
  void NAME(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {                \
    ROLLED for (; rows > 0; rows--, w += ldw, y++) {                                                  \
      vf a = vset(0), b = a;                                                                          \
      const uint8_t *p = w;                                                                           \
      const float *xp = x;                                                                            \
      long n = k / 32;                                                                                \
      ROLLED for (; n >= 2; n -= 2, p += 2 * BYTES, xp += 64) {                                       \
        __builtin_prefetch(p + AHEAD);                                                                \
        __builtin_prefetch(p + BYTES + AHEAD);                                                        \
        a = NAME##_block(p, xp, a);                                                                   \
        b = NAME##_block(p + BYTES, xp + 32, b);                                                      \
      }                                                                                               \
      if (n) a = NAME##_block(p, xp, a);                                                              \
      *y = vsum(a + b);                                                                               \
    }                                                                                                 \
  }
MATVEC32(mv_q8_0, 34, unpack_q8_0)
MATVEC32(mv_q4_0, 18, unpack_q4_0)

#define FETCH(p, bytes) UNROLL for (int o_ = 0; o_ < bytes; o_ += 64) __builtin_prefetch((p) + AHEAD + o_)

// Q4_K: w = d·sc·q - dmin·m per 32 elements, so the row's sum is
// Σ d·sc·(q·x) - dmin·m·(Σ x), kept lane by lane until the end.
void mv_q4_k(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {
  ROLLED for (; rows > 0; rows--, w += ldw, y++) {
    vf acc = vset(0), sub = acc;
    float d[16];
    const uint8_t *p = w;
    const float *xp = x;
    ROLLED for (long b = k / 256; b > 0; b--, p += 144) {
      FETCH(p, 144);
      scales_k4(p, d);
      ROLLED for (int c = 0; c < 4; c++) { // 64 elements: 32 low nibbles, 32 high
        UNROLL for (int high = 0; high < 2; high++, xp += 32) {
          const uint8_t *q = p + 16 + c * 32;
          vf v[32 / VL], x0 = ld_f32(xp), s, xs = x0;
          nibbles(q, high, 0, v);
          nibbles(q + 16, high, 0, v + 16 / VL);
          s = v[0] * x0;
          UNROLL for (int u = 1; u < 32 / VL; u++) {
            vf xu = ld_f32(xp + u * VL);
            s = fma(v[u], xu, s);
            xs += xu;
          }
          acc = fma(s, vset(d[c * 2 + high]), acc);
          sub = fma(xs, vset(d[8 + c * 2 + high]), sub);
        }
      }
    }
    *y = vsum(acc - sub);
  }
}

// Q6_K: w = d·sc·(q - 32), one sc per 16 elements.
void mv_q6_k(const uint8_t *w, const float *x, float *y, long rows, long k, long ldw) {
  ROLLED for (; rows > 0; rows--, w += ldw, y++) {
    vf a[2] = {vset(0), vset(0)};
    float d[16];
    const uint8_t *p = w;
    const float *xb = x;
    ROLLED for (long b = k / 256; b > 0; b--, p += 210, xb += 256) {
      FETCH(p, 210);
      scales_k6(p, d);
      ROLLED for (int c = 0; c < 4; c++) { // 16 bytes of high bits give 4 groups of 16
        int half = c >> 1, at = c & 1;
        const float *xp = xb + half * 128 + at * 16;
        i8x16 q[4];
        sixes(p, half, at, q);
        UNROLL for (int g = 0; g < 4; g++) {
          vf v[16 / VL];
          cvt16(q[g], v);
          vf s = v[0] * ld_f32(xp + g * 32);
          UNROLL for (int u = 1; u < 16 / VL; u++) s = fma(v[u], ld_f32(xp + g * 32 + u * VL), s);
          a[g & 1] = fma(s, vset(d[half * 8 + g * 2 + at]), a[g & 1]);
        }
      }
    }
    *y = vsum(a[0] + a[1]);
  }
}

// wsum_T: y[i] += Σ_r p[r]·v[r*ldv+i] for i < d: attention's weighted sum of
// value rows. ldv counts elements.
#define WSUM(NAME, T, LD, LDN)                                                                        \
  INLINE void NAME##_one(const T *v, const float *p, float *y, long rows, long d, long ldv) {                      \
    long i = 0;                                                                                       \
    ROLLED for (; i + 4 * VL <= d; i += 4 * VL) {                                                     \
      vf a[4];                                                                                        \
      UNROLL for (int u = 0; u < 4; u++) a[u] = ld_f32(y + i + u * VL);                               \
      ROLLED for (long r = 0; r < rows; r++) {                                                        \
        vf s = vset(p[r]);                                                                            \
        UNROLL for (int u = 0; u < 4; u++) a[u] = fma(LD(v + r * ldv + i + u * VL), s, a[u]);         \
      }                                                                                               \
      UNROLL for (int u = 0; u < 4; u++) st(y + i + u * VL, a[u]);                                    \
    }                                                                                                 \
    ROLLED for (; i + VL <= d; i += VL) {                                                             \
      vf a = ld_f32(y + i);                                                                           \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LD(v + r * ldv + i), vset(p[r]), a);             \
      st(y + i, a);                                                                                   \
    }                                                                                                 \
    if (i < d) {                                                                                      \
      vf a = ldn_f32(y + i, d - i);                                                                   \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LDN(v + r * ldv + i, d - i), vset(p[r]), a);     \
      stn(y + i, a, d - i);                                                                           \
    }                                                                                                 \
  }                                                                                                   \
  void NAME(const T *v, const float *p, float *y, long rows, long d, long ldv) { NAME##_one(v, p, y, rows, d, ldv); }
WSUM(wsum_f32, float, ld_f32, ldn_f32)
WSUM(wsum_f16, uint16_t, ld_f16, ldn_f16)
WSUM(wsum_bf16, uint16_t, ld_bf16, ldn_bf16)

// wsumh_T: y[h*d+i] += Σ_r p[h*ldp+r]·v[r*ldv+h/share*d+i] for h < groups·share, i < d: the same for groups of
// heads side by side in rows, which are read in order and asked for a row ahead, as sums in the first-level
// cache leave processors behind with it. Of a single group four heads at a time share each row as it is loaded.
// shape = rows | d<<16 | groups<<32 | share<<48.
#define WSUMH_VECTORS (VL == 8 ? 2 : 4) // of a row at a time, so that four heads' sums are registers
#define WSUMH(NAME, ONE, T, LD, LDN)                                                                  \
  INLINE void NAME##_four(const T *v, const float *p, float *y, long rows, long d, long ldv, long ldp, long n, const int V) { \
    vf a[16];                                                                                         \
    UNROLL for (int i = 0; i < 4 * V; i++) a[i] = n < VL ? ldn_f32(y + i / V * d, n) : ld_f32(y + i / V * d + i % V * VL); \
    ROLLED for (; rows > 0; rows--, v += ldv, p++) {                                                  \
      vf w[4];                                                                                        \
      UNROLL for (int u = 0; u < V; u++) w[u] = n < VL ? LDN(v, n) : LD(v + u * VL);                  \
      UNROLL for (int h = 0; h < 4; h++) {                                                            \
        vf s = vset(p[h * ldp]);                                                                      \
        UNROLL for (int u = 0; u < V; u++) a[h * V + u] = fma(w[u], s, a[h * V + u]);                 \
      }                                                                                               \
    }                                                                                                 \
    UNROLL for (int i = 0; i < 4 * V; i++) {                                                          \
      if (n < VL)                                                                                     \
        stn(y + i / V * d, a[i], n);                                                                  \
      else                                                                                            \
        st(y + i / V * d + i % V * VL, a[i]);                                                         \
    }                                                                                                 \
  }                                                                                                   \
  void NAME(const T *v, const float *p, float *y, long ldv, long ldp, long shape) {                   \
    const long d = shape >> 16 & 0xffff, share = shape >> 48, all = shape & 0xffff;                   \
    if ((shape >> 32 & 0xffff) == 1) {                                                                \
      long h = share;                                                                                 \
      ROLLED for (; h >= 4; h -= 4, p += 4 * ldp, y += 4 * d) {                                       \
        long i = 0;                                                                                   \
        ROLLED for (; i + WSUMH_VECTORS * VL <= d; i += WSUMH_VECTORS * VL)                           \
          NAME##_four(v + i, p, y + i, all, d, ldv, ldp, VL, WSUMH_VECTORS);                          \
        ROLLED for (; i < d; i += VL) NAME##_four(v + i, p, y + i, all, d, ldv, ldp, d - i, 1);       \
      }                                                                                               \
      ROLLED for (; h > 0; h--, p += ldp, y += d) ONE(v, p, y, all, d, ldv);                          \
      return;                                                                                         \
    }                                                                                                 \
    ROLLED for (long rows = all; rows > 0; rows--, v += ldv, p++) {                                   \
      const T *group = v;                                                                             \
      const float *ph = p;                                                                            \
      float *yh = y;                                                                                  \
      ROLLED for (long g = shape >> 32 & 0xffff; g > 0; g--, group += d) {                            \
        ROLLED for (long i = 0; i < d; i += 64 / (long)sizeof(T)) __builtin_prefetch(group + ldv + i, 0, 2); \
        ROLLED for (long h = share; h > 0; h--, ph += ldp, yh += d) {                                 \
          vf s = vset(*ph);                                                                           \
          long i = 0;                                                                                 \
          ROLLED for (; i + 4 * VL <= d; i += 4 * VL)                                                 \
            UNROLL for (int u = 0; u < 4; u++) st(yh + i + u * VL, fma(LD(group + i + u * VL), s, ld_f32(yh + i + u * VL))); \
          ROLLED for (; i + VL <= d; i += VL) st(yh + i, fma(LD(group + i), s, ld_f32(yh + i)));      \
          if (i < d) stn(yh + i, fma(LDN(group + i, d - i), s, ldn_f32(yh + i, d - i)), d - i);       \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
  }
WSUMH(wsumh_f32, wsum_f32_one, float, ld_f32, ldn_f32)
WSUMH(wsumh_f16, wsum_f16_one, uint16_t, ld_f16, ldn_f16)
WSUMH(wsumh_bf16, wsum_bf16_one, uint16_t, ld_bf16, ldn_bf16)
