// Products of panels (panel.h) with activations of eight bits.
//
// Activations are quantised in blocks of 32 with a scale each: x = d·q. G rows
// of them, 1 or 8, lie together in one record per block:
//
//	0      G · 32 bytes  q
//	32·G   G floats      d
//	36·G   G · 3 int32   -Σq of the block, then of its two halves, G of each
//
// so that a row's part of a product is  d·(a·Σ w·q + m·Σ q)  per block. The q of rows
// that are PAIRED lie two by two: eight columns of the one and of the other in turn.
#include "panel.h"

#define RECORD 48 // bytes per row and block

// block adds one block's products of NC rows of activations with VL rows of
// weights to acc; the scales of its pair are at sc.
INLINE void block(const int f, const int NC, const int G, vf d, vf low, const uint8_t *pair, const uint8_t *sc, long b, long r,
                  const uint8_t *x, const int col, vf *acc) {
  vf a[2], m[2], v[8];
  vi s[8], t[8];
  scales(f, d, low, sc, b, r, a, m);
  const uint8_t *q = pair + SCALES(f) + QUANTS(f) * b, *xd = x + 32 * G + 4 * col, *xs = xd + 4 * G;
  const int n = HALVES(f) ? 4 : 8, each = PAIRED(NC) ? 2 : 1;
#if VL == 16
  if (NC == 1) {
    UNROLL for (int i = 0; i < QUANTS(f) / 64; i++) LOADED("v", ld_i(q + 64 * i)); // in order
  }
#endif
  // One row of activations would be one chain of dependent sums: make it more.
  const int chains = NC == 1 && VL == 16 ? n / 2 : 1;
  UNROLL for (int i = 0; i < 8; i += each) {
    const int order = PAIRED(NC) ? (i & 2) * 2 + i / 4 * 2 : (i & 1) * 4 + i / 2; // both halves of a vector in turn
    const int g = HALVES(f) || f == Q8_0 ? i : order;
    if (i % n == 0) {
      const uint8_t *sum = HALVES(f) ? xs + 4 * G * (1 + i / 4) : xs;
      UNROLL for (int c = 0; c < NC; c++) s[c] = OFFSET(f) ? shl(lanes_x(NC, sum, c), OFFSET(f)) : viset(0);
      UNROLL for (int c = 1; c < chains; c++) s[c] = viset(0);
    }
#if VL < 16 && !LANES
    IN_ORDER("+r", q); // planes are loaded again instead of kept
#endif
    vi w = code(f, q, g, r, PAIRED(NC) ? LOW : WHOLE), w2 = PAIRED(NC) ? code(f, q, g, r, HIGH) : w;
    UNROLL for (int c = 0; c < NC; c += each) {
      if (PAIRED(NC))
        dot_2x2(&s[c], w, w2, ld_i(x + 32 * (col + c) + 8 * g));
      else if (LANES)
        dot_lane(&s[c], w, ld_i(x + 32 * (col + c) + g / 4 * 16), g % 4);
      else
        dot(f, &s[c + i % chains], &t[c], w, all4(x + 32 * (col + c) + 4 * g), i % n, n);
    }
    if (i % n == n - each) {
      if (chains == 4) s[2] = addi(s[2], s[3]), s[1] = addi(s[1], s[2]);
      if (chains > 1) s[0] = addi(s[0], s[1]);
    }
    if (HALVES(f) && i % n == n - each) {
      const int h = i / 4;
      UNROLL for (int c = 0; c < NC; c++) {
        v[c] = h ? fma(from_i(s[c]), lanes_w(NC, a[1], c), v[c]) : from_i(s[c]) * lanes_w(NC, a[0], c);
        if (AFFINE(f)) v[c] = fnma(from_i(lanes_x(NC, xs + 4 * G * (1 + h), c)), lanes_w(NC, m[h], c), v[c]);
      }
    }
  }
  UNROLL for (int c = 0; c < NC; c++) {
    if (!HALVES(f)) {
      v[c] = from_i(s[c]) * lanes_w(NC, a[0], c);
      if (AFFINE(f)) v[c] = fnma(from_i(lanes_x(NC, xs, c)), lanes_w(NC, m[0], c), v[c]);
    }
    acc[c] = fma(v[c], (vf)lanes_x(NC, xd, c), acc[c]);
  }
}

// tile multiplies rows r0·VL … of a panel, RS·VL of them, with NC rows of
// activations from row col of the record on, and stores those below cols.
INLINE void tile(const int f, const int NC, const int RS, const int G, const int FAR, const uint8_t *w, const uint8_t *x, const int col,
                 float *y, long ldy, long blocks, long cols, long r0) {
  vf acc[R * 8];
  uint8_t unpacked[64] __attribute__((aligned(64)));
  const uint8_t *next = FAR ? step_of(w) : w;
  UNROLL for (int i = 0; i < NC * RS; i++) acc[i] = vset(0);
  ROLLED for (; blocks > 0; blocks -= 2 * PAIRS(f)) {
    vf d[R], low[R];
    UNROLL for (int r = 0; r < RS; r++) {
      d[r] = IS_K(f) ? ld_f16((const uint16_t *)w + VL * (r0 + r)) : vset(0);
      low[r] = IS_K(f) && AFFINE(f) ? ld_f16((const uint16_t *)w + 16 + VL * (r0 + r)) : vset(0);
    }
    const uint8_t *six = w + 64;
    w += HEAD(f);
    ROLLED for (int p = 0; p < PAIRS(f); p++, w += PAIR(f)) {
      const uint8_t *sc = SIXES(f) ? unpacked : w;
      if (SIXES(f)) sixes(six, p, unpacked);
      if (NC == 1 && VL == 16) {
        UNROLL for (long b = 0; b < 2; b++, x += RECORD * G) {
          if (FAR) next = ask(FAR, next, w + SCALES(f) + QUANTS(f) * (b + 1));
          block(f, NC, G, d[0], low[0], w, sc, b, 0, x, col, acc);
        }
      } else {
        ROLLED for (long b = 0; b < 2; b++, x += RECORD * G) {
          if (FAR) next = ask(FAR, next, w + SCALES(f) + QUANTS(f) * (b + 1));
          UNROLL for (int r = 0; r < RS; r++) block(f, NC, G, d[r], low[r], w, sc, b, r0 + r, x, col, acc + r * NC);
        }
      }
    }
  }
  UNROLL for (int c = 0; c < NC; c++) {
    if (col + c < cols) {
      UNROLL for (int r = 0; r < RS; r++) st(y + (col + c) * ldy + (r0 + r) * VL, row_of(NC, acc + r * NC, c));
    }
  }
}

// NAME: y[j*ldy + 16·p + i] = row i of panel p times row j of a record, for
// j < cols and p < panels; blocks is a multiple of a unit's, and
// shape = cols | wide << 8 | far << 9 | panels << 16, with records of 8 rows
// where wide; far, as in vec.h, asks for weights before their turn (ask), where one
// row of activations leaves memory the limit.
#if VL == 16
#define TILES(F) // records of eight rows are for panelwide.c
#elif PAIRED(8)
#define TILES(F)                                                   \
  ROLLED for (long r = 0; r < R; r++) {                            \
    if (cols > 4)                                                  \
      tile(F, 8, 1, 8, FAR_OFF, w, x, 0, y, ldy, blocks, cols, r); \
    else                                                           \
      tile(F, 4, 1, 8, FAR_OFF, w, x, 0, y, ldy, blocks, cols, r); \
  }
#else // too few registers for more than four columns
#define TILES(F)                                                                                       \
  ROLLED for (long r = 0; r < R; r++) {                                                                \
    tile(F, 4, 1, 8, FAR_OFF, w, x, 0, y, ldy, blocks, cols, r);                                       \
    if (cols > 4) tile(F, 4, 1, 8, FAR_OFF, w, x, 4, y, ldy, blocks, cols, r);                         \
  }
#endif
#define PANELS(NAME, F)                                                                                \
  void NAME(const uint8_t *w, const uint8_t *x, float *y, long ldy, long blocks, long shape) {         \
    long cols = shape & 255, wide = shape >> 8 & 1, far = CAN_FAR ? shape >> 9 & 3 : FAR_OFF;          \
    ROLLED for (long p = shape >> 16; p > 0; p--, w += blocks / (2 * PAIRS(F)) * UNIT(F), y += 16) {            \
      if (!wide) {                                                                                     \
        if (far == FAR_PAGES)                                                                          \
          tile(F, 1, R, 1, FAR_PAGES, w, x, 0, y, ldy, blocks, cols, 0);                               \
        else if (far == FAR_LINES)                                                                     \
          tile(F, 1, R, 1, FAR_LINES, w, x, 0, y, ldy, blocks, cols, 0);                               \
        else if (CAN_ALL && far == FAR_ALL)                                                            \
          tile(F, 1, R, 1, FAR_ALL, w, x, 0, y, ldy, blocks, cols, 0);                                 \
        else                                                                                           \
          tile(F, 1, R, 1, FAR_OFF, w, x, 0, y, ldy, blocks, cols, 0);                                 \
        continue;                                                                                      \
      }                                                                                                \
      TILES(F);                                                                                        \
    }                                                                                                  \
  }
PANELS(pq_q8_0, Q8_0)
PANELS(pq_q4_0, Q4_0)
PANELS(pq_q4_1, Q4_1)
PANELS(pq_q5_0, Q5_0)
PANELS(pq_q5_1, Q5_1)
PANELS(pq_iq4_nl, IQ4_NL)
PANELS(pq_q4_k, Q4_K)
PANELS(pq_q5_k, Q5_K)
PANELS(pq_q6_k, Q6_K)
PANELS(pq_q2_k, Q2_K)
PANELS(pq_q3_k, Q3_K)

typedef int8_t i8v __attribute__((vector_size(VL)));
typedef int32_t i32v __attribute__((vector_size(4 * VL)));
typedef i8v i8vu __attribute__((aligned(1), may_alias));

// quant_x: k elements into row j of the records at dst; shape = G | j << 8.
// One more block of zeros makes their number even. A block with a NaN or an
// infinity gets the scale NaN.
void quant_x(const float *x, uint8_t *dst, long k, long shape) {
  long G = shape & 255, j = shape >> 8, next = PAIRED(G) ? 16 : 8; // from eight columns to those behind them
  ROLLED for (long n = (k / 32 + 1) & ~1L; n > 0; n--, k -= 32, x += 32, dst += RECORD * G) {
    float *d = (float *)(dst + 32 * G) + j;
    int32_t *sum = (int32_t *)d + G;
    uint8_t *q = dst + (PAIRED(G) ? 64 * (j >> 1) + 8 * (j & 1) : 32 * j);
    vf v[32 / VL], top = vset(0), bad = top;
    UNROLL for (int i = 0; i < 32 / VL; i++) {
      v[i] = k > 0 ? ld_f32(x + i * VL) : vset(0);
      top = vmax(top, vmax(v[i], vset(0) - v[i]));
      bad = fma(v[i], vset(0), bad);
    }
    float amax = fold(top, 1);
    if (!(amax > 1e-30f)) amax = 0;
    float scale = amax > 0 ? 127 / amax : 0;
    *d = amax * (1.0f / 127) + fold(bad, 0);
    UNROLL for (int h = 0; h < 2; h++) {
      vi total = viset(0);
      UNROLL for (int i = 0; i < 16 / VL; i++) {
        vi c = round_i(v[h * (16 / VL) + i] * vset(scale));
        total = addi(total, c);
        const int at = 16 * h + VL * i;
        *(i8vu *)(q + at / 8 * next + at % 8) = __builtin_convertvector((i32v)c, i8v);
      }
      sum[G * (1 + h)] = -(int32_t)fold(from_i(total), 0);
    }
    sum[0] = sum[G] + sum[2 * G];
  }
}

// peak_i8 is peak_f32 of vector.c for dot products of bytes.
#if VL == 16 || defined(__aarch64__)
#define CHAINS 12
#elif UNSIGNED_DOT
#define CHAINS 10
#else
#define CHAINS 5
#endif
long peak_i8(uint8_t *p, long n) {
  vi s[CHAINS], t[CHAINS], w = ld_i(p) & viset(0x0f0f0f0f), x = ld_i(p);
  UNROLL for (int i = 0; i < CHAINS; i++) s[i] = t[i] = viset(0);
  ROLLED for (long r = 0; r < n; r++)
    UNROLL for (int g = 0; g < 8; g++)
      UNROLL for (int i = 0; i < CHAINS; i += PAIRED(2) ? 2 : 1) {
        if (PAIRED(2))
          dot_2x2(&s[i], w, w, x);
        else
          dot(Q4_0, &s[i], &t[i], w, x, g, 8);
      }
  UNROLL for (int i = 1; i < CHAINS; i++) s[0] = addi(s[0], s[i]);
  st((float *)p, from_i(s[0]));
  return n * 8 * CHAINS * 4 * VL * (PAIRED(2) ? 2 : 1);
}
