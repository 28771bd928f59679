#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define STATUS 5
#include "common.glsl"
#include "status.glsl"
// Attention of many tokens, as attention.comp defines it, by cooperative matrices of TS x TS x TS. A
// workgroup works on one head of NS * TS tokens, a subgroup of SG invocations on TS of them, and goes over the
// positions in tiles of 64: once for the largest score of each token and the sum of exponentials, and again for
// the weighted sum of values, which then needs no correction. Tiles that no token sees are left out.
// Software devices take long to compile what is unrolled.
#if SG == 8
#define LOOP [[dont_unroll]]
#else
#define LOOP [[unroll]]
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

#define DH uint(ELEMS) // of a head
#define NS 4u
#define BQ_ (NS * TS)
#define TILE 64u
#define NT (NS * SG)
#define KD (DH / 8u)        // vectors of 8 in a head
#define LK (KD + 1u)        // padded against bank conflicts
#define LS (TILE / 4u + 1u) // of scores, in vectors of 4
#define LP (TILE / 8u + 1u) // of exponentials, in vectors of 8
#define PER (SG / TS)       // invocations of a row of scores
shared uvec4 tile[TILE * LK]; // of q first, then of k or v
shared uvec4 scores[BQ_ * LS];
shared uvec4 weights[BQ_ * LP];
shared int limits[BQ_];
shared float exchange[NT];

#define ACC coopmat<float, gl_ScopeSubgroup, TS, TS, gl_MatrixUseAccumulator>
#define MAT(use) coopmat<float16_t, gl_ScopeSubgroup, TS, TS, use>

float score(uint row, uint c) {
  float d = uintBitsToFloat(scores[row * LS + c / 4][c & 3u]) * scale;
  return cap > 0 ? cap * tanh_(d / cap) : d;
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
    tile[r * LK + e] = uvec4(packHalf2x16(vec2(q[a], q[a + 1])), packHalf2x16(vec2(q[a + 2], q[a + 3])),
                             packHalf2x16(vec2(q[a + 4], q[a + 5])), packHalf2x16(vec2(q[a + 6], q[a + 7])));
  }
  barrier();
  MAT(gl_MatrixUseA) mq[DH / TS];
  LOOP for (uint i = 0; i < DH / TS; i++)
    coopMatLoad(mq[i], tile, own * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor);
  int most = -1, least = 0x7fffffff;
  for (uint i = 0; i < BQ_; i++) {
    most = max(most, limits[i]);
    if (limits[i] >= 0) least = min(least, limits[i]);
  }
  uint end = uint(most + 1), from = window > 0 && uint(least) + 1 > window && most >= 0 ? (uint(least) + 1 - window) / TILE * TILE : 0;
  // What this invocation does of softmax: columns part, part + PER, … of one row.
  uint row = own * TS + lane / PER, part = lane % PER;
  int last = limits[row], first = window > 0 ? last - int(window) : -1; // positions in (first, last]
  float top = -3.0e38, sum = 0;
  ACC out_[DH / TS];
  LOOP for (uint i = 0; i < DH / TS; i++) out_[i] = ACC(0);
  for (uint pass = 0; pass < 2; pass++) {
    for (uint j0 = from; j0 < end; j0 += TILE) {
      barrier();
      for (uint i = t; i < TILE * KD; i += NT) tile[i / KD * LK + i % KD] = k8[koff + min(j0 + i / KD, positions - 1) * kstride + g * KD + i % KD];
      barrier();
      LOOP for (uint n = 0; n < TILE / TS; n++) {
        ACC d = ACC(0);
        LOOP for (uint i = 0; i < DH / TS; i++) {
          MAT(gl_MatrixUseB) mk;
          coopMatLoad(mk, tile, n * TS * LK + i * (TS / 8), LK, gl_CooperativeMatrixLayoutColumnMajor);
          d = coopMatMulAdd(mq[i], mk, d);
        }
        coopMatStore(d, scores, own * TS * LS + n * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor);
      }
      barrier();
      int a = first - int(j0), b = last - int(j0); // columns in (a, b]
      if (pass == 0) {
        float next = top;
        for (uint i = part; i < TILE; i += PER) if (int(i) > a && int(i) <= b) next = max(next, score(row, i));
        sum *= exp_(top - next);
        for (uint i = part; i < TILE; i += PER) if (int(i) > a && int(i) <= b) sum += exp_(score(row, i) - next);
        top = next;
      } else {
        for (uint i = 2 * part; i < TILE; i += 2 * PER) {
          vec2 e = vec2(int(i) > a && int(i) <= b ? exp_(score(row, i) - top) : 0.0, int(i) + 1 > a && int(i) + 1 <= b ? exp_(score(row, i + 1) - top) : 0.0);
          weights[row * LP + i / 8][(i / 2) & 3u] = packHalf2x16(e);
        }
        for (uint i = t; i < TILE * KD; i += NT)
          tile[i / KD * LK + i % KD] = j0 + i / KD < end ? v8[voff + (j0 + i / KD) * vstride + g * KD + i % KD] : uvec4(0);
        barrier();
        LOOP for (uint i = 0; i < TILE / TS; i++) {
          MAT(gl_MatrixUseA) mp;
          coopMatLoad(mp, weights, own * TS * LP + i * (TS / 8), LP, gl_CooperativeMatrixLayoutRowMajor);
          LOOP for (uint n = 0; n < DH / TS; n++) {
            MAT(gl_MatrixUseB) mv;
            coopMatLoad(mv, tile, i * TS * LK + n * (TS / 8), LK, gl_CooperativeMatrixLayoutRowMajor);
            out_[n] = coopMatMulAdd(mp, mv, out_[n]);
          }
        }
      }
    }
    if (pass == 0) { // one maximum and sum a row
      exchange[t] = top;
      barrier();
      float best = top;
      for (uint i = 0; i < PER; i++) best = max(best, exchange[own * SG + lane / PER * PER + i]);
      sum *= exp_(top - best);
      top = best;
      barrier();
      exchange[t] = sum;
      barrier();
      sum = 0;
      for (uint i = 0; i < PER; i++) sum += exchange[own * SG + lane / PER * PER + i];
    }
  }
  barrier();
  if (part == 0) exchange[row] = sum > 0 ? 1.0 / sum : 0.0;
  LOOP for (uint n0 = 0; n0 < DH; n0 += TILE) {
    LOOP for (uint n = 0; n < TILE / TS; n++)
      if (n0 / TS + n < DH / TS) coopMatStore(out_[n0 / TS + n], scores, own * TS * LS + n * (TS / 4), LS, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    for (uint i = t; i < BQ_ * TILE; i += NT) {
      uint r = i / TILE, c = i % TILE;
      if (s0 + r < tokens && limits[r] >= 0 && n0 + c < DH)
        y[yoff + (s0 + r) * ystride + h * DH + n0 + c] = uintBitsToFloat(scores[r * LS + c / 4][c & 3u]) * exchange[r];
    }
    barrier();
  }
}
