#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#include "common.glsl"
#include "decode.glsl"
// y[s,n] = sum over k of w[n,k] x[s,k] (+ b[n]) (+ r[s,n]) for many rows of x, by cooperative
// matrices of TS x TS x TS. x is in f16 (forms.glsl), w becomes f16 on its way to shared memory;
// sums are f32. A workgroup computes BM rows of x by BN rows of w, BK of k at a time, a subgroup
// of SG invocations WM by WN of it. While one step is multiplied the next is on its way to registers.
// What comes first of a step's fragments and the next step's loads, and whether the last products of a step wait until the next
// step is stored, is what was fastest on an H200 (docs/lab/gpu.md): HELD, and the orders at the end.
// Software devices take long to compile what is unrolled.
#if SG == 8
#define LOOP [[dont_unroll]]
#else
#define LOOP [[unroll]]
#endif
#include "product.glsl"
layout(constant_id = 6) const bool WHOLE = false; // rows of w are whole steps

#define BK 64u
#define KV 8u        // vectors of 8 in BK
#define LD (KV + 1u) // padded against bank conflicts
#define NT (BM / WM * (BN / WN) * SG)
#define FM (WM / TS)
#define FN (WN / TS)
#define SW (BM * LD)
shared uvec4 sh[(BM + BN) * LD]; // of x, from SW on of w; at the end of sums

#define CX (BM * KV / NT) // vectors of x that an invocation moves
#define MAT(use) coopmat<float16_t, gl_ScopeSubgroup, TS, TS, use>
#define ACC coopmat<float, gl_ScopeSubgroup, TS, TS, gl_MatrixUseAccumulator>

// What an invocation fetches of w is CHUNK elements, in RAW vectors.
#if TYPE == 10 || TYPE == 16
#define CHUNK 32u
#elif TYPE == 14
#define CHUNK 16u
#elif TYPE == 22 || TYPE == 23
#define CHUNK 32u
#elif TYPE == 24
#define CHUNK 16u
#else
#define CHUNK 8u
#endif
// DIRECT: fetched and put in one go, by a loop: formats whose decoding is long.
#if TYPE >= 10 && TYPE != 10 && TYPE != 14 && TYPE != 16 && TYPE != 22 && TYPE != 23 && TYPE != 24
#define DIRECT
#endif
#define PER (BK / CHUNK)
#define CW (BN * PER / NT)
#if TYPE < 10 && WN > 32
#define HELD
#endif

// Words as they come: what is made of one in fetch waits there until it is read.
struct Raw {
  uvec4 q;
#if TYPE == 10 || TYPE == 14 || TYPE == 16
  uint d;
#elif TYPE == 22
  uvec4 head;
#elif TYPE == 23
  uvec4 head, high;
#elif TYPE == 24
  uvec4 high;
  uint d, scale;
#endif
};

// Where the scales of the chunk at k lie in a row of packed blocks.
#if TYPE == 10
uint scaleAt(uint row, uint k) { return row + (cols >> 1) + (k >> 4); }
#elif TYPE == 14
uint scaleAt(uint row, uint k) { return row + cols + (k >> 5 << 1); }
#elif TYPE == 16
uint scaleAt(uint row, uint k) { return row + (cols >> 1) + (k >> 5); }
#elif TYPE == 24
uint unitAt(uint row, uint k) { return row + (cols >> 8) * 208 + (k >> 8 << 1); }
uint scaleAt(uint row, uint k) { return row + (cols >> 8) * 192 + (k >> 4); }
#endif

#if TYPE >= 10
// codes turns what mask leaves of four bytes into f16 less a bias: flip has 0x64 above each byte, and a byte
// in the low bits of 1024 as f16 is 1024 and the byte.
void codes(uint c, uint mask, float16_t bias, out f16vec2 a, out f16vec2 e) {
  f16vec2 even = unpackFloat2x16(c & mask ^ flip) - (float16_t(1024) + bias);
  f16vec2 odd = unpackFloat2x16(c >> 8 & mask ^ flip) - (float16_t(1024) + bias);
  a = f16vec2(even.x, odd.x);
  e = f16vec2(even.y, odd.y);
}
#endif

// fetch reads chunk c of the BK elements from k0 on of a row; nothing behind the row's end.
Raw fetch(uint row, uint k0, uint c) {
  Raw v;
  uint k = k0 + c * CHUNK;
  v.q = uvec4(0);
#if TYPE == 2
  if (WHOLE || k < cols) v.q = w4[(row + 2 * k) >> 4];
#elif TYPE == 10 || TYPE == 16
  v.d = 0;
  if (WHOLE || k < cols) {
    v.q = w4[(row + (k >> 1)) >> 4];
    v.d = w[scaleAt(row, k) >> 2];
  }
#elif TYPE == 14
  v.d = 0;
  if (WHOLE || k < cols) {
    v.q = w4[(row + k) >> 4];
    v.d = w[scaleAt(row, k) >> 2];
  }
#elif TYPE == 22 || TYPE == 23
  uint a = (row >> 4) + (k0 >> 8) * (TYPE == Q4_K ? 9 : 11), j = (k0 >> 6) & 3u;
  v.head = w4[a];
  v.q = w4[a + (TYPE == Q4_K ? 1 : 3) + 2 * j + c];
#if TYPE == 23
  v.high = w4[a + 1 + c];
#endif
#elif TYPE == 24
  uint blocks = cols >> 8, block = k >> 8, s = (k >> 5) & 7u, h = s >> 2, half16 = (k >> 4) & 1u;
  v.q = w4[(row >> 4) + block * 8 + 4 * h + 2 * (s & 1u) + half16];
  v.high = w4[((row + blocks * 128) >> 4) + block * 4 + 2 * h + half16];
  v.d = w[unitAt(row, k) >> 2];
  v.scale = w[scaleAt(row, k) >> 2];
#elif TYPE >= 10
  if (WHOLE || k < cols) {
    vec4 lo, hi;
    decodePart(row, k >> 5, c & 3u, cols, lo, hi);
    v.q = uvec4(packHalf2x16(lo.xy), packHalf2x16(lo.zw), packHalf2x16(hi.xy), packHalf2x16(hi.zw));
  }
#else
  if (WHOLE || k < cols) {
    vec4 e[2];
    decode(row, k >> 3, cols, e);
    v.q = uvec4(packHalf2x16(e[0].xy), packHalf2x16(e[0].zw), packHalf2x16(e[1].xy), packHalf2x16(e[1].zw));
  }
#endif
  return v;
}

// put stores a chunk of the row of w that begins at byte row, in the row of shared memory that starts at at.
void put(uint at, uint row, uint k0, uint c, Raw v) {
#if TYPE == 10 || TYPE == 14
  f16vec2 both = unpackFloat2x16(v.d);
  float16_t d = (scaleAt(row, k0 + c * CHUNK) & 2u) == 0 ? both.x : both.y;
#elif TYPE == 16
  float16_t d = float16_t(fp4Scale(bitfieldExtract(v.d, int(scaleAt(row, k0 + c * CHUNK) & 3u) * 8, 8)));
#endif
#if TYPE == 10 || TYPE == 16
  f16vec2 o[16];
  [[unroll]] for (uint i = 0; i < 4; i++) {
#if TYPE == 16
    codes(fp4(v.q[i]), 0x00ff00ffu, float16_t(128), o[2 * i], o[2 * i + 1]);
    codes(fp4(v.q[i] >> 4), 0x00ff00ffu, float16_t(128), o[8 + 2 * i], o[9 + 2 * i]);
#else
    codes(v.q[i], 0x000f000fu, float16_t(8), o[2 * i], o[2 * i + 1]);
    codes(v.q[i] >> 4, 0x000f000fu, float16_t(8), o[8 + 2 * i], o[9 + 2 * i]);
#endif
  }
  [[unroll]] for (uint i = 0; i < 16; i++) o[i] *= d;
  [[unroll]] for (uint i = 0; i < 4; i++)
    sh[SW + at + 4 * c + i] = uvec4(packFloat2x16(o[4 * i]), packFloat2x16(o[4 * i + 1]), packFloat2x16(o[4 * i + 2]), packFloat2x16(o[4 * i + 3]));
#elif TYPE == 14
  f16vec2 o[8];
  [[unroll]] for (uint i = 0; i < 4; i++) codes(v.q[i], 0x00ff00ffu, float16_t(128), o[2 * i], o[2 * i + 1]);
  [[unroll]] for (uint i = 0; i < 8; i++) o[i] *= d;
  [[unroll]] for (uint i = 0; i < 2; i++)
    sh[SW + at + 2 * c + i] = uvec4(packFloat2x16(o[4 * i]), packFloat2x16(o[4 * i + 1]), packFloat2x16(o[4 * i + 2]), packFloat2x16(o[4 * i + 3]));
#elif TYPE == 22 || TYPE == 23
  uint j = (k0 >> 6) & 3u; // sub-blocks 2j and 2j + 1
  vec2 dm = unpackHalf2x16(v.head.x);
  [[unroll]] for (uint n = 0; n < 2; n++) {
    uint s = 2 * j + n, at8 = 8 * (s & 3u), first = v.head.y >> at8, second = v.head.z >> at8, third = v.head.w >> at8;
    uint sc = s < 4 ? first & 63u : third & 15u | (first & 0xc0u) >> 2;
    uint mn = s < 4 ? second & 63u : (third >> 4) & 15u | (second & 0xc0u) >> 2;
    f16vec2 d = f16vec2(float16_t(dm.x * float(sc))), m = f16vec2(float16_t(-dm.y * float(mn)));
    f16vec2 o[8];
    [[unroll]] for (uint i = 0; i < 4; i++) {
#if TYPE == 22
      codes(v.q[i] >> (4 * n), 0x000f000fu, float16_t(0), o[2 * i], o[2 * i + 1]);
#else
      uint q = v.q[i] >> (4 * n) & 0x0f0f0f0fu | (v.high[i] >> s & 0x01010101u) << 4;
      codes(q, 0x00ff00ffu, float16_t(0), o[2 * i], o[2 * i + 1]);
#endif
    }
    [[unroll]] for (uint i = 0; i < 8; i++) o[i] = fma(o[i], d, m);
    [[unroll]] for (uint i = 0; i < 2; i++)
      sh[SW + at + 4 * n + 2 * c + i] = uvec4(packFloat2x16(o[4 * i]), packFloat2x16(o[4 * i + 1]), packFloat2x16(o[4 * i + 2]), packFloat2x16(o[4 * i + 3]));
  }
#elif TYPE == 24
  uint k = k0 + c * CHUNK, k2 = (k >> 5) & 3u;
  f16vec2 o[8];
  float16_t d = float16_t(h2f(bitfieldExtract(v.d, int(unitAt(row, k) & 2u) * 8, 16)) *
                          float(bitfieldExtract(int(v.scale), int(scaleAt(row, k) & 3u) * 8, 8)));
  [[unroll]] for (uint i = 0; i < 4; i++)
    codes(v.q[i] >> (4 * (k2 >> 1)) & 0x0f0f0f0fu | (v.high[i] >> (2 * k2) & 0x03030303u) << 4, 0x00ff00ffu, float16_t(32), o[2 * i], o[2 * i + 1]);
  [[unroll]] for (uint i = 0; i < 8; i++) o[i] *= d;
  [[unroll]] for (uint i = 0; i < 2; i++)
    sh[SW + at + 2 * c + i] = uvec4(packFloat2x16(o[4 * i]), packFloat2x16(o[4 * i + 1]), packFloat2x16(o[4 * i + 2]), packFloat2x16(o[4 * i + 3]));
#elif TYPE >= 10
  // Elements 4p to 4p + 3 and 16 + 4p to 19 + 4p of unit c / 4: halves of two vectors.
  uint p = c & 3u, to = at + 4 * (c >> 2) + (p >> 1);
  if ((p & 1u) == 0) {
    sh[SW + to].xy = v.q.xy;
    sh[SW + to + 2].xy = v.q.zw;
  } else {
    sh[SW + to].zw = v.q.xy;
    sh[SW + to + 2].zw = v.q.zw;
  }
#else
  sh[SW + at + c] = v.q;
#endif
}

// EACH_M, EACH_N and EACH repeat a statement for the matrices of a subgroup's part, with literal indices:
// left to compilers as loops, sums end up in memory or loads are not moved ahead of products.
#if WM / TS == 4
#define EACH_M(f) f(0) f(1) f(2) f(3)
#else
#define EACH_M(f) f(0) f(1)
#endif
#if WN / TS == 3
#define EACH_N(f) f(0) f(1) f(2)
#define EACH(f) EACH_M(f##0) EACH_M(f##1) EACH_M(f##2)
#else
#define EACH_N(f) f(0) f(1)
#define EACH(f) EACH_M(f##0) EACH_M(f##1)
#endif
#define ZERO0(i) acc[i * FN] = ACC(0);
#define ZERO1(i) acc[i * FN + 1] = ACC(0);
#define ZERO2(i) acc[i * FN + 2] = ACC(0);
#define LOAD_A(i) coopMatLoad(a[i], sh, (wm + i * TS) * LD + k * (TS / 8), LD, gl_CooperativeMatrixLayoutRowMajor);
#define LOAD_B(j) coopMatLoad(e[j], sh, SW + (wn + j * TS) * LD + k * (TS / 8), LD, gl_CooperativeMatrixLayoutColumnMajor);
#define MUL0(i) acc[i * FN] = coopMatMulAdd(a[i], e[0], acc[i * FN]);
#define MUL1(i) acc[i * FN + 1] = coopMatMulAdd(a[i], e[1], acc[i * FN + 1]);
#define MUL2(i) acc[i * FN + 2] = coopMatMulAdd(a[i], e[2], acc[i * FN + 2]);
#define NONE_A(i) a[i] = MAT(gl_MatrixUseA)(0);
#define NONE_B(j) e[j] = MAT(gl_MatrixUseB)(0);
// LOAD reads the fragments of the nth TS columns of a step, MULTIPLY multiplies them; REST goes on from the first fragments to
// the last.
#define LOAD(n) { \
    const uint k = n; \
    EACH_N(LOAD_B) EACH_M(LOAD_A) \
  }
#define MULTIPLY EACH(MUL)
#if TS == 16
#define REST MULTIPLY LOAD(1) MULTIPLY LOAD(2) MULTIPLY LOAD(3)
#else
#define REST LOOP for (uint n = 1; n < BK / TS; n++) { MULTIPLY LOAD(n) }
#endif
#define KEEP(j) coopMatStore(acc[part0 * FN + j], sh, own + j * TS / 4, LO, gl_CooperativeMatrixLayoutRowMajor);

#include "sums.glsl"

void main() {
  const uint t = gl_LocalInvocationID.x, g = gl_SubgroupID;
  uint n0 = gl_WorkGroupID.y * BN;
  GROUP(gl_WorkGroupID.x, gl_NumWorkGroups.x)
  uint wm = g % (BM / WM) * WM, wn = g / (BM / WM) * WN;
  ACC acc[FM * FN];
  MAT(gl_MatrixUseA) a[FM];
  MAT(gl_MatrixUseB) e[FN];
  EACH(ZERO)
  scaled(m0, t);
  uvec4 fx[CX];
  uint px[CX];
  LOOP for (uint i = 0; i < CX; i++) px[i] = XROW(m0 + (t + i * NT) / KV) * pitch + t % KV;
#ifdef DIRECT
#define GET(x, w, k) LOOP for (uint i = 0; i < CX; i++) x[i] = x8[px[i] + (k) / 8];
#define PUT_W(w, k) \
  [[dont_unroll]] for (uint i = t / PER; i < BN; i += NT / PER) \
    put(i * LD, 0, k, t % PER, fetch(wat + min(n0 + i, rows - 1) * wstride, k, t % PER));
#else
  Raw fw[CW];
  uint pw[CW];
  LOOP for (uint i = 0; i < CW; i++) pw[i] = wat + min(n0 + (t + i * NT) / PER, rows - 1) * wstride;
#define GET(x, w, k) \
  LOOP for (uint i = 0; i < CX; i++) x[i] = x8[px[i] + (k) / 8]; \
  LOOP for (uint i = 0; i < CW; i++) w[i] = fetch(pw[i], k, t % PER);
#define PUT_W(w, k) LOOP for (uint i = 0; i < CW; i++) put((t + i * NT) / PER * LD, pw[i], k, t % PER, w[i]);
#endif
#define PUT(x, w, k) \
  LOOP for (uint i = 0; i < CX; i++) sh[(t + i * NT) / KV * LD + t % KV] = x[i]; \
  PUT_W(w, k)
  GET(fx, fw, start)
#ifdef HELD
  EACH_M(NONE_A) EACH_N(NONE_B)
  for (uint k0 = start; k0 < stop; k0 += BK) {
    barrier();
    PUT(fx, fw, k0)
    MULTIPLY
    barrier();
    if (k0 + BK < stop) { GET(fx, fw, k0 + BK) }
    LOAD(0)
    REST
  }
  MULTIPLY
  barrier();
#else
  for (uint k0 = start; k0 < stop; k0 += BK) {
    PUT(fx, fw, k0)
    barrier();
#if TYPE >= 10
    LOAD(0)
    if (k0 + BK < stop) { GET(fx, fw, k0 + BK) }
#else
    if (k0 + BK < stop) { GET(fx, fw, k0 + BK) }
    LOAD(0)
#endif
    REST
    MULTIPLY
    barrier();
  }
#endif
  // TS rows of a subgroup's part at a time through shared memory of its own, so that bias, residual
  // and scale meet known elements and rows are stored whole.
  const uint own = g * TS * LO;
  load(m0 + wm, n0 + wn);
  OUT
}
