#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#define STATUS 5
#include "common.glsl"
#include "status.glsl"
// Attention of many tokens, as attention.comp defines it, in one pass by cooperative matrices with
// functions of their elements (NV_cooperative_matrix2). A workgroup works on one head of BR tokens and goes over
// the positions BC at a time, tiles that no token sees left out. Weights are exponentials of scores less a
// limit of each token; where a tile has a score more than SLACK above one, all lasts are set to the largest scores so
// far, and the sums are multiplied by what they became too large by.
// With HALVES the result is also written in the form that products want, without STORE in that alone; each row
// times one: it is a mean of values of f16.
layout(local_size_x = NT) in;
layout(constant_id = 0) const bool HALVES = false;
layout(constant_id = 1) const bool STORE = true; // y is read
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { float16_t k[]; };
layout(binding = 2, std430) readonly buffer BV { float16_t v[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 6, std430) writeonly buffer BH { float16_t halves[]; };
layout(binding = 7, std430) writeonly buffer BS { float scales[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, share, positions; // positions: BC at least
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride; // k's and v's in elements
  float scale, cap;
  uint window, launch;
};

#define DH uint(ELEMS)    // of a head
#define LQ (DH / 8u + 1u) // of a row of q, in vectors of 8: padded against bank conflicts
shared uvec4 queries[BR * LQ];
shared int lasts[BR];

#ifdef WORKGROUP
#define SCOPE gl_ScopeWorkgroup
#else
#define SCOPE gl_ScopeSubgroup
#endif
#define SUMS(n) coopmat<float, SCOPE, BR, n, gl_MatrixUseAccumulator>

const float NEVER = -3.0e38, SLACK = 8; // e^8 is far from f16's end
shared uint raised[2]; // the last even and odd tile that raised a limit, from one on
uint tile;
uint h, s0, j0; // head, first token, first position of the tile
uint skip;      // positions of the tile that another one has had
uint end;       // behind the last position that any of the tokens sees

float weigh(float e) { return cap > 0 ? cap * tanh_(e * scale / cap) : e * scale; }
float score(const in uint i, const in uint j, const in float e) { return weigh(e); }
float visible(const in uint i, const in uint j, const in float e) {
  int p = int(j0 + j), last = lasts[i];
  return j >= skip && p <= last && (window == 0 || p > last - int(window)) ? weigh(e) : NEVER;
}
float larger(const in float a, const in float b) { return max(a, b); }
float plus(const in float a, const in float b) { return a + b; }
float either(const in float a, const in float b) { return a; }

// power is e^x for x of at most SLACK, good to 1e-5: weights are rounded to f16.
float power(float x) {
  float n = max(x * 1.44269504, -126.0), whole = roundEven(n), r = n - whole;
  float p = fma(fma(fma(fma(9.6181291e-3, r, 5.5504109e-2), r, 2.4022651e-1), r, 6.9314718e-1), r, 1.0);
  return uintBitsToFloat(floatBitsToUint(p) + (uint(int(whole)) << 23));
}

float raises(const in uint i, const in uint j, const in float a, const in float limit) {
  if (a > limit + SLACK) raised[tile & 1u] = tile;
  return a;
}
float most(const in uint i, const in uint j, const in float a, const in float b) { return max(a, b); }
float weight(const in uint i, const in uint j, const in float e, const in float limit) { return e > NEVER ? power(e - limit) : 0.0; }
float less(const in uint i, const in uint j, const in float was, const in float limit) { return power(was - limit); }
float inverse(const in uint i, const in uint j, const in float e) { return e > 0 ? 1.0 / e : 0.0; }
float16_t known(const in uint i, const in uint j, const in float16_t e) { return j0 + i < end ? e : float16_t(0); }
float put(const in uint i, const in uint j, const in float e) {
  uint s = s0 + i, c = h * DH + j;
  if (lasts[i] >= 0) {
    if (STORE) y[yoff + s * ystride + c] = e;
    if (HALVES) halves[s * heads * DH + c] = float16_t(e);
  }
  return e;
}

void main() {
  const uint t = gl_LocalInvocationID.x;
  h = gl_WorkGroupID.x;
  s0 = (gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y) * BR; // the longest first
  const uint g = h / share;
  for (uint i = t; i < BR; i += NT) {
    int p = -1;
    if (s0 + i < tokens) {
      p = pos[posoff + s0 + i];
      if (p < 0 || p >= int(positions)) {
        if (h == 0) refuse(launch, s0 + i, p, positions);
        p = -1;
      }
      if (HALVES && h == 0) scales[s0 + i] = 1.0;
    }
    lasts[i] = p;
  }
  if (t < 2) raised[t] = 0;
  tile = 0;
  for (uint i = t; i < BR * (DH / 8); i += NT) {
    uint r = i / (DH / 8), e = i % (DH / 8), a = qoff + min(s0 + r, tokens - 1) * qstride + h * DH + 8 * e;
    queries[r * LQ + e] = uvec4(packHalf2x16(vec2(q[a], q[a + 1])), packHalf2x16(vec2(q[a + 2], q[a + 3])),
                                packHalf2x16(vec2(q[a + 4], q[a + 5])), packHalf2x16(vec2(q[a + 6], q[a + 7])));
  }
  barrier();
  coopmat<float16_t, SCOPE, BR, DH, gl_MatrixUseA> mq;
  coopMatLoad(mq, queries, 0, LQ, gl_CooperativeMatrixLayoutRowMajor);
  int last = -1, first = 0x7fffffff; // of the tokens' positions
  for (uint i = 0; i < BR; i++) {
    last = max(last, lasts[i]);
    if (lasts[i] >= 0) first = min(first, lasts[i]);
  }
  end = uint(last + 1);
  uint from = window > 0 && last >= 0 && uint(first) + 1 > window ? (uint(first) + 1 - window) / BC * BC : 0;
  SUMS(DH) sums = SUMS(DH)(0);
  SUMS(BC) limit = SUMS(BC)(NEVER), total = SUMS(BC)(0);
  [[dont_unroll]] for (uint next = from; next < end; next += BC) {
    j0 = min(next, positions - BC);
    skip = next - j0;
    coopmat<float16_t, SCOPE, DH, BC, gl_MatrixUseB> mk;
    coopMatLoad(mk, k, koff + j0 * kstride + g * DH, kstride, gl_CooperativeMatrixLayoutColumnMajor);
    SUMS(BC) e = coopMatMulAdd(mq, mk, SUMS(BC)(0));
    bool whole = skip == 0 && window == 0 && j0 + BC <= uint(first) + 1;
    if (whole) coopMatPerElementNV(e, e, score);
    else coopMatPerElementNV(e, e, visible);
    SUMS(BC) row;
    coopMatReduceNV(row, e, gl_CooperativeMatrixReduceRowNV, larger);
    tile++;
    coopMatPerElementNV(row, row, raises, limit);
    barrier(); // the next tile's flag is the other one
    if (raised[tile & 1u] == tile) {
      SUMS(BC) factor = limit;
      coopMatPerElementNV(limit, row, most, factor);
      coopMatPerElementNV(factor, factor, less, limit);
      total = total * factor;
      SUMS(DH) factors;
      coopMatReduceNV(factors, factor, gl_CooperativeMatrixReduceRowNV, either);
      sums = sums * factors;
    }
    coopMatPerElementNV(e, e, weight, limit);
    total = total + e;
    coopmat<float16_t, SCOPE, BR, BC, gl_MatrixUseA> weights = coopmat<float16_t, SCOPE, BR, BC, gl_MatrixUseA>(e);
    coopmat<float16_t, SCOPE, BC, DH, gl_MatrixUseB> mv;
    coopMatLoad(mv, v, voff + j0 * vstride + g * DH, vstride, gl_CooperativeMatrixLayoutRowMajor);
    if (j0 + BC > end) coopMatPerElementNV(mv, mv, known); // what lies behind may be no number
    sums = coopMatMulAdd(weights, mv, sums);
  }
  coopMatReduceNV(total, total, gl_CooperativeMatrixReduceRowNV, plus);
  coopMatPerElementNV(total, total, inverse);
  SUMS(DH) by;
  coopMatReduceNV(by, total, gl_CooperativeMatrixReduceRowNV, either);
  sums = sums * by;
  coopMatPerElementNV(sums, sums, put);
}
