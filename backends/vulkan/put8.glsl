// Stores of caches in eight bits in y, words whose other bytes may be other invocations'.

void putPart(uint at, uint bits, uint value) { // at in bytes, a multiple of the part's
  uint shift = (at & 3u) * 8, keep = ~(((1u << bits) - 1u) << shift);
  for (;;) {
    uint old = y[at >> 2];
    if (atomicCompSwap(y[at >> 2], old, old & keep | value << shift) == old) return;
  }
}

// putBlock stores a block of q8_0 at a byte.
void putBlock(uint at, float v[32]) {
  float most = 0;
  for (uint j = 0; j < 32; j++) most = max(most, abs(v[j]));
  uint d = f2h(most / 127.0);
  float scale = h2f(d), inv = scale > 0 ? 1.0 / scale : 0.0;
  putPart(at, 16, d);
  for (uint j = 0; j < 32; j += 2) {
    uint a = uint(int(clamp(roundEven(v[j] * inv), -127.0, 127.0))) & 255u;
    uint b = uint(int(clamp(roundEven(v[j + 1] * inv), -127.0, 127.0))) & 255u;
    putPart(at + 2 + j, 16, a | b << 8);
  }
}
