#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define STATUS 5
#include "common.glsl"
#include "status.glsl"
#define HAND 8
#include "handed.glsl"
#ifdef GATE
#include "apply.glsl"
#endif
// matvec.comp for one row of x and weights of f16 or bf16, in steps whose stages hand over: y = w x (+ b) (+ r), with
// x normed first where NORM, or act(w x, up x) with the macro GATE, by the same sums. A workgroup computes R rows. It
// asks for its first weights, and for the norm's, and then for x, as long as words of it are not there yet: first through the
// first-level cache, as most workgroups start when x is complete, and what is missing past it. No line
// of x can be an older step's: barriers before a step's first stage see to that.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BIAS = 0; // type, 0: none
layout(constant_id = 2) const bool RESIDUAL = false;
layout(constant_id = 3) const bool NORM = false;
layout(constant_id = 4) const uint ACT = 8;
layout(binding = 0, std430) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1, std430) buffer BX { uvec4 x4[]; };
layout(binding = 1, std430) coherent volatile buffer HX { uvec4 xh4[]; };
layout(binding = 2, std430) readonly buffer BB { uint b[]; };
layout(binding = 3, std430) coherent volatile buffer HR { uint rh[]; };
layout(binding = 4, std430) coherent writeonly buffer BY { float y[]; };
layout(binding = 6, std430) readonly buffer BG { vec4 g4[]; };
#ifdef GATE
layout(binding = 7, std430) readonly buffer Up4 { uvec4 up4[]; };
#define OUT (R / 2) // results of a workgroup
#else
#define OUT R
#endif
layout(push_constant) uniform Push {
  uint rows, cols;         // of w
  uint woff, wstride;      // bytes
  uint xoff, goff;         // in groups of four
  uint boff, roff, yoff;
  uint launch;
  float eps;
  uint uoff;               // of up in bytes
  uint waits;              // what stages before write may not be there yet: x with bit 0, r with bit 1
};
shared float squares[64]; // subgroups have 4 invocations at least
shared float part[64 * R];

// again gives group i of x as soon as it is there.
uvec4 again(uint i) {
  uvec4 v = xh4[i];
  const bool waiting = !there(vain);
  uint looks = 0;
  while (waiting && !there(v) && looks < PATIENCE) {
    v = xh4[i];
    looks++;
  }
  tooLong(launch, looks);
  return v;
}

// FETCH reads unit u of all rows, and of the norm's weight.
#ifdef GATE
#define FETCHUP(u) [[unroll]] for (uint i = OUT; i < R; i++) q[i] = up4[at[i] + (u)];
#else
#define FETCHUP(u)
#endif
#define FETCH(u) \
  [[unroll]] for (uint i = 0; i < OUT; i++) q[i] = w4[at[i] + (u)]; \
  FETCHUP(u) \
  if (NORM) { \
    g0 = g4[goff + 2 * (u)]; \
    g1 = g4[goff + 2 * (u) + 1]; \
  }

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  const uint row0 = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * OUT, units = cols / 8;
  if (row0 >= rows) return;
  uint at[R];
  [[unroll]] for (uint i = 0; i < OUT; i++) at[i] = (woff + min(row0 + i, rows - 1) * wstride) >> 4;
#ifdef GATE
  [[unroll]] for (uint i = OUT; i < R; i++) at[i] = (uoff + min(row0 + i - OUT, rows - 1) * wstride) >> 4;
#endif
  // The next weights are asked for at a turn's end: within a turn a compiler may ask for them behind the wait.
  uint u = t;
  uvec4 q[R];
  vec4 g0, g1;
  FETCH(min(u, units - 1))
  const bool mine = t < OUT && row0 + t < rows;
  uint rest = 0; // the result's residual
  if (RESIDUAL && mine) rest = rh[roff + row0 + t];
  float acc[R], square = 0;
  [[unroll]] for (uint i = 0; i < R; i++) acc[i] = 0;
  while (true) {
    const uint from = xoff + 2 * min(u, units - 1);
    uvec4 v0 = x4[from], v1 = x4[from + 1];
    if ((waits & 1u) != 0 && !(there(v0) && there(v1))) {
      v0 = again(from);
      v1 = again(from + 1);
    }
    if (u < units) {
      vec4 a0 = uintBitsToFloat(v0), a1 = uintBitsToFloat(v1);
      if (NORM) {
        square += dot(a0, a0) + dot(a1, a1);
        a0 *= g0;
        a1 *= g1;
      }
      [[unroll]] for (uint i = 0; i < R; i++) {
#if TYPE == 2
        vec4 lo = vec4(unpackHalf2x16(q[i].x), unpackHalf2x16(q[i].y)), hi = vec4(unpackHalf2x16(q[i].z), unpackHalf2x16(q[i].w));
#else
        vec4 lo = uintBitsToFloat(uvec4(q[i].x << 16, q[i].x & 0xffff0000u, q[i].y << 16, q[i].y & 0xffff0000u));
        vec4 hi = uintBitsToFloat(uvec4(q[i].z << 16, q[i].z & 0xffff0000u, q[i].w << 16, q[i].w & 0xffff0000u));
#endif
        acc[i] += dot(lo, a0) + dot(hi, a1);
      }
    }
    u += T;
    if (u >= units) break;
    FETCH(u)
  }
  if (gl_SubgroupSize == 32 && T % 32 == 0) {
    // In the order of subgroupAdd there, with fewer shuffles: of two sums at a time, half of the invocations go on with either.
    const uint lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint n = R / 2, o = 1; n > 0; n /= 2, o *= 2) {
      const bool upper = (lane & o) != 0;
      [[unroll]] for (uint i = 0; i < n; i++)
        acc[i] = (upper ? acc[i + n] : acc[i]) + subgroupShuffleXor(upper ? acc[i] : acc[i + n], o);
    }
    [[unroll]] for (uint o = R; o < 32; o *= 2) acc[0] += subgroupShuffleXor(acc[0], o);
    if (lane < R) part[gl_SubgroupID * R + bitfieldReverse(lane) / (0x80000000u / (R / 2))] = acc[0];
  } else {
    [[unroll]] for (uint i = 0; i < R; i++) {
      float sum = subgroupAdd(acc[i]);
      if (subgroupElect()) part[gl_SubgroupID * R + i] = sum;
    }
  }
  if (NORM) {
    square = subgroupAdd(square);
    if (subgroupElect()) squares[gl_SubgroupID] = square;
  }
  barrier();
  if (!mine) return;
  float sum = 0, scale = 1;
  for (uint g = 0; g < gl_NumSubgroups; g++) sum += part[g * R + t];
  if (NORM) {
    float all2 = 0;
    for (uint g = 0; g < gl_NumSubgroups; g++) all2 += squares[g];
    scale = 1.0 / sqrt(all2 / float(cols) + eps);
  }
#ifdef GATE
  float other = 0;
  for (uint g = 0; g < gl_NumSubgroups; g++) other += part[g * R + OUT + t];
  y[yoff + row0 + t] = said(apply(ACT, sum * scale, other * scale, 0));
#else
  if (NORM) sum *= scale;
  if (BIAS != 0) sum += NARROW(b, BIAS, boff + row0 + t);
  if (RESIDUAL) {
    uint looks = 0;
    const bool waiting = (waits & 2u) != 0 && !there(rest) && !there(vain);
    while (waiting && !there(rest) && looks < PATIENCE) {
      rest = rh[roff + row0 + t];
      looks++;
    }
    tooLong(launch, looks);
    sum += uintBitsToFloat(rest);
  }
  y[yoff + row0 + t] = said(sum);
#endif
}
