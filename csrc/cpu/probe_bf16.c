// What dot products of bf16 give at most.
#include "vec.h"

// dot_bf16: twelve vectors of sums; to each, rounds times, the dot products of two
// bf16 of w and two of x. The lanes of a vector are returned.
long dot_bf16(float *sums, const float *w, const float *x, long rounds) {
  vf s[12];
  UNROLL for (int j = 0; j < 12; j++) s[j] = ld_f32(sums + j * VL);
  vf a = ld_f32(w), b = ld_f32(x);
  ROLLED for (long i = 0; i < rounds; i++)
    UNROLL for (int j = 0; j < 12; j++) s[j] = _mm512_dpbf16_ps(s[j], (__m512bh)a, (__m512bh)b);
  UNROLL for (int j = 0; j < 12; j++) st(sums + j * VL, s[j]);
  return VL;
}
