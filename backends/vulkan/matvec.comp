#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#define STATUS 6
#include "common.glsl"
#include "decode.glsl"
#include "status.glsl"
#ifdef GATE
#include "apply.glsl"
#endif
// y[s,n] = sum over k of w[n,k] x[s,k] (* f[n]) (+ b[n]) (+ r[s,n]) for few rows of x. A workgroup
// computes R rows of w for NX rows of x (macros). With
// EXPERTS there is one row of x and one result per choice, and w is stacked.
layout(local_size_x_id = 0) in;
layout(constant_id = 2) const bool VECTORS = false; // x can be read 16 bytes at a time
layout(constant_id = 3) const uint BIAS = 0; // type, 0: none
layout(constant_id = 4) const bool RESIDUAL = false;
layout(constant_id = 5) const bool EXPERTS = false;
layout(constant_id = 8) const uint FACTORS = 0; // type, 0: none; not with EXPERTS
// Without EXPERTS, of one row and plain weights: x is first normed, x / sqrt(mean(x^2) + eps) g. The sum
// of squares is taken on the way, and the sums divided at the end.
#if NX == 1 && TYPE < 10
#define CAN_NORM
layout(constant_id = 6) const bool NORM = false;
layout(binding = 7, std430) readonly buffer BG { vec4 g4[]; };
#endif
// With the macro GATE, of one row and weights of f16 or bf16: y = act(w x, up x).
#ifdef GATE
layout(constant_id = 7) const uint ACT = SWIGLU;
layout(binding = 8, std430) readonly buffer Up4 { uvec4 up4[]; };
#define OUT (R / 2) // results of a workgroup
#define UPPER uoff
#else
#define OUT R
#define UPPER base
#endif
layout(binding = 1, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BX4 { vec4 x4[]; };
layout(binding = 2, std430) readonly buffer BB { uint b[]; };
layout(binding = 3, std430) readonly buffer BR { float r[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 5, std430) readonly buffer BE { int experts[]; };
layout(binding = 5, std430) readonly buffer BF { uint factors[]; };
layout(push_constant) uniform Push {
  uint rows, cols;             // of w in this dispatch, and of each
  uint first, all;             // number of its first row, and of rows in w: of experts with EXPERTS
  uint count;                  // rows of x
  uint woff, wstride, wexpert; // bytes
  uint xoff, xstride, xinner, boff, roff, rstride, yoff, ystride, yinner, rinner;
  uint eoff, users, inputs, launch; // eoff: of the experts or the factors
  uint goff; // in groups of four
  float eps;
  uint uoff; // of up in bytes
};

#ifdef CAN_NORM
shared float squares[64];
#endif
shared float part[64 * R * NX]; // subgroups have 4 invocations at least

// activations gives elements k to k + 3 of the row of x that starts at at, zeros behind its end.
vec4 activations(uint at, uint k) {
  vec4 a;
  if (VECTORS) a = x4[(at + k) >> 2];
  else a = vec4(k < cols ? x[at + k] : 0, k + 1 < cols ? x[at + k + 1] : 0, k + 2 < cols ? x[at + k + 2] : 0, k + 3 < cols ? x[at + k + 3] : 0);
  return a;
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint row0 = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * OUT;
  if (row0 >= rows) return;
  uint c0 = gl_WorkGroupID.z * NX, base = woff, bias = boff;
  uint xs[NX];
  if (EXPERTS) {
    int e = experts[eoff + c0];
    if (e < 0 || e >= int(all)) {
      if (t == 0) refuse(launch, c0, e, all);
      return;
    }
    uint local = uint(e) - first;
    if (uint(e) < first || local >= wexpert) return; // of another dispatch: wexpert counts this one's
    base += local * rows * wstride;
    bias += uint(e) * rows;
    uint s = c0 / users;
    xs[0] = xoff + s * xstride + (inputs > 1 ? c0 - s * users : 0) * cols;
  } else {
    [[unroll]] for (uint c = 0; c < NX; c++) {
      uint s = min(c0 + c, count - 1), outer = s / xinner;
      xs[c] = xoff + outer * xstride + (s - outer * xinner) * cols;
    }
    bias += first;
  }
  float acc[R * NX];
  [[unroll]] for (uint i = 0; i < R * NX; i++) acc[i] = 0;
  // An invocation takes 8 elements at a time, two groups of 4 that are DISTANCE apart:
  // neighbours then read neighbouring words of w and of x.
#if TYPE >= 10
#define DISTANCE 16
#define FIRST (32 * (u >> 2) + 4 * (u & 3u))
#define DECODE(at) decodePart(at, u >> 2, u & 3u, cols, v[0], v[1])
#else
#define DISTANCE 4
#define FIRST (8 * u)
#define DECODE(at) decode(at, u, cols, v)
#endif
  uint units = (cols + 7) / 8;
#ifdef CAN_NORM
  float square = 0;
#endif
#if TYPE == 2 || TYPE == 3
  // All loads of a turn before the first use.
#ifndef GATE
  if (ALIGNED && VECTORS)
#endif
  {
    uint at[R];
    [[unroll]] for (uint i = 0; i < R; i++) at[i] = ((i < OUT ? base : UPPER) + min(row0 + i % OUT, rows - 1) * wstride) >> 4;
    for (uint u = t; u < units; u += T) {
      uvec4 q[R];
      [[unroll]] for (uint i = 0; i < OUT; i++) q[i] = w4[at[i] + u];
#ifdef GATE
      [[unroll]] for (uint i = OUT; i < R; i++) q[i] = up4[at[i] + u];
#endif
      vec4 a[2 * NX];
      [[unroll]] for (uint c = 0; c < NX; c++) {
        a[2 * c] = x4[(xs[c] >> 2) + 2 * u];
        a[2 * c + 1] = x4[(xs[c] >> 2) + 2 * u + 1];
      }
#ifdef CAN_NORM
      if (NORM) {
        square += dot(a[0], a[0]) + dot(a[1], a[1]);
        a[0] *= g4[goff + 2 * u];
        a[1] *= g4[goff + 2 * u + 1];
      }
#endif
      [[unroll]] for (uint i = 0; i < R; i++) {
#if TYPE == 2
        vec4 lo = vec4(unpackHalf2x16(q[i].x), unpackHalf2x16(q[i].y)), hi = vec4(unpackHalf2x16(q[i].z), unpackHalf2x16(q[i].w));
#else
        vec4 lo = uintBitsToFloat(uvec4(q[i].x << 16, q[i].x & 0xffff0000u, q[i].y << 16, q[i].y & 0xffff0000u));
        vec4 hi = uintBitsToFloat(uvec4(q[i].z << 16, q[i].z & 0xffff0000u, q[i].w << 16, q[i].w & 0xffff0000u));
#endif
        [[unroll]] for (uint c = 0; c < NX; c++) acc[i * NX + c] += dot(lo, a[2 * c]) + dot(hi, a[2 * c + 1]);
      }
    }
  }
#ifndef GATE
  else
#endif
#endif
#ifndef GATE
  for (uint u = t; u < units; u += T) {
    vec4 v[2], a[2 * NX];
    [[unroll]] for (uint c = 0; c < NX; c++) {
      a[2 * c] = activations(xs[c], FIRST);
      a[2 * c + 1] = activations(xs[c], FIRST + DISTANCE);
    }
#ifdef CAN_NORM
    if (NORM) {
      square += dot(a[0], a[0]) + dot(a[1], a[1]);
      a[0] *= g4[goff + 2 * u];
      a[1] *= g4[goff + 2 * u + 1];
    }
#endif
// A macro, as the compiler does not unroll a loop around so much.
#define ROW(n) \
    DECODE(base + min(row0 + n, rows - 1) * wstride); \
    [[unroll]] for (uint c = 0; c < NX; c++) acc[n * NX + c] += dot(v[0], a[2 * c]) + dot(v[1], a[2 * c + 1]);
    ROW(0)
#if R > 1
    ROW(1)
#endif
#if R > 2
    ROW(2)
    ROW(3)
#endif
  }
#endif
  [[unroll]] for (uint i = 0; i < R * NX; i++) {
    float sum = subgroupAdd(acc[i]);
    if (subgroupElect()) part[gl_SubgroupID * R * NX + i] = sum;
  }
#ifdef CAN_NORM
  if (NORM) {
    square = subgroupAdd(square);
    if (subgroupElect()) squares[gl_SubgroupID] = square;
  }
#endif
  barrier();
#ifdef GATE
  if (t >= OUT || row0 + t >= rows) return;
  float one = 0, other = 0, scale = 1;
  for (uint g = 0; g < gl_NumSubgroups; g++) {
    one += part[g * R + t];
    other += part[g * R + OUT + t];
  }
  if (NORM) {
    float all2 = 0;
    for (uint g = 0; g < gl_NumSubgroups; g++) all2 += squares[g];
    scale = 1.0 / sqrt(all2 / float(cols) + eps);
  }
  y[yoff + row0 + t] = apply(ACT, one * scale, other * scale, 0);
#else
  if (t >= R * NX) return;
  uint n = row0 + t / NX, s = c0 + t % NX;
  if (n >= rows || !EXPERTS && s >= count) return;
  float sum = 0;
  for (uint g = 0; g < gl_NumSubgroups; g++) sum += part[g * R * NX + t];
#ifdef CAN_NORM
  if (NORM) {
    float all2 = 0;
    for (uint g = 0; g < gl_NumSubgroups; g++) all2 += squares[g];
    sum *= 1.0 / sqrt(all2 / float(cols) + eps);
  }
#endif
  if (FACTORS != 0) sum *= NARROW(factors, FACTORS, eoff + first + n);
  if (BIAS != 0) sum += NARROW(b, BIAS, bias + n);
  uint to = EXPERTS ? n : first + n;
  if (RESIDUAL) {
    uint outer = s / rinner;
    sum += r[roff + outer * rstride + (s - outer * rinner) * all + to];
  }
  uint outer = s / yinner;
  y[yoff + outer * ystride + (s - outer * yinner) * (EXPERTS ? rows : all) + to] = sum;
#endif
}
