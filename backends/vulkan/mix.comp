#version 450
// y[s] = sum over u of p[s,u] x[s,u].
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer BX { float x[]; };
layout(binding = 1, std430) readonly buffer BP { float p[]; };
layout(binding = 2, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push { uint n, cols, users, xoff, xstride, poff, pstride, yoff, ystride; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint s = i / cols, c = i - s * cols;
    float sum = 0;
    for (uint u = 0; u < users; u++) sum = fma(p[poff + s * pstride + u], x[xoff + s * xstride + u * cols + c], sum);
    y[yoff + s * ystride + c] = sum;
  }
}
