#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 4
#include "common.glsl"
#include "status.glsl"
#include "turn.glsl"
// rope.comp for many tokens, whole heads of groups of four elements and halves of a head that rotate together: a
// workgroup takes one token, an invocation two pairs of every T / (dh / 4)th head, whose rotations it computes once.
layout(local_size_x_id = 0) in; // a multiple of dh / 4
layout(constant_id = 1) const bool ROTATE = true;
layout(constant_id = 2) const bool CACHE = false; // rows go to positions
layout(constant_id = 3) const uint TYPE = F32;
layout(constant_id = 4) const bool LACKS = false; // x's last columns lack the sums in lacks (splitk.go)
layout(binding = 0, std430) readonly buffer BX { vec2 x[]; };
layout(binding = 1, std430) readonly buffer BPos { int pos[]; };
layout(binding = 2, std430) readonly buffer BF { uvec2 freqs[]; }; // low, high word of 2^64 f / 2 pi
layout(binding = 3, std430) writeonly buffer BY { uint y[]; };
layout(binding = 5, std430) readonly buffer BL { vec2 lacks[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dh;
  uint xoff, xstride, posoff, yoff, ystride; // y's in elements of TYPE
  uint limit;                                // positions that the cache holds
  float scale;                               // on cosine and sine
  uint launch;
  uint lfirst, lcols; // of x's columns to which lacks belongs
};

shared uint replaced;

// pair gives elements c and c + 1 of row s of x.
vec2 pair(uint s, uint c) {
  vec2 v = x[(xoff + s * xstride + c) >> 1];
  if (LACKS && c >= lfirst) v += lacks[(s * lcols + c - lfirst) >> 1];
  return v;
}

void put(uint at, vec2 v) {
  if (TYPE == F32) {
    y[at] = floatBitsToUint(v.x);
    y[at + 1] = floatBitsToUint(v.y);
  } else {
    y[at >> 1] = TYPE == F16 ? f2h(v.x) | f2h(v.y) << 16 : f2bf(v.x) | f2bf(v.y) << 16;
  }
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint s = gl_WorkGroupID.x;
  int p = pos[posoff + s];
  if (p < 0 || CACHE && p >= int(limit)) {
    if (t == 0) refuse(launch, s, p, CACHE ? limit : 0x7fffffffu);
    return;
  }
  if (CACHE && tokens > 1) { // of equal positions the last row stands
    if (t == 0) replaced = 0;
    barrier();
    for (uint j = s + 1 + t; j < tokens; j += T)
      if (pos[posoff + j] == p) replaced = 1;
    barrier();
    if (replaced != 0) return;
  }
  uint parts = dh / 4, i = 2 * (t % parts), half_ = dh / 2;
  vec2 a, b;
  if (ROTATE) {
    a = rotation(freqs[i], uint(p)) * scale;
    b = rotation(freqs[i + 1], uint(p)) * scale;
  }
  uint y0 = yoff + (CACHE ? uint(p) : s) * ystride + i;
  for (uint h = t / parts; h < heads; h += T / parts) {
    vec2 u = pair(s, i + h * dh), v = pair(s, i + h * dh + half_);
    if (ROTATE) {
      vec2 r = vec2(u.x * a.x - v.x * a.y, u.y * b.x - v.y * b.y);
      v = vec2(v.x * a.x + u.x * a.y, v.y * b.x + u.y * b.y);
      u = r;
    }
    put(y0 + h * dh, u);
    put(y0 + h * dh + half_, v);
  }
}
