#version 460
#extension GL_GOOGLE_include_directive : require
// What memory gives at most: LOADS pieces of 16 bytes an invocation, all under way at
// once. n counts pieces and is a multiple of the workgroup times LOADS.
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#if defined(FN_hide)
layout(binding = 0) writeonly buffer A { uint a[]; };
layout(push_constant) uniform P { uint groups, n, period; };
void main() {
  uint i = thread();
  if (!BEYOND && i * period < n) a[i * period] = HIDDEN;
}
#elif defined(FN_constant)
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n, x; };
void main() {
  uint i = thread();
  if (!BEYOND && i < n && a[i] != x) atomicAdd(wrong, 1);
}
#else
layout(binding = 0) restrict writeonly buffer A { uvec4 a[]; };
layout(binding = 1) restrict readonly buffer B { uvec4 b[]; };
layout(binding = 2) restrict buffer H { uint hits; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
  if (BEYOND) return;
  uint i = group() * BLOCK * LOADS + tid;
#if defined(FN_write)
  [[unroll]] for (uint u = 0; u < LOADS; u++) a[i + u * BLOCK] = uvec4(n);
#else
  uvec4 v[LOADS];
  [[unroll]] for (uint u = 0; u < LOADS; u++) v[u] = b[i + u * BLOCK];
#if defined(FN_copy)
  [[unroll]] for (uint u = 0; u < LOADS; u++) a[i + u * BLOCK] = v[u];
#else
  uint found = 0;
  [[unroll]] for (uint u = 0; u < LOADS; u++)
    found += uint(v[u].x == HIDDEN) + uint(v[u].y == HIDDEN) + uint(v[u].z == HIDDEN) + uint(v[u].w == HIDDEN);
  if (found > 0) atomicAdd(hits, found);
#endif
#endif
}
#endif
