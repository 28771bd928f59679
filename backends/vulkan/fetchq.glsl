// FETCH reads what an invocation needs of unit u of a row of blocks, from W and W4: the
// same buffer as words and 16 bytes at a time. Layouts: decode.glsl and pack.go.
Raw FETCH(uint row, uint u) {
  Raw v;
#if TYPE == 14
  v.q = W4[(row >> 4) + 2 * u];
  v.p = W4[(row >> 4) + 2 * u + 1];
  v.d = W[(row + cols + 2 * u) >> 2];
#elif TYPE < 20
  uint blocks = cols >> 5, plane = row + blocks * 16;
  v.q = W4[(row >> 4) + u];
#if TYPE == 12 || TYPE == 13
  v.high = W[(plane >> 2) + u];
  plane += (4 * blocks + 15) & ~15u;
#endif
#if TYPE == 11 || TYPE == 13
  v.d = W[(plane >> 2) + u];
#elif TYPE == 16
  v.d = W[(plane + u) >> 2];
#else
  v.d = W[(plane + 2 * u) >> 2];
#endif
#elif TYPE == 22 || TYPE == 23
  uint a = (row >> 4) + (u >> 2) * (TYPE == Q4_K ? 9 : 11), at = a + (TYPE == Q4_K ? 1 : 3) + 2 * (u & 3u);
  v.head = W4[a];
  v.q = W4[at];
  v.p = W4[at + 1];
#if TYPE == 23
  v.h0 = W4[a + 1];
  v.h1 = W4[a + 2];
#endif
#elif TYPE == 24
  uint blocks = cols >> 8, block = u >> 2, h = (u >> 1) & 1u, part16 = u & 1u;
  uint at = (row >> 4) + block * 8 + 4 * h + part16, sc = (row + blocks * 192 + block * 16 + 8 * h) >> 2;
  v.q = W4[at];
  v.p = W4[at + 2];
  v.h = W4[((row + blocks * 128) >> 4) + block * 4 + 2 * h + part16];
  v.head = uvec4(W[sc], W[sc + 1], W[(row + blocks * 208 + 2 * block) >> 2], 0);
#endif
  return v;
}
