// Activations of eight bits and their products with block formats. A row x of k
// elements lies in shared memory as whole numbers in [-127, 127], a scale for
// every 32, and the scaled sums of every 16 or 32 for formats whose codes have
// an offset. Chunks of 16 bytes are dealt to planes such that lanes that read
// together find theirs next to each other.
#pragma once
#define CHUNK16 (W_TYPE == W_Q4_K || W_TYPE == W_Q5_K || W_TYPE == W_Q6_K) // sums of 16, else of 32
// what scales and sums are multiplied with beforehand: q4_0's codes come 16 times
// too large, and stand for themselves less 8
#if W_TYPE == W_Q4_0
#define SCALE_BY 0.0625f
#define SUM_BY -8.0f
#else
#define SCALE_BY 1.0f
#define SUM_BY 1.0f
#endif

#define SUMS (W_TYPE != W_Q8_0 && W_TYPE != W_MXFP4) // sums are wanted: not where codes are numbers by themselves

// where chunk c of n lies, in chunks
G_FN u32 chunk_at(u32 c, u32 n) {
#if W_TYPE == W_Q8_0
  return c;
#elif W_TYPE == W_Q6_K
  return (c / 2 & 3) * (n / 4) + c / 8 * 2 + (c & 1);
#elif W_TYPE == W_Q4_K || W_TYPE == W_Q5_K
  return (c / 2 & 1) * (n / 2) + c / 4 * 2 + (c & 1);
#else
  return (c & 1) * (n / 2) + c / 2;
#endif
}

// four bytes of lo (0 to 3) and hi (4 to 7)
template <u32 A, u32 B, u32 C, u32 D> G_FN u32 bytes_of(u32 lo, u32 hi) {
#if G_AMD
  return __builtin_amdgcn_perm(hi, lo, A | B << 8 | C << 16 | D << 24);
#else
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(lo), "r"(hi), "n"(A | B << 4 | C << 8 | D << 12));
  return r;
#endif
}

struct Shared8 {
  u4 *q;        // k / 16 chunks
  float *scale; // of every 32
  float *sum;
  u32 n;
  G_FN_IN Shared8(u4 *at, u32 k) {
    n = k / 16;
    q = at;
    scale = (float *)(at + n);
    sum = scale + k / 32;
  }
  // Rounds elements i … i+3, which a lane holds; eight lanes share a scale. All
  // lanes of a wave call it.
  G_FN_IN void store(u32 i, f4 v, bool real) const {
    float top = g_max(g_max(g_abs(v.x), g_abs(v.y)), g_max(g_abs(v.z), g_abs(v.w)));
    G_UNROLL for (u32 o = 1; o < 8; o <<= 1) top = g_max(top, shfl_xor(top, o));
    // Numbers so small that an inverse has no place are taken for zero.
    const float d = top * (1.0f / 127.0f), up = top > 1e-35f ? 127.0f * g_inverse(top) : 0.0f;
    // A sum with 1.5 · 2^23 has the rounded number in its lowest bits.
    const auto round = [&](float x) { return f2u(g_fma(x, up, 12582912.0f)); };
    const u32 bytes = (round(v.x) & 255) | (round(v.y) & 255) << 8 | (round(v.z) & 255) << 16 | round(v.w) << 24;
    float s = 0;
    if (SUMS) {
      s = (float)dot4(bytes, 0x01010101u, 0);
      s += shfl_xor(s, 1);
      s += shfl_xor(s, 2);
      if (!CHUNK16) s += shfl_xor(s, 4);
    }
#if W_TYPE == W_MXFP4 // elements j and j + 16 of a block side by side, as their codes are
    const u32 other = f2u(shfl_xor(u2f(bytes), 4)), at = 2 * (i / 4 & 3) + (i / 16 & 1);
    const u32 own = i & 16 ? bytes_of<2, 6, 3, 7>(other, bytes) : bytes_of<0, 4, 1, 5>(bytes, other);
    if (!real) return;
    ((u32 *)(q + chunk_at(i / 32 * 2 + at / 4, n)))[at & 3] = own;
#else
    if (!real) return;
    ((u32 *)(q + chunk_at(i / 16, n)))[i / 4 & 3] = bytes;
#endif
    if (i % 32 == 0) scale[i / 32] = d * SCALE_BY;
    if (SUMS && i % (CHUNK16 ? 16 : 32) == 0) sum[i / (CHUNK16 ? 16 : 32)] = d * s * SUM_BY;
  }
};

G_FN int dot16(u4 a, u4 b) {
  int d = dot4(a.x, b.x, 0);
  d = dot4(a.y, b.y, d);
  d = dot4(a.z, b.z, d);
  return dot4(a.w, b.w, d);
}
// the same of unsigned bytes
G_FN int dot16u(u4 a, u4 b) {
  int d = dot4u(a.x, b.x, 0);
  d = dot4u(a.y, b.y, d);
  d = dot4u(a.z, b.z, d);
  return dot4u(a.w, b.w, d);
}
// the upper halves of bytes, where they are: 16 times what they mean
G_FN u4 upper4(u4 w) { return u4{w.x & 0xf0f0f0f0u, w.y & 0xf0f0f0f0u, w.z & 0xf0f0f0f0u, w.w & 0xf0f0f0f0u}; }
G_FN u4 low4(u4 w) { return u4{w.x & 0x0f0f0f0fu, w.y & 0x0f0f0f0fu, w.z & 0x0f0f0f0fu, w.w & 0x0f0f0f0fu}; }
G_FN u4 high4(u4 w) {
  return u4{w.x >> 4 & 0x0f0f0f0fu, w.y >> 4 & 0x0f0f0f0fu, w.z >> 4 & 0x0f0f0f0fu, w.w >> 4 & 0x0f0f0f0fu};
}

// What a lane loads at once of a row of type T, a unit of QUADS quads of elements, and its product with x.
template <int T> struct Codes8;

template <> struct Codes8<W_Q8_0> { // half a block
  static constexpr u32 QUADS = 4;
  u4 q;
  u16 d;
  G_FN_IN static Codes8 load(const Row &w, u32 u) { return Codes8{((const u4 *)w.p)[u], ((const u16 *)w.p1)[u / 2]}; }
  G_FN_IN float dot(const Shared8 &x, u32 u) const { return h2f(d) * x.scale[u / 2] * (float)dot16(q, x.q[u]); }
};

// codes of a block of 32, as their product less what x.sum makes good
G_FN int nibbles_dot(u4 q, const Shared8 &x, u32 u) { return 16 * dot16(low4(q), x.q[u]) + dot16u(upper4(q), x.q[x.n / 2 + u]); }
template <> struct Codes8<W_Q4_0> {
  static constexpr u32 QUADS = 8;
  u4 q;
  u16 d;
  G_FN_IN static Codes8 load(const Row &w, u32 u) { return Codes8{((const u4 *)w.p)[u], ((const u16 *)w.p1)[u]}; }
  G_FN_IN float dot(const Shared8 &x, u32 u) const { return h2f(d) * g_fma(x.scale[u], (float)nibbles_dot(q, x, u), x.sum[u]); } // scale and sum are made for this
};
template <> struct Codes8<W_Q4_1> {
  static constexpr u32 QUADS = 8;
  u4 q;
  u32 dm;
  G_FN_IN static Codes8 load(const Row &w, u32 u) { return Codes8{((const u4 *)w.p)[u], ((const u32 *)w.p1)[u]}; }
  G_FN_IN float dot(const Shared8 &x, u32 u) const {
    return h2f((u16)dm) * (x.scale[u] * ((float)nibbles_dot(q, x, u) * 0.0625f)) + h2f((u16)(dm >> 16)) * x.sum[u];
  }
};

#if W_TYPE == W_MXFP4
// Adds to up the product of a word's positive codes with x, to down that of the amounts of its negative ones: codes are
// looked up as twice the numbers that they are, low half by low half and high half by high half of byte 0, then of byte 1 …,
// which is how lo and hi have x.
G_FN void e2m1_dot(u32 w, u32 lo, u32 hi, int &up, int &down) {
  const u32 t0 = 0x03020100u, t1 = 0x0c080604u;
#if G_AMD
  const u32 l = w & 0x0f0f0f0fu, h = w >> 4 & 0x0f0f0f0fu;
  const u32 codes[2] = {bytes_of<0, 4, 1, 5>(l, h), bytes_of<2, 6, 3, 7>(l, h)}, xs[2] = {lo, hi};
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    const u32 v = __builtin_amdgcn_perm(t1, t0, codes[i] & 0x07070707u), sign = (codes[i] >> 3 & 0x01010101u) * 255u;
    up = dot4(v & ~sign, xs[i], up);
    down = dot4(v & sign, xs[i], down);
  }
#else
  // four bits choose a byte of the table; the highest of them asks for its sign instead, which is zero everywhere
  const auto four = [&](u32 codes) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(t0), "r"(t1), "r"(codes));
    return r;
  };
  const u32 v = w ^ 0x88888888u;
  up = dot4(four(w), lo, up);
  up = dot4(four(w >> 16), hi, up);
  down = dot4(four(v), lo, down);
  down = dot4(four(v >> 16), hi, down);
#endif
}
template <> struct Codes8<W_MXFP4> {
  static constexpr u32 QUADS = 8;
  u4 q;
  u8 e;
  G_FN_IN static Codes8 load(const Row &w, u32 u) { return Codes8{((const u4 *)w.p)[u], w.p1[u]}; }
  G_FN_IN float dot(const Shared8 &x, u32 u) const {
    const u4 a = x.q[u], b = x.q[x.n / 2 + u];
    int up = 0, down = 0;
    e2m1_dot(q.x, a.x, a.y, up, down);
    e2m1_dot(q.y, a.z, a.w, up, down);
    e2m1_dot(q.z, b.x, b.y, up, down);
    e2m1_dot(q.w, b.z, b.w, up, down);
    return w_exp2(e) * x.scale[u] * (float)(up - down);
  }
};
#endif

// Six bits of scale and of offset of sub-blocks 2j and 2j + 1: those of the
// first four are the low bits of bytes of h.y and h.z, those of the others four
// bits of h.w and two of the same bytes.
G_FN void scales(u4 h, u32 j, u32 &sc, u32 &mn) {
  const u32 at = j * 16 & 31;
  const u32 s = h.y >> at & 0xffffu, m = h.z >> at & 0xffffu, both = h.w >> at & 0xffffu;
  sc = j < 2 ? s & 0x3f3fu : (both & 0x0f0fu) | (s >> 2 & 0x3030u);
  mn = j < 2 ? m & 0x3f3fu : (both >> 4 & 0x0f0fu) | (m >> 2 & 0x3030u);
}
// the product of 16 elements of a sub-block of 32 and of 16 of the next, from their codes
G_FN float pair_dot(u4 lo, u4 hi, u4 h, const Shared8 &x, u32 u) {
  const u32 c = u / 2 * 4 + (u & 1); // the first chunk, the other is 2 further
  u32 sc, mn;
  scales(h, u / 2 & 3, sc, mn);
  const u32 b = u / 2 * 2; // sub-block of 32
  const float d0 = (float)((int)(sc & 255u) * dot16(lo, x.q[u]));
  const float d1 = (float)((int)(sc >> 8) * dot16(hi, x.q[x.n / 2 + u]));
  const float v = g_fma(x.scale[b + 1], d1, x.scale[b] * d0);
  const float o = g_fma((float)(int)(mn >> 8), x.sum[c + 2], (float)(int)(mn & 255u) * x.sum[c]);
  return g_fma(h2f((u16)h.x), v, -(h2f((u16)(h.x >> 16)) * o));
}
template <> struct Codes8<W_Q4_K> {
  static constexpr u32 QUADS = 8;
  u4 q, h;
  G_FN_IN static Codes8 load(const Row &w, u32 u) { return Codes8{((const u4 *)w.p)[u], ((const u4 *)w.p1)[u / 8]}; }
  G_FN_IN float dot(const Shared8 &x, u32 u) const { return pair_dot(low4(q), high4(q), h, x, u); }
};
template <> struct Codes8<W_Q5_K> {
  static constexpr u32 QUADS = 8;
  u4 q, h, high;
  G_FN_IN static Codes8 load(const Row &w, u32 u) {
    return Codes8{((const u4 *)w.p)[u], ((const u4 *)w.p2)[u / 8], ((const u4 *)w.p1)[u / 8 * 2 + (u & 1)]};
  }
  G_FN_IN float dot(const Shared8 &x, u32 u) const {
    const u32 n = 2 * (u / 2 & 3);
    u4 lo = low4(q), hi = high4(q);
    lo = u4{lo.x | (high.x >> n & 0x01010101u) << 4, lo.y | (high.y >> n & 0x01010101u) << 4,
            lo.z | (high.z >> n & 0x01010101u) << 4, lo.w | (high.w >> n & 0x01010101u) << 4};
    hi = u4{hi.x | (high.x >> n & 0x02020202u) << 3, hi.y | (high.y >> n & 0x02020202u) << 3,
            hi.z | (high.z >> n & 0x02020202u) << 3, hi.w | (high.w >> n & 0x02020202u) << 3};
    return pair_dot(lo, hi, h, x, u);
  }
};

G_FN u32 six(u32 four, u32 high, u32 n) { return four | (high >> n & 0x03030303u) << 4; }
G_FN u4 six4(u4 four, u4 high, u32 n) {
  return u4{six(four.x, high.x, n), six(four.y, high.y, n), six(four.z, high.z, n), six(four.w, high.w, n)};
}
template <> struct Codes8<W_Q6_K> { // 16 columns of half a block: 64 elements, 32 apart in four groups
  static constexpr u32 QUADS = 16;
  u4 a, b, h;
  u32 s0, s1; // bytes of scales, of two groups each
  u16 d;
  G_FN_IN static Codes8 load(const Row &w, u32 u) {
    const u32 half = u / 2, c = u & 1; // of the row
    const u4 *low = (const u4 *)w.p + half * 4 + c;
    const u8 *s = w.p2 + half * 8 + c;
    return Codes8{low[0], low[2], ((const u4 *)w.p1)[half * 2 + c], (u32)s[0] | (u32)s[2] << 8, (u32)s[4] | (u32)s[6] << 8,
                  ((const u16 *)w.p3)[half / 2]};
  }
  // where the 16 elements of group i lie
  G_FN_IN static u32 place(u32 u, u32 i, u32 n) {
#if W_TYPE == W_Q6_K
    return n / 4 * i + u;
#else // x lies as the first type wants it
    return n / 2 * (i & 1) + u / 2 * 4 + (i & 2) + (u & 1);
#endif
  }
  G_FN_IN float dot(const Shared8 &x, u32 u) const {
    const u32 c = u / 2 * 8 + (u & 1), block = u / 2 * 4;
    const u4 codes[4] = {six4(low4(a), h, 0), six4(low4(b), h, 2), six4(high4(a), h, 4), six4(high4(b), h, 6)};
    float v = 0;
    G_UNROLL for (u32 i = 0; i < 4; i++) {
      const u32 two = i < 2 ? s0 : s1;
      const float s = (float)(int)(signed char)(two >> (8 * (i & 1)));
      const float e = (float)dot16(codes[i], x.q[place(u, i, x.n)]);
      v = g_fma(s, g_fma(x.scale[block + i], e, -32.0f * x.sum[c + 2 * i]), v);
    }
    return h2f(d) * v;
  }
};
