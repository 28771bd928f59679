// What the products by cooperative matrices are given (matrix.comp, regdecode.comp).
layout(local_size_x_id = 0) in; // NT
layout(constant_id = 2) const uint BIAS = 0;
layout(constant_id = 3) const bool RESIDUAL = false;
layout(constant_id = 4) const bool VECTORS = false; // rows of y and r are whole vectors of 4
layout(constant_id = 5) const bool PLAIN = false;   // rows of x are rows of y and r: yinner and rinner are 1
layout(binding = 1, std430) readonly buffer BX { uvec4 x8[]; }; // rows of pitch vectors of 8
layout(binding = 2, std430) readonly buffer BB { uint b[]; };
layout(binding = 3, std430) readonly buffer BR { float r[]; };
layout(binding = 3, std430) readonly buffer BR4 { vec4 r4[]; };
layout(binding = 4, std430) writeonly buffer BY { float y[]; };
layout(binding = 4, std430) writeonly buffer BY4 { vec4 y4[]; };
layout(binding = 5, std430) readonly buffer BS { float scales[]; }; // of x's rows
layout(push_constant) uniform Push {
  uint rows, cols, first, all, count, woff, wstride;
  uint pitch, boff, roff, rstride, yoff, ystride, yinner, rinner;
  uint flip; // what codes flips: known late, so that it is in a register
#ifdef SHARE
  uint start, stop; // the columns of w that are multiplied
#else
#define start 0u
#define stop cols
#endif
#ifdef GROUPS
  uint share, efirst, ecount; // groups.glsl; the experts in w
#endif
};
#include "groups.glsl"
