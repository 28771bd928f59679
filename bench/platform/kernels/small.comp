#version 460
#extension GL_GOOGLE_include_directive : require
// a = f·b on pairs of floats, and its check.
#include "common.glsl"
#if defined(FN_check)
layout(binding = 0) readonly buffer A { vec2 a[]; };
layout(binding = 1) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n; float factor; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n && a[i] != vec2(factor * float(value(i, 1)))) atomicAdd(wrong, 1);
}
#else
layout(binding = 0) restrict writeonly buffer A { vec2 a[]; };
layout(binding = 1) restrict readonly buffer B { vec2 b[]; };
layout(push_constant) uniform P { uint groups, n; float f; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n) a[i] = f * b[i];
}
#endif
