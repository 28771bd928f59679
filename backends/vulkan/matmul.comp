#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#include "common.glsl"
#include "decode.glsl"
// y[s,n] = sum over k of w[n,k] x[s,k] (* f[n]) (+ b[n]) (+ r[s,n]) for many rows of x. A workgroup
// computes BN rows of w by BM rows of x from shared memory, 32 of k at a time; an invocation every
// (BN / TN)-th of these rows by every (BM / TM)-th of those. These four are macros. While a step is multiplied
// the next one's activations are on their way, and its weights where they are of a plain type.
layout(local_size_x_id = 0) in; // (BN / TN) * (BM / TM)
layout(constant_id = 2) const bool VECTORS = false;
layout(constant_id = 3) const uint BIAS = 0;
layout(constant_id = 4) const bool RESIDUAL = false;
layout(constant_id = 5) const uint FACTORS = 0; // type, 0: none
layout(binding = 1, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BX4 { vec4 x4[]; };
layout(binding = 2, std430) readonly buffer BB { uint b[]; };
layout(binding = 3, std430) readonly buffer BR { float r[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 5, std430) readonly buffer BF { uint factors[]; };
layout(push_constant) uniform Push {
  uint rows, cols, first, all, count, woff, wstride;
  uint xoff, xstride, xinner, boff, roff, rstride, yoff, ystride, yinner, rinner, foff;
#ifdef GROUPS
  uint share, efirst, ecount; // groups.glsl; the experts in w
#endif
};
#include "groups.glsl"

#define BK 32
#define T ((BN / TN) * (BM / TM))
const uint PITCH = BK / 4 + 1; // vectors from one row to the next: odd, against bank conflicts
shared vec4 sw[BN * PITCH];
shared vec4 sx[BM * PITCH];

// COLUMN is the row of w, inside the tile, of an invocation's i-th result, ROW that of x.
#define COLUMN(i) (tn + (i) * (BN / TN))
#define ROW(j) (tm + (j) * (BM / TM))

void main() {
  const uint t = gl_LocalInvocationID.x;
  const uint n0 = gl_WorkGroupID.x * BN;
  GROUP(gl_WorkGroupID.y, gl_NumWorkGroups.y)
  // 32 invocations share 8 rows of w and 4 of x.
  const uint wide = BN / TN / 8;
  const uint tn = t % 8 + 8 * (t / 32 % wide), tm = t / 8 % 4 + 4 * (t / 32 / wide);
  float acc[TN * TM];
  [[unroll]] for (uint i = 0; i < TN * TM; i++) acc[i] = 0;

  // x, of which an invocation brings NX vectors a step, and w, NW units.
  const uint NX = (BM * (BK / 4) + T - 1) / T;
  uint ax[NX];
  vec4 vx[NX];
  [[unroll]] for (uint i = 0; i < NX; i++) {
    uint at = t + i * T, s = XROW(m0 + at / (BK / 4)), outer = s / xinner;
    ax[i] = xoff + outer * xstride + (s - outer * xinner) * cols + 4 * (at % (BK / 4));
  }
#define FETCHX(k0) \
  [[unroll]] for (uint i = 0; i < NX; i++) { \
    uint k = (k0) + 4 * ((t + i * T) % (BK / 4)); \
    vx[i] = vec4(0); \
    if (VECTORS) { \
      if (k < cols) vx[i] = x4[(ax[i] + (k0)) >> 2]; \
    } else [[unroll]] for (uint j = 0; j < 4; j++) vx[i][j] = k + j < cols ? x[ax[i] + (k0) + j] : 0.0; \
  }
#if TYPE >= 10
#define FETCHW(k0)
#else
  const uint NW = (BN * (BK / 8) + T - 1) / T;
  uint aw[NW];
  vec4 vw[NW][2];
  [[unroll]] for (uint i = 0; i < NW; i++) aw[i] = wat + min(n0 + (t + i * T) / (BK / 8), rows - 1) * wstride;
#define FETCHW(k0) \
  [[unroll]] for (uint i = 0; i < NW; i++) { \
    uint u = (k0) / 8 + (t + i * T) % (BK / 8); \
    if (8 * u < cols) decode(aw[i], u, cols, vw[i]); \
    else vw[i][0] = vw[i][1] = vec4(0); \
  }
#endif

  FETCHW(0)
  FETCHX(0)
  for (uint k0 = 0; k0 < cols; k0 += BK) {
#if TYPE >= 10
    for (uint i = t; i < BN; i += T) {
      vec4 v[UNIT4];
      decode(wat + min(n0 + i, rows - 1) * wstride, k0 / BK, cols, v);
      [[unroll]] for (uint j = 0; j < UNIT4; j++) sw[i * PITCH + j] = v[j];
    }
#else
    [[unroll]] for (uint i = 0; i < NW; i++) {
      uint at = t + i * T, to = at / (BK / 8) * PITCH + at % (BK / 8) * 2;
      if (at < BN * (BK / 8)) {
        sw[to] = vw[i][0];
        sw[to + 1] = vw[i][1];
      }
    }
#endif
    [[unroll]] for (uint i = 0; i < NX; i++) {
      uint at = t + i * T;
      if (at < BM * (BK / 4)) sx[at / (BK / 4) * PITCH + at % (BK / 4)] = vx[i];
    }
    barrier();
    if (k0 + BK < cols) {
      FETCHW(k0 + BK)
      FETCHX(k0 + BK)
    }
    [[unroll]] for (uint k = 0; k < BK / 4; k++) {
      vec4 c[TM];
      [[unroll]] for (uint j = 0; j < TM; j++) c[j] = sx[ROW(j) * PITCH + k];
      [[unroll]] for (uint i = 0; i < TN; i++) {
        vec4 a = sw[COLUMN(i) * PITCH + k];
        [[unroll]] for (uint e = 0; e < 4; e++)
          [[unroll]] for (uint j = 0; j < TM; j++) acc[i * TM + j] = fma(a[e], c[j][e], acc[i * TM + j]);
      }
    }
    barrier();
  }
  // No continue in what is unrolled: the compiler leaves such loops, and acc in memory.
  uint ay[TM], ar[TM];
  [[unroll]] for (uint j = 0; j < TM; j++) {
    uint s = YROW(m0 + ROW(j)), yo = s / yinner, ro = s / rinner;
    ay[j] = yoff + yo * ystride + (s - yo * yinner) * all + first;
    ar[j] = roff + ro * rstride + (s - ro * rinner) * all + first;
  }
  [[unroll]] for (uint i = 0; i < TN; i++) {
    uint n = n0 + COLUMN(i);
    float bias = 0, by = 1;
    if (FACTORS != 0 && n < rows) by = NARROW(factors, FACTORS, foff + first + n);
    if (BIAS != 0 && n < rows) bias = NARROW(b, BIAS, bat + n);
    [[unroll]] for (uint j = 0; j < TM; j++) {
      if (n < rows && m0 + ROW(j) < end) y[ay[j] + n] = acc[i * TM + j] * by + bias + (RESIDUAL ? r[ar[j] + n] : 0.0);
    }
  }
}
