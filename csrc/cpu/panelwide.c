// Products of panels (panel.h) of block formats with eight rows of activations at a time, in
// the records of eight rows that panel.c describes, for AVX-512 with dot products of bytes.
//
// Multiplications are the limit: processors have two units of 256 bits for them, which dot
// products of bytes share, and others for conversions, sums and shifts. So what a block has
// besides its 64 dot products of a vector is what counts: of each row of activations, in
// formats with scales in f16, one with either side's scale; in k-quants one of integers with
// the scale of a block, or its halves, one with that of the activations, and one for the
// offset. The scales of 256 columns come once at their end. What depends on activations alone
// is made in memory, since a number in every lane costs nothing when it is loaded.
#include "panel.h"

#define ROWS 8 // of activations in a record
#define RECORD (48 * ROWS)
#define FAR 2 // pairs of blocks from which operands are asked for ahead, as they come from the second or third level

// ASK says whether they are: where there is little to do besides dot products, loads are what is short.
#define ASK(f) ((f) != Q8_0)

typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef i32x8 i32x8u __attribute__((aligned(4), may_alias));
typedef f32x8 f32x8u __attribute__((aligned(4), may_alias));

// offsets puts at t what depends on the activations of a block alone: what the dot products
// start from, or the sums that a format's offsets are multiplied with.
INLINE void offsets(const int f, const uint8_t *x, int32_t *t) {
  const f32x8 d = *(const f32x8u *)(x + 32 * ROWS);
  const i32x8u *sums = (const i32x8u *)(x + 36 * ROWS);
  UNROLL for (int h = 0; h < 1 + HALVES(f); h++) {
    const i32x8 sum = sums[HALVES(f) + h];
    if (OFFSET(f)) ((i32x8 *)t)[h] = sum << OFFSET(f);
    if (AFFINE(f)) ((f32x8 *)t)[h] = __builtin_convertvector(sum, f32x8) * d;
  }
}

INLINE vi ld_scale(const int f, const uint8_t *p) {
  vi sc = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
  return f == Q2_K ? sc & viset(15) : sc;
}

// block adds one block's products of NC rows of activations, from row col on, to acc; of k-quants
// without the unit's scales, and offsets to low. The block's scales are at sc.
INLINE void block(const int f, const int NC, const int col, const uint8_t *pair, const uint8_t *sc, long b, const uint8_t *x, int32_t *t,
                  vf *acc, vf *low) {
  const uint8_t *q = pair + SCALES(f) + QUANTS(f) * b;
  const float *d = (const float *)(x + 32 * ROWS) + col;
  const int n = HALVES(f) ? 4 : 8;
  vi s[ROWS], u[ROWS];
  offsets(f, x, t);
  t += col;
  __asm__ volatile("" : "+r"(t) : : "memory"); // there, and not in registers
  UNROLL for (int i = 0; i < 8; i++) {
    const int g = HALVES(f) || f == Q8_0 ? i : (i & 1) * 4 + i / 2; // both halves of a vector in turn
    if (i % n == 0) {
      UNROLL for (int c = 0; c < NC; c++) s[c] = OFFSET(f) ? all4(t + ROWS * (i / n) + c) : viset(0);
    }
    const vi w = code(f, q, g, 0, WHOLE);
    UNROLL for (int c = 0; c < NC; c++) s[c] = _mm512_dpbusd_epi32(s[c], w, all4(x + 32 * (col + c) + 4 * g));
    if (IS_K(f) && i % n == n - 1) {
      const vi scale = ld_scale(f, sc + 16 * (i / n));
      UNROLL for (int c = 0; c < NC; c++) {
        vi p = _mm512_mullo_epi32(s[c], scale);
        u[c] = i / n ? addi(u[c], p) : p;
      }
    }
  }
  if (IS_K(f)) {
    UNROLL for (int c = 0; c < NC; c++) acc[c] = fma(from_i(u[c]), vset(d[c]), acc[c]);
    if (AFFINE(f)) {
      UNROLL for (int h = 0; h < 1 + HALVES(f); h++) {
        const vf m = f == Q2_K ? from_i(shr(round_i(ld_i8(sc + 16 * h)) & viset(0xf0), 4)) : ld_i8(sc + 16);
        UNROLL for (int c = 0; c < NC; c++) low[c] = fma(m, (vf)all4(t + ROWS * h + c), low[c]);
      }
    }
    return;
  }
  const uint16_t *a = (const uint16_t *)sc;
  const vf scale = ld_f16(a);
  UNROLL for (int c = 0; c < NC; c++) acc[c] = fma(from_i(s[c]) * scale, vset(d[c]), acc[c]);
  if (AFFINE(f)) {
    const vf m = ld_f16(a + 32);
    UNROLL for (int c = 0; c < NC; c++) acc[c] = fnma(m, (vf)all4(t + c), acc[c]);
  }
}

// tile multiplies a panel with NC rows of activations, from row col on.
INLINE void tile(const int f, const int NC, const int col, const uint8_t *w, const uint8_t *x, float *y, const float *r, long ldy, long blocks) {
  int32_t t[2 * ROWS] __attribute__((aligned(64)));
  uint8_t unpacked[64] __attribute__((aligned(64)));
  vf acc[ROWS], low[ROWS];
  long first = 1;
  y += col * ldy;
  r += r ? col * ldy : 0;
  // Rows of y are far apart, so that no processor fetches them by itself.
  UNROLL for (int c = 0; c < NC; c++) __builtin_prefetch(y + c * ldy, 1, 3);
  if (r) UNROLL for (int c = 0; c < NC; c++) __builtin_prefetch(r + c * ldy, 0, 3);
  UNROLL for (int c = 0; c < NC; c++) acc[c] = vset(0);
  ROLLED for (; blocks > 0; blocks -= 2 * PAIRS(f)) {
    const uint16_t *head = (const uint16_t *)w;
    if (IS_K(f)) UNROLL for (int c = 0; c < NC; c++) acc[c] = low[c] = vset(0);
    w += HEAD(f);
    ROLLED for (int p = 0; p < PAIRS(f); p++, w += PAIR(f)) {
      const uint8_t *sc = SIXES(f) ? unpacked : w;
      if (SIXES(f)) sixes((const uint8_t *)head + 64, p, unpacked);
      const int more = SIXES(f) ? 64 : 0; // of the next unit's head, a line with each pair
      if (ASK(f)) UNROLL for (int o = 0; o < PAIR(f) + more; o += 64) __builtin_prefetch(w + FAR * PAIR(f) + more * p + o, 0, 3);
      ROLLED for (long b = 0; b < 2; b++, x += RECORD) {
        if (ASK(f)) UNROLL for (int o = 0; o < RECORD; o += 64) __builtin_prefetch(x + 2 * FAR * RECORD + o, 0, 3);
        block(f, NC, col, w, sc + 32 * b, b, x, t, acc, low);
      }
    }
    if (IS_K(f)) {
      const vf d = ld_f16(head), m = AFFINE(f) ? ld_f16(head + 16) : vset(0);
      UNROLL for (int c = 0; c < NC; c++) {
        vf z = fma(acc[c], d, first ? vset(0) : ld_f32(y + c * ldy));
        if (AFFINE(f)) z = fnma(low[c], m, z);
        st(y + c * ldy, z);
      }
      first = 0;
    }
  }
  UNROLL for (int c = 0; c < NC; c++) {
    vf z = IS_K(f) ? ld_f32(y + c * ldy) : acc[c];
    if (r) z += ld_f32(r + c * ldy);
    if (!IS_K(f) || r) st(y + c * ldy, z);
  }
}

// NAME: y[j*ldy + 16·p + i] = row i of panel p times row j of a record, to which r[j*ldy + 16·p + i]
// is added unless r is null, with
//
//	shape = rows | blocks << 8 | panels << 28 | size << 36
//
// for panels that lie 64·size bytes apart; blocks is a multiple of a unit's. All eight rows are
// stored, or four where no more are wanted.
#define WIDE(NAME, F)                                                                            \
  void NAME(const uint8_t *w, const uint8_t *x, float *y, const float *r, long ldy, long shape) { \
    const long blocks = shape >> 8 & 0xfffff, size = shape >> 36 << 6;                            \
    ROLLED for (long p = shape >> 28 & 255; p > 0; p--, w += size, y += 16, r += r ? 16 : 0) {    \
      if ((shape & 255) <= 4) {                                                                   \
        tile(F, 4, 0, w, x, y, r, ldy, blocks);                                                   \
      } else if (F == Q2_K) { /* sums of two kinds of eight rows are too many registers */        \
        ROLLED for (int c = 0; c < ROWS; c += 4) tile(F, 4, c, w, x, y, r, ldy, blocks);          \
      } else {                                                                                    \
        tile(F, 8, 0, w, x, y, r, ldy, blocks);                                                   \
      }                                                                                           \
    }                                                                                             \
  }
WIDE(pw_q8_0, Q8_0)
WIDE(pw_q4_0, Q4_0)
WIDE(pw_q4_1, Q4_1)
WIDE(pw_q5_0, Q5_0)
WIDE(pw_q5_1, Q5_1)
WIDE(pw_iq4_nl, IQ4_NL)
WIDE(pw_q4_k, Q4_K)
WIDE(pw_q5_k, Q5_K)
WIDE(pw_q6_k, Q6_K)
WIDE(pw_q2_k, Q2_K)
WIDE(pw_q3_k, Q3_K)
