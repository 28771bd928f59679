// Products on the matrix unit (AMX): tiles of 16 rows of 64 bytes, dot products of
// bf16 with sums in f32. Numbers of more than eight bits are sums of up to three
// bf16, largest first, which gives all of f32; of the products of such parts those
// below the last bit of the largest are left out. Block formats are brought to bf16
// with their scales, so that sums run over all columns inside the unit: its dot products
// of bytes would have to be taken out and scaled after every 32 columns, which
// costs more than they save.
//
//	x tiles   16 rows of activations, 32 columns each: [columns/32][parts][16][32]
//	w tiles   a panel's 16 rows, pairs of columns: [columns/32][parts][16][16][2]
#include "panel.h"

#define TILE 1024 // bytes

// interleave rounds a and b to bf16: lane i holds a's in its low half, b's in its high one.
INLINE vi interleave(vf a, vf b) {
  static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(ld_i(order), (vi)_mm512_cvtne2ps_pbh(b, a));
}

// rest gives what bf16 h has left of v, 0 where that is no number.
INLINE vf rest(vf v, vf h) {
  v -= h;
  return _mm512_maskz_mov_ps(_knot_mask16(_mm512_fpclass_ps_mask(v, 0x99)), v);
}

// put stores two columns of a panel as PARTS rows of w tiles.
INLINE void put(uint8_t *dst, vf a, vf b, const int PARTS) {
  UNROLL for (int p = 0; p < PARTS; p++) {
    vi h = interleave(a, b);
    _mm512_storeu_si512(dst + p * TILE, h);
    a = rest(a, (vf)shl(h, 16));
    b = rest(b, (vf)(h & viset((int)0xffff0000)));
  }
}

// NAME: k columns of a panel of a plain type as w tiles; columns beyond k are zeros.
#define WIDE(NAME, T, LD, PARTS)                                                                       \
  void NAME(const T *w, uint8_t *dst, long k) {                                                        \
    ROLLED for (; k > 0; k -= 32, dst += PARTS * TILE)                                                 \
      ROLLED for (long i = 0; i < 32; i += 2, w += 32)                                                 \
        put(dst + 32 * i, i < k ? LD(w) : vset(0), i + 1 < k ? LD(w + 16) : vset(0), PARTS);           \
  }
WIDE(ax_f32, float, ld_f32, 3)
WIDE(ax_f16, uint16_t, ld_f16, 2)

void ax_bf16(const uint16_t *w, uint8_t *dst, long k) {
  ROLLED for (; k > 0; k -= 32)
    ROLLED for (long i = 0; i < 32; i += 2, w += 32, dst += 64)
      _mm512_storeu_si512(dst, i < k ? ld_i(w) : viset(0)); // an odd last column is paired with zeros
}

// wide gives a block's w tile; the scales of its pair are at sc.
INLINE void wide(const int f, vf d, vf low, const uint8_t *pair, const uint8_t *sc, long b, uint8_t *dst) {
  const int off = SIGNED(f) ? 128 : OFFSET(f) ? 1 << OFFSET(f) : 0;
  vf a[2], m[2];
  scales(f, d, low, sc, b, 0, a, m);
  if (!AFFINE(f)) {
    m[0] = a[0] * vset((float)-off);
    if (HALVES(f)) m[1] = a[1] * vset((float)-off);
  }
  UNROLL for (int g = 0; g < 8; g++) {
    const int h = HALVES(f) ? g / 4 : 0;
    vi w = code(f, pair + SCALES(f) + QUANTS(f) * b, g, 0, WHOLE);
    vf v[4];
    UNROLL for (int c = 0; c < 4; c++) {
      vi t = c ? shr(w, 8 * c) : w;
      v[c] = from_i(c < 3 ? t & viset(255) : t);
      v[c] = fma(v[c], a[h], m[h]);
    }
    _mm512_storeu_si512(dst + 128 * g, interleave(v[0], v[1]));
    _mm512_storeu_si512(dst + 128 * g + 64, interleave(v[2], v[3]));
  }
}

// NAME: blocks of 32 columns of a panel of a block format, as many as whole
// units have, as w tiles of one part.
#define BLOCKS(NAME, F)                                                                                \
  void NAME(const uint8_t *w, uint8_t *dst, long blocks) {                                             \
    uint8_t unpacked[64] __attribute__((aligned(64)));                                                 \
    ROLLED for (; blocks > 0; blocks -= 2 * PAIRS(F)) {                                                \
      vf d = IS_K(F) ? ld_f16((const uint16_t *)w) : vset(0);                                          \
      vf low = IS_K(F) && AFFINE(F) ? ld_f16((const uint16_t *)w + 16) : vset(0);                      \
      const uint8_t *six = w + 64;                                                                     \
      w += HEAD(F);                                                                                    \
      ROLLED for (int p = 0; p < PAIRS(F); p++, w += PAIR(F)) {                                        \
        if (SIXES(F)) sixes(six, p, unpacked);                                                         \
        ROLLED for (long b = 0; b < 2; b++, dst += TILE)                                               \
          wide(F, d, low, w, SIXES(F) ? unpacked : w, b, dst);                                         \
      }                                                                                                \
    }                                                                                                  \
  }
BLOCKS(ax_q8_0, Q8_0)
BLOCKS(ax_q4_0, Q4_0)
BLOCKS(ax_q4_1, Q4_1)
BLOCKS(ax_q5_0, Q5_0)
BLOCKS(ax_q5_1, Q5_1)
BLOCKS(ax_iq4_nl, IQ4_NL)
BLOCKS(ax_q4_k, Q4_K)
BLOCKS(ax_q5_k, Q5_K)
BLOCKS(ax_q6_k, Q6_K)
BLOCKS(ax_q2_k, Q2_K)
BLOCKS(ax_q3_k, Q3_K)

// ax_pack: rows of k floats, ld apart, as x tiles; what is missing of 16 rows
// and of 32 columns is zeros. shape = rows | parts << 8.
void ax_pack(const float *x, long ld, uint8_t *dst, long k, long shape) {
  long rows = shape & 255, parts = shape >> 8;
  ROLLED for (; k > 0; k -= 32, x += 32, dst += parts * TILE) {
    long low = k < 16 ? k : 16, high = k < 16 ? 0 : k < 32 ? k - 16 : 16;
    ROLLED for (long j = 0; j < 16; j++) {
      long n = j < rows;
      vf a = ldn_f32(x + n * j * ld, n * low), b = ldn_f32(x + n * j * ld + 16, n * high);
      ROLLED for (long p = 0; p < parts; p++) {
        vi h = (vi)_mm512_cvtne2ps_pbh(b, a);
        _mm512_storeu_si512(dst + p * TILE + 64 * j, h);
        a = rest(a, widen(_mm512_castsi512_si256(h)));
        b = rest(b, widen(_mm512_extracti64x4_epi64(h, 1)));
      }
    }
  }
}

// job is one call of ax_mul; backends/cpu/simd/amx.go has the same in Go.
struct job {
  const uint8_t *x, *w;
  float *y, *sums;   // sums: 4 KiB for each 32 rows
  long ldy;          // floats
  long tiles;        // of 32 columns
  long rows, cols;   // of y: activations, and rows of w, 32 at most
  long xstep, wstep; // bytes from 16 rows to the next
  long parts;        // of x | of w << 8
  long first, last;  // columns: sums begin with them, and go to y
};

// Tiles 0 to 3 are sums, [row of x][row of w]; 4 and 5 are x; 6 and 7 w.
// step multiplies 32 columns of XT·16 rows of x with WT·16 rows of w.
INLINE void step(const uint8_t *x, const uint8_t *w, long xstep, long wstep, const int XT, const int WT, const int XP, const int WP) {
  UNROLL for (int q = 0; q < WP; q++) {
    _tile_loadd(6, w + q * TILE, 64);
    UNROLL for (int p = 0; p < XP - q; p++) {
      _tile_loadd(4, x + p * TILE, 64);
      if (WT > 1 && p == 0) _tile_loadd(7, w + wstep + q * TILE, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (XT > 1) _tile_loadd(5, x + xstep + p * TILE, 64);
      if (WT > 1) _tile_dpbf16ps(1, 4, 7);
      if (XT > 1) _tile_dpbf16ps(2, 5, 6);
      if (XT > 1 && WT > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

// square computes XT·16 by WT·16 sums. Between calls they lie tile by tile:
// rows that lie far apart share few places in the caches.
INLINE void square(const struct job *j, const uint8_t *x, float *y, float *sums, const int XT, const int WT) {
  const uint8_t *w = j->w;
  long xstep = j->xstep, wstep = j->wstep;
  if (!j->first) {
    _tile_loadd(0, sums, 64);
    if (WT > 1) _tile_loadd(1, sums + 256, 64);
    if (XT > 1) _tile_loadd(2, sums + 512, 64);
    if (XT > 1 && WT > 1) _tile_loadd(3, sums + 768, 64);
  } else {
    _tile_zero(0);
    if (WT > 1) _tile_zero(1);
    if (XT > 1) _tile_zero(2);
    if (XT > 1 && WT > 1) _tile_zero(3);
  }
  long n = j->tiles;
#define STEPS(XP, WP)                                                                                  \
  ROLLED for (; n > 0; n--, x += XP * TILE, w += WP * TILE) step(x, w, xstep, wstep, XT, WT, XP, WP)
  switch (j->parts) {
  case 1 | 1 << 8: STEPS(1, 1); break;
  case 2 | 1 << 8: STEPS(2, 1); break;
  case 3 | 1 << 8: STEPS(3, 1); break;
  case 3 | 2 << 8: STEPS(3, 2); break;
  case 3 | 3 << 8: STEPS(3, 3); break;
  }
  long ld = 64, right = 256, down = 512;
  if (j->last) {
    ld = 4 * j->ldy, right = 16, down = 16 * j->ldy;
    sums = y;
  }
  _tile_stored(0, sums, ld);
  if (WT > 1) _tile_stored(1, sums + right, ld);
  if (XT > 1) _tile_stored(2, sums + down, ld);
  if (XT > 1 && WT > 1) _tile_stored(3, sums + down + right, ld);
}

// configure gives the tiles their sizes: rows of x, 32 at most, and of w.
INLINE void configure(long rows, long cols) {
  uint8_t c[64] __attribute__((aligned(64)));
  _mm512_store_si512(c, viset(0));
  c[0] = 1;
  long r0 = rows < 16 ? rows : 16, r1 = rows > 16 ? rows - 16 : 16;
  long c0 = cols < 16 ? cols : 16, c1 = cols > 16 ? cols - 16 : 16;
  uint16_t *bytes = (uint16_t *)(c + 16);
  bytes[0] = bytes[2] = bytes[6] = (uint16_t)(4 * c0);
  bytes[1] = bytes[3] = bytes[7] = (uint16_t)(4 * c1);
  bytes[4] = bytes[5] = 64;
  uint8_t *n = c + 48;
  n[0] = n[1] = n[4] = (uint8_t)r0;
  n[2] = n[3] = n[5] = (uint8_t)r1;
  n[6] = n[7] = 16;
  _tile_loadconfig(c);
}

// ax_mul: y[i*ldy + j] = Σ x[i]·w[j] for i < rows, j < cols. The unit is given
// back at the end: tiles are too much to keep across switches of threads.
void ax_mul(const struct job *j) {
  const uint8_t *x = j->x;
  float *y = j->y, *sums = j->sums;
  long rows = j->rows, config = 0;
  ROLLED for (; rows > 0; rows -= 32, x += 2 * j->xstep, y += 32 * j->ldy, sums += 1024) {
    long n = rows < 32 ? rows : 32;
    if (n != config) {
      config = n;
      configure(n, j->cols);
    }
    if (j->cols > 16) {
      if (n > 16)
        square(j, x, y, sums, 2, 2);
      else
        square(j, x, y, sums, 1, 2);
    } else {
      if (n > 16)
        square(j, x, y, sums, 2, 1);
      else
        square(j, x, y, sums, 1, 1);
    }
  }
  _tile_release();
}

// peak_tiles is peak_f32 of vector.c for tiles; p has one to read.
long peak_tiles(float *p, long n) {
  configure(32, 32);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, p, 64);
  _tile_loadd(5, p, 64);
  _tile_loadd(6, p, 64);
  _tile_loadd(7, p, 64);
  ROLLED for (long r = 0; r < n; r++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, p, 64);
  _tile_release();
  return n * 4 * 16 * 16 * 32;
}
