#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#include "common.glsl"
#include "decode.glsl"
// The products of matrix.comp where it is known which elements of a matrix an invocation has: of w's 16 x 16 (k down, n
// across) invocation i has k = 2q, 2q + 1, 2q + 8, 2q + 9 with q = i % 4, of n = i / 4, then of n = i / 4 + 8. A health check
// finds out whether it is so. Weights then need no shared memory: an invocation decodes what it loads of its rows of w to where
// it is multiplied. Sums may take k in any order, if x has the same: an invocation has elements of w that lie together, and
// x is put in shared memory in the order that follows from it (ORDER). Workgroups as in matrix.comp; columns of w are whole steps.
layout(binding = WEIGHTS, std430) readonly buffer Weights2 { uvec2 w2[]; };
#include "product.glsl"

#define KV 8u        // vectors of 8 in 64 of k, which shared memory has of x at a time, twice
#define LD (KV + 1u) // padded against bank conflicts
#define NT (BM / WM * (BN / WN) * SG)
#define FM (WM / TS)
#define FN (WN / TS)
#define ROWS (2 * FN) // of w that an invocation has
#define STAGE (BM * LD)
shared uvec4 sh[max(2 * STAGE, NT / SG * TS * (WN / 4 + 1))]; // of x; at the end of sums
#define MAT(use) coopmat<float16_t, gl_ScopeSubgroup, TS, TS, use>
#define ACC coopmat<float, gl_ScopeSubgroup, TS, TS, gl_MatrixUseAccumulator>

// STEP is the columns of w that an invocation has a quarter of at a time: 16 bytes of a row, of Q4_K 8. ORDER is where the words of vector
// c of x of a step lie in shared memory: from which vector on, and which word of each of four.
#if TYPE == 10
#define STEP 128
#define ORDER(c) (4 * ((c) >> 1 & 1u)), ((c) >> 2)
#elif TYPE == 22
#define STEP 64
#define ORDER(c) (4 * ((c) >> 2)), ((c) & 3u)
#else
#define STEP 64
#define ORDER(c) (4 * ((c) & 1u)), ((c) >> 1)
#endif
#define XV (STEP / 8)
#define CX (BM * XV / NT) // vectors of x that an invocation moves in a step

// What an invocation has of a row in a step.
struct Raw {
#if TYPE == 22
  uvec2 q;
#else
  uvec4 q;
#endif
#if TYPE == 10
  uint d;
#endif
};

Raw fetch(uint row, uint k0, uint quarter) {
  Raw v;
#if TYPE == 10
  v.q = w4[(row + (k0 >> 1) >> 4) + quarter];
  v.d = w[(row + (cols >> 1) + (k0 >> 4) >> 2) + (quarter >> 1)];
#elif TYPE == 22
  v.q = w2[2 * ((row >> 4) + (k0 >> 8) * 9 + 1 + 2 * (k0 >> 6 & 3u)) + quarter];
#else
  v.q = w4[(row + k0 >> 4) + quarter];
#endif
  return v;
}

#if TYPE == 22
// factors gives the factors and the minima of sub-blocks 2j and 2j + 1 of a block, as pairs of f16.
uvec2 factors(uvec4 head, uint j) {
  uvec3 h = head.yzw >> (16 * (j & 1u)) & 0xffffu; // two bytes of each
  uint sc = j < 2 ? h.x & 0x3f3fu : h.z & 0x0f0fu | (h.x & 0xc0c0u) >> 2;
  uint mn = j < 2 ? h.y & 0x3f3fu : h.z >> 4 & 0x0f0fu | (h.y & 0xc0c0u) >> 2;
  f16vec2 dm = unpackFloat2x16(head.x ^ 0x80000000u); // minima are taken off
  return uvec2(packFloat2x16((unpackFloat2x16((sc & 0xffu | mn << 16 & 0xff0000u) ^ flip) - float16_t(1024)) * dm),
               packFloat2x16((unpackFloat2x16((sc >> 8 | mn << 8 & 0xff0000u) ^ flip) - float16_t(1024)) * dm));
}
#endif

// pairs gives an invocation's four elements of the sth 16 columns of half h of a step.
void pairs(Raw v, uint h, uint s, f16vec2 d, f16vec2 m, out f16vec2 lo, out f16vec2 hi) {
#if TYPE == 14
  lo = (unpackFloat2x16(v.q[s] & 0x00ff00ffu ^ flip) - float16_t(1152)) * d;
  hi = (unpackFloat2x16(v.q[s] >> 8 & 0x00ff00ffu ^ flip) - float16_t(1152)) * d;
#else
#if TYPE == 22
  uint c = v.q[s & 1u] >> (4 * (s >> 1)); // a step is one half
#else
  uint c = v.q[2 * h + (s & 1u)] >> (4 * (s >> 1));
#endif
  lo = unpackFloat2x16(c & 0x000f000fu ^ flip);
  hi = unpackFloat2x16(c >> 8 & 0x000f000fu ^ flip);
#if TYPE == 10
  lo = (lo - float16_t(1032)) * d;
  hi = (hi - float16_t(1032)) * d;
#else
  lo = fma(lo - float16_t(1024), d, m);
  hi = fma(hi - float16_t(1024), d, m);
#endif
#endif
}

// put stores a vector of x: elements 0 and 2 of four lie together, and 1 and 3, as what is masked out of a word of codes.
void put(uint at, uint first, uint word, uvec4 v) {
  v = uvec4(v.x & 0xffffu | v.y << 16, v.x >> 16 | v.y & 0xffff0000u, v.z & 0xffffu | v.w << 16, v.z >> 16 | v.w & 0xffff0000u);
  [[unroll]] for (uint m = 0; m < 4; m++) sh[at + first + m][word] = v[m];
}

// Repeated with literal indices, as in matrix.comp.
#if WM / TS == 8
#define EACH_M(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#else
#define EACH_M(f) f(0) f(1) f(2) f(3)
#endif
#define EACH_N(f) f(0) f(1)
#define ZERO(i) acc[2 * i] = ACC(0); acc[2 * i + 1] = ACC(0);
#define LOAD(i) coopMatLoad(a[i], sh, stage + (wm + i * TS) * LD + s * (TS / 8), LD, gl_CooperativeMatrixLayoutRowMajor);
#define MULTIPLY(i) acc[2 * i] = coopMatMulAdd(a[i], e[0], acc[2 * i]); acc[2 * i + 1] = coopMatMulAdd(a[i], e[1], acc[2 * i + 1]);
// FILL decodes the jth fragment of w.
#define FILL(W, j) { \
    f16vec2 p, q, r, u; \
    pairs(W[2 * j], half_, s, d[2 * j][s >> 1], m[2 * j][s >> 1], p, q); \
    pairs(W[2 * j + 1], half_, s, d[2 * j + 1][s >> 1], m[2 * j + 1][s >> 1], r, u); \
    e[j][0] = p.x; e[j][1] = p.y; e[j][2] = q.x; e[j][3] = q.y; \
    e[j][4] = r.x; e[j][5] = r.y; e[j][6] = u.x; e[j][7] = u.y; \
  }
// PART multiplies the nth 16 columns of a half.
#define PART(W, n) { \
    const uint s = n; \
    MAT(gl_MatrixUseA) a[FM]; \
    MAT(gl_MatrixUseB) e[2]; \
    FILL(W, 0) FILL(W, 1) \
    EACH_M(LOAD) EACH_M(MULTIPLY) \
  }
#define KEEP(j) coopMatStore(acc[part0 * FN + j], sh, own + j * TS / 4, LO, gl_CooperativeMatrixLayoutRowMajor);
#include "sums.glsl"

void main() {
  const uint t = gl_LocalInvocationID.x, g = gl_SubgroupID, lane = gl_SubgroupInvocationID, quarter = lane & 3u;
  uint n0 = gl_WorkGroupID.y * BN, m0 = gl_WorkGroupID.x * BM;
  uint wm = g % (BM / WM) * WM, wn = g / (BM / WM) * WN;
  ACC acc[FM * FN];
  EACH_M(ZERO)
  scaled(m0, t);
  uvec4 fx[CX];
  uint px[CX];
  [[unroll]] for (uint i = 0; i < CX; i++) px[i] = min(m0 + (t + i * NT) / XV, count - 1) * pitch + t % XV;
  Raw fw[ROWS], gw[ROWS]; // of a step, and of the next
  uint pw[ROWS];
  [[unroll]] for (uint i = 0; i < ROWS; i++) pw[i] = woff + min(n0 + wn + 8 * i + lane / 4, rows - 1) * wstride;
  f16vec2 d[ROWS][2], m[ROWS][2]; // factors and minima of each row, of the first and of the last 32 columns of a half
#define GET_X(k) [[unroll]] for (uint i = 0; i < CX; i++) fx[i] = x8[px[i] + (k) / 8];
#define GET_W(W, k) [[unroll]] for (uint i = 0; i < ROWS; i++) W[i] = fetch(pw[i], k, quarter);
#define PUT_X(at) [[unroll]] for (uint i = 0; i < CX; i++) put(at + (t + i * NT) / XV * LD, ORDER(t % XV), fx[i]);
  GET_X(start)
  GET_W(fw, start)
#if STEP == 128
  // Of a step the even vectors of x are the first half, the odd ones the second.
#define PUT_HALF(h) if ((t & 1u) == h) { PUT_X(h * STAGE) }
#define READY(W) \
    [[unroll]] for (uint i = 0; i < ROWS; i++) { \
      f16vec2 both = unpackFloat2x16(W[i].d); \
      d[i][0] = d[i][1] = f16vec2((quarter & 1u) == 0 ? both.x : both.y); \
      m[i][0] = m[i][1] = f16vec2(0); \
    }
  // TURN multiplies a step, which W has; the next is on its way to V.
#define TURN(W, V) { \
    barrier(); \
    PUT_HALF(1) \
    READY(W) \
    { const uint half_ = 0, stage = 0; \
      PART(W, 0) \
      if (k0 + STEP < stop) { GET_X(k0 + STEP) GET_W(V, k0 + STEP) } \
      PART(W, 1) PART(W, 2) PART(W, 3) } \
    barrier(); \
    { const uint half_ = 1, stage = STAGE; \
      PART(W, 0) PART(W, 1) PART(W, 2) \
      if (k0 + STEP < stop) { PUT_HALF(0) } \
      PART(W, 3) } \
  }
  PUT_HALF(0)
#elif TYPE == 22
  // Each of four invocations decodes the factors of a quarter of a block, and has the others' from them.
  uvec4 heads[ROWS];
  uvec2 mine[ROWS];
#define HEADS(k) [[unroll]] for (uint i = 0; i < ROWS; i++) heads[i] = w4[(pw[i] >> 4) + ((k) >> 8) * 9];
#define READY(n) \
    [[unroll]] for (uint i = 0; i < ROWS; i++) [[unroll]] for (uint j = 0; j < 2; j++) { \
      f16vec2 both = unpackFloat2x16(subgroupShuffle(mine[i][j], (lane & 28u) + n)); \
      d[i][j] = both.xx; \
      m[i][j] = both.yy; \
    }
  // TURN multiplies step n of a block, which W has; the next is on its way to V.
#define TURN(n, W, V) { \
    const uint k = k0 + n * STEP, stage = (n & 1) * STAGE, half_ = 0; \
    barrier(); \
    if (k + STEP < stop) { PUT_X(STAGE - stage) } \
    if (k + 2 * STEP < stop) { GET_X(k + 2 * STEP) } \
    if (k + STEP < stop) { GET_W(V, k + STEP) } \
    if (n == 2 && k0 + 256 < stop) { HEADS(k0 + 256) } \
    READY(n) \
    PART(W, 0) PART(W, 1) PART(W, 2) PART(W, 3) \
  }
  PUT_X(0)
  if (start + STEP < stop) { GET_X(start + STEP) }
  HEADS(start)
#else
  uvec2 scales2[ROWS]; // of two steps
#define SCALES(k) [[unroll]] for (uint i = 0; i < ROWS; i++) scales2[i] = w2[pw[i] + cols + ((k) >> 4) >> 3];
#define READY(n) \
    [[unroll]] for (uint i = 0; i < ROWS; i++) { \
      f16vec2 both = unpackFloat2x16(scales2[i][n]); \
      d[i][0] = d[i][1] = f16vec2(quarter < 2 ? both.x : both.y); \
      m[i][0] = m[i][1] = f16vec2(0); \
    }
#define MORE(n) if (n == 1 && k + STEP < stop) { SCALES(k + STEP) }
  SCALES(start)
#define TURN(n, W, V) { \
    const uint k = k0 + n * STEP, stage = n * STAGE, half_ = 0; \
    barrier(); \
    READY(n) \
    PART(W, 0) \
    if (k + STEP < stop) { PUT_X(STAGE - stage) GET_W(V, k + STEP) } \
    if (k + 2 * STEP < stop) { GET_X(k + 2 * STEP) } \
    MORE(n) \
    PART(W, 1) PART(W, 2) PART(W, 3) \
  }
  PUT_X(0)
  if (start + STEP < stop) { GET_X(start + STEP) }
#endif
  // How much of the loop is written out is what was fastest: less takes less code from memory, more has fewer copies.
#if TYPE == 10
  [[dont_unroll]] for (uint k0 = start; k0 < stop; k0 += STEP) {
    TURN(fw, gw)
    [[unroll]] for (uint i = 0; i < ROWS; i++) fw[i] = gw[i];
  }
#elif TYPE == 22
  [[dont_unroll]] for (uint k0 = start; k0 < stop; k0 += 256) {
    [[unroll]] for (uint i = 0; i < ROWS; i++) mine[i] = factors(heads[i], quarter);
    TURN(0, fw, gw)
    TURN(1, gw, fw)
    TURN(2, fw, gw)
    TURN(3, gw, fw)
  }
#else
  for (uint k0 = start; k0 < stop; k0 += 2 * STEP) {
    TURN(0, fw, gw)
    if (k0 + STEP >= stop) break;
    TURN(1, gw, fw)
  }
#endif
  load(m0 + wm, n0 + wn);
  barrier();
  const uint own = g * TS * LO;
  OUT
}
