// Compact panels of f16: fourteen and a half bits a weight (backends/cpu/simd/compact.go says why). An
// element's low byte is kept as it is, and so are its sign and the highest two bits of its mantissa. Its exponent shares
// seven bits with that of the same row four columns on: the pair is one of 128.
// A panel of k columns, a multiple of 8:
//
//	  0  first[128]   the exponents of the first of a pair, << 2 as in high bytes; of pair 0 both are 0
//	128  second[128]  of the other
//	256  ends[8]      u32: how many exceptions there are up to the end of each segment of 4096 columns
//	288  exceptions, u32 each: element << 16 | column in the segment << 4 | row; room for k / 32 of them
//	  …  of each 8 columns 232 bytes, one block behind the other
//
// A block has, for 64 pairs, codes, low bytes of the first four columns and low bytes of the next four, 64 bytes each, and 40
// bytes of fields. Pair 16·(r / 8) + 32·(c % 2) + 8·(c / 2) + r % 8 has row r of columns c and c + 4, for c < 4, so that
// bytes become columns without leaving their quarter of a register. A code is the pair's place in the tables, and has the
// first one's sign in bit 7. Fields are five bits of each eight pairs' five bytes: of pair i bits 5i and 5i + 1 are
// the mantissa of the second one, 5i + 3 and 5i + 4 that of the first, and bit 5i + 7 of 40, the
// first being behind the last, is the second one's sign. Where an exception is, both elements are 0.
#include "compact.h"
#include "shaped.h"

#define F16_ENDS 256
#define F16_HEAD (F16_ENDS + 4 * SEGMENTS)
#define F16_BLOCK 232

// What unpacks a block: places of the fields' bytes in the block's last 64, shifts, and masks.
#define EACH(F) F(0), F(1), F(2), F(3), F(4), F(5), F(6), F(7)
#define PLACES(q) 24 + 5 * q, 25 + 5 * q, 26 + 5 * q, 27 + 5 * q, 28 + 5 * q, 24 + 5 * q, 25 + 5 * q, 26 + 5 * q
static const uint8_t places[64] = {EACH(PLACES)};

typedef struct {
  vi first[2], second[2], places, shift_first, shift_second;
} unpacking;

INLINE unpacking unpacking_of(const uint8_t *table) {
  return (unpacking){
      {ld_i(table), ld_i(table + 64)},
      {ld_i(table + 128), ld_i(table + 192)},
      ld_i(places),
      _mm512_set1_epi64(0x26211c17120d0803), // 5i + 3
      _mm512_set1_epi64(0x231e19140f0a0500), // 5i
  };
}

// block_f16 gives the 8 columns of a block, two in each register.
INLINE void block_f16(const uint8_t *w, const unpacking *t, vi *out) {
  const vi sign = _mm512_set1_epi8((char)0x80), exponent = _mm512_set1_epi8(0x7c);
  vi codes = ld_i(w), fields = _mm512_permutexvar_epi8(t->places, ld_i(w + F16_BLOCK - 64));
  vi a = _mm512_ternarylogic_epi64(sign, codes, _mm512_multishift_epi64_epi8(t->shift_first, fields), 0xca); // bits of codes where sign has them
  vi b = _mm512_multishift_epi64_epi8(t->shift_second, fields);
  a = _mm512_ternarylogic_epi64(exponent, _mm512_permutex2var_epi8(t->first[0], codes, t->first[1]), a, 0xca);
  b = _mm512_ternarylogic_epi64(exponent, _mm512_permutex2var_epi8(t->second[0], codes, t->second[1]), b, 0xca);
  vi low = ld_i(w + 64), low4 = ld_i(w + 128);
  out[0] = zip_low(low, a);
  out[1] = zip_high(low, a);
  out[2] = zip_low(low4, b);
  out[3] = zip_high(low4, b);
}

INLINE void pc_f16_panels(const uint8_t *w, const float *x, float *y, long k, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    const uint8_t *next = w + ((F16_HEAD + room(k) + k / 8 * F16_BLOCK + 63) & ~63l);
    vf a[4];
    UNROLL for (int i = 0; i < 4; i++) a[i] = vset(0);
    const unpacking t = unpacking_of(w);
    if (FAR) ask(FAR, w, w + F16_HEAD + room(k)); // lines as far ahead of the head would be missed
    rare_sums((const uint32_t *)(w + F16_ENDS), x, y, k, 1);
    w += F16_HEAD + room(k);
    ROLLED for (long i = 0; i < k; i += 8, w += F16_BLOCK) {
      if (FAR) ask_step(FAR, w);
      vi p[4];
      block_f16(w, &t, p);
      UNROLL for (int u = 0; u < 4; u++) {
        vf *e = a + u % 2 * 2, *o = e + 1;
        *e = fma(_mm512_cvtph_ps(_mm512_castsi512_si256(p[u])), vset(x[i + 2 * u]), *e);
        *o = fma(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(p[u], 1)), vset(x[i + 2 * u + 1]), *o);
      }
    }
    st(y, ld_f32(y) + ((a[0] + a[1]) + (a[2] + a[3])));
    w = next;
  }
}
SHAPED(pc_f16, uint8_t)

INLINE void pcn_f16_few(const uint8_t *w, const float *const *x, float *y, long k, long ldy, long n, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    const uint8_t *next = w + ((F16_HEAD + room(k) + k / 8 * F16_BLOCK + 63) & ~63l);
    vf a[FEW * SUMS];
    UNROLL for (int i = 0; i < FEW * SUMS; i++) a[i] = vset(0);
    const unpacking t = unpacking_of(w);
    if (FAR) ask(FAR, w, w + F16_HEAD + room(k));
    ROLLED for (long j = 0; j < n; j++) rare_sums((const uint32_t *)(w + F16_ENDS), x[j], y + j * ldy, k, 1);
    w += F16_HEAD + room(k);
    ROLLED for (long i = 0; i < k; i += 8, w += F16_BLOCK) {
      if (FAR) ask_step(FAR, w);
      vi p[4];
      block_f16(w, &t, p);
      UNROLL for (int u = 0; u < 4; u++) {
        vf e = _mm512_cvtph_ps(_mm512_castsi512_si256(p[u])), o = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(p[u], 1));
        meet(a, 2 * u, &e, x, i + 2 * u);
        meet(a, 2 * u + 1, &o, x, i + 2 * u + 1);
      }
    }
    UNROLL for (int j = 0; j < FEW; j++)
      if (j < n) st(y + j * ldy, ld_f32(y + j * ldy) + add_sums(a, j, 0));
    w = next;
  }
}
FEW_ROWS(pcn_f16, uint8_t)

// px_f16: blocks of a panel, from w on, as a plain panel has them. Exceptions are zeros.
void px_f16(const uint8_t *table, const uint8_t *w, uint8_t *dst, long blocks) {
  const unpacking t = unpacking_of(table);
  ROLLED for (; blocks > 0; blocks--, w += F16_BLOCK, dst += 256) {
    vi p[4];
    block_f16(w, &t, p);
    UNROLL for (int i = 0; i < 4; i++) st_i(dst + 64 * i, p[i]);
  }
}

// pw_f16_compact: columns c0 … c0 + cols - 1 of a panel of k as the micro-kernel of gemm.c wants them, in f32: see PANEL_W
// in plainpanel.c. c0 and cols are multiples of 8. All lines are asked for.
void pw_f16_compact(const uint8_t *panel, float *dst, long k, long c0, long cols) {
  const unpacking t = unpacking_of(panel);
  const uint8_t *w = panel + F16_HEAD + room(k) + c0 / 8 * F16_BLOCK;
  float *d = dst;
  ROLLED for (long i = 0; i < cols; i += 8, w += F16_BLOCK, d += 8 * MICRO_MR) {
    UNROLL for (int l = 0; l < 4; l++) __builtin_prefetch(w + 4096 + 64 * l);
    vi p[4];
    block_f16(w, &t, p);
    UNROLL for (int u = 0; u < 4; u++) {
      st(d + 2 * u * MICRO_MR, _mm512_cvtph_ps(_mm512_castsi512_si256(p[u])));
      st(d + (2 * u + 1) * MICRO_MR, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(p[u], 1)));
    }
  }
  const uint32_t *ends = (const uint32_t *)(panel + F16_ENDS), *e = ends + SEGMENTS;
  ROLLED for (int s = 0; s < SEGMENTS; s++)
    ROLLED for (const uint32_t *end = end_of(ends, s, k); e < end; e++) {
      const long c = 4096l * s + (*e >> 4 & 4095) - c0;
      if (c >= 0 && c < cols) dst[c * MICRO_MR + (*e & 15)] = _cvtsh_ss((uint16_t)(*e >> 16));
    }
}
