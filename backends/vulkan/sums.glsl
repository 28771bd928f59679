// What becomes of sums that lie in sh, TS rows of a subgroup's WN columns at a time (product.glsl): scales of x's rows, bias and
// residual meet known elements, and rows are stored whole.

#define LO (WN / 4 + 1)
#define LANES (WN / 4)             // vectors of four columns in a row
#define TURNS (TS * LANES / SG)    // of an invocation
#define ITEM(e) ((e) * SG + gl_SubgroupInvocationID)
vec4 extra[TURNS], next[TURNS]; // what is added to rows, and to those behind them
shared float rowScales[BM];

// scaled reads the scales of the workgroup's rows of x, which are used behind the next barrier.
void scaled(uint m0, uint t) {
  [[unroll]] for (uint i = 0; i < BM; i += NT) if (i + t < BM) rowScales[i + t] = scales[XROW(m0 + i + t)];
}

// place is where element n of row s of y or r is.
uint place(uint off, uint stride, uint inner, uint s, uint n) {
  if (PLAIN) return off + s * stride + first + n;
  uint o = s / inner;
  return off + o * stride + (s - o * inner) * all + first + n;
}

// load reads what is added to TS rows of a subgroup's part, from row s0 and column c0 on: while the rows before them are stored.
void load(uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint s = min(s0 + ITEM(e) / LANES, count - 1), n = c0 + 4 * (ITEM(e) % LANES);
    next[e] = vec4(0);
    if (BIAS != 0) [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) next[e][j] = NARROW(b, BIAS, bat + n + j);
    if (RESIDUAL) {
      uint from = place(roff, rstride, rinner, s, n);
      if (VECTORS) {
        if (n < rows) next[e] += r4[from >> 2];
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) next[e][j] += r[from + j];
      }
    }
  }
}

// store stores rows whose sums begin at own, with what was loaded.
void store(uint own, uint s0, uint c0) {
  [[unroll]] for (uint e = 0; e < TURNS; e++) {
    uint i = ITEM(e) / LANES, s = s0 + i, n = c0 + 4 * (ITEM(e) % LANES);
    if (s < end && n < rows) {
      vec4 v = uintBitsToFloat(sh[own + i * LO + ITEM(e) % LANES]) * rowScales[s - M0(gl_WorkGroupID.x)] + extra[e];
      uint to = place(yoff, ystride, yinner, YROW(s), n);
      if (VECTORS) {
        y4[to >> 2] = v;
      } else {
        [[unroll]] for (uint j = 0; j < 4; j++) if (n + j < rows) y[to + j] = v[j];
      }
    }
  }
}

// OUT stores a subgroup's part, of which KEEP puts matrices into shared memory. It is a loop, with a branch to matrices that are
// named, because code that runs once is fetched slowly: written out it is as long as the products' loop.
#define PICK(i) case i: { \
    const uint part0 = i; \
    EACH_N(KEEP) \
  } break;
#define OUT [[dont_unroll]] for (uint part = 0; part < FM; part++) { \
    const uint s0 = m0 + wm + part * TS; \
    [[unroll]] for (uint e = 0; e < TURNS; e++) extra[e] = next[e]; \
    if (part + 1 < FM) load(s0 + TS, n0 + wn); \
    switch (part) { EACH_M(PICK) } \
    subgroupBarrier(); \
    store(own, s0, n0 + wn); \
    subgroupBarrier(); \
  }
