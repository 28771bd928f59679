#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define STATUS 7
#include "common.glsl"
#include "status.glsl"
#define HAND 13
#include "handed.glsl"
// A product of bytes that a norm follows (matvecq.comp, NEXT) in the manner of handvec.comp: y = w x (+ b) (+ r) for one row of x and
// weights of Q4_0 or Q8_0, the bytes of y g, and sums of squares of y. A workgroup computes 32 results, each R of them by a set of
// its invocations, of which one takes a block of 32 elements of each row in a turn, or with the macro HALF half a block of Q8_0: it asks for
// its first weights, and then for what of x they are multiplied by, as long as words of it are not there yet: first through the
// first-level cache, and what is missing past it. Rows are a multiple of 32. Layouts of blocks: decode.glsl and pack.go.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BIAS = 0; // type, 0: none
layout(constant_id = 2) const bool RESIDUAL = false;
layout(binding = 0, std430) readonly buffer Weights { uint w[]; };
layout(binding = 0, std430) readonly buffer Weights4 { uvec4 w4[]; };
layout(binding = 1, std430) buffer BX { uvec4 x16[]; };
layout(binding = 1, std430) coherent volatile buffer HX { uvec4 codesh[]; };
layout(binding = 2, std430) buffer BS { uvec2 scales[]; }; // per 32: scale, and what only matvecq.comp reads
layout(binding = 2, std430) coherent volatile buffer HS { uvec2 scalesh[]; };
layout(binding = 3, std430) readonly buffer BB { uint b[]; };
layout(binding = 4, std430) coherent volatile buffer HR { uint rh[]; };
layout(binding = 5, std430) coherent writeonly buffer BY { float y[]; };
layout(binding = 9, std430) coherent writeonly buffer BD { uint bytes[]; };
layout(binding = 10, std430) coherent writeonly buffer BDS { vec2 scales2[]; };
layout(binding = 11, std430) coherent writeonly buffer BDQ { float squares2[]; };
layout(binding = 12, std430) readonly buffer BG { float g[]; };
layout(push_constant) uniform Push {
  uint rows, cols;    // of w
  uint woff, wstride; // bytes
  uint boff, roff, yoff, goff;
  uint launch;
  uint waits;         // what stages before write may not be there yet: x with bit 0, r with bit 1
};
const uint RESULTS = 32, SETS = RESULTS / R;
shared float part[64 * R];   // subgroups have 4 invocations at least
shared vec2 result[RESULTS]; // y g, and the square of y

#if TYPE == 14
#define CODES cols
#else
#define CODES (cols / 2)
#endif

// A unit is what an invocation takes of a row in a turn: Q times 16 bytes of codes, of block BLOCK; READ reads what they are
// multiplied by.
#ifdef HALF
#define UNIT 16
#define Q 1
#define BLOCK(u) ((u) / 2)
struct Unit { uvec4 a; uint scale; };
bool there(Unit x) { return there(x.a) && there(x.scale); }
#define READ(codes, scales) Unit(codes[from], scales[BLOCK(from)].x)
#else
#define UNIT 32
#define Q (TYPE == 14 ? 2 : 1)
#define BLOCK(u) (u)
struct Unit { uvec4 a, b; uint scale; };
bool there(Unit x) { return there(x.a) && there(x.b) && there(x.scale); }
#define READ(codes, scales) Unit(codes[2 * from], codes[2 * from + 1], scales[from].x)
#endif

// FETCH reads unit u of row i, and the word in which its scale lies.
#define FETCH(i, u) \
  [[unroll]] for (uint n = 0; n < Q; n++) q[Q * (i) + n] = w4[at[i] + Q * (u) + n]; \
  d[i] = w[4 * at[i] + (CODES + 2 * BLOCK(u)) / 4];

int dp(uint a, uint c, int sum) { return sum + dotPacked4x8EXT(int(a), int(c)); }
int dp4(uvec4 a, uvec4 c, int sum) { return dp(a.x, c.x, dp(a.y, c.y, dp(a.z, c.z, dp(a.w, c.w, sum)))); }

void main() {
  const uint T = gl_WorkGroupSize.x / SETS, me = gl_LocalInvocationID.x, units = cols / UNIT;
  const uint row0 = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * RESULTS;
  if (row0 >= rows) return;
  uint at[R];
  [[unroll]] for (uint i = 0; i < R; i++) at[i] = (woff + (row0 + me / T * R + i) * wstride) >> 4;
  uint u = me % T;
  uvec4 q[R * Q];
  uint d[R];
  [[unroll]] for (uint i = 0; i < R; i++) { FETCH(i, min(u, units - 1)) }
  const bool mine = me < RESULTS;
  uint rest = 0; // the result's residual
  if (RESIDUAL && mine) rest = rh[roff + row0 + me];
  float by = 0;
  if (mine) by = g[goff + row0 + me];
  if (waits > 3) { // never is: weights are used, so that a compiler asks for them before the wait
    uint all_ = 0;
    [[unroll]] for (uint i = 0; i < R; i++) all_ ^= q[Q * i].x ^ q[Q * i + Q - 1].x ^ d[i];
    part[me & 63u] = uintBitsToFloat(all_);
  }
  float acc[R];
  [[unroll]] for (uint i = 0; i < R; i++) acc[i] = 0;
  while (true) {
    const uint from = min(u, units - 1);
    Unit x = READ(x16, scales);
    if ((waits & 1u) != 0 && !there(x)) {
      const bool waiting = !there(vain);
      uint looks = 0;
      do {
        x = READ(codesh, scalesh);
        looks++;
      } while (waiting && !there(x) && looks < PATIENCE);
      tooLong(launch, looks);
    }
    if (u < units) {
      const float scale = uintBitsToFloat(x.scale);
      [[unroll]] for (uint i = 0; i < R; i++) {
        const vec2 two = unpackHalf2x16(d[i]);
        const float by_ = scale * ((BLOCK(u) & 1u) != 0 ? two.y : two.x);
#ifdef HALF
        acc[i] = fma(by_, float(dp4(q[i], x.a, 0)), acc[i]);
#elif TYPE == 14
        acc[i] = fma(by_, float(dp4(q[2 * i], x.a, dp4(q[2 * i + 1], x.b, 0))), acc[i]);
#else
        // Codes less 8, times 16.
        const uvec4 lo = (q[i] << 4 & 0xf0f0f0f0u) ^ 0x80808080u, hi = (q[i] & 0xf0f0f0f0u) ^ 0x80808080u;
        acc[i] = fma(by_ / 16, float(dp4(lo, x.a, dp4(hi, x.b, 0))), acc[i]);
#endif
      }
    }
    u += T;
    if (u >= units) break;
    // The next weights are asked for at a turn's end: within a turn a compiler may ask for them behind the wait.
    [[unroll]] for (uint i = 0; i < R; i++) { FETCH(i, u) }
  }
  if (gl_SubgroupSize == 32 && T % 32 == 0) {
    // As in handvec.comp: of two sums at a time, half of the invocations go on with either.
    const uint lane = gl_SubgroupInvocationID;
    [[unroll]] for (uint n = R / 2, o = 1; n > 0; n /= 2, o *= 2) {
      const bool upper = (lane & o) != 0;
      [[unroll]] for (uint i = 0; i < n; i++)
        acc[i] = (upper ? acc[i + n] : acc[i]) + subgroupShuffleXor(upper ? acc[i] : acc[i + n], o);
    }
    [[unroll]] for (uint o = R; o < 32; o *= 2) acc[0] += subgroupShuffleXor(acc[0], o);
    if (lane < R) part[gl_SubgroupID * R + bitfieldReverse(lane) / (0x80000000u / (R / 2))] = acc[0];
  } else {
    [[unroll]] for (uint i = 0; i < R; i++) {
      float sum = subgroupAdd(acc[i]);
      if (subgroupElect()) part[gl_SubgroupID * R + i] = sum;
    }
  }
  barrier();
  if (mine) {
    const uint each = gl_NumSubgroups / SETS; // subgroups of a set
    float sum = 0;
    for (uint n = 0; n < each; n++) sum += part[(me / R * each + n) * R + me % R];
    if (BIAS != 0) sum += NARROW(b, BIAS, boff + row0 + me);
    if (RESIDUAL) {
      uint looks = 0;
      const bool waiting = (waits & 2u) != 0 && !there(rest) && !there(vain);
      while (waiting && !there(rest) && looks < PATIENCE) {
        rest = rh[roff + row0 + me];
        looks++;
      }
      tooLong(launch, looks);
      sum += uintBitsToFloat(rest);
    }
    y[yoff + row0 + me] = said(sum);
    result[me] = vec2(sum * by, sum * sum);
  }
  if (gl_SubgroupSize >= RESULTS) { // the first subgroup has them all
    if (gl_SubgroupID > 0) return;
    subgroupBarrier();
  } else {
    barrier();
  }
  if (me >= RESULTS / 4) return;
  float m = 0, all2 = 0;
  [[unroll]] for (uint n = 0; n < RESULTS; n++) {
    m = max(m, abs(result[n].x));
    all2 += result[n].y;
  }
  const float f = m > 0 ? 127.0 / m : 0.0;
  uint word = 0;
  [[unroll]] for (uint n = 0; n < 4; n++) word |= (uint(int(roundEven(result[4 * me + n].x * f))) & 255u) << (8 * n);
  bytes[row0 / 4 + me] = word;
  if (me > 0) return;
  float codes = 0;
  [[unroll]] for (uint n = 0; n < RESULTS; n++) codes += roundEven(result[n].x * f);
  scales2[row0 / 32] = vec2(m / 127.0, said(m / 127.0 * codes));
  squares2[row0 / 32] = all2;
}
