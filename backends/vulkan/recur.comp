#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "slots.glsl"
// Recurrences of channels, scan and wkv. An invocation takes a channel through the rows of a step, of which it reads
// AHEAD at a time, so that memory answers once for all of them.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool WKV = false;
layout(constant_id = 2) const uint WTYPE = F32; // of wkv's decay
layout(constant_id = 3) const uint BTYPE = F32; // of wkv's bonus
layout(binding = 2, std430) readonly buffer BX { float x[]; };
layout(binding = 3, std430) readonly buffer BA { float a[]; }; // scan's a, wkv's values
layout(binding = 4, std430) readonly buffer BW { uint w[]; };
layout(binding = 5, std430) readonly buffer BB { uint b[]; };
layout(binding = 6, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, channels, width, stateoff, planoff, xoff, xstride, aoff, astride, woff, boff, yoff, ystride;
};
const uint AHEAD = 8;
const int OTHERS = -4; // a row of a sequence that other workgroups take

// before is an element of a channel's state as a slot has it.
float before(int src, uint i, uint c) {
  return src < 0 ? 0.0 : state[stateoff + uint(src) * width + i * channels + c];
}

void main() {
  const uint c = gl_GlobalInvocationID.x;
  if (c >= channels) return;
  float h = 0, den = 0, top = 0, fall = 0, bonus = 0;
  if (WKV) {
    fall = NARROW(w, WTYPE, woff + c);
    bonus = NARROW(b, BTYPE, boff + c);
  }
  bool turn = false;
  for (uint first = 0; first < tokens; first += AHEAD) {
    int from[AHEAD + 1];
    float xs[AHEAD], as[AHEAD];
    [[unroll]] for (uint i = 0; i <= AHEAD; i++) from[i] = first + i < tokens ? source(planoff, first + i) : PAD;
    uint takes = 0; // a bit for each row
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
      if (from[i] != ON) turn = first + i < tokens && (first + i) % gl_NumWorkGroups.y == gl_WorkGroupID.y;
      takes |= uint(turn) << i;
    }
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
      const uint s = (takes >> i & 1) != 0 ? first + i : 0;
      xs[i] = x[xoff + s * xstride + c];
      as[i] = a[aoff + s * astride + c];
    }
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
      if ((takes >> i & 1) != 0) {
        const uint to = yoff + (first + i) * ystride + c;
        const int now = from[i];
        if (now == PAD) {
          y[to] = 0;
        } else {
          if (now != ON) {
            h = before(now, 0, c);
            if (WKV) {
              den = before(now, 1, c);
              top = now == FRESH ? -1.0e38 : before(now, 2, c);
            }
          }
          if (WKV) {
            const float key = xs[i];
            float m = max(top, bonus + key), was = exp_(top - m), is = exp_(bonus + key - m);
            y[to] = (was * h + is * as[i]) / (was * den + is);
            m = max(top - fall, key);
            was = exp_(top - fall - m);
            is = exp_(key - m);
            h = was * h + is * as[i];
            den = was * den + is;
            top = m;
          } else {
            h = fma(as[i], h, xs[i]);
            y[to] = h;
          }
          if (from[i + 1] != ON) {
            const uint at = stateoff + uint(target(planoff, first + i)) * width + c;
            state[at] = h;
            if (WKV) {
              state[at + channels] = den;
              state[at + 2 * channels] = top;
            }
          }
        }
      }
    }
  }
}
