#version 460
#extension GL_GOOGLE_include_directive : require
// A kernel that is empty unless go is set: then it counts.
#include "common.glsl"
layout(binding = 0) buffer C { uint count; };
layout(push_constant) uniform P { uint groups, go; };
void main() {
  if (go != 0 && !BEYOND && tid == 0) atomicAdd(count, 1);
}
