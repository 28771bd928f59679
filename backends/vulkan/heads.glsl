// What recurrences share whose heads have a matrix as their state. LANES invocations take a row or a column of it, a line, of N
// elements, through the rows of a step. With HELD they keep its elements in registers, at most ELEMS each, from a
// sequence's first row to its last, and what CHUNK rows bring lies in shared memory before their turn comes, so that no
// row waits for memory; lanes are summed up when all of them have had theirs. Without, where a subgroup cannot, elements
// stay in the slot that is written. Included with the extensions of subgroups where HELD.
#include "common.glsl"
#include "slots.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint N = 1;
layout(constant_id = 2) const uint LANES = 1; // a power of two; where HELD, no more than a subgroup has
layout(constant_id = 3) const bool MANY = false; // an element has a decay of its own, else a head has one
const uint T = gl_WorkGroupSize.x, LINES = T / LANES; // of a workgroup

// BEGIN finds which line c an invocation works on. So many lines are a unit, which needs the same of rows; a workgroup has
// lines of one, from first on, and where there are no more the last one again.
#define BEGIN(count) \
  const uint lines = count, blocks = (lines + LINES - 1) / LINES, unit = gl_WorkGroupID.x / blocks, base = unit * lines; \
  const uint first = gl_WorkGroupID.x % blocks * LINES, t = gl_LocalInvocationID.x, lane = PLACE % LANES, mark = first + PLACE / LANES; \
  const uint c = base + min(mark, lines - 1); \
  const bool mine = mark < lines; \
  bool turn = false;

// STORE puts elements, which lie apart from at on, into the slot that row s of the step writes.
#ifdef HELD
layout(constant_id = 6) const uint CHUNK = 1; // 16 at most
layout(constant_id = 7) const bool VECTORS = false; // what rows bring can be read 16 bytes at a time
const uint ELEMS = 16;
const uint WIDE = (N + 4 * LANES - 1) / (4 * LANES) * LANES; // vectors of a line, with zeros behind its end
// A driver's subgroups may have fewer invocations than gl_SubgroupSize says.
#define PLACE (gl_SubgroupID * (T / gl_NumSubgroups) + gl_SubgroupInvocationID)
#define AT(e) (4 * (lane + (e) / 4 * LANES) + (e) % 4) // of an invocation's element e
#define GROUPS [[unroll]] for (uint g = 0; g < ELEMS / 4; g++) if (4 * g * LANES < N)
#define OF(i) ((i) * WIDE + lane + g * LANES) // where group g of row i of the chunk lies
#define FOUR(g) vec4(held[4 * (g)], held[4 * (g) + 1], held[4 * (g) + 2], held[4 * (g) + 3])
#define HOLD(g, v) { const vec4 v_ = v; [[unroll]] for (uint j_ = 0; j_ < 4; j_++) held[4 * (g) + j_] = v_[j_]; }
#define SUM(v) (((v).x + (v).y) + ((v).z + (v).w))
#define OVER_LANES(v) for (uint o = 1; o < LANES; o <<= 1) v += subgroupShuffleXor(v, o)
#define STATE float held[ELEMS]; [[unroll]] for (uint e = 0; e < ELEMS; e++) held[e] = 0;
#define LOAD(now) { \
    const uint from_ = stateoff + uint(max(now, 0)) * width + at; \
    [[unroll]] for (uint e = 0; e < ELEMS; e++) if (e / 4 * 4 * LANES < N) \
      held[e] = now >= 0 && AT(e) < N ? state[from_ + AT(e) * apart] : 0.0; \
  }
#define STORE(s) if (mine) { \
    const uint to_ = stateoff + uint(target(planoff, s)) * width + at; \
    [[unroll]] for (uint e = 0; e < ELEMS; e++) if (e / 4 * 4 * LANES < N) if (AT(e) < N) state[to_ + AT(e) * apart] = held[e]; \
  }
shared int froms[CHUNK + 1];
shared float parts[CHUNK * T];

// CHUNKS goes through the chunks of which others do not take all; s0 is the first row, of so many, and takes has a bit
// for each that is taken here. The state of a sequence that begins with the first of them is on its way at once.
#define CHUNKS \
  STATE \
  for (uint s0 = 0; s0 < tokens; s0 += CHUNK) { \
    const uint rows = min(CHUNK, tokens - s0); \
    uint takes = 0; \
    barrier(); \
    for (uint i = t; i <= rows; i += T) froms[i] = s0 + i < tokens ? source(planoff, s0 + i) : FRESH; \
    barrier(); \
    for (uint i = 0; i < rows; i++) { \
      if (froms[i] != ON) turn = (s0 + i) % gl_NumWorkGroups.y == gl_WorkGroupID.y; \
      takes |= uint(turn) << i; \
    } \
    if (takes == 0) continue; \
    const uint early = findLSB(takes); \
    if (froms[early] >= FRESH) LOAD(froms[early])

// BRING2 brings N elements of each of the chunk's rows from two operands, all loads of a turn before the first store.
#define FOUR_OF(buf, buf4, row, j) (VECTORS ? buf4[((row) >> 2) + (j)] : vec4(buf[(row) + 4 * (j)], 4 * (j) + 1 < N ? buf[(row) + 4 * (j) + 1] : 0.0, \
    4 * (j) + 2 < N ? buf[(row) + 4 * (j) + 2] : 0.0, 4 * (j) + 3 < N ? buf[(row) + 4 * (j) + 3] : 0.0))
#define BRING2(to1, buf1, vec1, at1, stride1, to2, buf2, vec2_, at2, stride2) \
  for (uint i0 = t; i0 < rows * WIDE; i0 += 4 * T) { \
    vec4 one_[4], other_[4]; \
    [[unroll]] for (uint n_ = 0; n_ < 4; n_++) { \
      const uint i_ = i0 + n_ * T, r_ = i_ / WIDE, j_ = i_ % WIDE; \
      one_[n_] = other_[n_] = vec4(0); \
      if (i_ < rows * WIDE && 4 * j_ < N && (takes >> r_ & 1u) != 0) { \
        one_[n_] = FOUR_OF(buf1, vec1, (at1) + (s0 + r_) * (stride1), j_); \
        other_[n_] = FOUR_OF(buf2, vec2_, (at2) + (s0 + r_) * (stride2), j_); \
      } \
    } \
    [[unroll]] for (uint n_ = 0; n_ < 4; n_++) { \
      const uint i_ = i0 + n_ * T; \
      if (i_ < rows * WIDE) { \
        to1[i_] = one_[n_]; \
        to2[i_] = other_[n_]; \
      } \
    } \
  }
// Decays of logarithms in g, of a head's unit; behind nothing there is nothing to keep.
#define DECAYS shared vec4 gs[MANY ? CHUNK * WIDE : CHUNK];
#define DECAY (MANY ? gs[OF(i)] : gs[i])
#define DECAY_OF(i, e) ((e) < (MANY ? N : 1) && froms[i] != FRESH ? exp_(g[goff + (s0 + i) * gstride + unit * (MANY ? N : 1) + (e)]) : 0.0)
#define BRING_DECAYS \
  for (uint i_ = t; i_ < rows * (MANY ? WIDE : 1); i_ += T) { \
    const uint r_ = i_ / (MANY ? WIDE : 1), e_ = 4 * (i_ % (MANY ? WIDE : 1)); \
    if ((takes >> r_ & 1u) == 0) continue; \
    gs[i_] = MANY ? vec4(DECAY_OF(r_, e_), DECAY_OF(r_, e_ + 1), DECAY_OF(r_, e_ + 2), DECAY_OF(r_, e_ + 3)) : vec4(DECAY_OF(r_, 0)); \
  }
// EACH_LINE is for what rows bring of the workgroup's lines: i counts both, s is the row and l the line.
#define EACH_LINE(what) \
  for (uint i = t; i < rows * LINES; i += T) { \
    const uint s = s0 + i / LINES, l = base + min(first + i % LINES, lines - 1); \
    if ((takes >> (i / LINES) & 1u) != 0) { what; } \
  }
// ROWS goes through the chunk's rows, of which i is one; ROWS_END takes what a lane has of a row's result, and has a
// line's added up and stored.
#define ROWS \
  barrier(); \
  for (uint i = 0; i < rows; i++) { \
    if ((takes >> i & 1u) == 0) continue; \
    const int now = froms[i]; \
    if (now == PAD) { \
      parts[i * T + PLACE] = 0; \
      continue; \
    } \
    if (now != ON && i != early) LOAD(now)
#define ROWS_END(v) \
    parts[i * T + PLACE] = v; \
    if (froms[i + 1] != ON) STORE(s0 + i) \
  } \
  barrier(); \
  for (uint i = t; i < rows * LINES; i += T) { \
    if ((takes >> (i / LINES) & 1u) == 0 || first + i % LINES >= lines) continue; \
    float v_ = 0; \
    for (uint k = 0; k < LANES; k++) v_ += parts[i / LINES * T + i % LINES * LANES + k]; \
    y[yoff + (s0 + i / LINES) * ystride + base + first + i % LINES] = v_; \
  }
#else
#define PLACE gl_LocalInvocationID.x
#define AT(e) (lane + (e) * LANES)
#define H(e) state[to + AT(e) * apart]
#define EACH for (uint e = 0; mine && AT(e) < N; e++)
#define OVER_LANES(v) v = overLanes(v)
shared float parts[T];

float overLanes(float v) {
  const uint t = gl_LocalInvocationID.x, first = t - t % LANES;
  parts[t] = v;
  barrier();
  v = 0;
  for (uint i = first; i < first + LANES; i++) v += parts[i];
  barrier();
  return v;
}

// ROW is row s, with its state, unless others take its sequence.
#define ROW \
  const int now = source(planoff, s); \
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
#endif
