// Steps of 64 elements of rows of block formats as halves, by halves' instructions.
//
// A code n in the low bits of a half is the half n·2^-24, so that one fused multiply-add
// by the block's scale times 2^24 makes an element of it, offset included, and rounds once.
// Rows are SHRUNK more than their factor says, so that such a scale is a half: with their
// largest element below 2^-5 those from 2^-14 on keep all bits of a half, and smaller ones err by
// 2^-25 at most. q6_K, whose scale has two parts, is rounded twice and not shrunk; of q4_K
// scale and offset of 32 elements are halves of their own (subscales in halves.hip).
//
// A wave makes GROUP steps of eight rows at once: a lane reads 16 bytes of codes, a Line,
// of row line_row(), such that lanes read whole parts of few rows, and what eight of
// them store at once lies on different banks. to is where the rows of each step begin.
#pragma once
#define W_SUBSCALES 1 // q4_K's second plane is that of subscales
#include "halfpair.h"
#include "ldmatrix.h"
#include "scale.h"
#include "weights.h"

G_FN u32 both(float v) { return pack_halves(v, v); }
#define BYTES 0x00640064u                   // with bytes of codes: 1024 + n
#if W_TYPE == W_Q6_K
#define SHRUNK 1.0f
#else
#define SHRUNK SHRINK
#endif
#define LOW 0x000f000fu  // n·2^-24
#define HIGH 0x00f000f0u // n·2^-20

G_FN u32 word_of(const u4 &v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

#if W_TYPE == W_Q4_0
#define GROUP 2
struct Line { u4 codes; u32 d; };
G_FN u32 line_row() { return lane() % 16 / 2; }
G_FN void line_load(Line &l, const Row &w, u32 group) {
  const u32 blocks = w.k / 32, b = 4 * group + lane() / 16 * 2 + lane() % 2, c = g_min(b, blocks - 1);
  l.codes = ((const u4 *)w.p)[c];
  l.d = b < blocks ? ((const u16 *)w.p1)[c] : 0;
}
G_FN void line_store(const Line &l, u32 to0, u32 to1, u32 row, float up) {
  const float d = h2f((u16)l.d) * up;
  const u32 of_low = both(d * LOW_UP), of_high = both(d * HIGH_UP), less = both(-8 * d);
  const u32 to = lane() < 16 ? to0 : to1, c = lane() % 2 * 4;
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    u32 low[4], high[4];
    G_UNROLL for (u32 j = 0; j < 4; j++) {
      const u32 y = choose_bytes(word_of(l.codes, 2 * i + j / 2), 0, j % 2 ? 0x4342 : 0x4140);
      low[j] = half_fma(y & LOW, of_low, less);
      high[j] = half_fma(y & HIGH, of_high, less);
    }
    store16(to + swizzled(row, c + i), low[0], low[1], low[2], low[3]);
    store16(to + swizzled(row, c + i + 2), high[0], high[1], high[2], high[3]);
  }
}
#elif W_TYPE == W_Q8_0
#define GROUP 1
struct Line { u4 codes; u32 d; };
G_FN u32 line_row() { return lane() / 4; }
G_FN void line_load(Line &l, const Row &w, u32 group) {
  const u32 blocks = w.k / 32, b = 2 * group + lane() % 4 / 2, c = g_min(b, blocks - 1);
  l.codes = ((const u4 *)w.p)[2 * c + lane() % 2];
  l.d = b < blocks ? ((const u16 *)w.p1)[c] : 0;
}
G_FN void line_store(const Line &l, u32 to, u32, u32 row, float up) {
  const float d = h2f((u16)l.d) * up;
  const u32 by = both(d * LOW_UP), less = both(-128 * d);
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    u32 v[4];
    G_UNROLL for (u32 j = 0; j < 4; j++)
      v[j] = half_fma(choose_bytes(word_of(l.codes, 2 * i + j / 2) ^ 0x80808080u, 0, j % 2 ? 0x4342 : 0x4140), by, less);
    store16(to + swizzled(row, lane() % 4 * 2 + i), v[0], v[1], v[2], v[3]);
  }
}
#elif W_TYPE == W_Q4_K // with the plane of subscales instead of that of scales
#define GROUP 2
struct Line { u4 codes; u2 subs; };
G_FN u32 line_row() { return lane() % 16 / 2; }
G_FN void line_load(Line &l, const Row &w, u32 group) {
  l.codes = ((const u4 *)w.p)[4 * group + lane() / 16 * 2 + lane() % 2];
  l.subs = ((const u2 *)w.p1)[2 * group + lane() / 16];
}
G_FN void line_store(const Line &l, u32 to0, u32 to1, u32 row, float) {
  const u32 to = lane() < 16 ? to0 : to1, odd = lane() % 2;
  G_UNROLL for (u32 h = 0; h < 2; h++) {
    const u32 n = h ^ odd, sub = n ? l.subs.y : l.subs.x, mask = n ? HIGH : LOW; // the lower half of bytes, or the upper one
    const u32 by = choose_bytes(sub, 0, 0x1010), offset = choose_bytes(sub, 0, 0x3232);
    G_UNROLL for (u32 c = 0; c < 2; c++) {
      u32 v[4];
      G_UNROLL for (u32 j = 0; j < 4; j++)
        v[j] = half_fma(choose_bytes(word_of(l.codes, 2 * c + j / 2), 0, j % 2 ? 0x4342 : 0x4140) & mask, by, offset);
      store16(to + swizzled(row, 4 * n + 2 * odd + c), v[0], v[1], v[2], v[3]);
    }
  }
}
#elif W_TYPE == W_Q6_K
#define GROUP 2
struct Line { u4 low, high; u2 scales; u32 d; };
G_FN u32 line_row() { return lane() / 4; }
G_FN void line_load(Line &l, const Row &w, u32 group) {
  l.low = ((const u4 *)w.p)[4 * group + lane() % 4];
  l.high = ((const u4 *)w.p1)[2 * group + lane() % 2];
  l.scales = ((const u2 *)w.p2)[group];
  l.d = ((const u16 *)w.p3)[group / 2];
}
G_FN void line_store(const Line &l, u32 to0, u32 to1, u32 row, float up) {
  const u32 d = both(h2f((u16)l.d) * up), by = lane() % 4 / 2 * 2;
  G_UNROLL for (u32 step = 0; step < 2; step++) { // it has the lower halves of bytes, or the upper ones
    const u32 s = both((float)(int)(signed char)((step ? l.scales.y : l.scales.x) >> 8 * (lane() % 4)));
    G_UNROLL for (u32 c = 0; c < 2; c++) {
      u32 v[4];
      G_UNROLL for (u32 i = 0; i < 2; i++) {
        const u32 x = (word_of(l.low, 2 * c + i) >> 4 * step & 0x0f0f0f0fu) | (word_of(l.high, 2 * c + i) >> (by + 4 * step) & 0x03030303u) << 4;
        v[2 * i] = half_mul(half_mul(half_add(choose_bytes(x, BYTES, 0x4140), 0xe420e420u), s), d); // - 1056
        v[2 * i + 1] = half_mul(half_mul(half_add(choose_bytes(x, BYTES, 0x4342), 0xe420e420u), s), d);
      }
      store16((step ? to1 : to0) + swizzled(row, lane() % 4 * 2 + c), v[0], v[1], v[2], v[3]);
    }
  }
}
#endif
