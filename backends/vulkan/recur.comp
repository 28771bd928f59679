#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "slots.glsl"
// Recurrences of channels: OP 0 short_conv, 1 scan, 2 wkv. An invocation takes a channel through all rows.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OP = 0;
layout(constant_id = 2) const uint WTYPE = F32; // of w, or wkv's decay
layout(constant_id = 3) const uint BTYPE = 0;   // of b, 0: there is none, or wkv's bonus
layout(binding = 2, std430) readonly buffer BX { float x[]; };
layout(binding = 3, std430) readonly buffer BA { float a[]; }; // scan's a, wkv's values
layout(binding = 4, std430) readonly buffer BW { uint w[]; };
layout(binding = 5, std430) readonly buffer BB { uint b[]; };
layout(binding = 6, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, channels, k, width;
  uint stateoff, planoff, xoff, xstride, aoff, astride, woff, boff, yoff, ystride;
};

// before is the state of a channel as it was behind row r0 - 1.
float before(int src, uint i, uint c) {
  return src < 0 ? 0.0 : state[stateoff + uint(src) * width + i * channels + c];
}

void conv(uint c) {
  uint r0 = 0;
  int src = FRESH;
  for (uint s = 0; s < tokens; s++) {
    int now = source(planoff, s);
    if (now == PAD) { y[yoff + s * ystride + c] = 0; continue; }
    if (now != ON) { r0 = s; src = now; }
    float v = BTYPE != 0 ? NARROW(b, BTYPE, boff + c) : 0.0;
    for (uint j = 0; j < k; j++) {
      uint back = k - 1 - j;
      float e = s >= r0 + back ? x[xoff + (s - back) * xstride + c] : before(src, k - 1 + s - r0 - back, c);
      v = fma(NARROW(w, WTYPE, woff + c * k + j), e, v);
    }
    y[yoff + s * ystride + c] = v;
    if (!last(planoff, s, tokens)) continue;
    for (uint j = 0; j + 1 < k; j++) { // what is read lies behind what was written
      uint back = k - 2 - j;
      float e = s >= r0 + back ? x[xoff + (s - back) * xstride + c] : before(src, k - 1 + s - r0 - back, c);
      state[stateoff + uint(target(planoff, s)) * width + j * channels + c] = e;
    }
  }
}

void main() {
  uint c = gl_GlobalInvocationID.x;
  if (c >= channels) return;
  if (OP == 0) {
    conv(c);
    return;
  }
  float h = 0, den = 0, top = 0, fall = 0, bonus = 0;
  if (OP == 2) {
    fall = NARROW(w, WTYPE, woff + c);
    bonus = NARROW(b, BTYPE, boff + c);
  }
  for (uint s = 0; s < tokens; s++) {
    int now = source(planoff, s);
    if (now == PAD) { y[yoff + s * ystride + c] = 0; continue; }
    if (now != ON) {
      h = before(now, 0, c);
      if (OP == 2) {
        den = before(now, 1, c);
        top = now == FRESH ? -1.0e38 : before(now, 2, c);
      }
    }
    float e = x[xoff + s * xstride + c], v = a[aoff + s * astride + c];
    if (OP == 1) {
      h = fma(v, h, e);
      y[yoff + s * ystride + c] = h;
    } else { // e is the key, v the value
      float m = max(top, bonus + e), was = exp_(top - m), is = exp_(bonus + e - m);
      y[yoff + s * ystride + c] = (was * h + is * v) / (was * den + is);
      m = max(top - fall, e);
      was = exp_(top - fall - m);
      is = exp_(e - m);
      h = was * h + is * v;
      den = was * den + is;
      top = m;
    }
    if (last(planoff, s, tokens)) {
      uint at = stateoff + uint(target(planoff, s)) * width + c;
      state[at] = h;
      if (OP == 2) {
        state[at + channels] = den;
        state[at + 2 * channels] = top;
      }
    }
  }
}
