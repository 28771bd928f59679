#version 460
#extension GL_GOOGLE_include_directive : require
// The stream kernels on pairs of floats, one an invocation, and their check. The
// buffers hold value(i, 1), value(i, 2), value(i, 3), twice each. With MODULO the
// index is that of l2stream.hip: group g works on chunk g mod n.
#include "common.glsl"
#if defined(FN_check)
layout(binding = 0) readonly buffer A { vec2 a[]; };
layout(binding = 1) buffer W { uint wrong; };
layout(push_constant) uniform P { uint groups, n, kind; };
void main() {
  uint i = thread();
  if (BEYOND || i >= n) return;
  float b = float(value(i, 1)), want = 0;
  switch (kind) {
  case 0: want = 1.5; break;
  case 2: want = 0.5 * b; break;
  case 3: want = b * float(value(i, 3)) + float(value(i, 2)); break;
  case 4:
    if (i < 1 || i + 1 >= n) return;
    want = 0.25 * float(value(i - 1, 1) + value(i + 1, 1)) + 0.5 * b;
    break;
  case 5:
    if (i < 2 || i + 2 >= n) return;
    want = 0.125 * float(value(i - 2, 1) + value(i + 2, 1)) + 0.25 * float(value(i - 1, 1) + value(i + 1, 1)) + 0.5 * b;
    break;
  }
  if (a[i] != vec2(want)) atomicAdd(wrong, 1);
}
#elif defined(FN_hide)
layout(binding = 0) writeonly buffer B { vec2 b[]; };
layout(push_constant) uniform P { uint groups, n, period; };
void main() {
  uint i = thread();
  if (!BEYOND && i * period < n) b[i * period] = vec2(-0.25);
}
#else
layout(binding = 0) restrict buffer A { vec2 a[]; };
layout(binding = 1) restrict readonly buffer B { vec2 b[]; };
layout(binding = 2) restrict readonly buffer C { vec2 c[]; };
layout(binding = 3) restrict readonly buffer D { vec2 d[]; };
layout(binding = 4) restrict buffer H { uint hits; };
layout(push_constant) uniform P { uint groups, n; };
void main() {
#ifdef MODULO
  if (BEYOND) return;
  uint i = group() % n * BLOCK + tid;
#else
  uint i = thread();
  if (BEYOND || i >= n) return;
#endif
#if defined(FN_init)
  a[i] = vec2(1.5);
#elif defined(FN_read)
  if (b[i] == vec2(-0.25)) atomicAdd(hits, 1);
#elif defined(FN_scale)
  a[i] = 0.5 * b[i];
#elif defined(FN_triad)
  a[i] = b[i] * d[i] + c[i];
#elif defined(FN_stencil3)
  if (i > 0 && i + 1 < n) a[i] = 0.25 * (b[i - 1] + b[i + 1]) + 0.5 * b[i];
#elif defined(FN_stencil5)
  if (i > 1 && i + 2 < n) a[i] = 0.125 * (b[i - 2] + b[i + 2]) + 0.25 * (b[i - 1] + b[i + 1]) + 0.5 * b[i];
#endif
}
#endif
