#version 450
// y += what the second halves of a product's columns have given (splitk.go), in dense rows.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) buffer BY { vec4 y[]; };
layout(binding = 1, std430) readonly buffer BH { vec4 halves[]; };
layout(push_constant) uniform Push {
  uint rows, cols, yoff, ystride; // in groups of four
};

void main() {
  uint n = rows * cols;
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint row = i / cols, to = yoff + row * ystride + i - row * cols;
    y[to] += halves[i];
  }
}
