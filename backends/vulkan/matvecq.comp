#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 7
#include "common.glsl"
#include "status.glsl"
// y[s,n] = sum over k of w[n,k] x[s,k] (+ b[n]) (+ r[s,n]) for few rows of x, which are signed bytes with
// scales (forms.glsl), and weights of block formats: sums of products of bytes are integers, which scales
// then weigh. A workgroup computes R rows of w for NX rows of x (macros). With EXPERTS there is one row
// of x and one result per choice, and w is stacked. Layouts of blocks: decode.glsl and pack.go.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BIAS = 0; // type, 0: none
layout(constant_id = 2) const bool RESIDUAL = false;
layout(constant_id = 3) const bool EXPERTS = false;
layout(binding = 0, std430) readonly buffer Weights { uint w[]; };
layout(binding = 0, std430) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1, std430) readonly buffer BX { uvec4 x16[]; };
layout(binding = 2, std430) readonly buffer BS { vec2 scales[]; }; // per 32: scale, and scale times sum
layout(binding = 3, std430) readonly buffer BB { uint b[]; };
layout(binding = 4, std430) readonly buffer BR { float r[]; };
layout(binding = 5, std430) writeonly buffer BY { float y[]; };
layout(binding = 6, std430) readonly buffer BE { int experts[]; };
layout(push_constant) uniform Push {
  uint rows, cols;             // of w in this dispatch, and of each
  uint first, all;             // number of its first row, and of rows in w: of experts with EXPERTS
  uint count;                  // rows of x
  uint woff, wstride, wexpert; // bytes
  uint pitch;                  // of x, in blocks of 32
  uint boff, roff, rstride, yoff, ystride, yinner, rinner;
  uint eoff, users, inputs, launch;
};

shared float part[64 * R * NX]; // subgroups have 4 invocations at least

int dp(uint a, uint c, int sum) { return sum + dotPacked4x8EXT(int(a), int(c)); }
int dp4(uvec4 a, uvec4 c, int sum) { return dp(a.x, c.x, dp(a.y, c.y, dp(a.z, c.z, dp(a.w, c.w, sum)))); }
uint u16(uint a) { return bitfieldExtract(w[a >> 2], int(a & 2u) * 8, 16); }

const uint Q4_0 = 10, Q4_1 = 11, Q5_0 = 12, Q5_1 = 13, Q8_0 = 14, Q4_K = 22, Q5_K = 23, Q6_K = 24;

// What an invocation takes of a row at a time: SPAN blocks of 32 elements.
#if TYPE >= 20
#define SPAN 2u
#else
#define SPAN 1u
#endif

// fifth gives the fifth bits of four codes, from four bits of h.
uint fifth(uint h) { return ((h & 15u) * 0x00204081u & 0x01010101u) << 4; }

struct Raw {
  uvec4 q;
#if TYPE == 14 || TYPE >= 20
  uvec4 p;
#endif
#if TYPE >= 22
  uvec4 head;
#endif
#if TYPE == 23
  uvec4 h0, h1;
#elif TYPE == 24
  uvec4 h;
#endif
#if TYPE < 20
  float d, m;
  uint high;
#endif
};

Raw fetch(uint row, uint u) {
  Raw v;
#if TYPE == 14
  v.q = w4[(row >> 4) + 2 * u];
  v.p = w4[(row >> 4) + 2 * u + 1];
  v.d = h2f(u16(row + cols + 2 * u));
#elif TYPE < 20
  uint blocks = cols >> 5, plane = row + blocks * 16;
  v.q = w4[(row >> 4) + u];
#if TYPE == 12 || TYPE == 13
  v.high = w[(plane >> 2) + u];
  plane += (4 * blocks + 15) & ~15u;
#endif
#if TYPE == 11 || TYPE == 13
  uint head = w[(plane >> 2) + u];
  v.d = h2f(head & 0xffffu);
  v.m = h2f(head >> 16);
#else
  v.d = h2f(u16(plane + 2 * u));
#endif
#elif TYPE == 22 || TYPE == 23
  uint a = (row >> 4) + (u >> 2) * (TYPE == Q4_K ? 9 : 11), at = a + (TYPE == Q4_K ? 1 : 3) + 2 * (u & 3u);
  v.head = w4[a];
  v.q = w4[at];
  v.p = w4[at + 1];
#if TYPE == 23
  v.h0 = w4[a + 1];
  v.h1 = w4[a + 2];
#endif
#elif TYPE == 24
  uint blocks = cols >> 8, block = u >> 2, h = (u >> 1) & 1u, part16 = u & 1u;
  uint at = (row >> 4) + block * 8 + 4 * h + part16, sc = (row + blocks * 192 + block * 16 + 8 * h) >> 2;
  v.q = w4[at];
  v.p = w4[at + 2];
  v.h = w4[((row + blocks * 128) >> 4) + block * 4 + 2 * h + part16];
  v.head = uvec4(w[sc], w[sc + 1], u16(row + blocks * 208 + 2 * block), 0);
#endif
  return v;
}

// activations of the SPAN blocks: bytes, and scales.
struct X {
  uvec4 a[2 * SPAN];
  vec2 s[2 * SPAN];
};

X activations(uint s, uint u) {
  X v;
#if TYPE == 24
  // Sixteen elements of each of four blocks.
  uint from = s * pitch + (u >> 2) * 8 + 4 * ((u >> 1) & 1u);
  [[unroll]] for (uint i = 0; i < 4; i++) {
    v.a[i] = x16[2 * (from + i) + (u & 1u)];
    v.s[i] = vec2(scales[from + i].x, 0);
    v.s[i].y = v.s[i].x * float(dp4(v.a[i], uvec4(0x01010101u), 0)) * 32.0;
  }
#else
  uint from = s * pitch + SPAN * u;
  [[unroll]] for (uint i = 0; i < SPAN; i++) {
    v.a[2 * i] = x16[2 * (from + i)];
    v.a[2 * i + 1] = x16[2 * (from + i) + 1];
    v.s[i] = scales[from + i];
  }
#endif
  return v;
}

// product of what was fetched of unit u and of activations.
float product(Raw v, X x, uint u) {
  const uvec4 low = uvec4(0x0f0f0f0fu);
#if TYPE == 14
  return v.d * x.s[0].x * float(dp4(v.q, x.a[0], dp4(v.p, x.a[1], 0)));
#elif TYPE < 20
  uvec4 lo = v.q & low, hi = v.q >> 4 & low;
#if TYPE == 12 || TYPE == 13
  [[unroll]] for (uint i = 0; i < 4; i++) {
    lo[i] |= fifth(v.high >> (4 * i));
    hi[i] |= fifth(v.high >> (16 + 4 * i));
  }
#endif
  float sum = x.s[0].x * float(dp4(lo, x.a[0], dp4(hi, x.a[1], 0)));
  if (TYPE == Q4_1 || TYPE == Q5_1) return fma(v.d, sum, v.m * x.s[0].y);
  return v.d * fma(TYPE == Q4_0 ? -8.0 : -16.0, x.s[0].y, sum);
#elif TYPE == 22 || TYPE == 23
  uint j = u & 3u;
  vec2 dm = unpackHalf2x16(v.head.x);
  float sum = 0, low_ = 0;
  [[unroll]] for (uint n = 0; n < 2; n++) {
    uint s = 2 * j + n, at8 = 8 * (s & 3u), first = v.head.y >> at8, second = v.head.z >> at8, third = v.head.w >> at8;
    uint sc = s < 4 ? first & 63u : third & 15u | (first & 0xc0u) >> 2;
    uint mn = s < 4 ? second & 63u : (third >> 4) & 15u | (second & 0xc0u) >> 2;
    uvec4 a = v.q >> (4 * n) & low, c = v.p >> (4 * n) & low;
#if TYPE == 23
    a |= (v.h0 >> s & 0x01010101u) << 4;
    c |= (v.h1 >> s & 0x01010101u) << 4;
#endif
    sum = fma(float(sc) * x.s[n].x, float(dp4(a, x.a[2 * n], dp4(c, x.a[2 * n + 1], 0))), sum);
    low_ = fma(float(mn), x.s[n].y, low_);
  }
  return dm.x * sum - dm.y * low_;
#elif TYPE == 24
  float sum = 0;
  [[unroll]] for (uint n = 0; n < 4; n++) {
    uvec4 c = ((n & 1u) == 0 ? v.q : v.p) >> (4 * (n >> 1)) & low | (v.h >> (2 * n) & 0x03030303u) << 4;
    int sc = bitfieldExtract(int(n < 2 ? v.head.x : v.head.y), int(16 * (n & 1u) + 8 * (u & 1u)), 8);
    sum = fma(float(sc), fma(x.s[n].x, float(dp4(c, x.a[n], 0)), -x.s[n].y), sum);
  }
  return h2f(v.head.z) * sum;
#endif
}

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
  uint row0 = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * R;
  if (row0 >= rows) return;
  uint c0 = gl_WorkGroupID.z * NX, base = woff, bias = boff;
  uint xs[NX];
  if (EXPERTS) {
    int e = experts[eoff + c0];
    if (e < 0 || e >= int(all)) {
      if (t == 0) refuse(launch, c0, e, all);
      return;
    }
    uint local = uint(e) - first;
    if (uint(e) < first || local >= wexpert) return; // of another dispatch: wexpert counts this one's
    base += local * rows * wstride;
    bias += uint(e) * rows;
    uint s = c0 / users;
    xs[0] = s * inputs + (inputs > 1 ? c0 - s * users : 0);
  } else {
    [[unroll]] for (uint c = 0; c < NX; c++) xs[c] = min(c0 + c, count - 1);
    bias += first;
  }
  float acc[R * NX];
  [[unroll]] for (uint i = 0; i < R * NX; i++) acc[i] = 0;
  uint at[R];
  [[unroll]] for (uint i = 0; i < R; i++) at[i] = base + min(row0 + i, rows - 1) * wstride;
  uint units = cols / (32 * SPAN);
  for (uint u = t; u < units; u += T) {
    Raw v[R];
    [[unroll]] for (uint i = 0; i < R; i++) v[i] = fetch(at[i], u);
    [[unroll]] for (uint c = 0; c < NX; c++) {
      X x = activations(xs[c], u);
      [[unroll]] for (uint i = 0; i < R; i++) acc[i * NX + c] += product(v[i], x, u);
    }
  }
  [[unroll]] for (uint i = 0; i < R * NX; i++) {
    float sum = subgroupAdd(acc[i]);
    if (subgroupElect()) part[gl_SubgroupID * R * NX + i] = sum;
  }
  barrier();
  if (t >= R * NX) return;
  uint n = row0 + t / NX, s = c0 + t % NX;
  if (n >= rows || !EXPERTS && s >= count) return;
  float sum = 0;
  for (uint g = 0; g < gl_NumSubgroups; g++) sum += part[g * R * NX + t];
  if (BIAS != 0) sum += NARROW(b, BIAS, bias + n);
  uint to = EXPERTS ? n : first + n;
  if (RESIDUAL) {
    uint outer = s / rinner;
    sum += r[roff + outer * rstride + (s - outer * rinner) * all + to];
  }
  uint outer = s / yinner;
  y[yoff + outer * ystride + (s - outer * yinner) * (EXPERTS ? rows : all) + to] = sum;
}
