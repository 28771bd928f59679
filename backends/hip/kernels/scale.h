// What rows are scaled by before they are rounded to halves.
#pragma once
// 2^(13 - exponent of top), kept a normal number whose inverse is one
G_FN float scale_for(float top) {
  u32 e = f2u(top) >> 23;
  e = e < 30 ? 30 : e > 250 ? 250 : e;
  return u2f((127 + 13 + 127 - e) << 23);
}
