// What becomes of sums that lie in sh, TS rows of a subgroup's WN columns at a time (product.glsl): scales of x's rows, bias and
// residual meet known elements, and rows are stored whole.

#define LO (WN / 4 + 1)
#define LANES (WN / 4)             // vectors of four columns in a row
#define TURNS (TS * LANES / SG)    // of an invocation
#define ITEM(e) ((e) * SG + gl_SubgroupInvocationID)
vec4 extra[2][TURNS];
shared float rowScales[BM];

// scaled reads the scales of the workgroup's rows of x, which are used behind the next barrier.
void scaled(uint m0, uint t) {
  [[unroll]] for (uint i = 0; i < BM; i += NT) if (i + t < BM) rowScales[i + t] = scales[min(m0 + i + t, count - 1)];
}

// load reads what is added to TS rows of a subgroup's part, from row s0 and column c0 on: while the rows before them are stored.
void load(uint turn, uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint s = min(s0 + ITEM(e) / LANES, count - 1), n = c0 + 4 * (ITEM(e) % LANES);
    extra[turn][e] = vec4(0);
    if (BIAS != 0) [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) extra[turn][e][j] = NARROW(b, BIAS, boff + first + n + j);
    if (RESIDUAL) {
      uint o = rinner == 1 ? s : s / rinner, from = roff + o * rstride + (s - o * rinner) * all + first + n;
      if (VECTORS) {
        if (n < rows) extra[turn][e] += r4[from >> 2];
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) extra[turn][e][j] += r[from + j];
      }
    }
  }
}

// store stores those rows, with what was loaded.
void store(uint turn, uint own, uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint i = ITEM(e) / LANES, s = s0 + i, n = c0 + 4 * (ITEM(e) % LANES);
    if (s < count && n < rows) {
      vec4 v = uintBitsToFloat(sh[own + i * LO + ITEM(e) % LANES]) * rowScales[s - gl_WorkGroupID.x * BM] + extra[turn][e];
      uint o = yinner == 1 ? s : s / yinner, to = yoff + o * ystride + (s - o * yinner) * all + first + n;
      if (VECTORS) {
        y4[to >> 2] = v;
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) y[to + j] = v[j];
      }
    }
  }
}
