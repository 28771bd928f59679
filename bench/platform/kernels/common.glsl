// What the microbenchmarks' shaders share. Buffers are bindings 0, 1, …; the first push
// constant is the number of workgroups that were asked for.
layout(local_size_x_id = 0) in;

uint mix32(uint x) { // mix of common.hip
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}
uint value(uint i, uint seed) { return (mix32(i + seed * 0x9e3779b9u) >> 24) + 1; }

uint group() { return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x; }
#define BLOCK gl_WorkGroupSize.x
#define tid gl_LocalInvocationID.x
uint thread() { return group() * BLOCK + tid; }
#define BEYOND (group() >= groups)
const uint HIDDEN = 0xdeadbeefu;
