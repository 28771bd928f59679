// Steps of many rows of recurrences whose heads have a matrix as their state. LANES threads share a row or a column of
// it, REGS elements each, in registers from a sequence's first row to its last. What CHUNK rows of the step bring lies in
// shared memory before their turn comes, and lanes are summed up when all have had theirs: no row waits for memory.
//
// SSM, DELTA or DPLR says which operator it is; MANY: elements have decays of their own, else heads have; RANK: dplr has
// a and b; EARLY: its result is of the state before.
#include "slots.h"
#define THREADS 128
#define LINES (THREADS / LANES) // rows or columns of a block
#define BESIDE (32 / LANES)     // those of 32 threads: neighbours read the same elements of what rows bring
#define WIDE (REGS * LANES)     // of a row in shared memory: its elements, then zeros
#define FOURS(i, l) (4 * ((l) + (i) * LANES))
struct alignas(16) Brought { float v[CHUNK][WIDE]; };
typedef float Lines[CHUNK][LINES];

G_FN u32 lane_of() { return tid() / BESIDE % LANES; }
G_FN u32 line_of() { return tid() / 32 * BESIDE + tid() % BESIDE; }
G_FN float over_lanes(float v) {
  G_UNROLL for (u32 o = BESIDE; o < 32; o <<= 1) v += shfl_xor(v, o);
  return v;
}

// brings n elements of each of some rows
G_FN void bring(Brought &to, const float *from, u32 stride, u32 n, u32 rows) {
  constexpr u32 all = CHUNK * WIDE / 4, turns = (all + THREADS - 1) / THREADS;
  const bool aligned = (((u64)from | 4 * (u64)stride | 4 * (u64)n) & 15) == 0;
  f4 v[turns];
  G_UNROLL for (u32 k = 0; k < turns; k++) {
    const u32 i = tid() + k * THREADS, t = i / (WIDE / 4), j = i % (WIDE / 4) * 4;
    const float *p = from + (u64)t * stride + j;
    v[k] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (t >= rows || j >= n) continue;
    if (aligned) {
      v[k] = *(const f4 *)p;
      continue;
    }
    v[k].x = p[0];
    if (j + 1 < n) v[k].y = p[1];
    if (j + 2 < n) v[k].z = p[2];
    if (j + 3 < n) v[k].w = p[3];
  }
  G_UNROLL for (u32 k = 0; k < turns; k++) {
    const u32 i = tid() + k * THREADS;
    if (i < all) *(f4 *)&to.v[i / (WIDE / 4)][i % (WIDE / 4) * 4] = v[k];
  }
}

#if MANY && !defined(SSM)
// Decays of logarithms; behind nothing there is nothing to keep.
G_FN void bring_decays(Brought &to, const Plan &plan, u32 s, const float *from, u32 stride, u32 n, u32 rows) {
  for (u32 i = tid(); i < CHUNK * WIDE; i += THREADS) {
    const u32 t = i / WIDE, j = i % WIDE;
    to.v[t][j] = t < rows && j < n && source(plan, s + t) != FRESH ? g_exp(from[(u64)t * stride + j]) : 0.0f;
  }
}
#endif

G_FN void four_of(float (&to)[4], const f4 &v) {
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}
#define EACH G_UNROLL for (u32 i = 0; i < REGS / 4; i++)
#define FOUR(name, rows)                                     \
  float name[4];                                             \
  four_of(name, *(const f4 *)&(rows).v[t][FOURS(i, l)])
#define OF_FOUR G_UNROLL for (u32 j = 0; j < 4; j++)
#define SUM(v) ((v[0] + v[1]) + (v[2] + v[3]))

// An operator's line, with `apart` elements between those of its state, the first at `at` of a slot.
struct Line {
  float h[REGS];
  u32 l, n, at, apart;
  bool mine;
  G_FN_IN void load(const float *slot) {
    EACH OF_FOUR {
      const u32 e = FOURS(i, l) + j;
      h[4 * i + j] = slot && e < n ? slot[at + (u64)e * apart] : 0.0f;
    }
  }
  G_FN_IN void store(float *slot) const {
    EACH OF_FOUR {
      const u32 e = FOURS(i, l) + j;
      if (mine && e < n) slot[at + (u64)e * apart] = h[4 * i + j];
    }
  }
};

// go takes a line through the step: op.bring brings rows to shared memory, op.row gives a lane's part of a result. The
// block's results are beside each other, `here` of them real.
template <class Op> G_FN void go(float *state, const Plan &plan, u32 width, float *y, u32 ystride, u32 here, Op &op) {
  __shared__ int from[CHUNK + 1], to[CHUNK];
  __shared__ float parts[CHUNK][THREADS];
  const Turn mine = turn(plan);
  if (mine.from == mine.behind) return;
  for (u32 s = mine.from, n; s < plan.rows; s += n) {
    n = g_min(CHUNK, plan.rows - s);
    if (tid() <= n) from[tid()] = s + tid() < plan.rows ? source(plan, s + tid()) : PAD;
    if (tid() < n) to[tid()] = (int)target(plan, s + tid());
    op.bring(s, n);
    bar();
    u32 t = 0;
    for (; t < n; t++) {
      const int now = from[t];
      if (now != ON) {
        if (s + t >= mine.behind) break;
        op.line.load(now < 0 ? nullptr : state + (u64)now * width);
      }
      parts[t][tid()] = now == PAD ? 0.0f : op.row(t);
      if (now != PAD && from[t + 1] != ON) op.line.store(state + (u64)to[t] * width);
    }
    bar();
    for (u32 i = tid(); i < t * LINES; i += THREADS) {
      const u32 c = i % LINES;
      float sum = 0.0f;
      G_UNROLL for (u32 l = 0; l < LANES; l++) sum += parts[i / LINES][c / BESIDE * 32 + l * BESIDE + c % BESIDE];
      if (c < here) y[(u64)(s + i / LINES) * ystride + c] = sum;
    }
    if (t < n) return;
  }
}

// Block bidx() has LINES of the `count` lines that belong together, the first of which is line `first` of all.
struct Part {
  u32 first, here;
  G_FN_IN Part(u32 count) {
    const u32 blocks = (count + LINES - 1) / LINES, b = bidx() % blocks;
    first = bidx() / blocks * count + b * LINES;
    here = g_min(count - b * LINES, LINES);
  }
};

#ifdef SSM
// ssm of heads.hip, by the rows of a group's heads.
struct Ssm {
  Brought &bs, &cs;
  Lines &ins, &steps;
  const float *x, *dt, *b, *c;
  u32 xstride, dtstride, bstride, cstride; // x, b and c of the block
  u32 head;                                // of the line that this thread brings
  bool brings;
  float rate;
  Line line;
#if MANY
  float a[REGS];
#endif
  G_FN_IN void bring(u32 s, u32 n) {
    ::bring(bs, b + (u64)s * bstride, bstride, line.n, n);
    ::bring(cs, c + (u64)s * cstride, cstride, line.n, n);
    if (!brings) return;
    for (u32 t = tid() / LINES; t < n; t += LANES) {
      const float step = dt[(u64)(s + t) * dtstride + head];
      ins[t][tid() % LINES] = step * x[(u64)(s + t) * xstride + tid() % LINES];
      steps[t][tid() % LINES] = MANY ? step : g_exp(step * rate);
    }
  }
  G_FN_IN float row(u32 t) {
    const float in = ins[t][line_of()], step = steps[t][line_of()];
    const u32 l = line.l;
    float sum[4] = {};
    EACH {
      FOUR(b, bs);
      FOUR(c, cs);
      OF_FOUR {
#if MANY
        const float decay = g_exp(step * a[4 * i + j]);
#else
        const float decay = step;
#endif
        float &h = line.h[4 * i + j];
        h = g_fma(decay, h, in * b[j]);
        sum[j] = g_fma(h, c[j], sum[j]);
      }
    }
    return SUM(sum);
  }
};

G_KERNEL G_BOUNDS(THREADS) ssm(float *state, Plan plan, float *y, const float *x, u32 xstride, const float *dt, u32 dtstride,
                               const void *a, u32 atype, const float *b, u32 bstride, const float *c, u32 cstride, u32 heads,
                               u32 p, u32 n, u32 m, u32 share, u32 width) {
  begin_next();
  wait_previous();
  __shared__ Brought bs, cs;
  __shared__ Lines ins, steps;
  const Part part(share * p);
  const u32 bring = tid() % LINES, row = part.first + g_min(line_of(), part.here - 1), group = part.first / (share * p);
  const u32 head = (part.first + g_min(bring, part.here - 1)) / p;
  Ssm op = {bs, cs, ins, steps, x + part.first, dt, b + group * n, c + group * n, xstride, dtstride, bstride, cstride, head,
            bring < part.here, MANY ? 0.0f : load_float(a, atype, head),
            {{}, lane_of(), n, row * n, 1, line_of() < part.here}};
  if (!op.brings)
    for (u32 t = tid() / LINES; t < CHUNK; t += LANES) ins[t][bring] = steps[t][bring] = 0.0f;
#if MANY
  EACH OF_FOUR {
    const u32 e = FOURS(i, op.line.l) + j;
    op.a[4 * i + j] = e < n ? load_float(a, atype, (u64)(row / p) * n + e) : 0.0f;
  }
#endif
  go(state, plan, width, y + part.first, heads * p, part.here, op);
}
#endif

#ifndef SSM
// What delta and dplr share: a block has columns of one head.
struct Columns {
  Part part;
  u32 head, mine;
  G_FN_IN Columns(u32 dv) : part(dv), head(part.first / dv), mine(part.first % dv + g_min(line_of(), part.here - 1)) {}
  G_FN_IN Line line(u32 n, u32 dv) const {
    return {{}, lane_of(), n, head * n * dv + mine, dv, line_of() < part.here};
  }
};

G_FN void bring_values(Lines &to, const float *v, u32 stride, u32 here, u32 rows) {
  const u32 c = tid() % LINES;
  for (u32 t = tid() / LINES; t < rows; t += LANES) to[t][c] = c < here ? v[(u64)t * stride + c] : 0.0f;
}

// A decay that may be an element's or the head's.
#if MANY
typedef Brought Decays;
#define DECAYS(n) bring_decays(gs, plan, s, g + (u64)s * gstride, gstride, line.n, n)
#define FOUR_DECAYS FOUR(decay, gs)
#else
typedef float Decays[CHUNK];
#define DECAYS(n) \
  if (tid() < n) gs[tid()] = source(plan, s + tid()) == FRESH ? 0.0f : g_exp(g[(u64)(s + tid()) * gstride])
#define FOUR_DECAYS const float decay[4] = {gs[t], gs[t], gs[t], gs[t]}
#endif
#endif

#ifdef DELTA
struct Delta {
  Brought &qs, &ks;
  Decays &gs;
  Lines &vs;
  float *betas;
  Plan plan;
  const float *q, *k, *v, *g, *beta; // of the block's head and columns
  u32 qstride, kstride, vstride, gstride, bstride, here;
  Line line;
  G_FN_IN void bring(u32 s, u32 n) {
    ::bring(qs, q + (u64)s * qstride, qstride, line.n, n);
    ::bring(ks, k + (u64)s * kstride, kstride, line.n, n);
    bring_values(vs, v + (u64)s * vstride, vstride, here, n);
    DECAYS(n);
    if (tid() < n) betas[tid()] = beta[(u64)(s + tid()) * bstride];
  }
  G_FN_IN float row(u32 t) {
    const u32 l = line.l;
    float seen[4] = {}, sum[4] = {};
    EACH {
      FOUR(k, ks);
      FOUR_DECAYS;
      OF_FOUR {
        float &h = line.h[4 * i + j];
        h *= decay[j];
        seen[j] = g_fma(k[j], h, seen[j]);
      }
    }
    const float add = betas[t] * (vs[t][line_of()] - over_lanes(SUM(seen)));
    EACH {
      FOUR(k, ks);
      FOUR(q, qs);
      OF_FOUR {
        float &h = line.h[4 * i + j];
        h = g_fma(k[j], add, h);
        sum[j] = g_fma(q[j], h, sum[j]);
      }
    }
    return SUM(sum);
  }
};

// delta of heads.hip
G_KERNEL G_BOUNDS(THREADS) delta(float *state, Plan plan, float *y, const float *q, u32 qstride, const float *keys,
                                 u32 kstride, const float *v, u32 vstride, const float *g, u32 gstride, const float *beta,
                                 u32 bstride, u32 heads, u32 dk, u32 dv, u32 dg, u32 width) {
  begin_next();
  wait_previous();
  __shared__ Brought qs, ks;
  __shared__ Decays gs;
  __shared__ Lines vs;
  __shared__ float betas[CHUNK];
  const Columns of(dv);
  Delta op = {qs, ks, gs, vs, betas, plan, q + of.head * dk, keys + of.head * dk, v + of.part.first, g + of.head * dg,
              beta + of.head, qstride, kstride, vstride, gstride, bstride, of.part.here, of.line(dk, dv)};
  go(state, plan, width, y + of.part.first, heads * dv, of.part.here, op);
}
#endif

#ifdef DPLR
struct Dplr {
  Brought *vectors; // q, k, a, b
  Decays &gs;
  Lines &vs;
  Plan plan;
  const float *q, *k, *v, *g, *a, *b; // of the block's head and columns
  u32 qstride, kstride, vstride, gstride, astride, bstride, here;
  Line line;
  G_FN_IN void bring(u32 s, u32 n) {
    ::bring(vectors[0], q + (u64)s * qstride, qstride, line.n, n);
    ::bring(vectors[1], k + (u64)s * kstride, kstride, line.n, n);
#if RANK
    ::bring(vectors[2], a + (u64)s * astride, astride, line.n, n);
    ::bring(vectors[3], b + (u64)s * bstride, bstride, line.n, n);
#endif
    bring_values(vs, v + (u64)s * vstride, vstride, here, n);
    DECAYS(n);
  }
  G_FN_IN float row(u32 t) {
    const u32 l = line.l;
    const float value = vs[t][line_of()];
    float sum[4] = {};
#if EARLY
    EACH {
      FOUR(q, vectors[0]);
      OF_FOUR sum[j] = g_fma(q[j], line.h[4 * i + j], sum[j]);
    }
#endif
#if RANK
    float of[4] = {};
    EACH {
      FOUR(a, vectors[2]);
      OF_FOUR of[j] = g_fma(a[j], line.h[4 * i + j], of[j]);
    }
    const float seen = over_lanes(SUM(of));
#endif
    EACH {
      FOUR(k, vectors[1]);
      FOUR_DECAYS;
#if RANK
      FOUR(b, vectors[3]);
#endif
#if !EARLY
      FOUR(q, vectors[0]);
#endif
      OF_FOUR {
        float &h = line.h[4 * i + j];
        h = g_fma(decay[j], h, k[j] * value);
#if RANK
        h = g_fma(b[j], seen, h);
#endif
#if !EARLY
        sum[j] = g_fma(q[j], h, sum[j]);
#endif
      }
    }
    return SUM(sum);
  }
};

// dplr of heads.hip
G_KERNEL G_BOUNDS(THREADS) dplr(float *state, Plan plan, float *y, const float *q, u32 qstride, const float *keys,
                                u32 kstride, const float *v, u32 vstride, const float *g, u32 gstride, const float *a,
                                u32 astride, const float *b, u32 bstride, u32 heads, u32 dk, u32 dv, u32 dg, u32 width) {
  begin_next();
  wait_previous();
  __shared__ Brought vectors[RANK ? 4 : 2];
  __shared__ Decays gs;
  __shared__ Lines vs;
  const Columns of(dv);
  Dplr op = {vectors, gs, vs, plan, q + of.head * dk, keys + of.head * dk, v + of.part.first, g + of.head * dg,
             a + of.head * dk, b + of.head * dk, qstride, kstride, vstride, gstride, astride, bstride, of.part.here,
             of.line(dk, dv)};
  go(state, plan, width, y + of.part.first, heads * dv, of.part.here, op);
}
#endif
