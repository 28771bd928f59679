// Matrix cores behind one interface: a wave multiplies a 16×16 tile of a by one
// of b, both with k contiguous in shared memory, D[m][n] += Σk a[m][k] b[n][k].
// MFMA on CDNA, WMMA on RDNA 3 and 4, mma.sync on NVIDIA from sm_80. A Frag is a
// wave's share of 16 rows of 16 elements, f16, or bf16 with MMA_BF16, or pairs of 8-bit floats with FP8; an Acc is
// its share of D. Shared memory holds rows of 32 elements whose four lines of 16
// bytes are permuted by the row, so that eight rows lie on different banks.
#pragma once

// where element k of a row lies; 16 rows further is 512 elements further
G_FN u32 mma_at(u32 row, u32 k) { return row * 32 + (((k / 8) ^ (row / 2 & 3)) * 8) + k % 8; }

#if !G_AMD
#define ACC 8
struct Frag { u32 r[4]; };
struct Acc { float v[ACC]; };
// how shared memory is named to frag_load
typedef u32 Tile;
G_FN Tile tile_of(const u16 *p) {
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}
// where a lane loads of a tile from element k on
G_FN u32 frag_at(u32 k) { return mma_at(lane() % 16, k + lane() / 16 * 8); }
G_FN Frag frag_load(Tile tile, u32 at) {
  Frag f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(tile + 2 * at)
               : "memory");
  return f;
}
#if FP8 && W_TYPE == W_E5M2
#define MMA_TYPES "k32.row.col.f32.e4m3.e5m2"
#elif FP8
#define MMA_TYPES "k32.row.col.f32.e4m3.e4m3"
#elif MMA_BF16
#define MMA_TYPES "k16.row.col.f32.bf16.bf16"
#else
#define MMA_TYPES "k16.row.col.f32.f16.f16"
#endif
G_FN void mma_half(float *d, const Frag &a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8" MMA_TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}
G_FN void mma(Acc &d, const Frag &a, const Frag &b) {
  mma_half(d.v, a, b.r[0], b.r[2]);
  mma_half(d.v + 4, a, b.r[1], b.r[3]);
}
G_FN u32 acc_row(u32 i) { return lane() / 4 + i % 4 / 2 * 8; }
G_FN u32 acc_col(u32 i) { return i / 4 * 8 + lane() % 4 * 2 + i % 2; }

#else
typedef float mma_f4 __attribute__((ext_vector_type(4)));
typedef float mma_f8 __attribute__((ext_vector_type(8)));
#if MMA_BF16
typedef short mma_elem;
#else
typedef _Float16 mma_elem;
#endif
typedef mma_elem mma_v4 __attribute__((ext_vector_type(4)));
typedef mma_elem mma_v8 __attribute__((ext_vector_type(8)));
typedef mma_elem mma_v16 __attribute__((ext_vector_type(16)));
typedef int mma_i4 __attribute__((ext_vector_type(4)));
G_FN long bits_of(mma_v4 v) { return __builtin_bit_cast(long, v); }

typedef const u16 *Tile;
G_FN Tile tile_of(const u16 *p) { return p; }
#if G_WAVE == 64
#define ACC 4
struct Frag { mma_v4 v; };
struct Acc { mma_f4 v; };
G_FN u32 frag_at(u32 k) { return mma_at(lane() % 16, k + lane() / 16 * 4); }
G_FN Frag frag_load(Tile tile, u32 at) {
  return Frag{*(const mma_v4 *)(tile + at)};
}
G_FN void mma(Acc &d, const Frag &a, const Frag &b) {
#if FP8 && W_TYPE == W_E5M2Z
  d.v = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(bits_of(a.v), bits_of(b.v), d.v, 0, 0, 0);
#elif FP8
  d.v = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(bits_of(a.v), bits_of(b.v), d.v, 0, 0, 0);
#elif MMA_BF16
  d.v = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.v, b.v, d.v, 0, 0, 0);
#else
  d.v = __builtin_amdgcn_mfma_f32_16x16x16f16(a.v, b.v, d.v, 0, 0, 0);
#endif
}
G_FN u32 acc_row(u32 i) { return lane() / 16 * 4 + i; }
#else
#define ACC 8
struct Acc { mma_f8 v; };
#if defined(__GFX12__)
struct Frag { mma_v8 v; };
G_FN u32 frag_at(u32 k) { return mma_at(lane() % 16, k + lane() / 16 * 8); }
G_FN Frag frag_load(Tile tile, u32 at) {
  return Frag{*(const mma_v8 *)(tile + at)};
}
G_FN void mma(Acc &d, const Frag &a, const Frag &b) {
#if FP8 // a lane's 16 bytes are two instructions' of eight
  const mma_i4 x = __builtin_bit_cast(mma_i4, a.v), w = __builtin_bit_cast(mma_i4, b.v);
#if W_TYPE == W_E5M2
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_fp8_bf8_w32_gfx12(x.xy, w.xy, d.v);
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_fp8_bf8_w32_gfx12(x.zw, w.zw, d.v);
#else
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x.xy, w.xy, d.v);
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x.zw, w.zw, d.v);
#endif
#elif MMA_BF16
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a.v, b.v, d.v);
#else
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a.v, b.v, d.v);
#endif
}
G_FN u32 acc_row(u32 i) { return lane() / 16 * 8 + i; }
#else
struct Frag { mma_v16 v; };
G_FN u32 frag_at(u32 k) { return mma_at(lane() % 16, k); }
G_FN Frag frag_load(Tile tile, u32 at) { // both halves of the wave hold the same rows
  mma_v8 a = *(const mma_v8 *)(tile + at);
  mma_v8 b = *(const mma_v8 *)(tile + (at ^ 8));
  return Frag{__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
G_FN void mma(Acc &d, const Frag &a, const Frag &b) {
#if MMA_BF16
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a.v, b.v, d.v);
#else
  d.v = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a.v, b.v, d.v);
#endif
}
G_FN u32 acc_row(u32 i) { return i * 2 + lane() / 16; }
#endif
#endif
G_FN u32 acc_col(u32) { return lane() % 16; }
#endif
