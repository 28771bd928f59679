// What becomes of sums that lie in sh, TS rows of a subgroup's WN columns at a time (product.glsl): scales of x's rows, bias and
// residual meet known elements, and rows are stored whole.

#define LO (WN / 4 + 1)
#define LANES (WN / 4)             // vectors of four columns in a row
#define TURNS (TS * LANES / SG)    // of an invocation
#define ITEM(e) ((e) * SG + gl_SubgroupInvocationID)
float scale[TURNS];
vec4 extra[TURNS];

// load reads what belongs to TS rows of a subgroup's part, from row s0 and column c0 on: all of it before any is
// used.
void load(uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint s = min(s0 + ITEM(e) / LANES, count - 1), n = c0 + 4 * (ITEM(e) % LANES);
    scale[e] = scales[s];
    extra[e] = vec4(0);
    if (BIAS != 0) [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) extra[e][j] = NARROW(b, BIAS, boff + first + n + j);
    if (RESIDUAL) {
      uint o = rinner == 1 ? s : s / rinner, from = roff + o * rstride + (s - o * rinner) * all + first + n;
      if (VECTORS) {
        if (n < rows) extra[e] += r4[from >> 2];
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) extra[e][j] += r[from + j];
      }
    }
  }
}

// store stores those rows, with what was loaded.
void store(uint own, uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint i = ITEM(e) / LANES, s = s0 + i, n = c0 + 4 * (ITEM(e) % LANES);
    if (s < count && n < rows) {
      vec4 v = uintBitsToFloat(sh[own + i * LO + ITEM(e) % LANES]) * scale[e] + extra[e];
      uint o = yinner == 1 ? s : s / yinner, to = yoff + o * ystride + (s - o * yinner) * all + first + n;
      if (VECTORS) {
        y4[to >> 2] = v;
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) y[to + j] = v[j];
      }
    }
  }
}
