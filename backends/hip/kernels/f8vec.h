// Units of 8-bit floats for vec.hip: 16 bytes of a row, which become halves, exactly,
// and meet x as f32. Four lanes' loads of x touch the same banks of shared memory where quads
// lie in order, so those of every second unit are exchanged.
#pragma once
#include "f8.h"
#define UNIT_QUADS 4
// where quad i of x lies
G_FN u32 x_place(u32 i) { return i ^ (i >> 3 & 3); }
struct Raw { u4 l; };
G_FN Raw unit_load(const Row &w, u32 u) { return Raw{((const u4 *)w.p)[u]}; }
G_FN u32 unit_count(u32 k) { return (k + 15) / 16; }
struct Two { float lo, hi; };
G_FN Two two_floats(u32 halves) {
#if G_AMD
  return Two{h2f((u16)halves), h2f((u16)(halves >> 16))};
#else
  Two r;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(r.lo), "=f"(r.hi) : "r"(halves));
  return r;
#endif
}
G_FN float unit_dot(const Raw &r, const f4 *xs, u32 u, u32) {
  const u32 words[4] = {r.l.x, r.l.y, r.l.z, r.l.w};
  float even = 0, odd = 0;
  G_UNROLL for (u32 i = 0; i < 4; i++) {
    const f4 v = xs[x_place(4 * u + i)];
    const Two a = two_floats(f8_halves(words[i], 0)), b = two_floats(f8_halves(words[i], 1));
    even = g_fma(a.lo, v.x, even);
    odd = g_fma(a.hi, v.y, odd);
    even = g_fma(b.lo, v.z, even);
    odd = g_fma(b.hi, v.w, odd);
  }
  return (even + odd) * u2f((127 + F8_DOWN) << 23);
}
#if STREAM
// The quads of x that meet a lane's units: a multiple of eight apart, they are exchanged
// alike, so four addresses serve them all. Same bits as unit_dot.
struct LaneX {
  const f4 *all, *at[4];
  G_FN_IN LaneX(const f4 *xs, u32 u) {
    all = xs;
    G_UNROLL for (u32 i = 0; i < 4; i++) at[i] = xs + x_place(4 * u + i);
  }
  G_FN_IN void load(f4 (&x)[4], u32 units) const {
    G_UNROLL for (u32 i = 0; i < 4; i++) x[i] = at[i][4 * units];
  }
};
G_FN float unit_dot(const Raw &r, const f4 (&x)[4]) {
  const u32 words[4] = {r.l.x, r.l.y, r.l.z, r.l.w};
  float even = 0, odd = 0;
  G_UNROLL for (u32 i = 0; i < 4; i++) {
    const Two a = two_floats(f8_halves(words[i], 0)), b = two_floats(f8_halves(words[i], 1));
    even = g_fma(a.lo, x[i].x, even);
    odd = g_fma(a.hi, x[i].y, odd);
    even = g_fma(b.lo, x[i].z, even);
    odd = g_fma(b.hi, x[i].w, odd);
  }
  return (even + odd) * u2f((127 + F8_DOWN) << 23);
}
#endif
