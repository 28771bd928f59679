#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#define STATUS 7
#include "common.glsl"
#include "status.glsl"
#ifdef CHAIN
#define HAND 13
#include "handed.glsl"
#include "apply.glsl"
#endif
// y[s,n] = sum over k of w[n,k] x[s,k] (+ b[n]) (+ r[s,n]) for few rows of x, which are signed bytes with
// scales (forms.glsl), and weights of block formats: sums of products of bytes are integers, which scales
// then weigh. A workgroup computes R rows of w for NX rows of x (macros); for one row of x (NX 1) a
// subgroup R rows of w at a time, with UN of an invocation's next pieces of each on their way, and a
// workgroup ROWS. With EXPERTS there is one row of x and one result per choice, and w is
// stacked. Layouts of blocks: decode.glsl and pack.go.
//
// With the macro CHAIN, of one row of x: x may be the bytes of u g that come with sums of squares of u, for
// an RMSNorm whose division is left for the end (NORM); and y may be written as bytes too (FORM), or
// those of y g with sums of squares of y (NEXT). A scale covers the 32 results of a workgroup. With the macro GATE too, y = act(w x, up x).
// HANDED: what stages before write is read as soon as it is there (handed.glsl), and x lies in shared memory.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BIAS = 0; // type, 0: none
layout(constant_id = 2) const bool RESIDUAL = false;
layout(constant_id = 3) const bool EXPERTS = false;
#ifdef CHAIN
layout(constant_id = 4) const bool NORM = false;
layout(constant_id = 5) const bool FORM = false;
layout(constant_id = 6) const bool NEXT = false;
layout(constant_id = 7) const uint ACT = SWIGLU;
layout(constant_id = 8) const bool HANDED = false;
layout(constant_id = 9) const uint ROOM = 128; // for x's elements
layout(binding = 8, std430) readonly buffer BQ { float squares[]; }; // of x, per 32
layout(binding = 9, std430) coherent writeonly buffer BD { uint bytes[]; };
layout(binding = 10, std430) coherent writeonly buffer BDS { vec2 scales2[]; };
layout(binding = 11, std430) coherent writeonly buffer BDQ { float squares2[]; };
layout(binding = 12, std430) readonly buffer BG { float g[]; };
layout(binding = 5, std430) coherent writeonly buffer BY { float y[]; };
#else
layout(binding = 5, std430) writeonly buffer BY { float y[]; };
#endif
#ifdef GATE
layout(binding = 14, std430) readonly buffer Up { uint up[]; };
layout(binding = 14, std430) readonly buffer Up4 { uvec4 up4[]; };
#endif
layout(binding = 0, std430) readonly buffer Weights { uint w[]; };
layout(binding = 0, std430) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1, std430) readonly buffer BX { uvec4 x16[]; };
layout(binding = 2, std430) readonly buffer BS { vec2 scales[]; }; // per 32: scale, and scale times sum
layout(binding = 3, std430) readonly buffer BB { uint b[]; };
layout(binding = 4, std430) readonly buffer BR { float r[]; };
layout(binding = 6, std430) readonly buffer BE { int experts[]; };
#ifdef CHAIN // where HANDED
layout(binding = 1, std430) coherent volatile buffer HX { uvec4 codesh[]; };
layout(binding = 2, std430) coherent volatile buffer HS { uvec4 scalesh[]; };
layout(binding = 8, std430) coherent volatile buffer HQ { uvec4 squaresh[]; };
layout(binding = 4, std430) coherent volatile buffer HR { uint rh[]; };
#endif
layout(push_constant) uniform Push {
  uint rows, cols;             // of w in this dispatch, and of each
  uint first, all;             // number of its first row, and of rows in w: of experts with EXPERTS
  uint count;                  // rows of x
  uint woff, wstride, wexpert; // bytes
  uint pitch;                  // of x, in blocks of 32
  uint boff, roff, rstride, yoff, ystride, yinner, rinner;
  uint eoff, users, inputs, launch;
  uint goff, uoff; // of g in elements, of up in bytes
  float eps;
#ifdef CHAIN
  uint waits; // where HANDED: what stages before write may not be there yet: x with bit 0, r with bit 1
#endif
};

#if NX > 1
shared float part[64 * R * NX]; // subgroups have 4 invocations at least
#endif
#ifdef GATE
#define OUT (R / 2) // results of R rows
#else
#define OUT R
#endif
#ifdef CHAIN
shared float top[32], square_[32];
shared int code[32];
shared float result[32];
shared uvec4 sx[ROOM / 16];
shared vec2 sscales[ROOM / 32];
shared float ssquares[ROOM / 32];
#define X16(i) (HANDED ? sx[LIES(i)] : x16[i])
#define SCALES(i) (HANDED ? sscales[i] : scales[i])
#define SQUARES(i) (HANDED ? ssquares[i] : squares[i])
#define RESIDUE(i) residue(i, asked, rest)
#define SAID(v) (HANDED ? said(v) : (v))
#else
#define SAID(v) (v)
#define RESIDUE(i) r[i]
#define X16(i) x16[i]
#define SCALES(i) scales[i]
#endif

int dp(uint a, uint c, int sum) { return sum + dotPacked4x8EXT(int(a), int(c)); }
int dp4(uvec4 a, uvec4 c, int sum) { return dp(a.x, c.x, dp(a.y, c.y, dp(a.z, c.z, dp(a.w, c.w, sum)))); }

#if TYPE == 16
#include "fp4.glsl"
#endif

const uint Q4_0 = 10, Q4_1 = 11, Q5_0 = 12, Q5_1 = 13, Q8_0 = 14, Q4_K = 22, Q5_K = 23, Q6_K = 24;

// What an invocation takes of a row at a time: SPAN blocks of 32 elements.
#if TYPE >= 20
#define SPAN 2u
#else
#define SPAN 1u
#endif
// LIES says where 16 bytes of x lie in shared memory: in a plane for each that an invocation takes, so that its neighbours' follow.
#if TYPE == 24
#define LIES(i) (i)
#else
#define LIES(i) ((i) % (2 * SPAN) * (ROOM / 32 / SPAN) + (i) / (2 * SPAN))
#endif

// fifth gives the fifth bits of four codes, from four bits of h.
uint fifth(uint h) { return ((h & 15u) * 0x00204081u & 0x01010101u) << 4; }

// Pieces of a row that are under way: up to 40 registers for all rows.
#if TYPE >= 20 || TYPE == 14 && R > 1
#define UN 1
#else
#define UN 2
#endif

// Raw is a piece of a row as it was read: nothing may be done with it before the next is on its way.
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
  uint d; // a word with the block's scale: of even blocks in its lower half; with a minimum above it in Q4_1, Q5_1; of MXFP4 a byte
  uint high;
#endif
};

#define FETCH fetch
#define W w
#define W4 w4
#include "fetchq.glsl"
#ifdef GATE
#undef FETCH
#undef W
#undef W4
#define FETCH fetchUp
#define W up
#define W4 up4
#include "fetchq.glsl"
#endif

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
    v.a[i] = X16(2 * (from + i) + (u & 1u));
    v.s[i] = vec2(SCALES(from + i).x, 0);
    v.s[i].y = v.s[i].x * float(dp4(v.a[i], uvec4(0x01010101u), 0)) * 32.0;
  }
#else
  uint from = s * pitch + SPAN * u;
  [[unroll]] for (uint i = 0; i < SPAN; i++) {
    v.a[2 * i] = X16(2 * (from + i));
    v.a[2 * i + 1] = X16(2 * (from + i) + 1);
    v.s[i] = SCALES(from + i);
  }
#endif
  return v;
}

// half_ is number i of f16 numbers, of which word holds two.
float half_(uint word, uint i) { return h2f(bitfieldExtract(word, int(i & 1u) * 16, 16)); }

// product of what was fetched of unit u and of activations.
float product(Raw v, X x, uint u) {
  const uvec4 low = uvec4(0x0f0f0f0fu);
#if TYPE == 14
  return half_(v.d, u) * x.s[0].x * float(dp4(v.q, x.a[0], dp4(v.p, x.a[1], 0)));
#elif TYPE == 16
  uvec4 lo, hi;
  [[unroll]] for (uint i = 0; i < 4; i++) {
    lo[i] = fp4(v.q[i]) ^ 0x80808080u;
    hi[i] = fp4(v.q[i] >> 4) ^ 0x80808080u;
  }
  return fp4Scale(bitfieldExtract(v.d, int(u & 3u) * 8, 8)) * x.s[0].x * float(dp4(lo, x.a[0], dp4(hi, x.a[1], 0)));
#elif TYPE < 20
  uvec4 lo = v.q & low, hi = v.q >> 4 & low;
#if TYPE == 12 || TYPE == 13
  [[unroll]] for (uint i = 0; i < 4; i++) {
    lo[i] |= fifth(v.high >> (4 * i));
    hi[i] |= fifth(v.high >> (16 + 4 * i));
  }
#endif
  float sum = x.s[0].x * float(dp4(lo, x.a[0], dp4(hi, x.a[1], 0)));
  if (TYPE == Q4_1 || TYPE == Q5_1) return fma(h2f(v.d & 0xffffu), sum, h2f(v.d >> 16) * x.s[0].y);
  return half_(v.d, u) * fma(TYPE == Q4_0 ? -8.0 : -16.0, x.s[0].y, sum);
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
  return half_(v.head.z, u >> 2) * sum;
#endif
}

#ifdef CHAIN
// squared gives what an invocation adds to the sum of squares for its unit.
float squared(uint u) {
#if TYPE == 24
  uint from = (u >> 2) * 8 + 4 * ((u >> 1) & 1u);
  return (u & 1u) != 0 ? 0.0 : SQUARES(from) + SQUARES(from + 1) + SQUARES(from + 2) + SQUARES(from + 3);
#elif TYPE >= 20
  return SQUARES(2 * u) + SQUARES(2 * u + 1);
#else
  return SQUARES(u);
#endif
}

// used is a word that needs all loads of a piece.
uint used(Raw v) {
  uint w = v.q.x;
#if TYPE == 14 || TYPE >= 20
  w ^= v.p.x;
#endif
#if TYPE >= 22
  w ^= v.head.x;
#endif
#if TYPE == 23
  w ^= v.h0.x ^ v.h1.x;
#elif TYPE == 24
  w ^= v.h.x ^ v.head.y ^ v.head.z;
#elif TYPE < 20
  w ^= v.d;
#endif
#if TYPE == 12 || TYPE == 13
  w ^= v.high;
#endif
  return w;
}

uint waiting = 0; // waits, 0 when somebody has waited in vain

// take puts x where it is read from, as soon as it is there: codes, scales, and squares where NORM, all
// loads before the first store. Their rows are multiples of 128.
void take() {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  const uint codes = cols / 16, also = codes + cols / 64, all = NORM ? also + cols / 128 : also;
  uint looks = 0;
  for (uint i0 = t; i0 < all; i0 += 2 * T) {
    uvec4 a[2];
    bool again = true;
    while (again) {
      [[unroll]] for (uint k = 0; k < 2; k++) {
        uint i = i0 + k * T;
        if (i < codes) a[k] = codesh[i];
        else if (i < also) a[k] = scalesh[i - codes];
        else if (i < all) a[k] = squaresh[i - also];
        else a[k] = uvec4(0);
      }
      again = (waiting & 1u) != 0 && looks < PATIENCE && !(there(a[0]) && there(a[1]));
      if (again) looks++;
    }
    [[unroll]] for (uint k = 0; k < 2; k++) {
      uint i = i0 + k * T;
      if (i < codes) sx[LIES(i)] = a[k];
      else if (i < also) {
        sscales[2 * (i - codes)] = uintBitsToFloat(a[k].xy);
        sscales[2 * (i - codes) + 1] = uintBitsToFloat(a[k].zw);
      } else if (i < all) {
        [[unroll]] for (uint j = 0; j < 4; j++) ssquares[4 * (i - also) + j] = uintBitsToFloat(a[k][j]);
      }
    }
  }
  tooLong(launch, looks);
  barrier();
}

// residue gives element i of r as soon as it is there; v: as it was read, where asked.
float residue(uint i, bool asked, uint v) {
  if (!HANDED) return r[i];
  uint looks = 0;
  if (!asked) v = rh[i];
  while ((waiting & 2u) != 0 && !there(v) && looks < PATIENCE) {
    v = rh[i];
    looks++;
  }
  tooLong(launch, looks);
  return uintBitsToFloat(v);
}

// word gives four codes as bytes.
uint word(uint i) { return code[4 * i] & 255 | (code[4 * i + 1] & 255) << 8 | (code[4 * i + 2] & 255) << 16 | code[4 * i + 3] << 24; }

// form makes bytes of the workgroup's 32 results, with by: an element of g where NEXT, of result i. All rows are in
// one dispatch, and their number is a multiple of 32.
void form(uint block, uint i, float by) {
  barrier();
  if (gl_SubgroupSize >= 32) { // the first subgroup does it
    if (gl_SubgroupID > 0) return;
    float v = i < 32 ? result[i] : 0.0, all2 = NEXT ? subgroupAdd(v * v) : 0.0;
    if (NEXT) v *= by;
    float m = subgroupMax(abs(v));
    int c = int(roundEven(v * (m > 0 ? 127.0 / m : 0.0))), sum = subgroupAdd(c);
    if (i < 32) code[i] = c;
    subgroupBarrier();
    if (i < 8) bytes[8 * block + i] = word(i);
    if (i == 0) {
      scales2[block] = vec2(m / 127.0, SAID(m / 127.0 * float(sum)));
      if (NEXT) squares2[block] = all2;
    }
    return;
  }
  float v = 0;
  if (i < 32) {
    v = result[i];
    square_[i] = v * v;
    if (NEXT) v *= by;
    top[i] = abs(v);
  }
  barrier();
  float m = 0;
  for (uint j = 0; j < 32; j++) m = max(m, top[j]);
  if (i < 32) code[i] = int(roundEven(v * (m > 0 ? 127.0 / m : 0.0)));
  barrier();
  if (i < 8) bytes[8 * block + i] = word(i);
  if (i == 0) {
    int sum = 0;
    float all2 = 0;
    for (uint j = 0; j < 32; j++) {
      sum += code[j];
      all2 += square_[j];
    }
    scales2[block] = vec2(m / 127.0, SAID(m / 127.0 * float(sum)));
    if (NEXT) squares2[block] = all2;
  }
}
#endif

#if NX == 1
// FETCHES reads R rows from n on, of the gate's as many from either weight, UN pieces of each from u on;
// behind the last row and the last piece those again.
#ifdef GATE
#define FETCHES(to, n, u) \
  [[unroll]] for (uint k = 0; k < UN; k++) \
    [[unroll]] for (uint i = 0; i < OUT; i++) { \
      to[k * R + i] = fetch(base + min((n) + i, rows - 1) * wstride, min((u) + k * SG, units - 1)); \
      to[k * R + OUT + i] = fetchUp(uoff + min((n) + i, rows - 1) * wstride, min((u) + k * SG, units - 1)); \
    }
#else
#define FETCHES(to, n, u) \
  [[unroll]] for (uint k = 0; k < UN; k++) \
    [[unroll]] for (uint i = 0; i < OUT; i++) \
      to[k * R + i] = fetch(base + min((n) + i, rows - 1) * wstride, min((u) + k * SG, units - 1));
#endif
#endif

void main() {
  const uint T = gl_WorkGroupSize.x, t = gl_LocalInvocationID.x;
#if NX == 1
#define ROWS 32u
#else
#define ROWS OUT
#endif
  uint row0 = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * ROWS;
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
  uint units = cols / (32 * SPAN);
#if NX == 1
#ifdef CHAIN
  const uint at = gl_SubgroupSize >= 32 ? gl_SubgroupInvocationID : t; // form's i
  float by = 0;
  if (NEXT && at < 32) by = g[goff + (row0 & ~31u) + at];
#endif
  const uint lane = gl_SubgroupInvocationID, SG = gl_SubgroupSize;
  const uint limit = min(row0 + ROWS, rows);
  uint n0 = row0 + gl_SubgroupID * OUT, u0 = lane;
  float acc[R];
  [[unroll]] for (uint i = 0; i < R; i++) acc[i] = 0;
#ifdef CHAIN
  float square = 0;
#endif
  Raw v[R * UN], next[R * UN];
  FETCHES(v, n0, u0)
#ifdef CHAIN
  // What the first rows need is on its way before x is waited for. A compiler may ask for weights where they are used,
  // so that they are used, by a number of waits that there is not.
  bool asked = HANDED && RESIDUAL; // for the residual of the first rows
  uint rest = 0;
  if (asked && lane < OUT && n0 + lane < rows) rest = rh[roff + first + n0 + lane];
  if (HANDED) {
    if (waits > 3) {
      uint all_ = 0;
      [[unroll]] for (uint i = 0; i < R * UN; i++) all_ ^= used(v[i]);
      sx[t & 7u] = uvec4(all_);
    }
    if (waits != 0 && !there(vain)) waiting = waits;
    take();
  }
#endif
  while (n0 < limit) {
    bool ends = u0 - lane + UN * SG >= units; // the rows do, behind this turn
    uint n1 = ends ? n0 + gl_NumSubgroups * OUT : n0, u1 = ends ? lane : u0 + UN * SG;
    if (n1 < limit) { FETCHES(next, n1, u1) }
    [[unroll]] for (uint k = 0; k < UN; k++) {
      bool whole = u0 + k * SG < units;
      uint u = min(u0 + k * SG, units - 1);
      X x = activations(xs[0], u);
      [[unroll]] for (uint i = 0; i < R; i++) {
        float p = product(v[k * R + i], x, u);
        acc[i] += whole ? p : 0.0;
      }
#ifdef CHAIN
      if (NORM && whole) square += squared(u);
#endif
    }
    if (ends) {
      uint n = n0 + lane; // of the invocation's result, if it is one of the first OUT
      bool mine = lane < OUT && n < rows;
      float add = 0;
      if (mine) {
        if (BIAS != 0) add = NARROW(b, BIAS, bias + n);
        if (RESIDUAL) {
          uint outer = c0 / rinner;
          add += RESIDUE(roff + outer * rstride + (c0 - outer * rinner) * all + first + n);
        }
      }
      [[unroll]] for (uint i = 0; i < R; i++) acc[i] = subgroupAdd(acc[i]);
      float sum = acc[0];
      [[unroll]] for (uint i = 1; i < OUT; i++) sum = lane == i ? acc[i] : sum;
#ifdef CHAIN
      float scale = 1;
      if (NORM) scale = 1.0 / sqrt(subgroupAdd(square) / float(cols) + eps);
      square = 0;
      sum *= scale;
#endif
#ifdef GATE
      float other = acc[OUT];
      [[unroll]] for (uint i = 1; i < OUT; i++) other = lane == i ? acc[OUT + i] : other;
      sum = apply(ACT, sum, other * scale, 0);
#endif
      if (mine) {
        uint outer = c0 / yinner;
        y[yoff + outer * ystride + (c0 - outer * yinner) * (EXPERTS ? rows : all) + (EXPERTS ? n : first + n)] = SAID(sum + add);
#ifdef CHAIN
        if (FORM) result[n & 31u] = sum + add;
#endif
      }
      [[unroll]] for (uint i = 0; i < R; i++) acc[i] = 0;
    }
#ifdef CHAIN
    if (ends) asked = false;
#endif
    [[unroll]] for (uint i = 0; i < R * UN; i++) v[i] = next[i];
    n0 = n1;
    u0 = u1;
  }
#ifdef CHAIN
  if (FORM) form(row0 / 32, at, by);
#endif
#else
  float acc[R * NX];
  [[unroll]] for (uint i = 0; i < R * NX; i++) acc[i] = 0;
  uint at[R];
  [[unroll]] for (uint i = 0; i < R; i++) at[i] = base + min(row0 + i, rows - 1) * wstride;
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
  if (n >= rows || s >= count) return;
  float sum = 0;
  for (uint g = 0; g < gl_NumSubgroups; g++) sum += part[g * R * NX + t];
  if (BIAS != 0) sum += NARROW(b, BIAS, bias + n);
  uint to = first + n;
  if (RESIDUAL) {
    uint outer = s / rinner;
    sum += r[roff + outer * rstride + (s - outer * rinner) * all + to];
  }
  uint outer = s / yinner;
  y[yoff + outer * ystride + (s - outer * yinner) * all + to] = sum;
#endif
}
