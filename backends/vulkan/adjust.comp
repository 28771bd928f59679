#version 450
// Rows of logits of which some are changed: y = x, of the tokens that a row names x / by + plus where x > 0, x by + plus
// elsewhere. A workgroup takes four columns an invocation of a row, and those of the row's names that lie in them.
layout(local_size_x_id = 0) in;
layout(binding = 0, std430) readonly buffer X { float x[]; };
layout(binding = 1, std430) readonly buffer N { uint tokens[]; };
layout(binding = 2, std430) readonly buffer B { float by[]; };
layout(binding = 3, std430) readonly buffer P { float plus[]; };
layout(binding = 4, std430) coherent buffer Y { float y[]; };
layout(push_constant) uniform Push { uint cols, names, xoff, xstride, noff, boff, poff, yoff, ystride; };

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
  const uint from = 4 * T * gl_WorkGroupID.x, to = min(from + 4 * T, cols);
  const uint ax = xoff + row * xstride, ay = yoff + row * ystride;
  for (uint i = from + t; i < to; i += T) y[ay + i] = x[ax + i];
  memoryBarrierBuffer();
  barrier();
  for (uint i = row * names + t; i < (row + 1) * names; i += T) {
    uint v = tokens[noff + i];
    if (v < from || v >= to) continue;
    float z = x[ax + v], f = by[boff + i];
    y[ay + v] = (z > 0 ? z / f : z * f) + plus[poff + i];
  }
}
