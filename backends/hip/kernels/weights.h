// Weights of every type as quads: four consecutive elements of a row with the
// scale and offset that they share, y = s·v + o. A unit is what a lane loads at
// once: W_NQ quads, W_STEP elements apart. W_TYPE is set by the host.
//
// Plain floats lie as stored, rows w.row elements apart. Block formats are
// packed in planes, so that loads are aligned and wide: plane i holds the i-th
// part of every block, one after another, rows at multiples of 16 bytes. The formats are described in
// weights/quant; the parts and their order in pack.go.
#pragma once
#define W_F32 1
#define W_F16 2
#define W_BF16 3
#define W_E4M3 4
#define W_E5M2 5
#define W_E4M3Z 6
#define W_E5M2Z 7
#define W_Q4_0 8
#define W_Q4_1 9
#define W_Q5_0 10
#define W_Q5_1 11
#define W_Q8_0 12
#define W_Q2_K 13
#define W_Q3_K 14
#define W_Q4_K 15
#define W_Q5_K 16
#define W_Q6_K 17
#define W_IQ4_NL 18
#define W_IQ4_XS 19
#define W_TQ1_0 20
#define W_TQ2_0 21
#define W_MXFP4 22

struct Weights {
  const u8 *p;
  u64 p1, p2, p3; // offsets of planes 1, 2 and 3, bytes
  u64 row;        // plain: elements from row to row; else blocks in a row
  u32 k;          // elements in a row
};
// A row of weights: where its part of each plane begins.
struct Row { const u8 *p, *p1, *p2, *p3; u32 k; };
struct Quad { float v[4]; float s, o; };

#define W_PLAIN (W_TYPE <= W_E5M2Z)
#define W_OFFSET (W_TYPE == W_Q4_1 || W_TYPE == W_Q5_1 || W_TYPE == W_Q2_K || W_TYPE == W_Q4_K || W_TYPE == W_Q5_K)

#if W_TYPE == W_F32
typedef float w_elem;
G_FN float w_float(float c) { return c; }
#elif W_TYPE == W_F16
typedef u16 w_elem;
G_FN float w_float(u16 c) { return h2f(c); }
#elif W_TYPE == W_BF16
typedef u16 w_elem;
G_FN float w_float(u16 c) { return b2f(c); }
#elif W_TYPE == W_E4M3
typedef u8 w_elem;
G_FN float w_float(u8 c) { return f8<4, 7, false, false>(c); }
#elif W_TYPE == W_E5M2
typedef u8 w_elem;
G_FN float w_float(u8 c) { return f8<5, 15, false, true>(c); }
#elif W_TYPE == W_E4M3Z
typedef u8 w_elem;
G_FN float w_float(u8 c) { return f8<4, 8, true, false>(c); }
#elif W_TYPE == W_E5M2Z
typedef u8 w_elem;
G_FN float w_float(u8 c) { return f8<5, 16, true, false>(c); }
#endif

#if W_PLAIN
#if W_SCALAR // rows that cannot be read 16 bytes at a time, of any length
#define W_NQ 1
#define W_STEP 4
G_FN Quad w_quad(const Row &w, u32 e) {
  Quad q;
  const w_elem *p = (const w_elem *)w.p;
  G_UNROLL for (u32 i = 0; i < 4; i++) q.v[i] = e + i < w.k ? w_float(p[e + i]) : 0.0f;
  q.s = 1;
  q.o = 0;
  return q;
}
#else
#define W_NQ (4 / (int)sizeof(w_elem))
#define W_STEP 4
struct alignas(4 * sizeof(w_elem)) w_four { w_elem c[4]; };
struct alignas(16) w_line { w_four q[W_NQ]; };
G_FN Quad w_convert(const w_four &f) {
  Quad q;
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = w_float(f.c[i]);
  q.s = 1;
  q.o = 0;
  return q;
}
G_FN Quad w_quad(const Row &w, u32 e) { return w_convert(*(const w_four *)((const w_elem *)w.p + e)); }
#define W_LINES 1
#endif
G_FN Row w_row(const Weights &w, u64 row) {
  const u8 *p = (const u8 *)((const w_elem *)w.p + row * w.row);
  return Row{p, p, p, p, w.k};
}
// first element of unit u
G_FN u32 w_pos(u32 u) { return u * (4 * W_NQ); }

#else // block formats
#define W_BLOCK (W_TYPE <= W_Q8_0 || W_TYPE == W_IQ4_NL || W_TYPE == W_MXFP4 ? 32 : 256)
G_FN u32 w_word(const u8 *p, u32 i) { return ((const u32 *)p)[i]; }
G_FN float w_half(const u8 *p, u32 i) { return h2f(((const u16 *)p)[i]); }
// the lower half of each byte, or the upper one
G_FN u32 w_nibbles(u32 w, bool high) { return (high ? w >> 4 : w) & 0x0f0f0f0fu; }
// bit n of each of four bytes, moved to bit to
G_FN u32 w_bits(u32 w, u32 n, u32 to) { return ((w >> n) & 0x01010101u) << to; }
// bits n … n+3 of w as bit 4 of four bytes
G_FN u32 w_fifths(u32 w, u32 n) {
  u32 b = (w >> n) & 15u;
  return (b & 1u) << 4 | (b & 2u) << 11 | (b & 4u) << 18 | (b & 8u) << 25;
}
G_FN void w_four(Quad &q, u32 bytes, float less) {
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = byte_f(bytes, i, less);
}
#if W_TYPE == W_IQ4_NL || W_TYPE == W_IQ4_XS
// the levels plus 128, in two tables of eight bytes
G_FN float w_level(u32 code) {
  const u32 t0 = 0x3f2d1801u, t1 = 0x766a5d4fu, t2 = 0xa6998d81u, t3 = 0xf1d9c5b5u;
  u32 lo = code & 4 ? t1 : t0, hi = code & 4 ? t3 : t2;
  return (float)(int)(((code & 8 ? hi : lo) >> (8 * (code & 3))) & 255u) - 128.0f;
}
#endif

#if W_TYPE == W_MXFP4
// Byte i of codes as twice the number it stands for: sign, exponent and mantissa are put where f32 has them, which is
// 2^126 times too small, also where it is subnormal.
G_FN float w_e2m1(u32 codes, u32 i) {
  u32 c = codes >> (8 * i);
  return u2f((c & 8) << 28 | (c & 7) << 22) * u2f(0x7f000000u);
}
// half of the scale of an exponent, 2^(e-128), and of a block
G_FN float w_exp2(u32 e) { return u2f(e < 2 ? 0x00200000u << e : (e - 1) << 23); }
G_FN float w_power(const Row &w, u32 b) { return w_exp2(w.p1[b]); }
#endif

// bytes of a block in each plane
#define W_SIZES_Q4_K 128, 16, 0, 0
#define W_SIZES_Q5_K 128, 32, 16, 0
#define W_SIZES_Q6_K 128, 64, 16, 2
#if W_TYPE == W_Q4_0 || W_TYPE == W_IQ4_NL
#define W_SIZES 16, 2, 0, 0
#elif W_TYPE == W_Q4_1
#define W_SIZES 16, 4, 0, 0
#elif W_TYPE == W_Q5_0
#define W_SIZES 16, 4, 2, 0
#elif W_TYPE == W_Q5_1
#define W_SIZES 16, 4, 4, 0
#elif W_TYPE == W_Q8_0
#define W_SIZES 32, 2, 0, 0
#elif W_TYPE == W_Q2_K
#define W_SIZES 64, 16, 4, 0
#elif W_TYPE == W_Q3_K
#define W_SIZES 32, 64, 12, 2
#elif W_TYPE == W_Q4_K && W_SUBSCALES
#define W_SIZES 128, 32, 0, 0
#elif W_TYPE == W_Q4_K
#define W_SIZES W_SIZES_Q4_K
#elif W_TYPE == W_Q5_K
#define W_SIZES W_SIZES_Q5_K
#elif W_TYPE == W_Q6_K
#define W_SIZES W_SIZES_Q6_K
#elif W_TYPE == W_IQ4_XS
#define W_SIZES 128, 8, 0, 0
#elif W_TYPE == W_TQ1_0
#define W_SIZES 48, 4, 2, 0
#elif W_TYPE == W_TQ2_0
#define W_SIZES 64, 2, 0, 0
#elif W_TYPE == W_MXFP4
#define W_SIZES 16, 1, 0, 0
#endif
// bytes from row to row of a plane whose parts have size bytes
G_FN u32 w_stride(const Weights &w, u32 size) { return ((u32)w.row * size + 15) & ~15u; }
G_FN Row w_row(const Weights &w, u64 row) {
  const u32 size[4] = {W_SIZES};
  return Row{w.p + row * w_stride(w, size[0]), w.p + w.p1 + row * w_stride(w, size[1]), w.p + w.p2 + row * w_stride(w, size[2]),
             w.p + w.p3 + row * w_stride(w, size[3]), w.k};
}
// a row some rows further down
G_FN Row w_down(const Row &r, const Weights &w, u32 rows) {
  const u32 size[4] = {W_SIZES};
  return Row{r.p + (u64)rows * w_stride(w, size[0]), r.p1 + (u64)rows * w_stride(w, size[1]), r.p2 + (u64)rows * w_stride(w, size[2]),
             r.p3 + (u64)rows * w_stride(w, size[3]), r.k};
}

// No element of block b is larger than this: from what its codes can be.
G_FN float w_bound(const Row &w, u32 b) {
#if W_TYPE == W_Q4_0
  return 8 * g_abs(w_half(w.p1, b));
#elif W_TYPE == W_Q4_1
  return 15 * g_abs(w_half(w.p1, 2 * b)) + g_abs(w_half(w.p1, 2 * b + 1));
#elif W_TYPE == W_Q5_0
  return 16 * g_abs(w_half(w.p2, b));
#elif W_TYPE == W_Q5_1
  return 31 * g_abs(w_half(w.p2, 2 * b)) + g_abs(w_half(w.p2, 2 * b + 1));
#elif W_TYPE == W_Q8_0
  return 128 * g_abs(w_half(w.p1, b));
#elif W_TYPE == W_Q2_K
  return 45 * g_abs(w_half(w.p2, 2 * b)) + 15 * g_abs(w_half(w.p2, 2 * b + 1));
#elif W_TYPE == W_Q3_K
  return 128 * g_abs(w_half(w.p3, b));
#elif W_TYPE == W_Q4_K
  return 945 * g_abs(w_half(w.p1, 8 * b)) + 63 * g_abs(w_half(w.p1, 8 * b + 1));
#elif W_TYPE == W_Q5_K
  return 1953 * g_abs(w_half(w.p2, 8 * b)) + 63 * g_abs(w_half(w.p2, 8 * b + 1));
#elif W_TYPE == W_Q6_K
  return 4096 * g_abs(w_half(w.p3, b));
#elif W_TYPE == W_IQ4_NL
  return 127 * g_abs(w_half(w.p1, b));
#elif W_TYPE == W_IQ4_XS
  return 4064 * g_abs(w_half(w.p1, 4 * b));
#elif W_TYPE == W_TQ1_0
  return g_abs(w_half(w.p2, b));
#elif W_TYPE == W_TQ2_0
  return 2 * g_abs(w_half(w.p1, b));
#elif W_TYPE == W_MXFP4
  return 12 * w_power(w, b);
#endif
}

#if W_TYPE == W_Q4_K || W_TYPE == W_Q5_K
// scale and offset of 32 elements, by a block's d, m and scales
G_FN void w_sub(const u4 &h, u32 sub, float &s, float &o) {
  const u32 at = sub % 4 * 8;
  u32 sc = (h.y >> at) & 255u, mn = (h.z >> at) & 255u, both = (h.w >> at) & 255u;
  if (sub < 4) {
    sc &= 63;
    mn &= 63;
  } else {
    sc = (both & 15) | sc >> 6 << 4;
    mn = both >> 4 | mn >> 6 << 4;
  }
  s = h2f((u16)h.x) * (float)sc;
  o = -(h2f((u16)(h.x >> 16)) * (float)mn);
}
#endif

G_FN Quad w_quad(const Row &w, u32 e) {
  Quad q;
  u32 b = e / W_BLOCK;
  u32 r = e % W_BLOCK;
  q.o = 0;
#if W_TYPE == W_Q4_0 // qs 16, d 2
  w_four(q, w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16), 8);
  q.s = w_half(w.p1, b);
#elif W_TYPE == W_Q4_1 // qs 16, d and m 4
  w_four(q, w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16), 0);
  u32 dm = w_word(w.p1, b);
  q.s = h2f((u16)dm);
  q.o = h2f((u16)(dm >> 16));
#elif W_TYPE == W_Q5_0 // qs 16, qh 4, d 2
  w_four(q, w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16) | w_fifths(w_word(w.p1, b), r), 16);
  q.s = w_half(w.p2, b);
#elif W_TYPE == W_Q5_1 // qs 16, qh 4, d and m 4
  w_four(q, w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16) | w_fifths(w_word(w.p1, b), r), 0);
  u32 dm = w_word(w.p2, b);
  q.s = h2f((u16)dm);
  q.o = h2f((u16)(dm >> 16));
#elif W_TYPE == W_Q8_0 // qs 32, d 2
  w_four(q, w_word(w.p, b * 8 + r / 4) ^ 0x80808080u, 128);
  q.s = w_half(w.p1, b);
#elif W_TYPE == W_Q2_K // qs 64, scales 16, d and m 4
  w_four(q, (w_word(w.p, b * 16 + r / 128 * 8 + r % 32 / 4) >> (r % 128 / 32 * 2)) & 0x03030303u, 0);
  u32 c = w.p1[b * 16 + r / 16];
  u32 dm = w_word(w.p2, b);
  q.s = h2f((u16)dm) * (float)(c & 15);
  q.o = -(h2f((u16)(dm >> 16)) * (float)(c >> 4));
#elif W_TYPE == W_Q3_K // high 32, qs 64, scales 12, d 2
  u32 low = (w_word(w.p1, b * 16 + r / 128 * 8 + r % 32 / 4) >> (r % 128 / 32 * 2)) & 0x03030303u;
  w_four(q, low | w_bits(w_word(w.p, b * 8 + r % 32 / 4), r / 32, 2), 4);
  const u8 *sc = w.p2 + b * 12;
  u32 s = r / 16;
  u32 c = ((sc[s & 7] >> (s / 8 * 4)) & 15u) | ((sc[8 + (s & 3)] >> (s / 4 * 2)) & 3u) << 4;
  q.s = w_half(w.p3, b) * ((float)c - 32.0f);
#elif W_TYPE == W_Q4_K || W_TYPE == W_Q5_K // qs 128, (high 32,) d, m and scales 16
  u32 x = w_nibbles(w_word(w.p, b * 32 + r / 64 * 8 + r % 32 / 4), r & 32);
#if W_TYPE == W_Q5_K
  x |= w_bits(w_word(w.p1, b * 8 + r % 32 / 4), r / 32, 4);
  u4 h = ((const u4 *)(w.p2))[b];
#else
  u4 h = ((const u4 *)(w.p1))[b];
#endif
  w_four(q, x, 0);
  w_sub(h, r / 32, q.s, q.o);
#elif W_TYPE == W_Q6_K // low 128, high 64, scales 16, d 2
  u32 half = r / 128, col = r % 32 / 4, k = r / 32 % 4;
  u32 x = w_nibbles(w_word(w.p, b * 32 + half * 16 + (k & 1) * 8 + col), k & 2);
  x |= ((w_word(w.p1, b * 16 + half * 8 + col) >> (2 * k)) & 0x03030303u) << 4;
  w_four(q, x, 32);
  q.s = w_half(w.p3, b) * (float)(int)(signed char)w.p2[b * 16 + r / 16];
#elif W_TYPE == W_IQ4_NL // qs 16, d 2
  u32 x = w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16);
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = w_level((x >> (8 * i)) & 15);
  q.s = w_half(w.p1, b);
#elif W_TYPE == W_MXFP4 // qs 16, e 1
  u32 x = w_nibbles(w_word(w.p, b * 4 + r % 16 / 4), r & 16);
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = w_e2m1(x, i);
  q.s = w_power(w, b);
#elif W_TYPE == W_IQ4_XS // qs 128, d, high and low 8
  u32 x = w_nibbles(w_word(w.p, b * 32 + r / 32 * 4 + r % 16 / 4), r & 16);
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = w_level((x >> (8 * i)) & 15);
  u2 h = ((const u2 *)(w.p1))[b];
  u32 sub = r / 32;
  u32 c = ((h.y >> (4 * sub)) & 15u) | ((h.x >> (16 + 2 * sub)) & 3u) << 4;
  q.s = h2f((u16)h.x) * ((float)c - 32.0f);
#elif W_TYPE == W_TQ1_0 // qs 48, high 4, d 2
  u32 x, n;
  if (r < 160) {
    n = r / 32;
    x = w_word(w.p, b * 12 + r % 32 / 4);
  } else if (r < 240) {
    n = (r - 160) / 16;
    x = w_word(w.p, b * 12 + 8 + (r - 160) % 16 / 4);
  } else {
    n = (r - 240) / 4;
    x = w_word(w.p1, b);
  }
  u32 power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
  G_UNROLL for (int i = 0; i < 4; i++) {
    u32 digit = ((((x >> (8 * i)) & 255u) * power & 255u) * 3u) >> 8;
    q.v[i] = (float)(int)digit - 1.0f;
  }
  q.s = w_half(w.p2, b);
#elif W_TYPE == W_TQ2_0 // qs 64, d 2
  w_four(q, (w_word(w.p, b * 16 + r / 128 * 8 + r % 32 / 4) >> (r % 128 / 32 * 2)) & 0x03030303u, 1);
  q.s = w_half(w.p1, b);
#endif
  return q;
}

// Units join the quads that share words.
#if W_TYPE == W_Q8_0 || W_TYPE == W_TQ1_0
#define W_NQ 1
#define W_STEP 4
G_FN u32 w_pos(u32 u) { return 4 * u; }
#elif W_BLOCK == 32
#define W_NQ 2
#define W_STEP 16
G_FN u32 w_pos(u32 u) { return u / 4 * 32 + u % 4 * 4; }
#elif W_TYPE == W_IQ4_XS
#define W_NQ 2
#define W_STEP 16
G_FN u32 w_pos(u32 u) { return u / 4 * 32 + u % 4 * 4; }
#elif W_TYPE == W_Q4_K || W_TYPE == W_Q5_K
#define W_NQ 2
#define W_STEP 32
G_FN u32 w_pos(u32 u) { return u / 8 * 64 + u % 8 * 4; }
#elif W_TYPE == W_Q6_K
#define W_NQ 2
#define W_STEP 64
G_FN u32 w_pos(u32 u) { return u / 16 * 128 + u % 16 * 4; }
#else // q2_K, q3_K, tq2_0
#define W_NQ 4
#define W_STEP 32
G_FN u32 w_pos(u32 u) { return u / 8 * 128 + u % 8 * 4; }
#endif
#endif

G_FN void w_unit(const Row &w, u32 u, Quad *q) {
#if W_LINES
  w_line l = ((const w_line *)w.p)[u];
  G_UNROLL for (int i = 0; i < W_NQ; i++) q[i] = w_convert(l.q[i]);
#else
  G_UNROLL for (int i = 0; i < W_NQ; i++) q[i] = w_quad(w, w_pos(u) + W_STEP * i);
#endif
}
// a quad as it is: scale and offset applied
G_FN void w_apply(Quad &q) {
  G_UNROLL for (int i = 0; i < 4; i++) q.v[i] = q.v[i] * q.s + q.o;
}
