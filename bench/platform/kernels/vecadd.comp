#version 460
#extension GL_GOOGLE_include_directive : require
// c = a + b, four floats an invocation; and the check.
#include "common.glsl"
#if defined(FN_check)
layout(binding = 0) readonly buffer C { float c[]; };
layout(binding = 1) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n && c[i] != float(value(i, 1) + value(i, 2))) atomicAdd(wrong, 1);
}
#else
layout(binding = 0) restrict writeonly buffer C { vec4 c[]; };
layout(binding = 1) restrict readonly buffer A { vec4 a[]; };
layout(binding = 2) restrict readonly buffer B { vec4 b[]; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n) c[i] = a[i] + b[i];
}
#endif
