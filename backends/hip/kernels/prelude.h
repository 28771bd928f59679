// The common dialect: what kernels use of hipRTC, NVRTC and clang (for HIP and
// for CUDA), without any vendor's header or device library. Functions that a
// vendor's library would give are here, with their error.
#pragma once
#if defined(__HIP_DEVICE_COMPILE__) || defined(__AMDGCN__)
#define G_AMD 1
#else
#define G_AMD 0
#endif

#if !defined(__HIPCC_RTC__) && !defined(__CUDACC_RTC__) // clang without headers
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#if G_AMD // clang ignores launch bounds here
#define G_BOUNDS(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#elif defined(__clang__)
#define G_BOUNDS(n) __attribute__((launch_bounds(n)))
#else
#define G_BOUNDS(n) __launch_bounds__(n)
#endif
// n threads a block, at least b blocks on a multiprocessor, where that can be asked for
#if G_AMD
#define G_BOUNDS2(n, b) G_BOUNDS(n)
#elif defined(__clang__)
#define G_BOUNDS2(n, b) __attribute__((launch_bounds(n, b)))
#else
#define G_BOUNDS2(n, b) __launch_bounds__(n, b)
#endif
#define G_KERNEL extern "C" __global__ void
#if defined(__clang__)
#define G_FN static __device__ inline __attribute__((always_inline, unused))
#define G_FN_IN __device__ inline __attribute__((always_inline)) // of a struct
#else
#define G_FN static __device__ __forceinline__
#define G_FN_IN __device__ __forceinline__
#endif
#define G_UNROLL _Pragma("unroll")

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(8) f2 { float x, y; };
struct alignas(16) f4 { float x, y, z, w; };
struct alignas(16) u4 { u32 x, y, z, w; };
struct alignas(8) u2 { u32 x, y; };

#if G_AMD
G_FN u32 tid() { return __builtin_amdgcn_workitem_id_x(); }
G_FN u32 bidx() { return __builtin_amdgcn_workgroup_id_x(); }
G_FN u32 bidy() { return __builtin_amdgcn_workgroup_id_y(); }
G_FN u32 bidz() { return __builtin_amdgcn_workgroup_id_z(); }
// a launch's blocks along x: from the dispatch packet, in threads there
typedef const __attribute__((address_space(4))) u32 *packet_words;
G_FN u32 gdimx() {
  packet_words p = (packet_words)__builtin_amdgcn_dispatch_ptr();
  return p[3] / (p[1] & 0xffffu); // grid_size_x / workgroup_size_x
}
G_FN void bar() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Wavefronts of RDNA have 32 lanes in our code, those of CDNA 64.
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define G_WAVE 32
#else
#define G_WAVE 64
#endif
G_FN u32 lane() {
  u32 l = __builtin_amdgcn_mbcnt_lo(~0u, 0);
  return G_WAVE == 64 ? __builtin_amdgcn_mbcnt_hi(~0u, l) : l;
}
G_FN float u2f(u32 u) { return __builtin_bit_cast(float, u); }
G_FN u32 f2u(float f) { return __builtin_bit_cast(u32, f); }
G_FN float shfl_xor(float v, u32 m) {
  return u2f(__builtin_amdgcn_ds_bpermute((int)((lane() ^ m) << 2), (int)f2u(v)));
}
#if __has_builtin(__builtin_amdgcn_exp2f) // from clang 16 on
G_FN float approx_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
#else
G_FN float approx_exp2(float x) { return __builtin_exp2f(x); }
#endif
G_FN float g_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
G_FN float g_inverse(float x) { return __builtin_amdgcn_rcpf(x); } // to one unit in the last place
G_FN float h2f(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
G_FN u16 f2h(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
// byte i of w as a float, less a whole number
G_FN float byte_f(u32 w, int i, float less) { return (float)((w >> (8 * i)) & 255u) - less; }
G_FN float g_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
G_FN double g_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
G_FN float g_rint(float x) { return __builtin_rintf(x); }
G_FN double g_rint(double x) { return __builtin_rint(x); }
// counts up a word of global memory; what this block wrote before is seen by
// whoever reads the count.
G_FN u32 count_up(u32 *p) { return __hip_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT); }
G_FN void fence_device() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
// Before a barrier behind which one thread counts up, and behind that barrier: what
// the block's other threads wrote or read is ordered too. NVIDIA's model has it so.
G_FN void fence_block() { fence_device(); }
// c plus the product of four signed bytes by four
G_FN int dot4(u32 a, u32 b, int c) {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false);
#else
  return __builtin_amdgcn_sdot4((int)a, (int)b, c, false);
#endif
}
// c plus the product of four unsigned bytes, each at most 0xf0 and a multiple of 16, by four signed ones
G_FN int dot4u(u32 a, u32 b, int c) {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(false, (int)a, true, (int)b, c, false);
#else
  return c + 16 * dot4(a >> 4, b, 0);
#endif
}
G_FN void begin_next() {}
G_FN void wait_previous() {}
#else
#define G_WAVE 32
#if defined(__clang__)
G_FN u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
G_FN u32 bidx() { return __nvvm_read_ptx_sreg_ctaid_x(); }
G_FN u32 bidy() { return __nvvm_read_ptx_sreg_ctaid_y(); }
G_FN u32 bidz() { return __nvvm_read_ptx_sreg_ctaid_z(); }
G_FN u32 gdimx() { return __nvvm_read_ptx_sreg_nctaid_x(); }
G_FN void bar() { __nvvm_bar_sync(0); }
G_FN u32 lane() { return __nvvm_read_ptx_sreg_laneid(); }
G_FN float u2f(u32 u) { return __builtin_bit_cast(float, u); }
G_FN u32 f2u(float f) { return __builtin_bit_cast(u32, f); }
G_FN float shfl_xor(float v, u32 m) { return u2f((u32)__nvvm_shfl_sync_bfly_i32(~0u, (int)f2u(v), (int)m, 31)); }
#else
G_FN u32 tid() { return threadIdx.x; }
G_FN u32 bidx() { return blockIdx.x; }
G_FN u32 bidy() { return blockIdx.y; }
G_FN u32 bidz() { return blockIdx.z; }
G_FN u32 gdimx() { return gridDim.x; }
G_FN void bar() { __syncthreads(); }
G_FN u32 lane() { return threadIdx.x & 31; }
G_FN float u2f(u32 u) { return __uint_as_float(u); }
G_FN u32 f2u(float f) { return __float_as_uint(f); }
G_FN float shfl_xor(float v, u32 m) { return __shfl_xor_sync(~0u, v, m); }
#endif
G_FN float approx_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
G_FN float g_rsqrt(float x) { float r; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
G_FN float g_inverse(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
G_FN float h2f(u16 h) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h)); return r; }
G_FN u16 f2h(float f) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f)); return r; }
// byte i of w as a float, less a whole number: put in the mantissa of 2^23,
// conversions being slow
G_FN float byte_f(u32 w, int i, float less) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(w), "r"(0x4b000000u), "r"(0x7540u + (u32)i));
  return u2f(r) - (8388608.0f + less);
}
G_FN float g_fma(float a, float b, float c) { float r; asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c)); return r; }
G_FN double g_fma(double a, double b, double c) { double r; asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(a), "d"(b), "d"(c)); return r; }
G_FN float g_rint(float x) { float r; asm("cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
G_FN double g_rint(double x) { double r; asm("cvt.rni.f64.f64 %0, %1;" : "=d"(r) : "d"(x)); return r; }
G_FN u32 count_up(u32 *p) {
  u32 r;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(r) : "l"(p) : "memory");
  return r;
}
G_FN void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
G_FN void fence_block() {}
// Counts up without an order among other accesses, from last to zero. Not an addition:
// of those the compiler makes one for all lanes, whose result it waits for at once.
G_FN u32 count_round(u32 *p, u32 last) {
  u32 r;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(last));
  return r;
}
G_FN int dot4(u32 a, u32 b, int c) { int r; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
G_FN int dot4u(u32 a, u32 b, int c) { int r; asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
// Launches that depend on each other may overlap at their ends, where the host
// asks for it (programmatic dependent launch): begin_next lets the next one's blocks
// start once all of this one's have come this far; wait_previous returns when all that
// the launch before wrote can be read. Every kernel of such a chain waits, and none
// says __restrict__ of what it reads: such loads may be moved before the wait.
#if __CUDA_ARCH__ >= 900
G_FN void begin_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
G_FN void wait_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
G_FN void begin_next() {}
G_FN void wait_previous() {}
#endif
#endif

// Adds to a word of shared memory and gives what it was.
G_FN u32 add_shared(u32 *p, u32 v) {
#if G_AMD
  return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#else
  u32 r;
  asm volatile("{ .reg .u64 t; cvta.to.shared.u64 t, %1; atom.shared.add.u32 %0, [t], %2; }"
               : "=r"(r) : "l"(p), "r"(v) : "memory");
  return r;
#endif
}

G_FN float b2f(u16 b) { return u2f((u32)b << 16); }
G_FN u16 f2b(float f) {
  u32 u = f2u(f);
  if (f != f) return (u16)((u >> 16) | 0x40);
  return (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
G_FN float g_max(float a, float b) { return a > b ? a : b; }
G_FN float g_abs(float a) { return u2f(f2u(a) & 0x7fffffffu); }
G_FN u32 g_min(u32 a, u32 b) { return a < b ? a : b; }
G_FN u32 round_up(u32 a, u32 to) { return (a + to - 1) / to * to; }

// exp(x), relative error below 4e-7: 2^t with the rounding error of
// t = x·log2 e made good to first order.
G_FN float g_exp(float x) {
  x = x < -103.0f ? -103.0f : x > 88.7f ? 88.7f : x;
  float t = x * 1.44269504f;
  float r = g_fma(x, 1.44269504f, -t) + x * 1.92596299e-8f;
  float e = approx_exp2(t);
  return g_fma(e, r * 0.693147181f, e);
}
G_FN float g_sigmoid(float x) { return 1.0f / (1.0f + g_exp(-x)); }
// tanh: by e^2x, and near zero, where that cancels, by its series (to x^13:
// relative error below 2e-7 for |x| < 0.4).
G_FN float g_tanh(float x) {
  float a = g_abs(x);
  if (a < 0.4f) {
    float z = x * x;
    float p = 0.00359212803f; // 21844/6081075
    p = g_fma(p, z, -0.00886323553f); // -1382/155925
    p = g_fma(p, z, 0.0218694885f);   // 62/2835
    p = g_fma(p, z, -0.0539682540f);  // -17/315
    p = g_fma(p, z, 0.133333333f);
    p = g_fma(p, z, -0.333333333f);
    return g_fma(x * z, p, x);
  }
  float y = 1.0f - 2.0f / (g_exp(2.0f * a) + 1.0f);
  return x < 0 ? -y : y;
}
// erf: the series 2/√π Σ (-1)^n x^(2n+1) / (n! (2n+1)) below 1, else one minus
// the Chebyshev fit of erfc (Press et al., Numerical Recipes 6.2), error 2e-7.
G_FN float g_erf(float x) {
  float a = g_abs(x);
  if (a < 1.0f) {
    float z = x * x;
    const float c[10] = {1.0f, -0.333333333f, 0.1f, -0.0238095238f, 0.00462962963f, -7.57575758e-4f,
                         1.06837607e-4f, -1.32275132e-5f, 1.45891690e-6f, -1.45038552e-7f};
    float p = c[9];
    G_UNROLL for (int i = 8; i >= 0; i--) p = g_fma(p, z, c[i]);
    return 1.12837917f * x * p;
  }
  float t = 1.0f / (1.0f + 0.5f * a);
  float p = 0.17087277f;
  p = g_fma(p, t, -0.82215223f);
  p = g_fma(p, t, 1.48851587f);
  p = g_fma(p, t, -1.13520398f);
  p = g_fma(p, t, 0.27886807f);
  p = g_fma(p, t, -0.18628806f);
  p = g_fma(p, t, 0.09678418f);
  p = g_fma(p, t, 0.37409196f);
  p = g_fma(p, t, 1.00002368f);
  p = g_fma(p, t, -1.26551223f);
  float y = 1.0f - t * g_exp(p - a * a);
  return x < 0 ? -y : y;
}
// cosine and sine of a large angle: reduced by π/2 in f64 (exact to 2^-40 for
// angles below 2^24), then series for |r| ≤ π/4, error below 1e-7.
G_FN void g_sincos(double angle, float *s, float *c) {
  double k = g_rint(angle * 0.63661977236758134308);
  float r = (float)g_fma(k, -6.123233995736766e-17, g_fma(k, -1.5707963267948966, angle));
  float z = r * r;
  float p = g_fma(z, 2.75573192e-6f, -1.98412698e-4f);
  p = g_fma(p, z, 8.33333333e-3f);
  p = g_fma(p, z, -0.166666667f);
  float sn = g_fma(r * z, p, r);
  p = g_fma(z, -2.75573192e-7f, 2.48015873e-5f);
  p = g_fma(p, z, -1.38888889e-3f);
  p = g_fma(p, z, 4.16666667e-2f);
  float cs = g_fma(z * z, p, g_fma(z, -0.5f, 1.0f));
  int q = (int)(long long)k & 3;
  float a = q & 1 ? cs : sn, b = q & 1 ? sn : cs;
  *s = q & 2 ? -a : a;
  *c = (q + 1) & 2 ? -b : b;
}

G_FN float wave_sum(float v) {
  G_UNROLL for (u32 o = G_WAVE / 2; o; o >>= 1) v += shfl_xor(v, o);
  return v;
}
G_FN float wave_max(float v) {
  G_UNROLL for (u32 o = G_WAVE / 2; o; o >>= 1) v = g_max(v, shfl_xor(v, o));
  return v;
}
// Sums over a block of N threads; every thread gets the same bits. s has N / G_WAVE words.
template <int N> G_FN float block_sum(float v, float *s) {
  v = wave_sum(v);
  if (lane() == 0) s[tid() / G_WAVE] = v;
  bar();
  v = 0;
  G_UNROLL for (int i = 0; i < N / G_WAVE; i++) v += s[i];
  bar();
  return v;
}
// The same bits where s, which lies at a multiple of 16 bytes, is not written again: a barrier less.
template <int N> G_FN float block_sum_once(float v, float *s) {
  v = wave_sum(v);
  if (lane() == 0) s[tid() / G_WAVE] = v;
  bar();
  v = 0;
  G_UNROLL for (int i = 0; i < N / G_WAVE; i += 4) {
    const f4 w = *(const f4 *)(s + i);
    v += w.x;
    v += w.y;
    v += w.z;
    v += w.w;
  }
  return v;
}
template <int N> G_FN float block_max(float v, float *s) {
  v = wave_max(v);
  if (lane() == 0) s[tid() / G_WAVE] = v;
  bar();
  v = s[0];
  G_UNROLL for (int i = 1; i < N / G_WAVE; i++) v = g_max(v, s[i]);
  bar();
  return v;
}

// The four 8-bit floats: E exponent bits, ZERO the exponent of one, and what their
// special codes are.
template <int E, int ZERO, bool FNUZ, bool IEEE> G_FN float f8(u32 c) {
  const int M = 7 - E;
  u32 sign = (c & 0x80) << 24, e = (c >> M) & ((1 << E) - 1), m = c & ((1 << M) - 1);
  const u32 nan = 0x7fc00000u;
  if (FNUZ && (c & 255) == 0x80) return u2f(nan);
  if (IEEE && e == (1 << E) - 1) return u2f(m ? nan : sign | 0x7f800000u);
  if (!FNUZ && !IEEE && (c & 0x7f) == 0x7f) return u2f(nan);
  if (e == 0) { // a subnormal: m · 2^(1-ZERO-M)
    float v = (float)m * u2f((u32)(127 + 1 - ZERO - M) << 23);
    return sign ? -v : v;
  }
  return u2f(sign | (e + (127 - ZERO)) << 23 | m << (23 - M));
}

// Plain floats by type, for small operands: norms' weights, biases, factors. In
// loops that are unrolled the type should be constant: the code is long.
enum { T_F32, T_F16, T_BF16, T_E4M3, T_E5M2, T_E4M3Z, T_E5M2Z };
G_FN float load_float(const void *p, u32 type, u64 i) {
  switch (type) {
  case T_F32: return ((const float *)p)[i];
  case T_F16: return h2f(((const u16 *)p)[i]);
  case T_BF16: return b2f(((const u16 *)p)[i]);
  case T_E4M3: return f8<4, 7, false, false>(((const u8 *)p)[i]);
  case T_E5M2: return f8<5, 15, false, true>(((const u8 *)p)[i]);
  case T_E4M3Z: return f8<4, 8, true, false>(((const u8 *)p)[i]);
  }
  return f8<5, 16, true, false>(((const u8 *)p)[i]);
}
G_FN void store_float(void *p, u32 type, u64 i, float v) {
  if (type == T_F32) ((float *)p)[i] = v;
  else if (type == T_F16) ((u16 *)p)[i] = f2h(v);
  else ((u16 *)p)[i] = f2b(v);
}

// Rows of the last dimension of a tensor whose dimension 0 is strided: row r
// begins at element at(r), counted in elements.
struct Rows { u32 cols, inner, stride; };
G_FN u64 at(const Rows &t, u32 r) {
  if (t.inner == 1) return (u64)r * t.stride;
  return (u64)(r / t.inner) * t.stride + (u64)(r % t.inner) * t.cols;
}

// A tile of pairs of a token and one expert, in the order that moe.hip makes and matrix.hip goes through.
struct alignas(16) Group { u32 expert, first, count, none; };

// Errors of data: an index out of range. The host looks when it waits. The
// first word is zero as long as all is well.
G_FN void fail(u32 *status, u32 launch, u32 index, int value) {
  status[1] = launch;
  status[2] = index;
  status[3] = (u32)value;
  fence_device();
  status[0] = 1;
}
