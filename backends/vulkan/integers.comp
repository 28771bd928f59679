#version 450
// z = x + by, of integers; or x as a number.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool REAL = false;
layout(binding = 0, std430) readonly buffer X { int x[]; };
layout(binding = 1, std430) writeonly buffer Z { uint z[]; };
layout(push_constant) uniform Push { uint n, xoff, zoff, zstride; int by; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    int v = x[xoff + i];
    z[zoff + i * zstride] = REAL ? floatBitsToUint(float(v)) : uint(v + by);
  }
}
