#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#include "common.glsl"
#include "decode.glsl"
// y[s,n] = sum over k of w[n,k] x[s,k] (* f[n]) (+ b[n]) (+ r[s,n]) for many rows of x. A workgroup
// computes BN rows of w by BM rows of x from shared memory, 32 of k at a time; an
// invocation a part of TN by TM of it. These four are macros.
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
};

#define BK 32u
// Transposed, padded against bank conflicts, and read four at a time.
const uint LW = (BN + 4) / 4, LX = (BM + 4) / 4; // vectors from one k to the next
shared vec4 sw[BK * LW];
shared vec4 sx[BK * LX];

// COLUMN is the row of w, inside the tile, of an invocation's i-th result.
#if TN == 8
#define COLUMN(i) ((i) / 4 * (BN / 2) + tn * 4 + (i) % 4)
#elif TN == 4
#define COLUMN(i) (tn * 4 + (i))
#else
#define COLUMN(i) ((i) * (BN / TN) + tn)
#endif

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint n0 = gl_WorkGroupID.x * BN, m0 = gl_WorkGroupID.y * BM;
  uint tn = t % (BN / TN), tm = t / (BN / TN);
  float acc[TN * TM];
  [[unroll]] for (uint i = 0; i < TN * TM; i++) acc[i] = 0;
  for (uint k0 = 0; k0 < cols; k0 += BK) {
    const uint per = BK / UNIT;
    for (uint i = t; i < BN * per; i += T) {
      uint n = i / per, u = i % per;
      vec4 v[UNIT4];
      if (k0 + UNIT * u < cols) decode(woff + min(n0 + n, rows - 1) * wstride, k0 / UNIT + u, cols, v);
      else [[unroll]] for (uint j = 0; j < UNIT4; j++) v[j] = vec4(0);
      [[unroll]] for (uint j = 0; j < UNIT; j++) sw[(UNIT * u + j) * LW + (n >> 2)][n & 3u] = v[j >> 2][j & 3u];
    }
    for (uint i = t; i < BM * (BK / 4); i += T) {
      uint m = i / (BK / 4), k = k0 + 4 * (i % (BK / 4));
      uint s = min(m0 + m, count - 1), outer = s / xinner;
      uint at = xoff + outer * xstride + (s - outer * xinner) * cols + k;
      vec4 a = vec4(0);
      if (VECTORS) {
        if (k < cols) a = x4[at >> 2];
      } else [[unroll]] for (uint j = 0; j < 4; j++) a[j] = k + j < cols ? x[at + j] : 0.0;
      [[unroll]] for (uint j = 0; j < 4; j++) sx[(k - k0 + j) * LX + (m >> 2)][m & 3u] = a[j];
    }
    barrier();
    for (uint k = 0; k < BK; k++) {
      float a[TN], c[TM];
#if TN >= 4
      [[unroll]] for (uint i = 0; i < TN; i += 4) {
        vec4 q = sw[k * LW + COLUMN(i) / 4];
        a[i] = q.x; a[i + 1] = q.y; a[i + 2] = q.z; a[i + 3] = q.w;
      }
      [[unroll]] for (uint j = 0; j < TM; j += 4) {
        vec4 q = sx[k * LX + (tm * TM + j) / 4];
        c[j] = q.x; c[j + 1] = q.y; c[j + 2] = q.z; c[j + 3] = q.w;
      }
#else
      [[unroll]] for (uint i = 0; i < TN; i++) a[i] = sw[k * LW + (COLUMN(i) >> 2)][COLUMN(i) & 3u];
      [[unroll]] for (uint j = 0; j < TM; j++) c[j] = sx[k * LX + ((tm * TM + j) >> 2)][(tm * TM + j) & 3u];
#endif
      [[unroll]] for (uint i = 0; i < TN; i++)
        [[unroll]] for (uint j = 0; j < TM; j++) acc[i * TM + j] = fma(a[i], c[j], acc[i * TM + j]);
    }
    barrier();
  }
  // No continue in what is unrolled: the compiler leaves such loops, and acc in memory.
  uint ay[TM], ar[TM];
  [[unroll]] for (uint j = 0; j < TM; j++) {
    uint s = m0 + tm * TM + j, yo = s / yinner, ro = s / rinner;
    ay[j] = yoff + yo * ystride + (s - yo * yinner) * all + first;
    ar[j] = roff + ro * rstride + (s - ro * rinner) * all + first;
  }
  [[unroll]] for (uint i = 0; i < TN; i++) {
    uint n = n0 + COLUMN(i);
    float bias = 0, by = 1;
    if (FACTORS != 0 && n < rows) by = NARROW(factors, FACTORS, foff + first + n);
    if (BIAS != 0 && n < rows) bias = NARROW(b, BIAS, boff + first + n);
    [[unroll]] for (uint j = 0; j < TM; j++) {
      if (n < rows && m0 + tm * TM + j < count) y[ay[j] + n] = acc[i * TM + j] * by + bias + (RESIDUAL ? r[ar[j] + n] : 0.0);
    }
  }
}
