// Rows of one type into rows of another: exact widening to f32, and rounding
// from f32 to the sixteen-bit types (to nearest, ties to even).
#include "blocks.h"

#define WIDEN(NAME, LD, LDN)                                   \
  void NAME(const uint16_t *src, float *dst, long n) {         \
    long i = 0;                                                \
    ROLLED for (; i + VL <= n; i += VL) st(dst + i, LD(src + i)); \
    if (i < n) stn(dst + i, LDN(src + i, n - i), n - i);       \
  }
WIDEN(dec_f16, ld_f16, ldn_f16)
WIDEN(dec_bf16, ld_bf16, ldn_bf16)

void enc_f16(const float *src, uint16_t *dst, long n) {
  long i = 0;
  ROLLED for (; i + VL <= n; i += VL) st_f16(dst + i, ld_f32(src + i));
  if (i < n) stn_f16(dst + i, ldn_f32(src + i, n - i), n - i);
}

// to_bf16 keeps NaNs quiet.
INLINE vi to_bf16(vf v) {
  vi b = (vi)v;
  vi odd = shr(shl(b, 15), 31);
  vi r = shr(addi(addi(b, viset(0x7fff)), odd), 16);
  return where_nan(v, shr(b, 16) | viset(0x40), r);
}
void enc_bf16(const float *src, uint16_t *dst, long n) {
  long i = 0;
  ROLLED for (; i + VL <= n; i += VL) st_u16(dst + i, to_bf16(ld_f32(src + i)));
  if (i < n) stn_u16(dst + i, to_bf16(ldn_f32(src + i, n - i)), n - i);
}

INLINE void put16(float *dst, const vf *v, vf scale) {
  UNROLL for (int u = 0; u < 16 / VL; u++) st(dst + u * VL, v[u] * scale);
}

void dec_f8e4m3(const uint8_t *p, float *dst, long n) {
  long i = 0;
  ROLLED for (; i + VL <= n; i += VL) st(dst + i, at_f8e4m3(p, i));
  if (i < n) stn(dst + i, atn_f8e4m3(p, i, n - i), n - i);
}

// Block formats: n counts elements, a multiple of the block.
void dec_q8_0(const uint8_t *p, float *dst, long n) {
  ROLLED for (; n > 0; n -= 32, p += 34, dst += 32) {
    vf v[32 / VL], d = vset(f16_at(p));
    unpack_q8_0(p + 2, v);
    put16(dst, v, d);
    put16(dst + 16, v + 16 / VL, d);
  }
}
void dec_q4_0(const uint8_t *p, float *dst, long n) {
  ROLLED for (; n > 0; n -= 32, p += 18, dst += 32) {
    vf v[32 / VL], d = vset(f16_at(p));
    unpack_q4_0(p + 2, v);
    put16(dst, v, d);
    put16(dst + 16, v + 16 / VL, d);
  }
}
void dec_q4_k(const uint8_t *p, float *dst, long n) {
  float d[16];
  ROLLED for (; n > 0; n -= 256, p += 144) {
    scales_k4(p, d);
    ROLLED for (int c = 0; c < 4; c++) {
      UNROLL for (int high = 0; high < 2; high++) {
        vf s = vset(d[c * 2 + high]), m = vset(d[8 + c * 2 + high]);
        UNROLL for (int g = 0; g < 2; g++, dst += 16) {
          vf v[16 / VL];
          nibbles(p + 16 + c * 32 + g * 16, high, 0, v);
          UNROLL for (int u = 0; u < 16 / VL; u++) st(dst + u * VL, v[u] * s - m);
        }
      }
    }
  }
}
void dec_q6_k(const uint8_t *p, float *dst, long n) {
  float d[16];
  ROLLED for (; n > 0; n -= 256, p += 210, dst += 256) {
    scales_k6(p, d);
    ROLLED for (int c = 0; c < 4; c++) {
      int half = c >> 1, at = c & 1;
      i8x16 q[4];
      sixes(p, half, at, q);
      UNROLL for (int g = 0; g < 4; g++) {
        vf v[16 / VL];
        cvt16(q[g], v);
        put16(dst + half * 128 + at * 16 + g * 32, v, vset(d[half * 8 + g * 2 + at]));
      }
    }
  }
}
