#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 7
#include "common.glsl"
#include "reduce.glsl"
#include "status.glsl"
#ifdef CODED
#include "coded.glsl"
#define HEADK headBytes(K, dh)
#define HEADV headBytes(V, dv)
#else
#define HEADK dh
#define HEADV dv
#endif
// attention.comp for rows of several sequences: position j of row s lies in page table[seq[s], j / PAGE] of the pools, as
// their row j % PAGE. A workgroup works on one head of one row; a row with seq -1 is zero. MORE is as there.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = F32; // types of the caches
layout(constant_id = 2) const uint V = F32;
layout(constant_id = 3) const bool WIDEK = false; // rows of k can be read 16 bytes, 8 or 4 elements, at a time
layout(constant_id = 4) const uint VU = 1;        // elements of v that an invocation reads together: 1 or 2
layout(constant_id = 5) const uint LANES = 64;    // invocations beside each other on a row of v
layout(constant_id = 6) const uint DHMAX = 128;   // room for q
layout(constant_id = 7) const uint PAGE = 16;     // positions of a page
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { uint k[]; };
layout(binding = 1, std430) readonly buffer BK4 { uvec4 k4[]; };
layout(binding = 2, std430) readonly buffer BV { uint v[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) readonly buffer BSeq { int seq[]; };
layout(binding = 5, std430) readonly buffer BTable { int table[]; };
layout(binding = 6, std430) writeonly buffer BY { float y[]; };
#ifdef MORE
layout(constant_id = 8) const uint SINKS = 0;
layout(constant_id = 9) const uint COUNT = 0;
layout(constant_id = 10) const uint APART = 0;
layout(constant_id = 11) const float REACH = 0;
layout(constant_id = 12) const uint BIAS = 0;
layout(constant_id = 13) const uint FARK = 0;
layout(constant_id = 14) const uint FARQ = 0;
layout(constant_id = 15) const uint FARHEADS = 1;
layout(binding = 8, std430) readonly buffer BSinks { uint sinks[]; };
layout(binding = 9, std430) readonly buffer BBias { uint bias[]; };
layout(binding = 10, std430) readonly buffer BFarK { uint fark[]; };
layout(binding = 11, std430) readonly buffer BFarQ { uint farq[]; };
#endif
layout(push_constant) uniform Push {
  uint heads, share, dh, dv;            // share: heads of a group
  uint lines, width, pages;             // of the table, of a line, of the pools
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, seqoff, tableoff, yoff, ystride; // in elements
  float scale, cap;
  uint window, launch;
#ifdef MORE
  uint sinkoff, chunk;
  float alibi, slope;
  uint biasoff, farkoff, farqoff;
#endif
};

const uint TILE = gl_WorkGroupSize.x;
const uint GROUPS = TILE / LANES; // rows of v that are read at a time
shared float sq[DHMAX];
shared float sp[TILE];
shared uint srow[TILE]; // rows of the pools where positions lie
shared float so[TILE * 2 * NA];

// eight is the product of 8 elements of q from i on and of a row of k.
float eight(uvec4 a, uint i) {
  float d = 0;
  [[unroll]] for (uint j = 0; j < 4; j++) {
    vec2 e = K == F16 ? unpackHalf2x16(a[j]) : uintBitsToFloat(uvec2(a[j] << 16, a[j] & 0xffff0000u));
    d = fma(sq[i + 2 * j], e.x, d);
    d = fma(sq[i + 2 * j + 1], e.y, d);
  }
  return d;
}

float score(uint row) {
  float d = 0;
#ifdef CODED
  if (K == Q8_0) {
    for (uint b = 0; 32 * b < dh; b++) {
      float sum = 0;
      for (uint i = 0; i < 32; i++) sum = fma(sq[32 * b + i], SBYTE(k, row + 34 * b + 2 + i), sum);
      d = fma(SCALE(k, row + 34 * b), sum, d);
    }
  } else {
    for (uint i = 0; i < dh; i++) d = fma(sq[i], f82f(BYTE(k, row + i)), d);
  }
#else
  if (!WIDEK) {
    for (uint i = 0; i < dh; i++) d = fma(sq[i], NARROW(k, K, row + i), d);
  } else if (K == F32) {
    for (uint i = 0; i < dh; i += 4) d += dot(vec4(sq[i], sq[i + 1], sq[i + 2], sq[i + 3]), uintBitsToFloat(k4[(row + i) >> 2]));
  } else {
    uint i = 0;
    for (; i + 32 <= dh; i += 32) { // four loads in flight
      uvec4 a[4];
      [[unroll]] for (uint o = 0; o < 4; o++) a[o] = k4[((row + i) >> 3) + o];
      [[unroll]] for (uint o = 0; o < 4; o++) d += eight(a[o], i + 8 * o);
    }
    for (; i < dh; i += 8) d += eight(k4[(row + i) >> 3], i);
  }
#endif
  d *= scale;
  return cap > 0 ? cap * tanh_(d / cap) : d;
}

#ifdef MORE
#include "distance.glsl"
#endif

// value gives the VU elements of unit u of a row of v.
vec2 value(uint row, uint u) {
#ifdef CODED
  return vec2(CODED_AT(v, V, row, u), 0);
#endif
  vec2 x;
  uint a = V == F32 ? row + 2 * u : (row >> 1) + u;
  if (VU == 1) x = vec2(NARROW(v, V, row + u), 0);
  else if (V == F32) x = uintBitsToFloat(uvec2(v[a], v[a + 1]));
  else if (V == F16) x = unpackHalf2x16(v[a]);
  else x = uintBitsToFloat(uvec2(v[a] << 16, v[a] & 0xffff0000u));
  return x;
}

void main() {
  const uint T = TILE, t = gl_LocalInvocationID.x;
  uint h = gl_WorkGroupID.x, s = gl_WorkGroupID.y, g = h / share, to = yoff + s * ystride + h * dv;
  int last = pos[posoff + s], line = seq[seqoff + s];
  if (line == -1) {
    for (uint i = t; i < dv; i += T) y[to + i] = 0;
    return;
  }
  if (line < 0 || line >= int(lines)) {
    if (t == 0) refuse(launch, s, line, lines);
    return;
  }
  if (last < 0 || last >= int(width * PAGE)) {
    if (t == 0) refuse(launch, s, last, width * PAGE);
    return;
  }
  uint end = uint(last) + 1, from = window > 0 && end > window ? end - window : 0;
#ifdef MORE
  if (chunk > 0) from = max(from, uint(last) / chunk * chunk);
  float fall = fallOf(h);
#endif
  uint row0 = tableoff + uint(line) * width;
  for (uint i = t; i < dh; i += T) sq[i] = q[qoff + s * qstride + h * dh + i];
  barrier();
  const float LOW = -3.0e38;
  float top = LOW, sum = 0;
#ifdef MORE
  if (SINKS != 0) {
    top = NARROW(sinks, SINKS, sinkoff + h);
    sum = t == 0 ? 1.0 : 0.0;
  }
#endif
  vec2 acc[NA];
  [[unroll]] for (uint i = 0; i < NA; i++) acc[i] = vec2(0);
  uint lane = t % LANES, group = t / LANES, units = dv / VU;
  for (uint j0 = from; j0 < end; j0 += T) {
    uint n = min(T, end - j0);
    float d = LOW;
    if (t < n) {
      uint j = j0 + t;
      int page = table[row0 + j / PAGE];
      if (page < 0 || page >= int(pages)) {
        refuse(launch, uint(line) * width + j / PAGE, page, pages);
        page = 0;
      }
      uint at = uint(page) * PAGE + j % PAGE;
      srow[t] = at;
      d = score(koff + at * kstride + g * HEADK);
#ifdef MORE
      d -= fall * float(last - int(j));
      if (COUNT != 0) d += spaced(last - int(j), h, koff + at * kstride + g * dh);
#endif
    }
    float next = max(top, wgMax(d));
    float e = t < n ? exp_(d - next) : 0, old = exp_(top - next);
    sp[t] = e;
    sum = sum * old + e;
    top = next;
    [[unroll]] for (uint i = 0; i < NA; i++) acc[i] *= old;
    barrier();
    if (group < GROUPS) {
      uint j = group;
      for (; j + 7 * GROUPS < n; j += 8 * GROUPS) { // loads of eight rows in flight
        [[unroll]] for (uint i = 0; i < NA; i++) {
          uint u = min(lane + i * LANES, units - 1);
          vec2 x[8];
          [[unroll]] for (uint o = 0; o < 8; o++) x[o] = value(voff + srow[j + o * GROUPS] * vstride + g * HEADV, u);
          [[unroll]] for (uint o = 0; o < 8; o++) acc[i] = fma(vec2(sp[j + o * GROUPS]), x[o], acc[i]);
        }
      }
      for (; j < n; j += GROUPS)
        [[unroll]] for (uint i = 0; i < NA; i++)
          acc[i] = fma(vec2(sp[j]), value(voff + srow[j] * vstride + g * HEADV, min(lane + i * LANES, units - 1)), acc[i]);
    }
    barrier();
  }
  sum = wgSum(sum);
  [[unroll]] for (uint i = 0; i < NA; i++) {
    so[2 * (i * TILE + t)] = acc[i].x;
    so[2 * (i * TILE + t) + 1] = acc[i].y;
  }
  barrier();
  for (uint i = t; i < dv; i += T) {
    uint u = i / VU, at = 2 * (u / LANES * TILE + u % LANES) + i % VU;
    float r = 0;
    for (uint o = 0; o < GROUPS; o++) r += so[at + 2 * o * LANES];
    y[to + i] = r / sum;
  }
}
