#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HELD
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "heads.glsl"
// h = diag(exp(g)) h, h += k (beta (v - k'h)), y = q'h, by columns of a head's state.
layout(binding = 2, std430) readonly buffer BQ { float q[]; };
layout(binding = 3, std430) readonly buffer BK { float keys[]; };
layout(binding = 4, std430) readonly buffer BV { float v[]; };
layout(binding = 5, std430) readonly buffer BG { float g[]; };
layout(binding = 6, std430) readonly buffer BBeta { float beta[]; };
layout(binding = 7, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dv, width;
  uint stateoff, planoff, qoff, qstride, koff, kstride, voff, vstride, goff, gstride, boff, bstride, yoff, ystride;
};

#ifdef HELD
layout(binding = 2, std430) readonly buffer BQ4 { vec4 q4[]; };
layout(binding = 3, std430) readonly buffer BK4 { vec4 keys4[]; };
shared vec4 qs[CHUNK * WIDE], ks[CHUNK * WIDE];
DECAYS
shared vec2 vs[CHUNK * LINES]; // of a line: beta v, and beta

void main() {
  BEGIN(dv);
  const uint at = unit * N * dv + c % dv, apart = dv;
  CHUNKS
    BRING2(qs, q, q4, qoff + unit * N, qstride, ks, keys, keys4, koff + unit * N, kstride)
    BRING_DECAYS
    EACH_LINE(vs[i] = beta[boff + s * bstride + unit] * vec2(v[voff + s * vstride + l], 1))
    ROWS
    vec4 seen4 = vec4(0), sum = vec4(0);
    GROUPS {
      const vec4 m = DECAY * FOUR(g);
      HOLD(g, m)
      seen4 = fma(ks[OF(i)], m, seen4);
    }
    float seen = SUM(seen4);
    OVER_LANES(seen);
    const vec2 value = vs[i * LINES + PLACE / LANES];
    const float add = value.x - value.y * seen;
    GROUPS {
      const vec4 m = fma(ks[OF(i)], vec4(add), FOUR(g));
      HOLD(g, m)
      sum = fma(qs[OF(i)], m, sum);
    }
    ROWS_END(SUM(sum))
  }
}
#else
void main() {
  BEGIN(dv);
  const uint h = unit, at = h * N * dv + c % dv, apart = dv;
  for (uint s = 0; s < tokens; s++) {
    ROW
    const uint ks = koff + s * kstride + h * N, qs = qoff + s * qstride + h * N;
    const uint gs = goff + s * gstride + h * (MANY ? N : 1);
    float decay = now == FRESH ? 0.0 : exp_(g[gs]), seen = 0, sum = 0;
    EACH {
      const uint i = AT(e);
      if (MANY) decay = now == FRESH ? 0.0 : exp_(g[gs + i]);
      const float m = decay * H(e);
      H(e) = m;
      seen = fma(keys[ks + i], m, seen);
    }
    OVER_LANES(seen);
    const float add = beta[boff + s * bstride + h] * (v[voff + s * vstride + c] - seen);
    EACH {
      const uint i = AT(e);
      const float m = fma(keys[ks + i], add, H(e));
      H(e) = m;
      sum = fma(q[qs + i], m, sum);
    }
    OVER_LANES(sum);
    if (mine && lane == 0) y[yoff + s * ystride + c] = sum;
  }
}
#endif
