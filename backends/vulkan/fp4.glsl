// What codes of MXFP4 stand for, and the scale of a block, halved as levels are doubled to be whole.

// fp4 gives 128 and the level of four codes, each in the low half of a byte: ±0, 1, 2, 3, 4, 6, 8, 12. From 4 on a level is the
// code and what it has beyond 4, and 2 more with the last.
uint fp4(uint c) {
  uint m = c & 0x07070707u, upper = m >> 2 & 0x01010101u;
  m += (m & upper * 3u) + ((upper & m & m >> 1) << 1);
  return 0x80808080u + m - ((m & (c >> 3 & 0x01010101u) * 15u) << 1);
}

// fp4Scale is 2^(e-128).
float fp4Scale(uint e) { return uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23); }
