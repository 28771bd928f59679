#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(constant_id = 1) const bool ALIGNED = false;
#define WEIGHTS 0
#define STATUS 3
#include "common.glsl"
#include "decode.glsl"
#include "status.glsl"
#define HAND 8
#include "handed.glsl"
// gather.comp for the one token of a step: y = w[id], widened, and where NEXT also the bytes of y g with sums of squares of
// y, for an RMSNorm whose division is left to who reads them, as matvecq.comp writes them. A workgroup has 128
// elements. Where HANDED, words say that they are there (handed.glsl).
layout(local_size_x = 128) in;
layout(constant_id = 0) const bool NEXT = false;
layout(constant_id = 2) const bool HANDED = false;
layout(binding = 1, std430) readonly buffer BAt { int ids[]; };
layout(binding = 2, std430) coherent writeonly buffer BY { float y[]; };
layout(binding = 4, std430) coherent writeonly buffer BD { uint bytes_[]; };
layout(binding = 5, std430) coherent writeonly buffer BDS { vec2 scales[]; };
layout(binding = 6, std430) coherent writeonly buffer BDQ { float squares[]; };
layout(binding = 7, std430) readonly buffer BG { float g[]; };
layout(push_constant) uniform Push { uint cols, woff, wstride, limit, atoff, yoff, goff, launch, waits; };

shared vec4 row[32], square[32], most[32];
shared ivec4 codes[32];

float SAID(float v) { return HANDED ? said(v) : v; }

void main() {
  const uint t = gl_LocalInvocationID.x, from = 128 * gl_WorkGroupID.x, e = from + t, word = t >> 2, lane = t & 3u;
  float by = 0;
  if (NEXT && e < cols) by = g[goff + e];
  const int id = ids[atoff];
  if (id < 0 || id >= int(limit)) {
    if (e == 0) refuse(launch, 0, id, limit);
    if (HANDED) atomicExchange(vain, 0u); // nobody will write
    return;
  }
  const uint at = woff + uint(id) * wstride;
  if (t < 16) {
#if TYPE >= 10
    const uint u = from / 32 + t / 4, p = t & 3u;
    vec4 lo = vec4(0), hi = vec4(0);
    if (32 * u < cols) decodePart(at, u, p, cols, lo, hi);
    row[8 * (t / 4) + p] = lo;
    row[8 * (t / 4) + 4 + p] = hi;
#else
    vec4 v[2];
    v[0] = v[1] = vec4(0);
    if (from + 8 * t < cols) decode(at, from / 8 + t, cols, v);
    row[2 * t] = v[0];
    row[2 * t + 1] = v[1];
#endif
  }
  barrier();
  const float v = row[word][lane], n = v * by;
  if (e < cols) y[yoff + e] = SAID(v);
  if (!NEXT) return;
  most[word][lane] = abs(n);
  square[word][lane] = v * v;
  barrier();
  vec4 m4 = vec4(0);
  [[unroll]] for (uint i = 0; i < 8; i++) m4 = max(m4, most[(word & ~7u) + i]);
  const float m = max(max(m4.x, m4.y), max(m4.z, m4.w));
  codes[word][lane] = int(roundEven(n * (m > 0 ? 127.0 / m : 0.0)));
  barrier();
  if (t < 32 && from + 4 * t < cols) {
    const ivec4 c = codes[t];
    bytes_[(from >> 2) + t] = c.x & 255 | (c.y & 255) << 8 | (c.z & 255) << 16 | c.w << 24;
  }
  if ((t & 31u) == 0 && e < cols) {
    ivec4 all = ivec4(0);
    vec4 squares4 = vec4(0);
    [[unroll]] for (uint i = 0; i < 8; i++) {
      all += codes[word + i];
      squares4 += square[word + i];
    }
    scales[e >> 5] = vec2(m / 127.0, SAID(m / 127.0 * float(all.x + all.y + all.z + all.w)));
    squares[e >> 5] = squares4.x + squares4.y + squares4.z + squares4.w;
  }
}
