#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 7
#include "common.glsl"
#include "status.glsl"
#ifdef FRESH
#include "turn.glsl"
#endif
// Attention of few tokens, as attention.comp defines it. A workgroup works on one head of one token and
// one of PARTS ranges of the positions; a subgroup takes eight positions at a time, an invocation four
// elements of each row, NV times. The workgroup that ends last puts the parts of its head together,
// and writes the result also as signed bytes (forms.glsl) where DOTS.
//
// With the macro FRESH, of one token: q is not rotated yet, and the newest rows of the caches are not in
// them. Workgroups rotate their head's q, and those whose range ends in the newest position take its
// rows from xk and xv; one of each head of the caches also writes them there. Nobody reads them there.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = F32; // types of the caches
layout(constant_id = 2) const uint V = F32;
layout(constant_id = 3) const uint PARTS = 1;
layout(constant_id = 4) const bool DOTS = false;
layout(constant_id = 5) const uint DHMAX = 128; // room for q, a multiple of 4
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { uvec2 k2[]; };
layout(binding = 1, std430) readonly buffer BK4 { uvec4 k4[]; };
layout(binding = 2, std430) readonly buffer BV { uvec2 v2[]; };
layout(binding = 2, std430) readonly buffer BV4 { uvec4 v4[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 5, std430) coherent buffer BPart { float part[]; };
layout(binding = 6, std430) coherent buffer BDone { uint done[]; }; // zero before and behind a dispatch
layout(binding = 8, std430) writeonly buffer BD { uint bytes[]; };
layout(binding = 9, std430) writeonly buffer BS { vec2 scales[]; };
#ifdef FRESH
layout(constant_id = 6) const bool PAIR = false; // elements 2i and 2i+1 rotate together, else i and i + pairs
layout(binding = 10, std430) readonly buffer BXK { float xk[]; };
layout(binding = 11, std430) readonly buffer BXV { float xv[]; };
layout(binding = 12, std430) readonly buffer BF { uvec2 freqs[]; };
layout(binding = 13, std430) writeonly buffer BKW { uvec2 kw2[]; };
layout(binding = 13, std430) writeonly buffer BKW4 { uvec4 kw4[]; };
layout(binding = 14, std430) writeonly buffer BVW { uvec2 vw2[]; };
layout(binding = 14, std430) writeonly buffer BVW4 { uvec4 vw4[]; };
#endif
layout(push_constant) uniform Push {
  uint heads, share, dh, dv, positions;
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride, partoff; // k's and v's in groups of four elements
  float scale, cap;
  uint window, launch, pitch; // pitch: of bytes, in words
#ifdef FRESH
  uint xkoff, xvoff, pairs;
  float turned; // on cosine and sine
#endif
};

const uint T = gl_WorkGroupSize.x;
const uint MOST = 64; // subgroups of a workgroup, and parts, at most
shared vec4 sq[DHMAX / 4];
shared float tops[MOST], sums[MOST];
shared vec4 so[T * NV];
shared bool last_;
shared float most[T];
shared int total[T];

vec4 wide(uint type, uvec2 a) {
  return type == F16 ? vec4(unpackHalf2x16(a.x), unpackHalf2x16(a.y))
                     : uintBitsToFloat(uvec4(a.x << 16, a.x & 0xffff0000u, a.y << 16, a.y & 0xffff0000u));
}

#ifdef FRESH
shared vec4 sk[DHMAX / 4], sv[T * NV]; // the newest rows

// ROTATED puts element e of q or xk, whose row begins at a, into r; v_ and o_ are it and its partner.
#define ROTATED(from_, a, e, position, r) { \
    float v_ = from_[(a) + (e)]; \
    if ((e) < 2 * pairs) { \
      bool second = PAIR ? ((e) & 1u) == 1 : (e) >= pairs; \
      float o_ = from_[(a) + (PAIR ? (e) ^ 1u : (second ? (e) - pairs : (e) + pairs))]; \
      vec2 cs = rotation(freqs[PAIR ? (e) >> 1 : ((e) < pairs ? (e) : (e) - pairs)], position) * turned; \
      v_ = second ? v_ * cs.x + o_ * cs.y : v_ * cs.x - o_ * cs.y; \
    } \
    r = v_; }

uvec2 narrowed(uint type, vec4 v) {
  return type == F16 ? uvec2(f2h(v.x) | f2h(v.y) << 16, f2h(v.z) | f2h(v.w) << 16)
                     : uvec2(f2bf(v.x) | f2bf(v.y) << 16, f2bf(v.z) | f2bf(v.w) << 16);
}
#endif

void main() {
  const uint t = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, SG = gl_SubgroupSize, own = gl_SubgroupID;
  uint h = gl_WorkGroupID.x, s = gl_WorkGroupID.y, p = gl_WorkGroupID.z, g = h / share;
  int last = pos[posoff + s];
  if (last < 0 || last >= int(positions)) {
    if (t == 0) refuse(launch, s, last, positions);
    return;
  }
  uint end = uint(last) + 1, from = window > 0 && end > window ? end - window : 0;
  if (PARTS > 1) {
    uint per = max((end - from + PARTS - 1) / PARTS, 8 * gl_NumSubgroups);
    from += min(p * per, end - from);
    end = min(from + per, end);
  }
  uint units = dh / 4, vunits = dv / 4;
  for (uint i = t; i < units; i += T) {
    uint a = qoff + s * qstride + h * dh + 4 * i;
#ifdef FRESH
    vec4 r;
    [[unroll]] for (uint n = 0; n < 4; n++) ROTATED(q, a - 4 * i, 4 * i + n, uint(last), r[n])
    sq[i] = r;
#else
    sq[i] = vec4(q[a], q[a + 1], q[a + 2], q[a + 3]);
#endif
  }
#ifdef FRESH
  if (from < end && end == uint(last) + 1) {
    bool writer = h - g * share == 0;
    for (uint i = t; i < units; i += T) {
      vec4 r;
      [[unroll]] for (uint n = 0; n < 4; n++) ROTATED(xk, xkoff + g * dh, 4 * i + n, uint(last), r[n])
      uint a = koff + uint(last) * kstride + g * units + i;
      if (K == F32) {
        if (writer) kw4[a] = floatBitsToUint(r);
      } else {
        uvec2 n = narrowed(K, r);
        if (writer) kw2[a] = n;
        r = wide(K, n);
      }
      sk[i] = r;
    }
    for (uint i = t; i < vunits; i += T) {
      uint b = xvoff + g * dv + 4 * i, a = voff + uint(last) * vstride + g * vunits + i;
      vec4 r = vec4(xv[b], xv[b + 1], xv[b + 2], xv[b + 3]);
      if (V == F32) {
        if (writer) vw4[a] = floatBitsToUint(r);
      } else {
        uvec2 n = narrowed(V, r);
        if (writer) vw2[a] = n;
        r = wide(V, n);
      }
      sv[i] = r;
    }
  }
#endif
  barrier();
  const float LOW = -3.0e38;
  float top = LOW, sum = 0;
  vec4 acc[NV];
  [[unroll]] for (uint i = 0; i < NV; i++) acc[i] = vec4(0);
  for (uint j0 = from + own * 8; j0 < end; j0 += 8 * gl_NumSubgroups) {
    float d[8];
    vec4 x[8 * NV];
    [[unroll]] for (uint o = 0; o < 8; o++) d[o] = 0;
    [[unroll]] for (uint i = 0; i < NV; i++) {
      uint u = lane + i * SG;
      vec4 k[8];
      [[unroll]] for (uint o = 0; o < 8; o++) {
        uint a = koff + min(j0 + o, end - 1) * kstride + g * units + min(u, units - 1);
#ifdef FRESH
        if (min(j0 + o, end - 1) == uint(last)) k[o] = sk[min(u, units - 1)];
        else
#endif
        k[o] = K == F32 ? uintBitsToFloat(k4[a]) : wide(K, k2[a]);
      }
      [[unroll]] for (uint o = 0; o < 8; o++) {
        uint a = voff + min(j0 + o, end - 1) * vstride + g * vunits + min(u, vunits - 1);
#ifdef FRESH
        if (min(j0 + o, end - 1) == uint(last)) x[o * NV + i] = sv[min(u, vunits - 1)];
        else
#endif
        x[o * NV + i] = V == F32 ? uintBitsToFloat(v4[a]) : wide(V, v2[a]);
      }
      vec4 e = u < units ? sq[min(u, units - 1)] : vec4(0);
      [[unroll]] for (uint o = 0; o < 8; o++) d[o] += dot(k[o], e);
    }
    float next = top;
    [[unroll]] for (uint o = 0; o < 8; o++) {
      d[o] = subgroupAdd(d[o]) * scale;
      if (cap > 0) d[o] = cap * tanh_(d[o] / cap);
      if (j0 + o >= end) d[o] = LOW;
      next = max(next, d[o]);
    }
    float old = exp_(top - next);
    sum *= old;
    [[unroll]] for (uint i = 0; i < NV; i++) acc[i] *= old;
    top = next;
    [[unroll]] for (uint o = 0; o < 8; o++) {
      float e = j0 + o < end ? exp_(d[o] - next) : 0.0;
      sum += e;
      [[unroll]] for (uint i = 0; i < NV; i++) acc[i] = fma(vec4(e), x[o * NV + i], acc[i]);
    }
  }
  if (lane == 0) {
    tops[own] = top;
    sums[own] = sum;
  }
  [[unroll]] for (uint i = 0; i < NV; i++) so[own * SG * NV + i * SG + lane] = acc[i];
  barrier();
  float best = LOW, weight = 0;
  for (uint o = 0; o < gl_NumSubgroups; o++) best = max(best, tops[o]);
  for (uint o = 0; o < gl_NumSubgroups; o++) weight = fma(sums[o], exp_(tops[o] - best), weight);
  uint line = s * heads + h, to = partoff + line * PARTS * (dv + 2);
  // This workgroup's part: element i of the sums lies in unit i / 4 of each subgroup.
  if (PARTS > 1) {
    for (uint i = t; i < dv; i += T) {
      float r = 0;
      for (uint o = 0; o < gl_NumSubgroups; o++) r = fma(so[o * SG * NV + i / 4][i & 3u], exp_(tops[o] - best), r);
      part[to + p * (dv + 2) + 2 + i] = r;
    }
    if (t == 0) {
      part[to + p * (dv + 2)] = best;
      part[to + p * (dv + 2) + 1] = weight;
    }
    memoryBarrierBuffer();
    barrier();
    if (t == 0) last_ = atomicAdd(done[line], 1u) == PARTS - 1;
    barrier();
    if (!last_) return;
    memoryBarrierBuffer();
    if (t == 0) done[line] = 0;
    if (t < PARTS) {
      tops[t] = part[to + t * (dv + 2)];
      sums[t] = part[to + t * (dv + 2) + 1];
    }
    barrier();
    best = LOW;
    weight = 0;
    for (uint o = 0; o < PARTS; o++) best = max(best, tops[o]);
    barrier();
    if (t < PARTS) tops[t] = exp_(tops[t] - best);
    barrier();
    for (uint o = 0; o < PARTS; o++) weight = fma(sums[o], tops[o], weight);
  }
  for (uint i0 = 0; i0 < dv; i0 += T) {
    uint i = i0 + t;
    float r = 0;
    if (i < dv) {
      if (PARTS > 1)
        for (uint o = 0; o < PARTS; o++) r = fma(part[to + o * (dv + 2) + 2 + i], tops[o], r);
      else
        for (uint o = 0; o < gl_NumSubgroups; o++) r = fma(so[o * SG * NV + i / 4][i & 3u], exp_(tops[o] - best), r);
      r /= weight;
      y[yoff + s * ystride + h * dv + i] = r;
    }
    if (DOTS) { // dv and T are multiples of 32
      most[t] = abs(r);
      barrier();
      float m = 0;
      for (uint j = 0; j < 32; j++) m = max(m, most[(t & ~31u) + j]);
      total[t] = int(roundEven(r * (m > 0 ? 127.0 / m : 0.0)));
      barrier();
      uint at = h * dv + i;
      if (i < dv && (t & 3u) == 0)
        bytes[s * pitch + (at >> 2)] = total[t] & 255 | (total[t + 1] & 255) << 8 | (total[t + 2] & 255) << 16 | total[t + 3] << 24;
      if (i < dv && (t & 31u) == 0) {
        int n = 0;
        for (uint j = 0; j < 32; j++) n += total[t + j];
        scales[(s * pitch + (at >> 2)) >> 3] = vec2(m / 127.0, m / 127.0 * float(n));
      }
      barrier();
    }
  }
}
