// Caches, as attention reads and rotations and stores write them: f32, f16, bf16, and in eight bits e4m3 as it is and
// blocks of q8_0, 32 signed bytes behind a scale of f16.
#pragma once
enum { T_Q8_0 = 7 };

// an e4m3 is a half of a 256th, its exponent's offset being less by 8
G_FN float e4m3_float(u32 c) {
  const float v = h2f((u16)((c & 0x80u) << 8 | (c & 0x7fu) << 7)) * 256.0f;
  return (c & 0x7fu) == 0x7fu ? u2f(0x7fc00000u) : v;
}
// rounds to nearest, ties to even; what lies beyond 448 becomes that
G_FN u8 float_e4m3(float f) {
  u32 u = f2u(f);
  const u32 sign = u >> 24 & 0x80u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 0x7f;
  if (u < 0x3c800000u) return (u8)(sign | (u32)g_rint(u2f(u) * 512.0f)); // below 2^-6
  u += 0x7ffffu + (u >> 20 & 1u);
  return (u8)(sign | g_min((u >> 20) - 960u, 126u));
}

G_FN void store_cache(void *p, u32 type, u64 i, float v) {
  if (type == T_E4M3) ((u8 *)p)[i] = float_e4m3(v);
  else store_float(p, type, i, v);
}
// stores block i of q8_0, of which each of 32 neighbouring lanes has an element
G_FN void store_q8(void *p, u64 i, float v) {
  float most = g_abs(v);
  G_UNROLL for (u32 o = 16; o; o >>= 1) most = g_max(most, shfl_xor(most, o));
  const u16 d = f2h(most / 127.0f);
  const float scale = h2f(d), by = scale > 0.0f ? 1.0f / scale : 0.0f;
  const float r = g_rint(v * by);
  u8 *const block = (u8 *)p + i * 34;
  block[2 + lane() % 32] = (u8)(int)(r > 127.0f ? 127.0f : r < -127.0f ? -127.0f : r);
  if (lane() % 32 == 0) *(u16 *)block = d;
}

#ifdef VE // elements a load
template <int T> struct cache_elem { typedef u16 type; };
template <> struct cache_elem<0> { typedef float type; };
template <> struct cache_elem<T_E4M3> { typedef u8 type; };
// neighbouring elements of a head
template <int T> struct alignas(VE * sizeof(typename cache_elem<T>::type)) Line {
  typename cache_elem<T>::type c[VE];
  G_FN_IN float at(u32 x) const {
    if (T == T_F32) return (float)c[x];
    if (T == T_E4M3) return e4m3_float((u32)c[x]);
    return T == T_F16 ? h2f((u16)c[x]) : b2f((u16)c[x]);
  }
};
template <> struct Line<T_Q8_0> {
  signed char c[VE];
  u16 scale;
  G_FN_IN float at(u32 x) const { return h2f(scale) * (float)c[x]; }
};
// elements e and on of head g, of d elements, of a row that begins at an element; of q8_0: at a byte
template <int T> struct Lines {
  static G_FN_IN Line<T> load(const void *p, u64 row, u32 g, u32 d, u32 e) {
    return *(const Line<T> *)((const typename cache_elem<T>::type *)p + (row + g * d + e));
  }
};
template <> struct Lines<T_Q8_0> {
  static G_FN_IN Line<T_Q8_0> load(const void *p, u64 row, u32 g, u32 d, u32 e) {
    const u8 *const block = (const u8 *)p + row + (g * (d / 32) + e / 32) * 34;
    Line<T_Q8_0> l;
    l.scale = *(const u16 *)block;
    const u8 *const codes = block + 2 + e % 32;
    G_UNROLL for (u32 x = 0; x < VE; x += 2) {
      if (VE == 1) l.c[x] = (signed char)codes[x];
      else {
        const u16 two = *(const u16 *)(codes + x);
        l.c[x] = (signed char)two;
        l.c[VE == 1 ? x : x + 1] = (signed char)(two >> 8);
      }
    }
    return l;
  }
};
template <int T> G_FN Line<T> line_load(const void *p, u64 row, u32 g, u32 d, u32 e) {
  Line<T> l = {};
  if (e < d) l = Lines<T>::load(p, row, g, d, e);
  return l;
}
#endif
