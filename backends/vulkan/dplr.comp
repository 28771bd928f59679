#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef HELD
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "heads.glsl"
// h = diag(exp(g)) h + b (a'h) + k v', y = q'h, of the h before where EARLY, by columns of a head's state.
layout(constant_id = 4) const bool RANK = false; // there are a and b
layout(constant_id = 5) const bool EARLY = false;
layout(binding = 2, std430) readonly buffer BQ { float q[]; };
layout(binding = 3, std430) readonly buffer BK { float keys[]; };
layout(binding = 4, std430) readonly buffer BV { float v[]; };
layout(binding = 5, std430) readonly buffer BG { float g[]; };
layout(binding = 6, std430) readonly buffer BA { float a[]; };
layout(binding = 7, std430) readonly buffer BB { float b[]; };
layout(binding = 8, std430) writeonly buffer BY { float y[]; };
layout(push_constant) uniform Push {
  uint tokens, heads, dv, width, stateoff, planoff;
  uint qoff, qstride, koff, kstride, voff, vstride, goff, gstride, aoff, astride, boff, bstride, yoff, ystride;
};

#ifdef HELD
layout(binding = 2, std430) readonly buffer BQ4 { vec4 q4[]; };
layout(binding = 3, std430) readonly buffer BK4 { vec4 keys4[]; };
layout(binding = 6, std430) readonly buffer BA4 { vec4 a4[]; };
layout(binding = 7, std430) readonly buffer BB4 { vec4 b4[]; };
const uint BOTH = RANK ? CHUNK * WIDE : 1;
shared vec4 qs[CHUNK * WIDE], ks[CHUNK * WIDE], as[BOTH], bs[BOTH];
DECAYS
shared float vs[CHUNK * LINES];

void main() {
  BEGIN(dv);
  const uint at = unit * N * dv + c % dv, apart = dv;
  CHUNKS
    BRING2(qs, q, q4, qoff + unit * N, qstride, ks, keys, keys4, koff + unit * N, kstride)
    if (RANK) BRING2(as, a, a4, aoff + unit * N, astride, bs, b, b4, boff + unit * N, bstride)
    BRING_DECAYS
    EACH_LINE(vs[i] = v[voff + s * vstride + l])
    ROWS
    const float value = vs[i * LINES + PLACE / LANES];
    vec4 seen4 = vec4(0), sum = vec4(0);
    if (RANK || EARLY) GROUPS {
      if (RANK) seen4 = fma(as[OF(i)], FOUR(g), seen4);
      if (EARLY) sum = fma(qs[OF(i)], FOUR(g), sum);
    }
    float seen = SUM(seen4);
    if (RANK) OVER_LANES(seen);
    GROUPS {
      vec4 m = fma(DECAY, FOUR(g), ks[OF(i)] * value);
      if (RANK) m = fma(bs[OF(i)], vec4(seen), m);
      HOLD(g, m)
      if (!EARLY) sum = fma(qs[OF(i)], m, sum);
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
    const uint as = aoff + s * astride + h * N, bs = boff + s * bstride + h * N;
    const uint gs = goff + s * gstride + h * (MANY ? N : 1);
    const float value = v[voff + s * vstride + c];
    float decay = now == FRESH ? 0.0 : exp_(g[gs]), seen = 0, sum = 0;
    if (RANK || EARLY) {
      EACH {
        if (RANK) seen = fma(a[as + AT(e)], H(e), seen);
        if (EARLY) sum = fma(q[qs + AT(e)], H(e), sum);
      }
      OVER_LANES(seen);
    }
    EACH {
      const uint i = AT(e);
      if (MANY) decay = now == FRESH ? 0.0 : exp_(g[gs + i]);
      float m = fma(decay, H(e), keys[ks + i] * value);
      if (RANK) m = fma(b[bs + i], seen, m);
      H(e) = m;
      if (!EARLY) sum = fma(q[qs + i], m, sum);
    }
    OVER_LANES(sum);
    if (mine && lane == 0) y[yoff + s * ystride + c] = sum;
  }
}
#endif
