// Matrix times vector over plain rows, as weights lie in files. Rows are read
// one after the other: a single forward stream is what the prefetchers of Zen 4
// keep up with. Several rows at once measured slower there out of cache, though
// faster in it; software prefetches helped only where arithmetic is the limit.
#include "blocks.h"

// ROW: Σ_i w[i]·x[i] for i < k.
#define ROW(NAME, T, LD, LDN)                                                                         \
  INLINE float NAME##_row(const T *w, const float *x, long k) {                                       \
    vf a[4];                                                                                          \
    UNROLL for (int u = 0; u < 4; u++) a[u] = vset(0);                                                \
    long i = 0;                                                                                       \
    ROLLED for (; i + 8 * VL <= k; i += 8 * VL)                                                       \
      UNROLL for (int u = 0; u < 8; u++) a[u % 4] = fma(LD(w, i + u * VL), ld_f32(x + i + u * VL), a[u % 4]); \
    ROLLED for (; i + VL <= k; i += VL) a[0] = fma(LD(w, i), ld_f32(x + i), a[0]);                    \
    if (i < k) a[1] = fma(LDN(w, i, k - i), ldn_f32(x + i, k - i), a[1]);                             \
    return vsum((a[0] + a[1]) + (a[2] + a[3]));                                                       \
  }
ROW(f32, float, at_f32, atn_f32)
ROW(f16, uint16_t, at_f16, atn_f16)
ROW(bf16, uint16_t, at_bf16, atn_bf16)
ROW(f8e4m3, uint8_t, at_f8e4m3, atn_f8e4m3)
ROW(q8_0, uint8_t, at_q8_0, atn_q8_0)

// mv_T: y[r] = Σ_i w[r*ldw+i]·x[i] for r < rows, i < k. ldw counts elements.
#define MATVEC(NAME, ONE, T)                                                                          \
  void NAME(const T *w, const float *x, float *y, long rows, long k, long ldw) {                      \
    ROLLED for (; rows > 0; rows--, w += ldw, y++) *y = ONE##_row(w, x, k);                           \
  }
MATVEC(mv_f32, f32, float)
MATVEC(mv_f16, f16, uint16_t)
MATVEC(mv_bf16, bf16, uint16_t)

// mvh_T: y[h*ldy+r] = Σ_i w[r*ldw+h/share*k+i]·x[h*k+i] for h < groups·share: rows of w are groups side
// by side, with share rows of x each; shape = rows | k<<16 | groups<<32 | share<<48. ldw counts elements, or bytes
// of blocks. Of a single group TILE_ROWS rows, once loaded, meet TILE_HEADS heads at a time; each sum is the same
// wherever in a tile it is made. STEP is how far one group is from the next.
#define TILE_ROWS 4
#define TILE_HEADS (VL == 8 ? 2 : 4) // sums, rows and one x are registers
#define MATVECS(NAME, ONE, T, LD, LDN, STEP)                                                          \
  INLINE void NAME##_tile(const T *w, const float *x, float *y, long k, long ldw, long ldy, long left, const int H) { \
    const T *row[TILE_ROWS];                                                                          \
    UNROLL for (int r = 0; r < TILE_ROWS; r++) row[r] = w + (r < left ? r : left - 1) * ldw;          \
    vf a[TILE_ROWS * 4], m[TILE_ROWS];                                                                \
    UNROLL for (int i = 0; i < TILE_ROWS * H; i++) a[i] = vset(0);                                    \
    ROLLED for (long i = 0; i < k; i += VL) {                                                             \
      UNROLL for (int r = 0; r < TILE_ROWS; r++) m[r] = LD(row[r], i);                                \
      UNROLL for (int h = 0; h < H; h++) {                                                            \
        vf q = ld_f32(x + h * k + i);                                                                 \
        UNROLL for (int r = 0; r < TILE_ROWS; r++) a[h * TILE_ROWS + r] = fma(m[r], q, a[h * TILE_ROWS + r]); \
      }                                                                                               \
    }                                                                                                 \
    UNROLL for (int h = 0; h < H; h++, y += ldy) {                                                    \
      f32x4 s = sums4(a + h * TILE_ROWS);                                                             \
      if (left >= TILE_ROWS) {                                                                        \
        *(f32x4u *)y = s;                                                                             \
      } else {                                                                                        \
        float t[4] __attribute__((aligned(16)));                                                      \
        *(f32x4 *)t = s;                                                                              \
        ROLLED for (long r = 0; r < left; r++) y[r] = t[r];                                           \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  INLINE void NAME##_group(const T *w, const float *x, float *y, long rows, long k, long ldw, long ldy, const int H) { \
    ROLLED for (; rows > 0; rows -= TILE_ROWS, w += TILE_ROWS * ldw, y += TILE_ROWS)                  \
      NAME##_tile(w, x, y, k, ldw, ldy, rows, H);                                                     \
  }                                                                                                   \
  void NAME(const T *w, const float *x, float *y, long ldw, long ldy, long shape) {                   \
    const long k = shape >> 16 & 0xffff, share = shape >> 48, all = shape & 0xffff;                   \
    if ((shape >> 32 & 0xffff) == 1 && share > 1 && k % VL == 0) {                                     \
      long h = share;                                                                                 \
      ROLLED for (; h >= TILE_HEADS; h -= TILE_HEADS, x += TILE_HEADS * k, y += TILE_HEADS * ldy)     \
        NAME##_group(w, x, y, all, k, ldw, ldy, TILE_HEADS);                                          \
      if (TILE_HEADS > 2 && h >= 2) {                                                                 \
        NAME##_group(w, x, y, all, k, ldw, ldy, 2);                                                   \
        h -= 2, x += 2 * k, y += 2 * ldy;                                                             \
      }                                                                                               \
      if (h == 1) NAME##_group(w, x, y, all, k, ldw, ldy, 1);                                         \
      return;                                                                                         \
    }                                                                                                 \
    ROLLED for (long rows = all; rows > 0; rows--, w += ldw, y++) {                                   \
      const T *group = w;                                                                             \
      const float *xh = x;                                                                            \
      float *yh = y;                                                                                  \
      ROLLED for (long g = shape >> 32 & 0xffff; g > 0; g--, group += STEP(k)) {                      \
        ROLLED for (long i = 0; i < STEP(k); i += 64 / (long)sizeof(T)) __builtin_prefetch(group + ldw + i, 0, 2); \
        ROLLED for (long h = share; h > 0; h--, xh += k, yh += ldy) *yh = ONE##_row(group, xh, k);    \
      }                                                                                               \
    }                                                                                                 \
  }
#define PLAIN(k) (k)
#define BLOCKS(k) ((k) / 32 * 34)
MATVECS(mvh_f32, f32, float, at_f32, atn_f32, PLAIN)
MATVECS(mvh_f16, f16, uint16_t, at_f16, atn_f16, PLAIN)
MATVECS(mvh_bf16, bf16, uint16_t, at_bf16, atn_bf16, PLAIN)
MATVECS(mvh_f8e4m3, f8e4m3, uint8_t, at_f8e4m3, atn_f8e4m3, PLAIN)
MATVECS(mvh_q8_0, q8_0, uint8_t, at_q8_0, atn_q8_0, BLOCKS)

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

// ONE: y[i] += Σ_r p[r]·v[r*ldv+i] for i < d: attention's weighted sum of value rows. ldv counts elements, or bytes
// of blocks.
#define ONE(NAME, T, LD, LDN)                                                                         \
  INLINE void NAME##_one(const T *v, const float *p, float *y, long rows, long d, long ldv) {         \
    long i = 0;                                                                                       \
    ROLLED for (; i + 4 * VL <= d; i += 4 * VL) {                                                     \
      vf a[4];                                                                                        \
      UNROLL for (int u = 0; u < 4; u++) a[u] = ld_f32(y + i + u * VL);                               \
      ROLLED for (long r = 0; r < rows; r++) {                                                        \
        vf s = vset(p[r]);                                                                            \
        UNROLL for (int u = 0; u < 4; u++) a[u] = fma(LD(v + r * ldv, i + u * VL), s, a[u]);          \
      }                                                                                               \
      UNROLL for (int u = 0; u < 4; u++) st(y + i + u * VL, a[u]);                                    \
    }                                                                                                 \
    ROLLED for (; i + VL <= d; i += VL) {                                                             \
      vf a = ld_f32(y + i);                                                                           \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LD(v + r * ldv, i), vset(p[r]), a);              \
      st(y + i, a);                                                                                   \
    }                                                                                                 \
    if (i < d) {                                                                                      \
      vf a = ldn_f32(y + i, d - i);                                                                   \
      ROLLED for (long r = 0; r < rows; r++) a = fma(LDN(v + r * ldv, i, d - i), vset(p[r]), a);      \
      stn(y + i, a, d - i);                                                                           \
    }                                                                                                 \
  }
ONE(f32, float, at_f32, atn_f32)
ONE(f16, uint16_t, at_f16, atn_f16)
ONE(bf16, uint16_t, at_bf16, atn_bf16)
ONE(f8e4m3, uint8_t, at_f8e4m3, atn_f8e4m3)
ONE(q8_0, uint8_t, at_q8_0, atn_q8_0)
#define WSUM(NAME, BY, T)                                                                             \
  void NAME(const T *v, const float *p, float *y, long rows, long d, long ldv) { BY##_one(v, p, y, rows, d, ldv); }
WSUM(wsum_f32, f32, float)
WSUM(wsum_f16, f16, uint16_t)
WSUM(wsum_bf16, bf16, uint16_t)

// wsumh_T: y[h*d+i] += Σ_r p[h*ldp+r]·v[r*ldv+h/share*d+i] for h < groups·share, i < d: the same for groups of
// heads side by side in rows, which are read in order and asked for a row ahead, as sums in the first-level
// cache leave processors behind with it. Of a single group up to four heads at a time share each row as it is loaded.
// shape = rows | d<<16 | groups<<32 | share<<48.
#define WSUMH_VECTORS (VL == 8 ? 2 : 4) // of a row at a time, so that four heads' sums are registers
#define WSUMH(NAME, BY, T, LD, LDN, STEP)                                                             \
  INLINE void NAME##_part(const T *v, const long at, const float *p, float *y, long rows, long d, long ldv, long ldp, \
                          const int V, const int H) {                                                 \
    vf a[16];                                                                                         \
    UNROLL for (int i = 0; i < H * V; i++) a[i] = ld_f32(y + i / V * d + i % V * VL);                 \
    ROLLED for (; rows > 0; rows--, v += ldv, p++) {                                                  \
      vf w[4];                                                                                        \
      UNROLL for (int u = 0; u < V; u++) w[u] = LD(v, at + u * VL);                                   \
      UNROLL for (int h = 0; h < H; h++) {                                                            \
        vf s = vset(p[h * ldp]);                                                                      \
        UNROLL for (int u = 0; u < V; u++) a[h * V + u] = fma(w[u], s, a[h * V + u]);                 \
      }                                                                                               \
    }                                                                                                 \
    UNROLL for (int i = 0; i < H * V; i++) st(y + i / V * d + i % V * VL, a[i]);                      \
  }                                                                                                   \
  INLINE void NAME##_group(const T *v, const float *p, float *y, long rows, long d, long ldv, long ldp, const int H) { \
    long i = 0;                                                                                       \
    ROLLED for (; i + WSUMH_VECTORS * VL <= d; i += WSUMH_VECTORS * VL)                               \
      NAME##_part(v, i, p, y + i, rows, d, ldv, ldp, WSUMH_VECTORS, H);                               \
    ROLLED for (; i < d; i += VL) NAME##_part(v, i, p, y + i, rows, d, ldv, ldp, 1, H);               \
  }                                                                                                   \
  void NAME(const T *v, const float *p, float *y, long ldv, long ldp, long shape) {                   \
    const long d = shape >> 16 & 0xffff, share = shape >> 48, all = shape & 0xffff;                   \
    if ((shape >> 32 & 0xffff) == 1) {                                                                \
      long h = share;                                                                                 \
      if (d % VL == 0) {                                                                              \
        ROLLED for (; h >= 4; h -= 4, p += 4 * ldp, y += 4 * d) NAME##_group(v, p, y, all, d, ldv, ldp, 4); \
        ROLLED for (; h >= 2; h -= 2, p += 2 * ldp, y += 2 * d) NAME##_group(v, p, y, all, d, ldv, ldp, 2); \
      }                                                                                               \
      ROLLED for (; h > 0; h--, p += ldp, y += d) BY##_one(v, p, y, all, d, ldv);                     \
      return;                                                                                         \
    }                                                                                                 \
    ROLLED for (long rows = all; rows > 0; rows--, v += ldv, p++) {                                   \
      const T *group = v;                                                                             \
      const float *ph = p;                                                                            \
      float *yh = y;                                                                                  \
      ROLLED for (long g = shape >> 32 & 0xffff; g > 0; g--, group += STEP(d)) {                      \
        ROLLED for (long i = 0; i < STEP(d); i += 64 / (long)sizeof(T)) __builtin_prefetch(group + ldv + i, 0, 2); \
        ROLLED for (long h = share; h > 0; h--, ph += ldp, yh += d) {                                 \
          vf s = vset(*ph);                                                                           \
          long i = 0;                                                                                 \
          ROLLED for (; i + 4 * VL <= d; i += 4 * VL)                                                 \
            UNROLL for (int u = 0; u < 4; u++) st(yh + i + u * VL, fma(LD(group, i + u * VL), s, ld_f32(yh + i + u * VL))); \
          ROLLED for (; i + VL <= d; i += VL) st(yh + i, fma(LD(group, i), s, ld_f32(yh + i)));       \
          if (i < d) stn(yh + i, fma(LDN(group, i, d - i), s, ldn_f32(yh + i, d - i)), d - i);        \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
  }
WSUMH(wsumh_f32, f32, float, at_f32, atn_f32, PLAIN)
WSUMH(wsumh_f16, f16, uint16_t, at_f16, atn_f16, PLAIN)
WSUMH(wsumh_bf16, bf16, uint16_t, at_bf16, atn_bf16, PLAIN)
WSUMH(wsumh_f8e4m3, f8e4m3, uint8_t, at_f8e4m3, atn_f8e4m3, PLAIN)
WSUMH(wsumh_q8_0, q8_0, uint8_t, at_q8_0, atn_q8_0, BLOCKS)
