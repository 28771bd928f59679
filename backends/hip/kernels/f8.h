// The four 8-bit floats as halves, exactly: all 256 codes, each a half times
// 2^-F8_DOWN, NaN as NaN. Codes come four to a word and go to two words of halves.
#pragma once
// bytes 0 and 1, or 2 and 3, of w as the upper bytes of two halves
#if G_AMD
G_FN u32 f8_spread(u32 w, int high) {
  const u32 h = high ? w >> 16 : w;
  return (h & 0xffu) << 8 | (h & 0xff00u) << 16;
}
#else
G_FN u32 f8_spread(u32 w, int high) {
  u32 r;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(r) : "r"(w), "r"(high ? 0x3424u : 0x1404u));
  return r;
}
#endif
// 0x80 in every byte of w that is 0x80, which is NaN in the types without a negative zero
G_FN u32 f8_nans(u32 w) {
  const u32 z = w ^ 0x80808080u;
  return ~(((z & 0x7f7f7f7fu) + 0x7f7f7f7fu) | z | 0x7f7f7f7fu);
}
// a half's NaN where f8_spread of f8_nans has a bit, else zero
G_FN u32 f8_nan_halves(u32 t) { return t - (t >> 6); }

#if W_TYPE == W_E5M2 // a half without its lower eight bits
#define F8_DOWN 0
G_FN u32 f8_halves(u32 w, int high) { return f8_spread(w, high); }
#elif W_TYPE == W_E4M3 && !G_AMD && __CUDA_ARCH__ >= 890
#define F8_DOWN 0
G_FN u32 f8_halves(u32 w, int high) {
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)(high ? w >> 16 : w)));
  return r;
}
#elif W_TYPE == W_E4M3 || W_TYPE == W_E4M3Z
// Exponent and mantissa one bit further down are a half whose bias of 15 makes it
// less: by 2^8 of 7, by 2^7 of 8. Its subnormals are those of the code.
#define F8_DOWN (W_TYPE == W_E4M3 ? 8 : 7)
G_FN u32 f8_halves(u32 w, int high) {
  const u32 t = f8_spread(w, high);
  u32 r = (t >> 1 & 0x3f803f80u) | (t & 0x80008000u);
#if W_TYPE == W_E4M3 // codes 0x7f and 0xff
  const u32 all = (w & 0x7f7f7f7fu) + 0x01010101u; // bit 7 where all seven bits are set
  r |= f8_nan_halves(f8_spread(all & 0x80808080u, high));
#else
  r |= f8_nan_halves(f8_spread(f8_nans(w), high));
#endif
  return r;
}
#elif W_TYPE == W_E5M2Z
// One step of the exponent less than a half has: exponents from 2 on are counted
// down; below, the half is subnormal, which it holds with one bit more.
#define F8_DOWN 0
G_FN u32 f8_halves(u32 w, int high) {
  const u32 t = f8_spread(w, high), m = t & 0x7f007f00u;
  // 0xffff where the exponent is 2 or more: bits 11 to 14 say so
  const u32 large = ((m & 0x78007800u) + 0x78007800u) >> 15 & 0x00010001u;
  const u32 mask = large * 0xffffu;
  // exponent 1: (1 + m/4)·2^-15 is the half's (4 + m)·2^-17, so its mantissa is bits << 7; exponent 0 likewise
  const u32 r = (mask & (m - (large << 10))) | (~mask & m >> 1);
  return r | (t & 0x80008000u) | f8_nan_halves(f8_spread(f8_nans(w), high));
}
#endif
