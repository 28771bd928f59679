// Stores of caches in eight bits in y, words whose other bytes may be other invocations'.

void putPart(uint at, uint bits, uint value) { // at in bytes, a multiple of the part's
  uint shift = (at & 3u) * 8;
  atomicAnd(y[at >> 2], ~(((1u << bits) - 1u) << shift));
  atomicOr(y[at >> 2], value << shift);
}

uint signedByte(float v) { return uint(int(clamp(roundEven(v), -127.0, 127.0))) & 255u; }

// PUT_BLOCK stores a block of q8_0 at a byte; V gives its element j.
#define PUT_BLOCK(at, V) { \
  float most = 0; \
  for (uint j = 0; j < 32; j++) most = max(most, abs(V(j))); \
  uint d = f2h(most / 127.0); \
  float scale = h2f(d), inv = scale > 0 ? 1.0 / scale : 0.0; \
  putPart(at, 16, d); \
  for (uint j = 0; j < 32; j += 2) \
    putPart((at) + 2 + j, 16, signedByte(V(j) * inv) | signedByte(V(j + 1) * inv) << 8); \
}
