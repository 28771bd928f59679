// What rows are scaled by before they are rounded to halves.
#pragma once
// 2^(TO - exponent of top): a normal number whose inverse is one
template <int TO> G_FN float scale_for(float top) {
  u32 e = f2u(top) >> 23;
  e = e < TO + 1 ? TO + 1 : e > 254 ? 254 : e;
  return u2f((127 + TO + 127 - e) << 23);
}

// Rows of block formats whose codes are multiplied as they are (decode.h) are shrunk by 2^19
// beyond that; a code in the lower four bits of a half is then 2^-24 of itself, in those above 2^-20.
#define SHRINK 524288.0f
#define LOW_UP 16777216.0f
#define HIGH_UP 1048576.0f
