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
// one of up to PARTS ranges of the positions; a subgroup takes eight positions at a time, an invocation four
// elements of each row, NV times. The workgroup that ends last puts the parts of its head together,
// and writes the result also as signed bytes (forms.glsl) where DOTS.
//
// With the macro FRESH, of one token: q is not rotated yet, and the newest rows of the caches are not in
// them. Workgroups rotate their head's q; the one whose range ends in the newest position takes its
// rows from xk and xv, beside those that it reads from the caches, and one of each head of the caches
// also writes them there. Nobody reads them there.
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
layout(binding = 5, std430) coherent buffer BPart { vec2 part[]; };   // a part's maximum and sum, behind
layout(binding = 5, std430) coherent buffer BPart4 { vec4 part4[]; }; // the sums of all parts
layout(binding = 6, std430) coherent buffer BDone { uint done[]; }; // zero before and behind a dispatch
layout(binding = 8, std430) writeonly buffer BD { uint bytes[]; };
layout(binding = 9, std430) writeonly buffer BS { vec2 scales[]; };
layout(constant_id = 7) const uint SINKS = 0; // their type, 0: there are none
#ifdef FRESH
layout(binding = 15, std430) readonly buffer BSinks { uint sinks[]; };
layout(constant_id = 6) const bool PAIR = false; // elements 2i and 2i+1 rotate together, else i and i + pairs
layout(binding = 10, std430) readonly buffer BXK { float xk[]; };
layout(binding = 11, std430) readonly buffer BXV { float xv[]; };
layout(binding = 12, std430) readonly buffer BF { uvec2 freqs[]; };
layout(binding = 13, std430) writeonly buffer BKW { uvec2 kw2[]; };
layout(binding = 13, std430) writeonly buffer BKW4 { uvec4 kw4[]; };
layout(binding = 14, std430) writeonly buffer BVW { uvec2 vw2[]; };
layout(binding = 14, std430) writeonly buffer BVW4 { uvec4 vw4[]; };
#else
layout(binding = 10, std430) readonly buffer BSinks { uint sinks[]; };
#endif
layout(push_constant) uniform Push {
  uint heads, share, dh, dv, positions;
  uint qoff, qstride, koff, kstride, voff, vstride, posoff, yoff, ystride, partoff; // k's, v's and partoff in groups of four elements
  float scale, cap;
  uint window, launch, pitch, sinkoff; // pitch: of bytes, in words
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

#define WIDE(type, a) (type == F32 ? uintBitsToFloat(a) : wide(type, a.xy))

#ifdef FRESH
shared vec4 sk[DHMAX / 4]; // the newest row of k

// ROTATED puts element e of q or xk, whose row begins at a, into r, turned by cosine and sine in cs.
#define ROTATED(from_, a, e, cs, r) { \
    r = from_[(a) + (e)]; \
    if ((e) < 2 * pairs) { \
      bool second = PAIR ? ((e) & 1u) == 1 : (e) >= pairs; \
      float o_ = from_[(a) + (PAIR ? (e) ^ 1u : (second ? (e) - pairs : (e) + pairs))]; \
      r = second ? r * cs.x + o_ * cs.y : r * cs.x - o_ * cs.y; \
    } }

uvec2 narrowed(uint type, vec4 v) {
  return type == F16 ? uvec2(f2h(v.x) | f2h(v.y) << 16, f2h(v.z) | f2h(v.w) << 16)
                     : uvec2(f2bf(v.x) | f2bf(v.y) << 16, f2bf(v.z) | f2bf(v.w) << 16);
}

// What a cache of a type gives back of the newest row's four elements v; where writer, they are put
// there as well.
#define STORED(type, to2, to4, a, writer, v) \
    if (type == F32) { \
      if (writer) to4[a] = floatBitsToUint(v); \
    } else { \
      uvec2 n_ = narrowed(type, v); \
      if (writer) to2[a] = n_; \
      v = wide(type, n_); \
    }
#endif

// FETCH reads eight positions from j on, behind the newest that again, as they lie in the caches.
#define FETCH(k, x, j) \
  [[unroll]] for (uint i = 0; i < NV; i++) { \
    uint u = lane + i * SG; \
    [[unroll]] for (uint o = 0; o < 8; o++) { \
      uint a = koff + min((j) + o, newest) * kstride + g * units + min(u, units - 1); \
      k[o * NV + i] = K == F32 ? k4[a] : uvec4(k2[a], 0, 0); \
    } \
    [[unroll]] for (uint o = 0; o < 8; o++) { \
      uint a = voff + min((j) + o, newest) * vstride + g * vunits + min(u, vunits - 1); \
      x[o * NV + i] = V == F32 ? v4[a] : uvec4(v2[a], 0, 0); \
    } \
  }

void main() {
  const uint t = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, SG = gl_SubgroupSize, own = gl_SubgroupID;
  uint h = gl_WorkGroupID.x, s = gl_WorkGroupID.y, p = gl_WorkGroupID.z, g = h / share;
  int last = pos[posoff + s];
  if (last < 0 || last >= int(positions)) {
    if (t == 0) refuse(launch, s, last, positions);
    return;
  }
  uint end = uint(last) + 1, from = window > 0 && end > window ? end - window : 0;
  uint parts = 1;
  if (PARTS > 1) {
    const uint turn = 8 * gl_NumSubgroups;
    uint per = ((end - from + PARTS - 1) / PARTS + turn - 1) / turn * turn;
    parts = (end - from + per - 1) / per;
    if (p >= parts) return;
    from += p * per;
    end = min(from + per, end);
  }
  uint units = dh / 4, vunits = dv / 4, until = end;
#ifdef FRESH
  bool newest_ = end == uint(last) + 1; // is in this workgroup's range
  if (newest_) until--;
#endif
  uint newest = max(until, 1) - 1; // that is in the caches
  uint j0 = from + own * 8;
  uvec4 k[8 * NV], x[8 * NV];
#if NV == 1 // else there are not enough registers
  FETCH(k, x, j0)
#endif
  for (uint e = t; e < dh; e += T) {
    float r;
#ifdef FRESH
    vec2 cs = vec2(1, 0);
    if (e < 2 * pairs) cs = rotation(freqs[PAIR ? e >> 1 : (e < pairs ? e : e - pairs)], uint(last)) * turned;
    ROTATED(q, qoff + s * qstride + h * dh, e, cs, r)
    sq[e >> 2][e & 3u] = r;
    if (newest_) {
      ROTATED(xk, xkoff + g * dh, e, cs, r)
      sk[e >> 2][e & 3u] = r;
    }
#else
    sq[e >> 2][e & 3u] = q[qoff + s * qstride + h * dh + e];
#endif
  }
  barrier();
  const float LOW = -3.0e38;
  float top = LOW, sum = 0;
  vec4 acc[NV];
  [[unroll]] for (uint i = 0; i < NV; i++) acc[i] = vec4(0);
#ifdef FRESH
  if (newest_ && own == gl_NumSubgroups - 1) {
    bool writer = h - g * share == 0;
    float d = 0;
    [[unroll]] for (uint i = 0; i < NV; i++) {
      uint u = lane + i * SG;
      if (u < units) {
        vec4 r = sk[u];
        STORED(K, kw2, kw4, koff + uint(last) * kstride + g * units + u, writer, r)
        d += dot(r, sq[u]);
      }
      if (u < vunits) {
        uint b = xvoff + g * dv + 4 * u;
        vec4 r = vec4(xv[b], xv[b + 1], xv[b + 2], xv[b + 3]);
        STORED(V, vw2, vw4, voff + uint(last) * vstride + g * vunits + u, writer, r)
        acc[i] = r;
      }
    }
    top = subgroupAdd(d) * scale;
    if (cap > 0) top = cap * tanh_(top / cap);
    sum = 1;
  }
#endif
  while (j0 < until) {
    uint j1 = j0 + 8 * gl_NumSubgroups;
#if NV == 1
    uvec4 k1[8 * NV], x1[8 * NV];
    if (j1 < until) { FETCH(k1, x1, j1) }
#else
    FETCH(k, x, j0)
#endif
    float d[8];
    [[unroll]] for (uint o = 0; o < 8; o++) d[o] = 0;
    [[unroll]] for (uint i = 0; i < NV; i++) {
      uint u = lane + i * SG;
      vec4 e = u < units ? sq[min(u, units - 1)] : vec4(0);
      [[unroll]] for (uint o = 0; o < 8; o++) d[o] += dot(WIDE(K, k[o * NV + i]), e);
    }
    [[unroll]] for (uint o = 0; o < 8; o++) d[o] = subgroupAdd(d[o]) * scale;
    if (cap > 0) {
      [[unroll]] for (uint o = 0; o < 8; o++) d[o] = cap * tanh_(d[o] / cap);
    }
    float next = top;
    [[unroll]] for (uint o = 0; o < 8; o++) {
      if (j0 + o >= until) d[o] = LOW;
      next = max(next, d[o]);
    }
    float old = exp_(top - next);
    sum *= old;
    [[unroll]] for (uint i = 0; i < NV; i++) acc[i] *= old;
    top = next;
    [[unroll]] for (uint o = 0; o < 8; o++) {
      float e = j0 + o < until ? exp_(d[o] - next) : 0.0;
      sum += e;
      [[unroll]] for (uint i = 0; i < NV; i++) acc[i] = fma(vec4(e), WIDE(V, x[o * NV + i]), acc[i]);
    }
#if NV == 1
    [[unroll]] for (uint o = 0; o < 8; o++) {
      k[o] = k1[o];
      x[o] = x1[o];
    }
#endif
    j0 = j1;
  }
  if (lane == 0) {
    tops[own] = top;
    sums[own] = sum;
  }
  [[unroll]] for (uint i = 0; i < NV; i++) so[own * SG * NV + i * SG + lane] = acc[i];
  barrier();
  // From here on an invocation has four elements of the result, up to vunits <= T.
  float best = LOW, weight = 0;
  for (uint o = 0; o < gl_NumSubgroups; o++) best = max(best, tops[o]);
  for (uint o = 0; o < gl_NumSubgroups; o++) weight = fma(sums[o], exp_(tops[o] - best), weight);
  vec4 r = vec4(0);
  if (t < vunits)
    for (uint o = 0; o < gl_NumSubgroups; o++) r = fma(so[o * SG * NV + t], vec4(exp_(tops[o] - best)), r);
  if (PARTS > 1 && parts > 1) {
    uint lines = gl_NumWorkGroups.x * gl_NumWorkGroups.y, line = s * heads + h;
    uint to = partoff + line * PARTS * vunits, heads_ = 2 * partoff + (2 * lines * vunits + line) * PARTS;
    if (t < vunits) part4[to + p * vunits + t] = r;
    if (t == 0) part[heads_ + p] = vec2(best, weight);
    memoryBarrierBuffer();
    barrier();
    if (t == 0) last_ = atomicAdd(done[line], 1u) == parts - 1;
    barrier();
    if (!last_) return;
    memoryBarrierBuffer();
    if (t == 0) done[line] = 0;
    // Of each unit several invocations take every sharers-th part, eight at a time.
    uint sharers = T / vunits, u = t % vunits, mine = t / vunits;
    if (t < parts) {
      vec2 head = part[heads_ + t];
      tops[t] = head.x;
      sums[t] = head.y;
    }
    barrier();
    best = LOW;
    for (uint o = lane; o < parts; o += SG) best = max(best, tops[o]);
    best = subgroupMax(best);
    weight = 0;
    for (uint o = lane; o < parts; o += SG) weight = fma(sums[o], exp_(tops[o] - best), weight);
    weight = subgroupAdd(weight);
    r = vec4(0);
    if (mine < sharers)
      for (uint o0 = mine; o0 < parts; o0 += 8 * sharers) {
        vec4 v[8];
        [[unroll]] for (uint n = 0; n < 8; n++) v[n] = part4[to + min(o0 + n * sharers, parts - 1) * vunits + u];
        [[unroll]] for (uint n = 0; n < 8; n++)
          if (o0 + n * sharers < parts) r = fma(v[n], vec4(exp_(tops[o0 + n * sharers] - best)), r);
      }
    so[t] = r;
    barrier();
    if (t < vunits)
      for (uint n = 1; n < sharers; n++) r += so[n * vunits + t];
  }
  if (SINKS != 0) {
    float sink = NARROW(sinks, SINKS, sinkoff + h), high = max(best, sink), f = exp_(best - high);
    r *= f;
    weight = fma(weight, f, exp_(sink - high));
  }
  r /= weight;
  if (t < vunits) {
    uint a = yoff + s * ystride + h * dv + 4 * t;
    [[unroll]] for (uint n = 0; n < 4; n++) y[a + n] = r[n];
  }
  if (DOTS) { // dv is a multiple of 32
    most[t] = max(max(abs(r.x), abs(r.y)), max(abs(r.z), abs(r.w)));
    barrier();
    float m = 0;
    for (uint n = 0; n < 8; n++) m = max(m, most[(t & ~7u) + n]);
    ivec4 c = ivec4(roundEven(r * (m > 0 ? 127.0 / m : 0.0)));
    total[t] = c.x + c.y + c.z + c.w;
    barrier();
    uint at = s * pitch + h * vunits + t;
    if (t < vunits) bytes[at] = c.x & 255 | (c.y & 255) << 8 | (c.z & 255) << 16 | c.w << 24;
    if (t < vunits && (t & 7u) == 0) {
      int n = 0;
      for (uint j = 0; j < 8; j++) n += total[t + j];
      scales[at >> 3] = vec2(m / 127.0, m / 127.0 * float(n));
    }
  }
}
