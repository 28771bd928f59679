// Caches in eight bits: e4m3 as it is, and blocks of q8_0, 32 bytes behind an f16 scale. Places are in bytes.

const uint F8E4M3 = 5, Q8_0 = 14;

float f82f(uint c) {
  uint e = (c >> 3) & 15u, m = c & 7u;
  float a = e == 0 ? float(m) * 0.001953125 : uintBitsToFloat(((e + 120u) << 23) | (m << 20));
  if ((c & 127u) == 127u) a = uintBitsToFloat(0x7fc00000u);
  return (c & 128u) != 0 ? -a : a;
}

// f2f8 rounds to nearest, ties to even; what lies beyond 448 becomes that.
uint f2f8(float f) {
  uint u = floatBitsToUint(f), s = (u >> 24) & 128u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 127u;
  if (u < 0x3c800000u) return s | uint(roundEven(uintBitsToFloat(u) * 512.0)); // below 2^-6
  u += 0x7ffffu + ((u >> 20) & 1u);
  return s | min((u >> 20) - 960u, 126u);
}

// headBytes is what d elements of a type take.
uint headBytes(uint type, uint d) { return type == Q8_0 ? d / 32 * 34 : d; }

#define BYTE(buf, a) bitfieldExtract(buf[(a) >> 2], int((a) & 3u) * 8, 8)
#define SBYTE(buf, a) float(bitfieldExtract(int(buf[(a) >> 2]), int((a) & 3u) * 8, 8))
#define SCALE(buf, a) h2f(bitfieldExtract(buf[(a) >> 2], int((a) & 2u) * 8, 16))
// CODED_AT reads element i of a row that begins at a byte.
#define CODED_AT(buf, type, row, i) ((type) == Q8_0 ? \
  SCALE(buf, (row) + ((i) >> 5) * 34) * SBYTE(buf, (row) + ((i) >> 5) * 34 + 2 + ((i) & 31u)) : f82f(BYTE(buf, (row) + (i))))
