// What recurrences share whose heads have a matrix as their state. LANES invocations take a row or a column of it, of N
// elements, through the rows of a step. With HELD they keep its elements in registers, at most ELEMS each, from a
// sequence's first row to its last; without, where a subgroup cannot, they stay in the slot that is written. Included
// with the extensions of subgroups where HELD.
#include "common.glsl"
#include "slots.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint N = 1;
layout(constant_id = 2) const uint LANES = 1; // a power of two; where HELD, no more than a subgroup has
layout(constant_id = 3) const bool MANY = false; // an element has a decay of its own, else a head has one

#define AT(e) (lane + (e) * LANES) // of an invocation's element e
#ifdef HELD
const uint ELEMS = 16;
// A driver's subgroups may have fewer invocations than gl_SubgroupSize says.
#define PLACE (gl_SubgroupID * (gl_WorkGroupSize.x / gl_NumSubgroups) + gl_SubgroupInvocationID)
#define STATE float held[ELEMS]
#define H(e) held[e]
#define EACH \
  [[unroll]] for (uint e = 0; e < ELEMS; e++) if (e * LANES < N && ((e + 1) * LANES <= N || AT(e) < N))
#define OVER_LANES(v) for (uint o = 1; o < LANES; o <<= 1) v += subgroupShuffleXor(v, o)
#define STORE if (mine && next != ON) EACH state[to + AT(e) * apart] = held[e]
#else
#define PLACE gl_LocalInvocationID.x
#define STATE
#define H(e) state[to + AT(e) * apart]
#define EACH for (uint e = 0; mine && AT(e) < N; e++)
#define OVER_LANES(v) v = overLanes(v)
#define STORE
shared float parts[gl_WorkGroupSize.x];

float overLanes(float v) {
  const uint t = gl_LocalInvocationID.x, first = t - t % LANES;
  parts[t] = v;
  barrier();
  v = 0;
  for (uint i = first; i < first + LANES; i++) v += parts[i];
  barrier();
  return v;
}
#endif

// BEGIN finds which of so many rows or columns an invocation works on: the last one where there are no more of its own.
#define BEGIN(count) \
  const uint lane = PLACE % LANES, mark = (gl_WorkGroupID.x * gl_WorkGroupSize.x + PLACE) / LANES; \
  const uint c = min(mark, (count) - 1); \
  const bool mine = mark == c; \
  bool turn = false; \
  int next = source(planoff, 0); \
  STATE

// ROW goes on to row s unless others take its sequence, with its state, whose elements lie apart from at on.
#define ROW \
  const int now = next; \
  next = s + 1 < tokens ? source(planoff, s + 1) : FRESH; \
  if (now != ON) turn = s % gl_NumWorkGroups.y == gl_WorkGroupID.y; \
  if (!turn) continue; \
  if (now == PAD) { \
    if (mine && lane == 0) y[yoff + s * ystride + c] = 0; \
    continue; \
  } \
  const uint to = stateoff + uint(target(planoff, s)) * width + at; \
  if (now != ON) { \
    const uint from = stateoff + uint(max(now, 0)) * width + at; \
    EACH H(e) = now < 0 ? 0.0 : state[from + AT(e) * apart]; \
  }
