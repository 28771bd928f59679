// Numbers of f32, none larger than 448, and than 240 on gfx942, to four e4m3 in a word, rounded to nearest even: OCP's, or with
// gfx942 the kind without a negative zero.
#pragma once
#if G_AMD
G_FN u32 four_e4m3(float a, float b, float c, float d) {
  return (u32)__builtin_amdgcn_cvt_pk_fp8_f32(c, d, __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false), true);
}
#else
G_FN u32 two_e4m3(float a, float b) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(b), "f"(a));
  return r;
}
G_FN u32 four_e4m3(float a, float b, float c, float d) { return two_e4m3(a, b) | two_e4m3(c, d) << 16; }
#endif
