#version 460
#extension GL_GOOGLE_include_directive : require
// Random data, and counting what differs. Where HIP has doubles, here are pairs.
#include "common.glsl"
#if defined(FN_fill)
layout(binding = 0) writeonly buffer A { ELEM a[]; };
layout(push_constant) uniform P { uint groups, n, seed; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n) a[i] = ELEM(value(i, seed));
}
#elif defined(FN_words)
layout(binding = 0) writeonly buffer A { uint a[]; };
layout(push_constant) uniform P { uint groups, n, seed; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n) a[i] = mix32(i ^ seed);
}
#else
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n && a[i] != b[i]) atomicAdd(wrong, 1);
}
#endif
