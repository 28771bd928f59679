#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifdef ORDERED
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#endif
#define STATUS 5
#include "common.glsl"
#include "bfloats.glsl"
#include "status.glsl"
// Attention of many tokens, as attention.comp defines it, in one pass by cooperative matrices of TS x TS x TS. A
// workgroup works on one head of NS * TS tokens. Its subgroups of SG invocations are NG groups, each of which has all
// the tokens, a subgroup TS of them, and every NGth tile of positions; what the groups have is added up at the end.
// Weights are exponentials of scores less a limit of each token and group. Where a tile has a score more than SLACK
// above one, limits become the largest scores so far, and sums are multiplied by a matrix whose rows hold what
// they became too large by. The next positions are on their way to registers meanwhile. Tiles that no token sees are left out.
// With FORM the result is also written in the form that products want, without STORE in that alone; each row
// times one: it is a mean of values of f16.
// ORDERED is for devices of which it is known which elements of matrices an invocation has (regdecode.comp): invocation i of 32 has of
// sums and of the first factor alike columns c = 2 (i % 4), c + 1, c + 8 and c + 9 of row i / 4, then of row i / 4 + 8. Scores and
// their weights then stay where they are multiplied.
// Heads have ELEMS elements, those of v VELEMS. A sink of each head counts in the sum of weights, with no value.
// EACH_K, EACH_D and EACH_T repeat a statement for the matrices of a head of k, of v and of a tile: with literal
// indices, since sums of loops that compilers do not unroll end up in memory; as loops for software devices, which
// take long to compile what is unrolled.
#ifndef VELEMS
#define VELEMS ELEMS
#endif
#define DK uint(ELEMS)
#define DH uint(VELEMS)
#define NK (DK / TS)
#define ND (DH / TS)
#if SG == 8
#define LOOP [[dont_unroll]]
#define EACH_K(f) LOOP for (uint i = 0; i < NK; i++) f(i)
#define EACH_D(f) LOOP for (uint i = 0; i < ND; i++) f(i)
#define EACH_T(f) LOOP for (uint j = 0; j < TILE / TS; j++) f(j)
#define EACH_PART(f) LOOP for (uint i = 0; i < DH / 32; i++) f(i)
#else
#define LOOP [[unroll]]
#define EACH_T(f) f(0) f(1)
#if VELEMS / TS == 4
#define EACH_D(f) f(0) f(1) f(2) f(3)
#define EACH_PART(f) f(0) f(1)
#elif VELEMS / TS == 6
#define EACH_D(f) f(0) f(1) f(2) f(3) f(4) f(5)
#define EACH_PART(f) f(0) f(1) f(2)
#else
#define EACH_D(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define EACH_PART(f) f(0) f(1) f(2) f(3)
#endif
#if ELEMS == VELEMS
#define EACH_K EACH_D
#elif ELEMS / TS == 12
#define EACH_K(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#endif
#endif
layout(local_size_x_id = 0) in; // NT
layout(constant_id = 1) const uint FORM = 0; // 2: f16, 3: bf16 (forms.glsl)
layout(constant_id = 2) const bool STORE = true; // y is read
layout(constant_id = 3) const bool VECTORS = false; // rows of q are whole vectors of 4
layout(constant_id = 4) const uint SINKS = 0; // their type, 0: there are none
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 0, std430) readonly buffer BQ4 { vec4 q4[]; };
layout(binding = 1, std430) readonly buffer BK { uvec4 k8[]; };
layout(binding = 2, std430) readonly buffer BV { uvec4 v8[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 6, std430) writeonly buffer BH { uvec2 halves4[]; };
layout(binding = 7, std430) writeonly buffer BS { float scales[]; };
layout(binding = 8, std430) readonly buffer BSinks { uint sinks[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, share, positions;
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride; // k's and v's in groups of eight elements
  float scale, cap;
  uint window, launch, sinkoff;
};

#define NS 4u
#ifndef NG
#define NG 2u
#endif
#define ROWS (NS * TS)
#define TILE 32u         // positions of a group at a time
#define SPAN (NG * TILE) // of all
#define NT (NG * NS * SG)
#define KD (DK / 8u)        // vectors of 8 in a head of k, and of v
#define VD (DH / 8u)
#define LK (KD + 1u)        // padded against bank conflicts
#define LV (VD + 1u)
#define LS (TILE / 4u + 1u) // of scores, in vectors of 4
#define PER (SG / TS)       // invocations of a row of scores
#define CH (TILE / 4u / PER) // vectors of scores that an invocation takes
#define WAT 4u              // where weights begin in a row of scores, behind the factors
#define MOVES (SPAN * KD / NT) // of k, the larger
#define MOVES_V (SPAN * VD / NT)
#ifdef ORDERED
#define AT_V (SPAN * LK)
shared uvec4 tile[SPAN * (LK + LV)]; // of q first, then of k, and of v from AT_V on; at the end of sums
#define scores tile
#else
#define AT_V 0
shared uvec4 tile[SPAN * LK]; // of q first, then of k or v
shared uvec4 scores[NG * ROWS * LS];
#endif
shared int lasts[ROWS];
shared float limits[NG * ROWS], totals[NG * ROWS];
#ifndef ORDERED
shared float exchange[NT];
#endif

#define ACC coopmat<float, gl_ScopeSubgroup, TS, TS, gl_MatrixUseAccumulator>
#define MAT(use) coopmat<float16_t, gl_ScopeSubgroup, TS, TS, use>

const float NEVER = -3.0e38, SLACK = 8; // e^8 is far from f16's end

// power is e^x for x of at most SLACK: weights are rounded to f16, which is coarser than any device's exp2.
float power(float x) { return exp2(max(x * 1.44269504, -126.0)); }

// FETCH_K and FETCH_V read what an invocation moves of the positions from j on; v behind the last one is zero.
#define FETCH_K(j) \
  LOOP for (uint i = 0; i < MOVES; i++) \
    next[i] = k8[koff + min((j) + (t + i * NT) / KD, positions - 1) * kstride + g * KD + (t + i * NT) % KD];
#define FETCH_V(j) \
  LOOP for (uint i = 0; i < MOVES_V; i++) { \
    uint p = (j) + (t + i * NT) / VD; \
    NEXT_V[i] = v8[voff + min(p, positions - 1) * vstride + g * VD + (t + i * NT) % VD]; \
    if (p >= end) NEXT_V[i] = uvec4(0); \
  }
#ifdef ORDERED
#define NEXT_V nextV
#else
#define NEXT_V next
#endif
#define PUT LOOP for (uint i = 0; i < MOVES; i++) tile[(t + i * NT) / KD * LK + (t + i * NT) % KD] = next[i];
#define PUT_V LOOP for (uint i = 0; i < MOVES_V; i++) tile[AT_V + (t + i * NT) / VD * LV + (t + i * NT) % VD] = NEXT_V[i];
#define LOAD_Q(i) coopMatLoad(mq[i], tile, own * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor);
#define ZERO(i) out_[i] = ACC(0);
#if SG == 8
#define QK(i) { \
    MAT(gl_MatrixUseB) mk; \
    coopMatLoad(mk, tile, (group * TILE + n * TS) * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d = coopMatMulAdd(mq[i], mk, d); \
  }
#define SCORE(j) { \
    const uint n = j; \
    ACC d = ACC(0); \
    EACH_K(QK) \
    coopMatStore(d, scores, at * LS + n * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor); \
  }
#define SCORES EACH_T(SCORE)
#else
#define QK(i) { \
    MAT(gl_MatrixUseB) mk; \
    coopMatLoad(mk, tile, group * TILE * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d0 = coopMatMulAdd(mq[i], mk, d0); \
    coopMatLoad(mk, tile, (group * TILE + TS) * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor); \
    d1 = coopMatMulAdd(mq[i], mk, d1); \
  }
#ifdef ORDERED
#define SCORES EACH_K(QK)
#else
#define SCORES { \
    ACC d0 = ACC(0), d1 = ACC(0); \
    EACH_K(QK) \
    coopMatStore(d0, scores, at * LS, LS, gl_CooperativeMatrixLayoutRowMajor); \
    coopMatStore(d1, scores, at * LS + TS / 4, LS, gl_CooperativeMatrixLayoutRowMajor); \
  }
#endif
#endif
#ifdef ORDERED
#define RESCALE(i) [[unroll]] for (uint e = 0; e < 8; e++) out_[i][e] *= less[e >> 2];
#else
#define RESCALE(i) out_[i] = out_[i] * factors;
#endif
#define PV(i) { \
    MAT(gl_MatrixUseB) mv; \
    coopMatLoad(mv, tile, AT_V + (group * TILE + n * TS) * LV + i * (TS / 8), LV, gl_CooperativeMatrixLayoutRowMajor); \
    out_[i] = coopMatMulAdd(mp, mv, out_[i]); \
  }
// WEIGH makes weights of scores: of invisible ones zeros.
#ifdef ORDERED
#define WEIGH(d, n, m) \
  [[unroll]] for (uint e = 0; e < 8; e++) { \
    uint h_ = e >> 2; \
    float w_ = d[e] > NEVER ? power(d[e] - limit[h_]) : 0.0; \
    sum[h_] += w_; \
    m[e] = float16_t(w_); \
  }
// MASK scales the visible ones of scores of the nth TS positions, and finds the largest of each row.
#define MASK(d, n) \
  [[unroll]] for (uint e = 0; e < 8; e++) { \
    uint h_ = e >> 2; \
    int c = c0 + int(n * TS + (e >> 1 & 1u) * 8 + (e & 1u)); \
    float s_ = c > first[h_] && c <= last[h_] ? d[e] * scale : NEVER; \
    d[e] = s_; \
    top[h_] = max(top[h_], s_); \
  }
#endif
#define VALUES(j) { \
    const uint n = j; \
    MAT(gl_MatrixUseA) mp; \
    coopMatLoad(mp, scores, at * LS + WAT + n * (TS / 8), LS, gl_CooperativeMatrixLayoutRowMajor); \
    EACH_D(PV) \
  }
#define KEEP(j) coopMatStore(out_[part0 * (32 / TS) + j], scores, at * LS + j * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor);
#define PART(i) { \
    const uint part0 = i; \
    EACH_T(KEEP) \
    barrier(); \
    store(s0, 32 * part0, h); \
    barrier(); \
  }

// store writes 32 elements from c0 on of all tokens.
void store(uint s0, uint c0, uint h) {
  for (uint i = gl_LocalInvocationID.x; i < ROWS * 8; i += NT) {
    uint r = i / 8, c = i % 8;
    if (s0 + r < tokens && lasts[r] >= 0) {
      vec4 v = vec4(0);
      [[unroll]] for (uint n = 0; n < NG; n++) v += uintBitsToFloat(scores[(n * ROWS + r) * LS + c]) * limits[n * ROWS + r];
      uint to = h * DH + c0 + 4 * c;
      if (STORE) [[unroll]] for (uint e = 0; e < 4; e++) y[yoff + (s0 + r) * ystride + to + e] = v[e];
      if (FORM != 0) halves4[((s0 + r) * heads * DH + to) / 4] = FORM == 3 ? packBFloats(v) : uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
    }
  }
}

void main() {
  const uint t = gl_LocalInvocationID.x, own = gl_SubgroupID % NS, group = gl_SubgroupID / NS, lane = gl_SubgroupInvocationID;
  const uint at = group * ROWS + own * TS; // the subgroup's first row of scores
  uint h = gl_WorkGroupID.x, s0 = (gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y) * ROWS, g = h / share; // the longest first
  for (uint i = t; i < ROWS; i += NT) {
    int p = -1;
    if (s0 + i < tokens) {
      p = pos[posoff + s0 + i];
      if (p < 0 || p >= int(positions)) {
        if (h == 0) refuse(launch, s0 + i, p, positions);
        p = -1;
      }
      if (FORM != 0 && h == 0) scales[s0 + i] = 1.0;
    }
    lasts[i] = p;
  }
  for (uint i = t; i < ROWS * KD; i += NT) {
    uint r = i / KD, e = i % KD, a = qoff + min(s0 + r, tokens - 1) * qstride + h * DK + 8 * e;
    vec4 lo, hi;
    if (VECTORS) {
      lo = q4[a / 4];
      hi = q4[a / 4 + 1];
    } else {
      lo = vec4(q[a], q[a + 1], q[a + 2], q[a + 3]);
      hi = vec4(q[a + 4], q[a + 5], q[a + 6], q[a + 7]);
    }
    tile[r * LK + e] = uvec4(packHalf2x16(lo.xy), packHalf2x16(lo.zw), packHalf2x16(hi.xy), packHalf2x16(hi.zw));
  }
  barrier();
  MAT(gl_MatrixUseA) mq[NK];
  EACH_K(LOAD_Q)
  int most = -1, least = 0x7fffffff;
  for (uint i = lane; i < ROWS; i += SG) {
    most = max(most, lasts[i]);
    if (lasts[i] >= 0) least = min(least, lasts[i]);
  }
  most = subgroupMax(most); // which also tells compilers that the loop is the same for all
  least = subgroupMin(least);
  uint end = uint(most + 1), from = window > 0 && uint(least) + 1 > window && most >= 0 ? (uint(least) + 1 - window) / SPAN * SPAN : 0;
#ifdef ORDERED
  const uint quarter = lane & 3u;
  uint row = own * TS + lane / 4; // and row + 8
  ivec2 last = ivec2(lasts[row], lasts[row + 8]), first = window > 0 ? last - int(window) : ivec2(-1); // positions in (first, last]
  vec2 limit = vec2(NEVER), sum = vec2(0);
  ACC out_[ND];
  EACH_D(ZERO)
  uvec4 next[MOVES], nextV[MOVES_V];
  if (from < end) {
    FETCH_K(from)
    FETCH_V(from)
  }
  for (uint j0 = from; j0 < end; j0 += SPAN) {
    barrier();
    PUT
    PUT_V
    barrier();
    if (j0 + SPAN < end) {
      FETCH_K(j0 + SPAN)
      FETCH_V(j0 + SPAN)
    }
    ACC d0 = ACC(0), d1 = ACC(0);
    SCORES
    int c0 = int(j0 + group * TILE + 2 * quarter);
    vec2 top = vec2(NEVER);
    MASK(d0, 0)
    MASK(d1, 1)
    if (subgroupAny(top.x > limit.x + SLACK || top.y > limit.y + SLACK)) {
      [[unroll]] for (uint i = 1; i < 4; i <<= 1) top = max(top, subgroupShuffleXor(top, i)); // of the whole row
      top = max(top, limit);
      vec2 less = vec2(power(limit.x - top.x), power(limit.y - top.y));
      limit = top;
      sum *= less;
      EACH_D(RESCALE)
    }
    MAT(gl_MatrixUseA) mp;
    WEIGH(d0, 0, mp)
    { const uint n = 0; EACH_D(PV) }
    WEIGH(d1, 1, mp)
    { const uint n = 1; EACH_D(PV) }
  }
  [[unroll]] for (uint i = 1; i < 4; i <<= 1) sum += subgroupShuffleXor(sum, i);
  if (quarter == 0) {
    limits[group * ROWS + row] = limit.x;
    limits[group * ROWS + row + 8] = limit.y;
    totals[group * ROWS + row] = sum.x;
    totals[group * ROWS + row + 8] = sum.y;
  }
  barrier();
#else
  // What this invocation does of softmax: vectors part * CH, ... of one row.
  uint row = at + lane / PER, part = lane % PER;
  int last = lasts[own * TS + lane / PER], first = window > 0 ? last - int(window) : -1; // positions in (first, last]
  float limit = NEVER, sum = 0;
  ACC out_[ND];
  EACH_D(ZERO)
  uvec4 next[MOVES];
  if (from < end) { FETCH_K(from) }
  for (uint j0 = from; j0 < end; j0 += SPAN) {
    barrier();
    PUT
    barrier();
    if (j0 < end) { FETCH_V(j0) } // always: the branch keeps the loads here
    SCORES
    subgroupBarrier();
    int c0 = int(j0 + group * TILE + 4 * part * CH), a = first - c0, b = last - c0; // this invocation's columns in (a, b]
    float factor = scale;
    if (cap > 0) { // a loop of its own, or it would be unrolled with what follows
      [[dont_unroll]] for (uint i = 0; i < 4 * CH; i++) {
        uint c = row * LS + part * CH + i / 4;
        scores[c][i & 3u] = floatBitsToUint(cap * tanh_(uintBitsToFloat(scores[c][i & 3u]) * scale / cap));
      }
      factor = 1;
    }
    vec4 e[CH];
    float top = NEVER;
    [[unroll]] for (uint i = 0; i < CH; i++) {
      vec4 d = uintBitsToFloat(scores[row * LS + part * CH + i]) * factor;
      [[unroll]] for (uint k = 0; k < 4; k++) {
        int c = int(4 * i + k);
        e[i][k] = c > a && c <= b ? d[k] : NEVER;
        top = max(top, e[i][k]);
      }
    }
    exchange[t] = top;
    subgroupBarrier();
    LOOP for (uint i = 0; i < PER; i++) top = max(top, exchange[t - part + i]);
    bool raise = subgroupMax(top > limit + SLACK ? 1 : 0) > 0;
    if (raise) {
      top = max(top, limit);
      float less = power(limit - top);
      limit = top;
      sum *= less;
      [[unroll]] for (uint i = 0; i < TS / 4 / PER; i++) scores[row * LS + part * (TS / 4 / PER) + i] = uvec4(floatBitsToUint(less));
    }
    [[unroll]] for (uint i = 0; i < CH; i++) [[unroll]] for (uint k = 0; k < 4; k++) {
      e[i][k] = e[i][k] > NEVER ? power(e[i][k] - limit) : 0.0;
      sum += e[i][k];
    }
    [[unroll]] for (uint i = 0; i < CH / 2; i++)
      scores[row * LS + WAT + part * (CH / 2) + i] = uvec4(packHalf2x16(e[2 * i].xy), packHalf2x16(e[2 * i].zw),
                                                           packHalf2x16(e[2 * i + 1].xy), packHalf2x16(e[2 * i + 1].zw));
    barrier();
    PUT_V
    barrier();
    if (j0 + SPAN < end) { FETCH_K(j0 + SPAN) }
    if (raise) {
      ACC factors;
      coopMatLoad(factors, scores, at * LS, LS, gl_CooperativeMatrixLayoutRowMajor);
      EACH_D(RESCALE)
    }
    EACH_T(VALUES)
  }
  exchange[t] = sum;
  subgroupBarrier();
  sum = 0;
  for (uint i = 0; i < PER; i++) sum += exchange[t - part + i];
  if (part == 0) {
    limits[row] = limit;
    totals[row] = sum;
  }
  barrier();
#endif
  // The factors of the groups' sums take the place of their limits.
  if (t < ROWS) {
    float top = NEVER, total = 0;
    [[unroll]] for (uint n = 0; n < NG; n++) top = max(top, limits[n * ROWS + t]);
    if (SINKS != 0) {
      float sink = NARROW(sinks, SINKS, sinkoff + h);
      top = max(top, sink);
      total = power(sink - top);
    }
    [[unroll]] for (uint n = 0; n < NG; n++) total += totals[n * ROWS + t] * power(limits[n * ROWS + t] - top);
    [[unroll]] for (uint n = 0; n < NG; n++) limits[n * ROWS + t] = total > 0 ? power(limits[n * ROWS + t] - top) / total : 0.0;
  }
  EACH_PART(PART)
}
