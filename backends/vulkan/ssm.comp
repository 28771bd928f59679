#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HELD
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "heads.glsl"
// h[p,n] = exp(dt a[n]) h[p,n] + dt x[p] b[n], y[p] = sum over n of h[p,n] c[n], by rows of a head's state.
layout(constant_id = 4) const uint ATYPE = F32;
layout(binding = 2, std430) readonly buffer BX { float x[]; };
layout(binding = 3, std430) readonly buffer BDt { float dt[]; };
layout(binding = 4, std430) readonly buffer BA { uint a[]; };
layout(binding = 5, std430) readonly buffer BIn { float b_in[]; };
layout(binding = 6, std430) readonly buffer BOut { float c_out[]; };
layout(binding = 7, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, p, share, width; // share: heads of a group
  uint stateoff, planoff, xoff, xstride, dtoff, dtstride, aoff, boff, bstride, coff, cstride, yoff, ystride;
};

#ifdef HELD
layout(binding = 5, std430) readonly buffer BIn4 { vec4 b_in4[]; };
layout(binding = 6, std430) readonly buffer BOut4 { vec4 c_out4[]; };
shared vec4 ins[CHUNK * WIDE], outs[CHUNK * WIDE];
shared vec2 steps[CHUNK * LINES]; // of a line: dt x, and the decay, or dt where elements have their own

void main() {
  BEGIN(share * p);
  const uint at = c * N, apart = 1, as = aoff + c / p * (MANY ? N : 1);
  float rates[ELEMS];
  if (MANY) [[unroll]] for (uint e = 0; e < ELEMS; e++) rates[e] = AT(e) < N ? NARROW(a, ATYPE, as + AT(e)) : 0.0;
  CHUNKS
    BRING2(ins, b_in, b_in4, boff + unit * N, bstride, outs, c_out, c_out4, coff + unit * N, cstride)
    EACH_LINE(
      const float step = dt[dtoff + s * dtstride + l / p];
      steps[i] = vec2(step * x[xoff + s * xstride + l], MANY ? step : exp_(step * NARROW(a, ATYPE, aoff + l / p))))
    ROWS
    const vec2 step = steps[i * LINES + PLACE / LANES];
    vec4 sum = vec4(0);
    GROUPS {
      vec4 decay = vec4(step.y);
      if (MANY) [[unroll]] for (uint j = 0; j < 4; j++) decay[j] = exp_(step.y * rates[4 * g + j]);
      const vec4 v = fma(decay, FOUR(g), step.x * ins[OF(i)]);
      HOLD(g, v)
      sum = fma(v, outs[OF(i)], sum);
    }
    ROWS_END(SUM(sum))
  }
}
#else
void main() {
  BEGIN(share * p);
  const uint h = c / p, at = c * N, apart = 1, as = aoff + h * (MANY ? N : 1);
  for (uint s = 0; s < tokens; s++) {
    ROW
    const float step = dt[dtoff + s * dtstride + h], in_ = step * x[xoff + s * xstride + c];
    const uint bs = boff + s * bstride + unit * N, cs = coff + s * cstride + unit * N;
    float sum = 0, decay = exp_(step * NARROW(a, ATYPE, as));
    EACH {
      const uint j = AT(e);
      if (MANY) decay = exp_(step * NARROW(a, ATYPE, as + j));
      const float v = fma(decay, H(e), in_ * b_in[bs + j]);
      H(e) = v;
      sum = fma(v, c_out[cs + j], sum);
    }
    OVER_LANES(sum);
    if (mine && lane == 0) y[yoff + s * ystride + c] = sum;
  }
}
#endif
