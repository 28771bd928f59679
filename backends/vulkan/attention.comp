#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 6
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
// y[s,h] = sum over j of softmax(cap(scale q[s,h] k[j]))[j] v[j], pos[s]-window < j <= pos[s],
// with the softmax online, a tile of positions at a time. A workgroup works on one head of
// one token and on one of PARTS ranges of the positions; attention_join puts parts together.
// With MORE, a macro, there are sinks, chunks, slopes on distances and tables of them, queries that see behind
// their own position, and texts side by side (ops.AttentionAttr, ops.Attention). NA, a macro, is how many units of VU elements of v an invocation sums up.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = F32; // types of the caches
layout(constant_id = 2) const uint V = F32;
layout(constant_id = 3) const bool WIDEK = false; // rows of k can be read 16 bytes, 8 or 4 elements, at a time
layout(constant_id = 4) const uint VU = 1;        // elements of v that an invocation reads together: 1 or 2
layout(constant_id = 5) const uint LANES = 64;    // invocations beside each other on a row of v
layout(constant_id = 6) const uint PARTS = 1;
layout(constant_id = 7) const uint DHMAX = 128;   // room for q
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { uint k[]; };
layout(binding = 1, std430) readonly buffer BK4 { uvec4 k4[]; };
layout(binding = 2, std430) readonly buffer BV { uint v[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 5, std430) writeonly buffer BPart { float part[]; };
#ifdef MORE
layout(constant_id = 8) const uint SINKS = 0; // their type, 0: there are none
layout(constant_id = 9) const bool SPANS = false; // a token sees the rows of its own text alone
layout(constant_id = 10) const uint COUNT = 0; // distances that tables tell apart, 0: there are none
layout(constant_id = 11) const uint APART = 0; // 0: each, 1: sides, 2: around
layout(constant_id = 12) const float REACH = 0;
layout(constant_id = 13) const uint BIAS = 0;  // types of the tables, 0: there is none
layout(constant_id = 14) const uint FARK = 0;
layout(constant_id = 15) const uint FARQ = 0;
layout(constant_id = 16) const uint FARHEADS = 1;
layout(binding = 7, std430) readonly buffer BSinks { uint sinks[]; };
layout(binding = 8, std430) readonly buffer BSpan { int span[]; };
layout(binding = 9, std430) readonly buffer BBias { uint bias[]; };
layout(binding = 10, std430) readonly buffer BFarK { uint fark[]; };
layout(binding = 11, std430) readonly buffer BFarQ { uint farq[]; };
#endif
layout(push_constant) uniform Push {
  uint heads, share, dh, dv, positions;  // share: heads of a group
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride, partoff; // in elements
  float scale, cap;
  uint window, launch;
#ifdef MORE
  uint sinkoff, chunk, both;
  float alibi, slope;
  uint spanoff, biasoff, farkoff, farqoff;
#endif
};

const uint TILE = gl_WorkGroupSize.x;
const uint GROUPS = TILE / LANES; // rows of v that are read at a time
shared float sq[DHMAX];
shared float sp[TILE];
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
  uint h = gl_WorkGroupID.x, s = gl_WorkGroupID.y, p = gl_WorkGroupID.z, g = h / share;
#ifdef MORE
  uint first = 0, rows = positions; // of the text
  int last = int(s);
  if (SPANS) {
    int begin = span[spanoff + 2 * s], behind = span[spanoff + 2 * s + 1];
    if (begin < 0 || begin > last || behind <= last || behind > int(positions)) {
      if (t == 0) refuse(launch, s, begin < 0 || begin > last ? begin : behind, positions);
      return;
    }
    first = uint(begin);
    rows = uint(behind - begin);
    last -= begin;
  } else {
    last = pos[posoff + s];
  }
#else
  int last = pos[posoff + s];
#endif
  if (last < 0 || last >= int(positions)) {
    if (t == 0) refuse(launch, s, last, positions);
    return;
  }
  uint end = uint(last) + 1, from = window > 0 && end > window ? end - window : 0;
#ifdef MORE
  if (chunk > 0) from = max(from, uint(last) / chunk * chunk);
  if (both != 0) end = window > 0 ? min(uint(last) + window, rows) : rows;
  from += first; // from here on rows of k, not positions in a text
  end += first;
  float fall = fallOf(h);
#endif
  if (PARTS > 1) { // whole tiles, so that few parts are cut
    uint tiles = (end - from + T - 1) / T, per = (tiles + PARTS - 1) / PARTS * T;
    from += min(p * per, end - from);
    end = min(from + per, end);
  }
  for (uint i = t; i < dh; i += T) sq[i] = q[qoff + s * qstride + h * dh + i];
  barrier();
  const float LOW = -3.0e38;
  float top = LOW, sum = 0;
#ifdef MORE
  if (SINKS != 0 && p == 0) {
    top = NARROW(sinks, SINKS, sinkoff + h);
    sum = t == 0 ? 1.0 : 0.0;
  }
#endif
  vec2 acc[NA];
  [[unroll]] for (uint i = 0; i < NA; i++) acc[i] = vec2(0);
  uint lane = t % LANES, group = t / LANES, units = dv / VU;
  for (uint j0 = from; j0 < end; j0 += T) {
    uint n = min(T, end - j0);
    float d = t < n ? score(koff + (j0 + t) * kstride + g * HEADK) : LOW;
#ifdef MORE
    if (t < n) d -= fall * abs(float(last) - float(j0 - first + t));
    if (COUNT != 0 && t < n) d += spaced(last - int(j0 - first + t), h, koff + (j0 + t) * kstride + g * dh);
#endif
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
          [[unroll]] for (uint o = 0; o < 8; o++) x[o] = value(voff + (j0 + j + o * GROUPS) * vstride + g * HEADV, u);
          [[unroll]] for (uint o = 0; o < 8; o++) acc[i] = fma(vec2(sp[j + o * GROUPS]), x[o], acc[i]);
        }
      }
      for (; j < n; j += GROUPS)
        [[unroll]] for (uint i = 0; i < NA; i++)
          acc[i] = fma(vec2(sp[j]), value(voff + (j0 + j) * vstride + g * HEADV, min(lane + i * LANES, units - 1)), acc[i]);
    }
    barrier();
  }
  sum = wgSum(sum);
  uint to = PARTS == 1 ? yoff + s * ystride + h * dv : partoff + ((s * heads + h) * PARTS + p) * (dv + 2);
  if (PARTS > 1 && t == 0) {
    part[to] = top;
    part[to + 1] = sum;
  }
  [[unroll]] for (uint i = 0; i < NA; i++) {
    so[2 * (i * TILE + t)] = acc[i].x;
    so[2 * (i * TILE + t) + 1] = acc[i].y;
  }
  barrier();
  for (uint i = t; i < dv; i += T) {
    uint u = i / VU, at = 2 * (u / LANES * TILE + u % LANES) + i % VU;
    float r = 0;
    for (uint o = 0; o < GROUPS; o++) r += so[at + 2 * o * LANES];
    if (PARTS == 1) y[to + i] = r / sum;
    else part[to + 2 + i] = r;
  }
}
