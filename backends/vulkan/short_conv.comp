#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "slots.glsl"
// y[s] = b + sum over j < k of w[j] x[s - k + 1 + j] of each channel. An invocation takes a channel through some rows of
// the step. The rows of a sequence that still see its state go together with its first one, and the state that it leaves.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WTYPE = F32;
layout(constant_id = 2) const uint BTYPE = 0; // 0: there is no b
layout(binding = 2, std430) readonly buffer BX { float x[]; };
layout(binding = 3, std430) readonly buffer BW { uint w[]; };
layout(binding = 4, std430) readonly buffer BB { uint b[]; };
layout(binding = 5, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, channels, k, width, stateoff, planoff, xoff, xstride, woff, boff, yoff, ystride;
};
shared uint end;

// seen is x of row s, so many rows back, of a sequence that began in row begun from slot src.
float seen(uint s, uint back, uint begun, int src, uint c) {
  if (s >= begun + back) return x[xoff + (s - back) * xstride + c];
  return src < 0 ? 0.0 : state[stateoff + uint(src) * width + (k - 1 + s - begun - back) * channels + c];
}

float weight(uint j, uint c) { return NARROW(w, WTYPE, woff + c * k + j); }

float bias(uint c) { return BTYPE != 0 ? NARROW(b, BTYPE, boff + c) : 0.0; }

void main() {
  const uint t = gl_LocalInvocationID.x, c = gl_GlobalInvocationID.x;
  const bool real = c < channels;
  for (uint s = gl_WorkGroupID.y; s < tokens; s += gl_NumWorkGroups.y) {
    const int src = source(planoff, s);
    if (src == PAD) {
      if (real) y[yoff + s * ystride + c] = 0;
      continue;
    }
    if (src == ON) {
      uint first = s;
      while (s - first < k - 1 && source(planoff, first) == ON) first--;
      if (real && s - first == k - 1) {
        float v = bias(c);
        for (uint j = 0; j < k; j++) v = fma(weight(j, c), x[xoff + (first + j) * xstride + c], v);
        y[yoff + s * ystride + c] = v;
      }
      continue;
    }
    if (t == 0) end = tokens;
    barrier();
    for (uint i = s + 1 + t; i < tokens; i += gl_WorkGroupSize.x) {
      if (source(planoff, i) == ON) continue;
      atomicMin(end, i);
      break;
    }
    barrier();
    const uint last = end - 1;
    barrier();
    if (!real) continue;
    for (uint i = s; i <= min(last, s + max(k, 2) - 2); i++) {
      float v = bias(c);
      for (uint j = 0; j < k; j++) v = fma(weight(j, c), seen(i, k - 1 - j, s, src, c), v);
      y[yoff + i * ystride + c] = v;
    }
    const uint at = stateoff + uint(target(planoff, s)) * width + c;
    // What is read lies behind what was written.
    for (uint j = 0; j + 1 < k; j++) state[at + j * channels] = seen(last, k - 2 - j, s, src, c);
  }
}
