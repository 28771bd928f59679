#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define STATUS 5
#include "common.glsl"
#include "status.glsl"
// Attention of many tokens, as attention.comp defines it, by cooperative matrices of TS x TS x TS. A
// workgroup works on one head of NS * TS tokens, a subgroup of SG invocations on TS of them, and goes over the
// positions in tiles of 32, the next of which is on its way to registers meanwhile. Weights are exponentials
// less the largest score so far; where a tile raises it, sums are multiplied by a matrix whose rows hold
// what each token's became too large by. Tiles that no token sees are left out.
// EACH_D and EACH_T repeat a statement for the matrices of a head and of a tile: with literal indices, since sums of
// loops that compilers do not unroll end up in memory; as loops for software devices, which take long
// to compile what is unrolled.
#define DH uint(ELEMS) // of a head
#define ND (DH / TS)
#if SG == 8
#define LOOP [[dont_unroll]]
#define EACH_D(f) LOOP for (uint i = 0; i < ND; i++) f(i)
#define EACH_T(f) LOOP for (uint j = 0; j < TILE / TS; j++) f(j)
#define EACH_PART(f) LOOP for (uint i = 0; i < DH / 32; i++) f(i)
#else
#define LOOP [[unroll]]
#define EACH_T(f) f(0) f(1)
#if ELEMS / TS == 4
#define EACH_D(f) f(0) f(1) f(2) f(3)
#define EACH_PART(f) f(0) f(1)
#elif ELEMS / TS == 6
#define EACH_D(f) f(0) f(1) f(2) f(3) f(4) f(5)
#define EACH_PART(f) f(0) f(1) f(2)
#else
#define EACH_D(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define EACH_PART(f) f(0) f(1) f(2) f(3)
#endif
#endif
layout(local_size_x_id = 0) in; // NS * SG
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { uvec4 k8[]; };
layout(binding = 2, std430) readonly buffer BV { uvec4 v8[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, share, positions;
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride; // k's and v's in groups of eight elements
  float scale, cap;
  uint window, launch;
};

#define NS 4u
#define BQ_ (NS * TS)
#define TILE 32u
#define NT (NS * SG)
#define KD (DH / 8u)        // vectors of 8 in a head
#define LK (KD + 1u)        // padded against bank conflicts
#define LS (TILE / 4u + 1u) // of scores, in vectors of 4
#define PER (SG / TS)       // invocations of a row of scores
#define CH (TILE / 4u / PER) // vectors of scores that an invocation takes
#define WAT 4u              // where weights begin in a row of scores, behind the factors
#define MOVES (TILE * KD / NT)
shared uvec4 tile[2 * TILE * LK]; // of k and of v
#if ELEMS > 64 // queries stay in shared memory: with the sums they are more than the registers of some devices
#define STAY
shared uvec4 queries[BQ_ * LK];
#else
#define queries tile
#endif
shared uvec4 scores[BQ_ * LS];
shared int limits[BQ_];
shared float exchange[NT];

#define ACC coopmat<float, gl_ScopeSubgroup, TS, TS, gl_MatrixUseAccumulator>
#define MAT(use) coopmat<float16_t, gl_ScopeSubgroup, TS, TS, use>

// FETCH reads what an invocation moves of the tile from position j on; v behind the last position is zero.
#define FETCH(j) \
  LOOP for (uint i = 0; i < MOVES; i++) { \
    uint p = (j) + (t + i * NT) / KD, at = g * KD + (t + i * NT) % KD; \
    nextk[i] = k8[koff + min(p, positions - 1) * kstride + at]; \
    nextv[i] = uvec4(0); \
    if (p < end) nextv[i] = v8[voff + p * vstride + at]; \
  }
#define LOAD_Q(i) coopMatLoad(mq[i], queries, own * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor);
#define ZERO(i) out_[i] = ACC(0);
#ifdef STAY
#define QK(i) { \
    MAT(gl_MatrixUseA) mq; \
    MAT(gl_MatrixUseB) mk; \
    coopMatLoad(mq, queries, own * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor); \
    coopMatLoad(mk, tile, i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d = coopMatMulAdd(mq, mk, d); \
    coopMatLoad(mk, tile, TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d1 = coopMatMulAdd(mq, mk, d1); \
  }
#define SCORES { \
    ACC d = ACC(0), d1 = ACC(0); \
    EACH_D(QK) \
    coopMatStore(d, scores, own * TS * LS, LS, gl_CooperativeMatrixLayoutRowMajor); \
    coopMatStore(d1, scores, own * TS * LS + TS / 4, LS, gl_CooperativeMatrixLayoutRowMajor); \
  }
#else
#define QK(i) { \
    MAT(gl_MatrixUseB) mk; \
    coopMatLoad(mk, tile, n * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d = coopMatMulAdd(mq[i], mk, d); \
  }
#define SCORE(j) { \
    const uint n = j; \
    ACC d = ACC(0); \
    EACH_D(QK) \
    coopMatStore(d, scores, own * TS * LS + n * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor); \
  }
#define SCORES EACH_T(SCORE)
#endif
#define RESCALE(i) out_[i] = out_[i] * factors;
#define PV(i) { \
    MAT(gl_MatrixUseB) mv; \
    coopMatLoad(mv, tile, (TILE + n * TS) * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor); \
    out_[i] = coopMatMulAdd(mp, mv, out_[i]); \
  }
#define VALUES(j) { \
    const uint n = j; \
    MAT(gl_MatrixUseA) mp; \
    coopMatLoad(mp, scores, own * TS * LS + WAT + n * (TS / 8), LS, gl_CooperativeMatrixLayoutRowMajor); \
    EACH_D(PV) \
  }
#define STORE(j) coopMatStore(out_[part0 * (32 / TS) + j], scores, own * TS * LS + j * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor);
#define PART(i) { \
    const uint part0 = i; \
    EACH_T(STORE) \
    subgroupBarrier(); \
    store(s0, 32 * part0, h); \
    subgroupBarrier(); \
  }

// store writes 32 elements from c0 on of a subgroup's tokens.
void store(uint s0, uint c0, uint h) {
  for (uint e = 0; e < TS; e++) {
    uint r = gl_SubgroupID * TS + e;
    if (s0 + r < tokens && limits[r] >= 0)
      for (uint c = gl_SubgroupInvocationID; c < 32; c += SG)
        y[yoff + (s0 + r) * ystride + h * DH + c0 + c] = uintBitsToFloat(scores[r * LS + c / 4][c & 3u]) * exchange[r];
  }
}

void main() {
  const uint t = gl_LocalInvocationID.x, own = gl_SubgroupID, lane = gl_SubgroupInvocationID;
  uint h = gl_WorkGroupID.x, s0 = (gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y) * BQ_, g = h / share; // the longest first
  for (uint i = t; i < BQ_; i += NT) {
    int p = -1;
    if (s0 + i < tokens) {
      p = pos[posoff + s0 + i];
      if (p < 0 || p >= int(positions)) {
        if (h == 0) refuse(launch, s0 + i, p, positions);
        p = -1;
      }
    }
    limits[i] = p;
  }
  for (uint i = t; i < BQ_ * KD; i += NT) {
    uint r = i / KD, e = i % KD, a = qoff + min(s0 + r, tokens - 1) * qstride + h * DH + 8 * e;
    queries[r * LK + e] = uvec4(packHalf2x16(vec2(q[a], q[a + 1])), packHalf2x16(vec2(q[a + 2], q[a + 3])),
                                packHalf2x16(vec2(q[a + 4], q[a + 5])), packHalf2x16(vec2(q[a + 6], q[a + 7])));
  }
  barrier();
#ifndef STAY
  MAT(gl_MatrixUseA) mq[ND];
  EACH_D(LOAD_Q)
#endif
  int most = -1, least = 0x7fffffff;
  for (uint i = lane; i < BQ_; i += SG) {
    most = max(most, limits[i]);
    if (limits[i] >= 0) least = min(least, limits[i]);
  }
  most = subgroupMax(most); // which also tells compilers that the loop is the same for all
  least = subgroupMin(least);
  uint end = uint(most + 1), from = window > 0 && uint(least) + 1 > window && most >= 0 ? (uint(least) + 1 - window) / TILE * TILE : 0;
  // What this invocation does of softmax: vectors part * CH, ... of one row.
  uint row = own * TS + lane / PER, part = lane % PER;
  int last = limits[row], first = window > 0 ? last - int(window) : -1; // positions in (first, last]
  float top = -3.0e38, sum = 0;
  ACC out_[ND];
  EACH_D(ZERO)
  uvec4 nextk[MOVES], nextv[MOVES];
  if (from < end) { FETCH(from) }
  for (uint j0 = from; j0 < end; j0 += TILE) {
    barrier();
    LOOP for (uint i = 0; i < MOVES; i++) {
      uint to = (t + i * NT) / KD * LK + (t + i * NT) % KD;
      tile[to] = nextk[i];
      tile[TILE * LK + to] = nextv[i];
    }
    barrier();
    if (j0 + TILE < end) { FETCH(j0 + TILE) }
    SCORES
    subgroupBarrier();
    int a = first - int(j0), b = last - int(j0); // columns in (a, b]
    float factor = scale;
    if (cap > 0) { // a loop of its own, or it would be unrolled with what follows
      [[dont_unroll]] for (uint i = 0; i < 4 * CH; i++) {
        uint at = row * LS + part * CH + i / 4;
        scores[at][i & 3u] = floatBitsToUint(cap * tanh_(uintBitsToFloat(scores[at][i & 3u]) * scale / cap));
      }
      factor = 1;
    }
    vec4 e[CH];
    float next = top;
    [[unroll]] for (uint i = 0; i < CH; i++) {
      vec4 d = uintBitsToFloat(scores[row * LS + part * CH + i]);
      [[unroll]] for (uint k = 0; k < 4; k++) {
        int c = int(4 * (part * CH + i) + k);
        e[i][k] = c > a && c <= b ? d[k] * factor : -3.0e38;
        next = max(next, e[i][k]);
      }
    }
    exchange[t] = next;
    subgroupBarrier();
    LOOP for (uint i = 0; i < PER; i++) next = max(next, exchange[t - part + i]);
    float less = exp_(top - next);
    top = next;
    sum *= less;
    [[unroll]] for (uint i = 0; i < CH; i++) [[unroll]] for (uint k = 0; k < 4; k++) {
      int c = int(4 * (part * CH + i) + k);
      e[i][k] = c > a && c <= b ? exp_(e[i][k] - top) : 0.0;
      sum += e[i][k];
    }
    [[unroll]] for (uint i = 0; i < CH / 2; i++)
      scores[row * LS + WAT + part * (CH / 2) + i] = uvec4(packHalf2x16(e[2 * i].xy), packHalf2x16(e[2 * i].zw),
                                                           packHalf2x16(e[2 * i + 1].xy), packHalf2x16(e[2 * i + 1].zw));
    [[unroll]] for (uint i = 0; i < TS / 4 / PER; i++) scores[row * LS + part * (TS / 4 / PER) + i] = uvec4(floatBitsToUint(less));
    subgroupBarrier();
    ACC factors;
    coopMatLoad(factors, scores, own * TS * LS, LS, gl_CooperativeMatrixLayoutRowMajor);
    EACH_D(RESCALE)
    EACH_T(VALUES)
  }
  exchange[t] = sum;
  subgroupBarrier();
  sum = 0;
  for (uint i = 0; i < PER; i++) sum += exchange[t - part + i];
  barrier();
  if (part == 0) exchange[row] = sum > 0 ? 1.0 / sum : 0.0;
  subgroupBarrier();
  EACH_PART(PART)
}
