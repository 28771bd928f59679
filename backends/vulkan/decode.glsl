// Weights of TYPE, read as 32-bit words from binding WEIGHTS. decode gives the UNIT
// elements of a unit of a row: 32 for block formats, whose layouts package
// weights/quant documents, 8 for plain types. Positions are in bytes. Formats whose blocks
// are no multiple of 16 bytes have each row as planes (pack.go).
//
// TYPE and whatever sizes an array or unrolls a loop are macros, no specialization
// constants: then the compiler unrolls, and arrays become registers on every driver.

layout(binding = WEIGHTS, std430) readonly buffer Weights { uint w[]; };
layout(binding = WEIGHTS, std430) readonly buffer Weights4 { uvec4 w4[]; };

const uint F64 = 4, F8E4M3 = 5, F8E5M2 = 6, F8E4M3FNUZ = 7, F8E5M2FNUZ = 8,
           Q4_0 = 10, Q4_1 = 11, Q5_0 = 12, Q5_1 = 13, Q8_0 = 14, IQ4_NL = 15, // 16: MXFP4
           Q2_K = 20, Q3_K = 21, Q4_K = 22, Q5_K = 23, Q6_K = 24, IQ4_XS = 25, TQ1_0 = 26, TQ2_0 = 27;

#if TYPE >= 10
#define UNIT 32u
#else
#define UNIT 8u
#endif
#define UNIT4 (UNIT / 4u)

uint u8(uint a) { return bitfieldExtract(w[a >> 2], int(a & 3u) * 8, 8); }
uint u16(uint a) { return bitfieldExtract(w[a >> 2], int(a & 2u) * 8, 16); } // a is even
uint u32(uint a) { // a is even
  uint i = a >> 2;
  return (a & 2u) == 0 ? w[i] : (w[i] >> 16) | (w[i + 1] << 16);
}
float half_(uint a) { return h2f(u16(a)); }

vec4 bytes(uint q) { return vec4(q & 255u, (q >> 8) & 255u, (q >> 16) & 255u, q >> 24); }
vec4 sbytes(uint q) {
  int s = int(q);
  return vec4(bitfieldExtract(s, 0, 8), bitfieldExtract(s, 8, 8), bitfieldExtract(s, 16, 8), s >> 24);
}
float sbyte(uint a) { return float(bitfieldExtract(int(w[a >> 2]), int(a & 3u) * 8, 8)); }

#if TYPE >= 10
#if TYPE == 16
#include "fp4.glsl"
#endif

float level(uint q) {
  const float levels[16] = float[](-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.);
  return levels[q];
}
vec4 levels4(uint q) { return vec4(level(q & 15u), level((q >> 8) & 15u), level((q >> 16) & 15u), level((q >> 24) & 15u)); }

// trit is digit n of a byte that holds five digits of base 3.
float trit(uint b, uint n) {
  const uint powers[5] = uint[](1u, 3u, 9u, 27u, 81u);
  return float((((b * powers[n]) & 255u) * 3u) >> 8) - 1.0;
}

// decodePart gives elements 4p to 4p + 3 and 16 + 4p to 19 + 4p of unit u of a row of
// a block format: what lies in the same words of most of them.
void decodePart(uint row, uint u, uint p, uint n, out vec4 lo, out vec4 hi) {
  precise float d, m; // as the reference does: every product rounded before a sum
  precise vec4 t;
  vec4 v[2];
#if TYPE <= 16
  const uint codes = TYPE == Q8_0 ? 32 : 16;
  uint blocks = n >> 5, from = (row + u * codes) >> 2, plane = row + blocks * codes;
#if TYPE == 12 || TYPE == 13
  uint high = w[(plane >> 2) + u];
  plane += (4 * blocks + 15) & ~15u;
#endif
#if TYPE == 11 || TYPE == 13
  uint head = w[(plane >> 2) + u];
  d = h2f(head & 0xffffu);
  m = h2f(head >> 16);
#elif TYPE == 16
  d = fp4Scale(u8(plane + u));
#else
  d = half_(plane + 2 * u);
#endif
#if TYPE == 14
  [[unroll]] for (uint k = 0; k < 2; k++) v[k] = sbytes(w[from + p + 4 * k]) * d;
#else
  uint q = w[from + p];
  [[unroll]] for (uint k = 0; k < 2; k++) {
    uint c = (q >> (4 * k)) & 0x0f0f0f0fu;
#if TYPE == 15
    v[k] = levels4(c) * d;
#elif TYPE == 16
    v[k] = (bytes(fp4(c)) - 128.0) * d;
#else
#if TYPE == 12 || TYPE == 13
    uint h = (high >> (16 * k + 4 * p)) & 15u;
    c |= (h & 1u) << 4 | (h & 2u) << 11 | (h & 4u) << 18 | (h & 8u) << 25;
#endif
    t = bytes(c);
    if (TYPE == Q4_0) t -= 8.0;
    if (TYPE == Q5_0) t -= 16.0;
    t = t * d;
    v[k] = TYPE == Q4_1 || TYPE == Q5_1 ? t + m : t;
#endif
  }
#endif
#else
  uint block = u >> 3, s = u & 7u;
#if TYPE == 22 || TYPE == 23
  uint a = row + block * (TYPE == Q4_K ? 144 : 176);
  uint dm = w[a >> 2], from = (a >> 2) + 1, sc, mn, at = 8 * (s & 3u);
  uint first = w[from] >> at, second = w[from + 1] >> at; // bytes s and 4 + s of the scales, modulo 4
  if (s < 4) {
    sc = first & 63u;
    mn = second & 63u;
  } else {
    uint third = w[from + 2] >> at;
    sc = third & 15u | (first & 0xc0u) >> 2;
    mn = (third >> 4) & 15u | (second & 0xc0u) >> 2;
  }
  d = h2f(dm & 0xffffu) * float(sc);
  m = h2f(dm >> 16) * float(mn);
  [[unroll]] for (uint k = 0; k < 2; k++) {
    uint i = p + 4 * k;
    uint c = (w[(a >> 2) + (TYPE == Q4_K ? 4 : 12) + 8 * (s >> 1) + i] >> (4 * (s & 1u))) & 0x0f0f0f0fu;
    if (TYPE == Q5_K) c |= ((w[(a >> 2) + 4 + i] >> s) & 0x01010101u) << 4;
    t = bytes(c) * d;
    v[k] = t - m;
  }
#elif TYPE == 24
  uint blocks = n >> 8, h = s >> 2, k2 = s & 3u;
  uint low = row + block * 128, high = row + blocks * 128 + block * 64, scales = row + blocks * 192 + block * 16;
  float unit = half_(row + blocks * 208 + 2 * block);
  [[unroll]] for (uint k = 0; k < 2; k++) {
    uint i = p + 4 * k;
    uint c = (w[(low >> 2) + 16 * h + 8 * (k2 & 1u) + i] >> (4 * (k2 >> 1))) & 0x0f0f0f0fu;
    c |= ((w[(high >> 2) + 8 * h + i] >> (2 * k2)) & 0x03030303u) << 4;
    d = unit * sbyte(scales + 2 * s + k);
    v[k] = d * (bytes(c) - 32.0);
  }
#elif TYPE == 20
  uint a = row + block * 84;
  float unit = half_(a + 80), low = half_(a + 82);
  [[unroll]] for (uint k = 0; k < 2; k++) {
    uint sc = u8(a + 2 * s + k);
    d = unit * float(sc & 15u);
    m = low * float(sc >> 4);
    uint c = (w[(a >> 2) + 4 + 8 * (s >> 2) + p + 4 * k] >> (2 * (s & 3u))) & 0x03030303u;
    t = bytes(c) * d;
    v[k] = t - m;
  }
#elif TYPE == 21
  uint a = row + block * 110;
  float unit = half_(a + 108);
  [[unroll]] for (uint k = 0; k < 2; k++) {
    uint j = 2 * s + k, i = p + 4 * k;
    uint sc = (u8(a + 96 + (j & 7u)) >> (4 * (j >> 3))) & 15u | ((u8(a + 104 + (j & 3u)) >> (2 * (j >> 2))) & 3u) << 4;
    d = unit * (float(sc) - 32.0);
    uint c = (u32(a + 32 + 32 * (s >> 2) + 4 * i) >> (2 * (s & 3u))) & 0x03030303u;
    c |= ((u32(a + 4 * i) >> s) & 0x01010101u) << 2;
    v[k] = d * (bytes(c) - 4.0);
  }
#elif TYPE == 25
  uint a = row + block * 136;
  uint head = w[a >> 2], sc = (w[(a >> 2) + 1] >> (4 * s)) & 15u | ((head >> (16 + 2 * s)) & 3u) << 4;
  d = h2f(head & 0xffffu) * (float(sc) - 32.0);
  uint q = w[(a >> 2) + 2 + 4 * s + p];
  v[0] = levels4(q & 0x0f0f0f0fu) * d;
  v[1] = levels4((q >> 4) & 0x0f0f0f0fu) * d;
#elif TYPE == 27
  uint a = row + block * 66;
  d = half_(a + 64);
  [[unroll]] for (uint k = 0; k < 2; k++)
    v[k] = (bytes((u32(a + 32 * (s >> 2) + 4 * (p + 4 * k)) >> (2 * (s & 3u))) & 0x03030303u) - 1.0) * d;
#elif TYPE == 26
  uint a = row + block * 54;
  d = half_(a + 52);
  [[unroll]] for (uint k = 0; k < 2; k++) {
    vec4 r;
    [[unroll]] for (uint j = 0; j < 4; j++) {
      uint e = 32 * s + 4 * (p + 4 * k) + j;
      uint from = e < 160 ? e & 31u : e < 240 ? 32 + (e & 15u) : 48 + (e & 3u); // 160 and 240 are multiples of 16
      uint digit = e < 160 ? e >> 5 : e < 240 ? (e - 160) >> 4 : (e - 240) >> 2;
      r[j] = trit(u8(a + from), digit);
    }
    v[k] = r * d;
  }
#endif
#endif
  lo = v[0];
  hi = v[1];
}

#else

// f8 widens an 8-bit float: exponent bits, bias, and what its odd codes mean.
float f8(uint c) {
  const bool wide = TYPE == F8E5M2 || TYPE == F8E5M2FNUZ, fnuz = TYPE == F8E4M3FNUZ || TYPE == F8E5M2FNUZ;
  const uint mb = wide ? 2 : 3;
  const int bias = (wide ? 15 : 7) + (fnuz ? 1 : 0);
  uint e = (c & 0x7fu) >> mb, m = c & ((1u << mb) - 1u);
  float nan = uintBitsToFloat(0x7fc00000u);
  if (fnuz && c == 0x80u || TYPE == F8E4M3 && (c & 0x7fu) == 0x7fu) return nan;
  if (TYPE == F8E5M2 && e == 31) return m != 0 ? nan : uintBitsToFloat((c & 0x80u) << 24 | 0x7f800000u);
  float one = float(1u << mb);
  float v = e == 0 ? float(m) / one * uintBitsToFloat(uint(128 - bias) << 23)
                   : (1.0 + float(m) / one) * uintBitsToFloat(uint(int(e) - bias + 127) << 23);
  return (c & 0x80u) != 0 ? -v : v;
}

// f64 rounds to the nearest float; below its normal range to zero.
float f64(uint a) {
  uint lo = w[a >> 2], hi = w[(a >> 2) + 1];
  int e = int((hi >> 20) & 0x7ffu) - 1023;
  if (e < -126) return 0;
  uint m = (hi & 0xfffffu) << 3 | lo >> 29, rest = lo << 3;
  if (rest > 0x80000000u || rest == 0x80000000u && (m & 1u) == 1) m++;
  if (e > 127) return uintBitsToFloat(hi & 0x80000000u | 0x7f800000u);
  return uintBitsToFloat((hi & 0x80000000u) | (uint(e + 127) << 23) + m);
}

// one reads element i of a row of a plain type.
float one(uint row, uint i) {
  switch (TYPE) {
    case F32: return uintBitsToFloat(w[(row >> 2) + i]);
    case F16: return h2f(u16(row + 2 * i));
    case BF16: return bf2f(u16(row + 2 * i));
    case F64: return f64(row + 8 * i);
  }
  return f8(u8(row + i));
}

// four reads elements i to i + 3, zeros from n on.
vec4 four(uint row, uint i, uint n) {
  return vec4(i < n ? one(row, i) : 0, i + 1 < n ? one(row, i + 1) : 0, i + 2 < n ? one(row, i + 2) : 0, i + 3 < n ? one(row, i + 3) : 0);
}

// decodePlain gives 8 elements from i on of a row of a plain type that starts at a
// multiple of 16 bytes and holds a multiple of 8 elements.
void decodePlain(uint row, uint i, out vec4 v[2]) {
  if (TYPE == F16) {
    uvec4 q = w4[(row + 2 * i) >> 4];
    v[0] = vec4(unpackHalf2x16(q.x), unpackHalf2x16(q.y));
    v[1] = vec4(unpackHalf2x16(q.z), unpackHalf2x16(q.w));
  } else if (TYPE == BF16) {
    uvec4 q = w4[(row + 2 * i) >> 4];
    v[0] = uintBitsToFloat(uvec4(q.x << 16, q.x & 0xffff0000u, q.y << 16, q.y & 0xffff0000u));
    v[1] = uintBitsToFloat(uvec4(q.z << 16, q.z & 0xffff0000u, q.w << 16, q.w & 0xffff0000u));
  } else if (TYPE == F32) {
    v[0] = uintBitsToFloat(w4[(row >> 4) + (i >> 2)]);
    v[1] = uintBitsToFloat(w4[(row >> 4) + (i >> 2) + 1]);
  } else {
    v[0] = four(row, i, i + 8);
    v[1] = four(row, i + 4, i + 8);
  }
}

#endif

// decode gives unit u of a row of n elements; plain types that are not ALIGNED
// element by element, zeros behind the end.
#if TYPE >= 10
void decode(uint row, uint u, uint n, out vec4 v[8]) {
  [[unroll]] for (uint p = 0; p < 4; p++) decodePart(row, u, p, n, v[p], v[p + 4]);
}
#else
void decode(uint row, uint u, uint n, out vec4 v[2]) {
  if (ALIGNED) decodePlain(row, 8 * u, v);
  else {
    v[0] = four(row, 8 * u, n);
    v[1] = four(row, 8 * u + 4, n);
  }
}
#endif
