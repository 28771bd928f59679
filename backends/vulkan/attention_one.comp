#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define STATUS 7
#include "common.glsl"
#include "status.glsl"
#define HAND 15
#include "handed.glsl"
#include "turn.glsl"
// Attention of one token over caches of 16 bits, together with its rotations and stores: q is not rotated yet,
// and the newest rows of the caches are not in them (attention_few.comp, FRESH). A workgroup works on
// one head and every PARTS-th block of positions, or on all of few; L lanes take a position, eight elements each, and
// NP positions at a time, with the next on their way. What does not depend on the token's position is
// asked for before that is known. The workgroup that ends last puts the parts of its head together,
// and writes the result also as signed bytes (forms.glsl) where DOTS. Where HANDED, q and the newest rows are read
// as soon as they are there (handed.glsl), and so are parts, by the workgroup of a head that starts last.
layout(local_size_x_id = 0) in; // T, DH at least
layout(constant_id = 1) const uint TYPE = F16; // of both caches, or BF16
layout(constant_id = 2) const uint DH = 128;   // elements of a head: 8 by a power of two that divides the subgroup's size
layout(constant_id = 3) const uint PARTS = 1;
layout(constant_id = 4) const bool DOTS = false;
layout(constant_id = 5) const bool PAIR = false; // elements 2i and 2i+1 rotate together, else i and i + pairs
layout(constant_id = 6) const bool HANDED = false;
layout(constant_id = 7) const uint ALONE = 1; // blocks up to which one workgroup takes all of a head
layout(constant_id = 8) const uint SINKS = 0; // their type, 0: there are none
layout(binding = 0, std430) readonly buffer BQ { float q[]; };
layout(binding = 1, std430) readonly buffer BK { uvec4 k4[]; };
layout(binding = 2, std430) readonly buffer BV { uvec4 v4[]; };
layout(binding = 3, std430) readonly buffer BPos { int pos[]; };
layout(binding = 4, std430) coherent writeonly buffer BY { float y[]; };
layout(binding = 5, std430) coherent buffer BPart { vec2 part[]; };   // a part's maximum and sum, behind
layout(binding = 5, std430) coherent buffer BPart1 { float part1[]; }; // the sums of all parts
layout(binding = 6, std430) coherent buffer BDone { uint done[]; }; // zero before and behind a dispatch
layout(binding = 8, std430) coherent writeonly buffer BD { uint bytes[]; };
layout(binding = 9, std430) coherent writeonly buffer BS { vec2 scales[]; };
layout(binding = 10, std430) readonly buffer BXK { float xk[]; };
layout(binding = 11, std430) readonly buffer BXV { float xv[]; };
layout(binding = 0, std430) coherent volatile buffer HQ { uint qh[]; }; // where HANDED
layout(binding = 5, std430) coherent volatile buffer HPart { uvec2 parth[]; };
layout(binding = 5, std430) coherent volatile buffer HPart1 { uint parth1[]; };
layout(binding = 10, std430) coherent volatile buffer HXK { uint xkh[]; };
layout(binding = 11, std430) coherent volatile buffer HXV { uint xvh[]; };
layout(binding = 12, std430) readonly buffer BF { uvec2 freqs[]; };
layout(binding = 13, std430) writeonly buffer BKW { uvec4 kw4[]; };
layout(binding = 14, std430) writeonly buffer BVW { uvec4 vw4[]; };
layout(binding = 16, std430) readonly buffer BSinks { uint sinks[]; };
layout(push_constant) uniform Push {
  uint heads, share, positions;
  uint qoff, koff, kstride, voff, vstride, posoff, yoff, partoff; // k's and v's in groups of eight elements, partoff of four
  float scale, cap;
  uint window, launch;
  uint xkoff, xvoff, pairs;
  float turned; // on cosine and sine
  uint sinkoff, waits; // waits: where HANDED: what stages before write may not be there yet, where not 0
};

const uint T = gl_WorkGroupSize.x;
const uint L = DH / 8, GROUPS = T / L, TURN = GROUPS * NP;
const uint MOST = 64; // parts at most
const float LOW = -3.0e38;
shared vec4 sq[DH / 4];
shared uint staged[2 * DH];
shared uvec4 fresh[2][L];        // the newest rows
shared float tops[GROUPS], sums[GROUPS];
shared float merged[8 * T]; // of subgroups, T / L at most
shared float heads_[2 * MOST];
shared vec4 most[T / 4];
shared ivec4 codes[T / 4];
shared bool last_;

void widen(uvec4 w, out vec4 a, out vec4 b) {
  if (TYPE == F16) {
    a = vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    b = vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w));
  } else {
    a = uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
    b = uintBitsToFloat(uvec4(w.z << 16, w.z & 0xffff0000u, w.w << 16, w.w & 0xffff0000u));
  }
}

float SAID(float v) { return HANDED ? said(v) : v; }

uint partLooks = 0;

// gather reads an invocation's element of 16 parts from n0 on, where HANDED as soon as they are there; from: of the first of all.
void gather(uint from, uint n0, uint parts, out float v[16]) {
  const bool waiting = HANDED && !there(vain);
  bool again = true;
  while (again) {
    again = false;
    [[unroll]] for (uint n = 0; n < 16; n++) {
      const uint i = from + min(n0 + n, parts - 1) * DH;
      if (HANDED) {
        const uint w = parth1[i];
        again = again || !there(w);
        v[n] = uintBitsToFloat(w);
      } else {
        v[n] = part1[i];
      }
    }
    again = again && waiting && partLooks < PATIENCE;
    if (again) partLooks++;
  }
}

uint narrow(float v) { return TYPE == F16 ? f2h(v) : f2bf(v); }

// FETCH reads a group's positions of the turn that begins at from_, none from end_ on.
#define FETCH(k, x, from_, end_) \
  [[unroll]] for (uint n = 0; n < NP; n++) { \
    uint r = min((from_) + n * GROUPS + group, (end_) - 1); \
    k[n] = k4[kbase + r * kstride]; \
    x[n] = v4[vbase + r * vstride]; \
  }

void main() {
  const uint t = gl_LocalInvocationID.x, lane = t % L, group = t / L;
  const uint SG = gl_SubgroupSize, h = gl_WorkGroupID.x, p = gl_WorkGroupID.y, g = h / share;
  const uint kbase = koff + g * L + lane, vbase = voff + g * L + lane;
  int last = pos[posoff];
  uvec4 k[NP], x[NP];
  uint j = p * TURN;
  if (window == 0) { FETCH(k, x, j, positions) }
  // Element t of the query and of the newest rows, and what it is turned with.
  float a = 0, other = 0, b = 0, other2 = 0, c = 0;
  uvec2 freq = uvec2(0);
  bool second = false;
  const bool turns = t < 2 * pairs;
  uint e = t;
  if (turns) {
    second = PAIR ? (t & 1u) == 1 : t >= pairs;
    e = PAIR ? t ^ 1u : second ? t - pairs : t + pairs;
    freq = freqs[PAIR ? t >> 1 : second ? t - pairs : t];
  }
  if (last < 0 || last >= int(positions)) {
    if (t == 0) refuse(launch, 0, last, positions);
    if (HANDED) atomicExchange(vain, 0u); // nobody will write
    return;
  }
  const uint newest = uint(last), end = newest + 1, from = window > 0 && end > window ? end - window : 0;
  const uint first = from / TURN, blocks = newest / TURN - first + 1, parts = blocks > ALONE ? min(blocks, PARTS) : 1;
  if (p >= parts) return;
  if (t < DH && HANDED) {
    const bool waiting = waits != 0 && !there(vain);
    uint looks = 0, v;
    uvec4 w;
    bool again = true;
    while (again) {
      w = uvec4(qh[qoff + h * DH + t], qh[qoff + h * DH + e], xkh[xkoff + g * DH + t], xkh[xkoff + g * DH + e]);
      v = xvh[xvoff + g * DH + t];
      again = waiting && looks < PATIENCE && !(there(w) && there(v));
      if (again) looks++;
    }
    tooLong(launch, looks);
    a = uintBitsToFloat(w.x);
    other = uintBitsToFloat(w.y);
    b = uintBitsToFloat(w.z);
    other2 = uintBitsToFloat(w.w);
    c = uintBitsToFloat(v);
  } else if (t < DH) {
    a = q[qoff + h * DH + t];
    other = q[qoff + h * DH + e];
    b = xk[xkoff + g * DH + t];
    other2 = xk[xkoff + g * DH + e];
    c = xv[xvoff + g * DH + t];
  }
  const bool owner = (blocks - 1) % parts == p; // of the newest position
  if (window > 0) {
    j = (first + p) * TURN;
    FETCH(k, x, j, end)
  }
  if (turns) {
    vec2 cs = rotation(freq, newest) * turned;
    a = second ? a * cs.x + other * cs.y : a * cs.x - other * cs.y;
    b = second ? b * cs.x + other2 * cs.y : b * cs.x - other2 * cs.y;
  }
  if (t < DH) {
    sq[t >> 2][t & 3u] = a;
    if (owner) {
      staged[t] = narrow(b);
      staged[DH + t] = narrow(c);
    }
  }
  barrier();
  if (owner && t < 2 * L) { // t % L is the lane
    uvec4 w;
    [[unroll]] for (uint n = 0; n < 4; n++) w[n] = staged[8 * t + 2 * n] | staged[8 * t + 2 * n + 1] << 16;
    fresh[t / L][lane] = w;
    if (h - g * share == 0) {
      if (t < L) kw4[kbase + newest * kstride] = w;
      else vw4[vbase + newest * vstride] = w;
    }
  }
  const vec4 q0 = sq[2 * lane], q1 = sq[2 * lane + 1];
  if (owner) barrier();
  float top = LOW, sum = 0;
  vec4 acc0 = vec4(0), acc1 = vec4(0);
  for (uint i = p; i < blocks; i += parts) {
    const uint next = j + parts * TURN;
    uvec4 k1[NP], x1[NP];
    if (i + parts < blocks) { FETCH(k1, x1, next, end) }
    float d[NP];
    [[unroll]] for (uint n = 0; n < NP; n++) {
      uint r = j + n * GROUPS + group;
      if (r == newest) {
        k[n] = fresh[0][lane];
        x[n] = fresh[1][lane];
      }
      vec4 lo, hi;
      widen(k[n], lo, hi);
      d[n] = dot(lo, q0) + dot(hi, q1);
    }
    [[unroll]] for (uint o = L / 2; o > 0; o >>= 1)
      [[unroll]] for (uint n = 0; n < NP; n++) d[n] += subgroupShuffleXor(d[n], o);
    float high = top;
    [[unroll]] for (uint n = 0; n < NP; n++) {
      uint r = j + n * GROUPS + group;
      d[n] *= scale;
      if (cap > 0) d[n] = cap * tanh_(d[n] / cap);
      if (r > newest || r < from) d[n] = LOW;
      high = max(high, d[n]);
    }
    float old = exp_(top - high);
    sum *= old;
    acc0 *= old;
    acc1 *= old;
    top = high;
    [[unroll]] for (uint n = 0; n < NP; n++) {
      uint r = j + n * GROUPS + group;
      bool seen = r <= newest && r >= from;
      float w = seen ? exp_(d[n] - high) : 0.0;
      sum += w;
      vec4 lo, hi;
      widen(seen ? x[n] : uvec4(0), lo, hi); // what lies behind the newest may be no number
      acc0 = fma(vec4(w), lo, acc0);
      acc1 = fma(vec4(w), hi, acc1);
      k[n] = k1[n];
      x[n] = x1[n];
    }
    j = next;
  }
  // The workgroup's sums are scaled to its largest score and added: groups of a subgroup, subgroups.
  if (lane == 0) tops[group] = top;
  barrier();
  float best = LOW;
  for (uint n = 0; n < GROUPS; n++) best = max(best, tops[n]);
  float f = exp_(top - best);
  sum *= f;
  acc0 *= f;
  acc1 *= f;
  for (uint o = L; o < SG; o <<= 1) {
    sum += subgroupShuffleXor(sum, o);
    [[unroll]] for (uint n = 0; n < 4; n++) {
      acc0[n] += subgroupShuffleXor(acc0[n], o);
      acc1[n] += subgroupShuffleXor(acc1[n], o);
    }
  }
  if (gl_SubgroupInvocationID < L) {
    uint to = gl_SubgroupID * DH + 8 * lane;
    [[unroll]] for (uint n = 0; n < 4; n++) {
      merged[to + n] = acc0[n];
      merged[to + 4 + n] = acc1[n];
    }
    if (lane == 0) sums[gl_SubgroupID] = sum;
  }
  barrier();
  float r = 0, weight = 0;
  for (uint n = 0; n < gl_NumSubgroups; n++) {
    if (t < DH) r += merged[n * DH + t];
    weight += sums[n];
  }
  if (PARTS > 1 && parts > 1) {
    uint to = (4 * partoff) + h * PARTS * DH, at = 2 * partoff + (heads * DH / 2 + h) * PARTS;
    if (t < DH) part1[to + p * DH + t] = SAID(r);
    if (t == 0) part[at + p] = vec2(SAID(best), SAID(weight));
    if (HANDED) {
      if (p < parts - 1) return;
    } else {
      memoryBarrierBuffer();
      barrier();
      if (t == 0) last_ = atomicAdd(done[h], 1u) == parts - 1;
      barrier();
      if (!last_) return;
      if (t == 0) done[h] = 0;
      memoryBarrierBuffer();
    }
    vec2 head = vec2(LOW, 0);
    r = 0;
    weight = 0;
    float v[16]; // of the parts, on their way while those are weighed
    if (t < DH) gather(to + t, 0, parts, v);
    if (t < parts) {
      if (HANDED) {
        const bool waiting = !there(vain);
        uvec2 w = parth[at + t];
        while (waiting && !(there(w.x) && there(w.y)) && partLooks < PATIENCE) {
          w = parth[at + t];
          partLooks++;
        }
        head = uintBitsToFloat(w);
      } else {
        head = part[at + t];
      }
    }
    if (t < parts) heads_[t] = head.x;
    barrier();
    best = LOW;
    for (uint n = 0; n < parts; n++) best = max(best, heads_[n]);
    barrier();
    if (t < parts) {
      float w = exp_(head.x - best);
      heads_[t] = w;
      heads_[MOST + t] = w * head.y;
    }
    barrier();
    for (uint n = 0; n < parts; n++) weight += heads_[MOST + n];
    if (t < DH) {
      for (uint n0 = 0; n0 < parts; n0 += 16) {
        float v1[16];
        if (n0 + 16 < parts) gather(to + t, n0 + 16, parts, v1);
        [[unroll]] for (uint n = 0; n < 16; n++) {
          if (n0 + n < parts) r = fma(v[n], heads_[n0 + n], r);
          v[n] = v1[n];
        }
      }
    }
    if (HANDED) tooLong(launch, partLooks);
  }
  if (SINKS != 0) {
    float sink = NARROW(sinks, SINKS, sinkoff + h), high = max(best, sink), f = exp_(best - high);
    r *= f;
    weight = fma(weight, f, exp_(sink - high));
  }
  r /= weight;
  if (t < DH) y[yoff + h * DH + t] = SAID(r);
  if (DOTS) { // DH is a multiple of 32
    most[t >> 2][t & 3u] = abs(r);
    barrier();
    vec4 m4 = vec4(0);
    [[unroll]] for (uint n = 0; n < 8; n++) m4 = max(m4, most[((t & ~31u) >> 2) + n]);
    float m = max(max(m4.x, m4.y), max(m4.z, m4.w));
    codes[t >> 2][t & 3u] = int(roundEven(r * (m > 0 ? 127.0 / m : 0.0)));
    barrier();
    if (t < DH / 4) {
      ivec4 c = codes[t];
      bytes[h * (DH / 4) + t] = c.x & 255 | (c.y & 255) << 8 | (c.z & 255) << 16 | c.w << 24;
    }
    if (t < DH && (t & 31u) == 0) {
      ivec4 all = ivec4(0);
      [[unroll]] for (uint n = 0; n < 8; n++) all += codes[(t >> 2) + n];
      scales[(h * DH + t) >> 5] = vec2(m / 127.0, SAID(m / 127.0 * float(all.x + all.y + all.z + all.w)));
    }
  }
}
