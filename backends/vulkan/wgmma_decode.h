// Block formats for wgmma.hip: pairs of steps of 32 columns of rows of w as halves, where its ring has them.
//
// A code of up to seven bits is the lower byte of a half between 1024 and 2048, which is exact; what is 1024 and the code's
// middle is taken off again, exactly too, so that an element is rounded once, by its factor, or by a multiply-add of factor and
// minimum, which are halves themselves. Rows lie as pack.go has them, or as stored.
//
// A wave makes 32 rows of both steps. LANES lanes have a row, with 16 bytes of codes each, so that what they read of it
// is whole sectors; what eight of them store at a time lies on different banks.
#pragma once
#include "halfpair.h"
#if FORMAT == Q8_0 || FORMAT == Q6_K
#define LANES 4 // each with 16 elements of a step
#else
#define LANES 2 // each with a step, or with a half of both
#endif
#define PASS_ROWS (32 / LANES)

G_FN u32 both(u16 h) { return h | (u32)h << 16; }
// 1024 + n, twice, of two bytes n
G_FN u32 low_pair(u32 bytes) { return choose_bytes(bytes, 0x64646464u, 0x4140); }
G_FN u32 high_pair(u32 bytes) { return choose_bytes(bytes, 0x64646464u, 0x4342); }

// eight elements of codes in two words, of which the middle is 0 (less is -(1024 + middle), twice), by a factor
G_FN void make8(u32 (&v)[4], u32 a, u32 b, u32 less, u32 by) {
  v[0] = half_mul(half_add(low_pair(a), less), by);
  v[1] = half_mul(half_add(high_pair(a), less), by);
  v[2] = half_mul(half_add(low_pair(b), less), by);
  v[3] = half_mul(half_add(high_pair(b), less), by);
}
// the same of codes from 0 on, by a factor, with a minimum
G_FN void make8_from(u32 (&v)[4], u32 a, u32 b, u32 by, u32 least) {
  const u32 less = 0xe400e400u; // -1024
  v[0] = half_fma(half_add(low_pair(a), less), by, least);
  v[1] = half_fma(half_add(high_pair(a), less), by, least);
  v[2] = half_fma(half_add(low_pair(b), less), by, least);
  v[3] = half_fma(half_add(high_pair(b), less), by, least);
}

// Of each format: what a lane reads of a row for a pair of steps; the elements that it makes of that, eight a line; and
// where line j goes: to which step, and as which of the four lines of a row's step.
struct Place { u32 step, line; };
#define LINES (8 / LANES)

#if FORMAT == Q4_0
struct Raw { u4 q; u16 d; };
G_FN Raw raw_load(const u8 *row, u32 k, u32 pair, u32 part) {
  const u32 step = g_min(2 * pair + part, k / 32 - 1);
  return Raw{((const u4 *)row)[step], ((const u16 *)(row + k / 2))[step]};
}
G_FN Place place_of(u32 j, u32 part) { return Place{part, j ^ part << 1}; }
G_FN void raw_make(u32 (&v)[LINES][4], const Raw &r, u32, u32 part) {
  G_UNROLL for (u32 j = 0; j < LINES; j++) {
    const u32 down = (j / 2 ^ part) * 4, a = j % 2 ? r.q.z : r.q.x, b = j % 2 ? r.q.w : r.q.y;
    make8(v[j], a >> down & 0x0f0f0f0fu, b >> down & 0x0f0f0f0fu, 0xe408e408u, both(r.d)); // -1032
  }
}
#elif FORMAT == Q8_0
struct Raw { u4 q; u16 d; };
G_FN Raw raw_load(const u8 *row, u32 k, u32 pair, u32 part) {
  const u32 step = g_min(2 * pair + part / 2, k / 32 - 1);
  return Raw{((const u4 *)row)[2 * step + part % 2], ((const u16 *)(row + k))[step]};
}
G_FN Place place_of(u32 j, u32 part) { return Place{part / 2, part % 2 * 2 + (j ^ part / 2)}; }
G_FN void raw_make(u32 (&v)[LINES][4], const Raw &r, u32, u32 part) {
  G_UNROLL for (u32 j = 0; j < LINES; j++) {
    const u32 of = j ^ part / 2, a = of ? r.q.z : r.q.x, b = of ? r.q.w : r.q.y;
    make8(v[j], a ^ 0x80808080u, b ^ 0x80808080u, 0xe480e480u, both(r.d)); // -1152
  }
}
#elif FORMAT == Q4_K || FORMAT == Q5_K
struct Raw {
  u4 head, q;
#if FORMAT == Q5_K
  u4 high;
#endif
};
G_FN Raw raw_load(const u8 *row, u32, u32 pair, u32 part) {
#if FORMAT == Q5_K
  const u4 *const at = (const u4 *)row + pair / 4 * 11;
  return Raw{at[0], at[3 + pair % 4 * 2 + part], at[1 + part]};
#else
  const u4 *const at = (const u4 *)row + pair / 4 * 9;
  return Raw{at[0], at[1 + pair % 4 * 2 + part]};
#endif
}
G_FN Place place_of(u32 j, u32 part) { return Place{j / 2, part * 2 + j % 2}; }
G_FN void raw_make(u32 (&v)[LINES][4], const Raw &r, u32 pair, u32 part) {
  const u32 j = pair % 4, at = j % 2 * 16; // sub-blocks 2j and 2j + 1
  const u32 s = r.head.y >> at, m = r.head.z >> at, more = r.head.w >> at;
  const u32 sc = j < 2 ? s & 0x3f3fu : (more & 0x0f0fu) | (s >> 2 & 0x3030u), mn = j < 2 ? m & 0x3f3fu : (more >> 4 & 0x0f0fu) | (m >> 2 & 0x3030u);
  const float d = h2f((u16)r.head.x), dmin = h2f((u16)(r.head.x >> 16));
  G_UNROLL for (u32 t = 0; t < 2; t++) {
    const float by = d * (float)(sc >> 8 * t & 255u), less = dmin * (float)(mn >> 8 * t & 255u);
    const u16 near = f2h(by);
    // What rounding the factor does to the middle of all codes is made good by the minimum.
    const u32 factor = both(near), least = both(f2h((by - h2f(near)) * (FORMAT == Q5_K ? 15.5f : 7.5f) - less));
    u32 q[4] = {r.q.x >> 4 * t & 0x0f0f0f0fu, r.q.y >> 4 * t & 0x0f0f0f0fu, r.q.z >> 4 * t & 0x0f0f0f0fu, r.q.w >> 4 * t & 0x0f0f0f0fu};
#if FORMAT == Q5_K
    const u32 bit = 2 * j + t, high[4] = {r.high.x, r.high.y, r.high.z, r.high.w};
    G_UNROLL for (u32 i = 0; i < 4; i++) q[i] |= (high[i] >> bit & 0x01010101u) << 4;
#endif
    G_UNROLL for (u32 i = 0; i < 2; i++) make8_from(v[2 * t + i], q[2 * i], q[2 * i + 1], factor, least);
  }
}
#elif FORMAT == Q6_K
struct Raw { u4 q, high; u8 s; u16 d; };
G_FN Raw raw_load(const u8 *row, u32 k, u32 pair, u32 part) {
  const u32 half = pair / 2; // of a block: 128 elements, of which codes have the lower four bits of two and two steps together
  return Raw{((const u4 *)row)[half * 4 + part], ((const u4 *)(row + k / 2))[half * 2 + part % 2],
             (row + k / 4 * 3)[half * 8 + pair % 2 * 4 + part], ((const u16 *)(row + k / 4 * 3 + k / 16))[pair / 4]};
}
G_FN Place place_of(u32 j, u32 part) { return Place{part / 2, part % 2 * 2 + (j ^ part / 2)}; }
G_FN void raw_make(u32 (&v)[LINES][4], const Raw &r, u32 pair, u32 part) {
  const u32 odd = part / 2, low = pair % 2 * 4, high = pair % 2 * 4 + odd * 2;
  const u32 by = both(f2h(h2f(r.d) * (float)(int)(signed char)r.s));
  G_UNROLL for (u32 j = 0; j < LINES; j++) {
    const u32 of = j ^ odd, a = of ? r.q.z : r.q.x, b = of ? r.q.w : r.q.y, ha = of ? r.high.z : r.high.x, hb = of ? r.high.w : r.high.y;
    make8(v[j], (a >> low & 0x0f0f0f0fu) | (ha >> high & 0x03030303u) << 4, (b >> low & 0x0f0f0f0fu) | (hb >> high & 0x03030303u) << 4, 0xe420e420u, by); // -1056
  }
}
#endif
// stores what raw_make made of row r, of the second step, if there is one, further bytes behind the first
G_FN void raw_put(const u32 (&v)[LINES][4], u32 to, u32 further, bool second, u32 r, u32 part) {
  G_UNROLL for (u32 j = 0; j < LINES; j++) {
    const Place p = place_of(j, part);
    if (p.step && !second) continue;
    store16(to + (p.step ? further : 0) + r * 64 + ((p.line ^ (r >> 1 & 3)) << 4), v[j][0], v[j][1], v[j][2], v[j][3]);
  }
}
