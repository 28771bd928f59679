// Recurrences of channels, and the plan of all: slots says for each row from which slot of the state its sequence goes
// on and which one it writes. Of the others a thread takes a channel through rows of the step.
#include "slots.h"
G_FN bool begins(const int *pos, const int *slot, u32 s) {
  return s == 0 || slot[s] != slot[s - 1] || pos[s] != pos[s - 1] + 1;
}

// one block; slot is null where all rows are of one sequence
G_KERNEL G_BOUNDS(NT) slots(float *state, const int *pos, const int *slot, int *plan, u32 rows, u32 count, u32 width,
                            u32 *status, u32 launch) {
  begin_next();
  wait_previous();
  __shared__ int from, to;
  const u32 t = tid();
#define MARK(i) state[(u64)((i) + 1) * width - 1]
  if (!slot) {
    const int first = pos[0];
    if (t == 0) {
      from = FRESH;
      to = 0;
      if (first > 0) {
        for (int i = 0; i < (int)count; i++)
          if (MARK(i) == (float)first) from = i;
        if (from < 0) {
          fail(status, launch, 0, first);
          from = PAD;
        }
        to = -1;
        for (int i = 0; i < (int)count; i++) { // what lies ahead is void, else the oldest goes
          if (i == from) continue;
          const bool ahead = MARK(i) > (float)first, was = to >= 0 && MARK(to) > (float)first;
          if (to < 0 || (ahead && !was) || (ahead == was && MARK(i) < MARK(to))) to = i;
        }
      } else {
        for (int i = 0; i < (int)count; i++) MARK(i) = 0.0f;
      }
      if (from != PAD) MARK(to) = (float)(first + (int)rows);
    }
    bar();
    for (u32 s = t; s < rows; s += NT) {
      if (pos[s] != first + (int)s || first < 0) fail(status, launch, s, pos[s]);
      plan[2 * s] = from == PAD || s == 0 ? from : ON;
      plan[2 * s + 1] = to;
    }
    return;
  }
  for (u32 s = t; s < rows; s += NT) {
    const int i = slot[s], p = pos[s];
    const bool there = i >= -1 && i < (int)count, start = begins(pos, slot, s);
    bool wrong = !there || p < 0;
    if (!wrong && i >= 0 && start && p > 0) wrong = MARK(i) != (float)p;
    if (wrong) fail(status, launch, s, there ? p : i);
    plan[2 * s] = wrong || i < 0 ? PAD : !start ? ON : p == 0 ? FRESH : i;
    plan[2 * s + 1] = i > 0 && there ? i : 0;
  }
  bar(); // marks are read above
  for (u32 s = t; s < rows; s += NT) {
    const int i = slot[s];
    if (i >= 0 && i < (int)count && (s + 1 == rows || begins(pos, slot, s + 1))) MARK(i) = (float)(pos[s] + 1);
  }
}

// y[s,c] = b[c] + Σj w[c,j] x[s-k+1+j, c], of a turn's rows. A sequence's rows that still see its state go together with its
// first one, and the state that it leaves, which takes the place of what they see.
G_KERNEL G_BOUNDS(NT) short_conv(float *state, Plan plan, float *y, const float *x, u32 xstride, const void *w, u32 wtype,
                                 const void *b, u32 btype, u32 channels, u32 k, u32 width) {
  begin_next();
  wait_previous();
  const u32 mark = bidx() * NT + tid(), c = g_min(mark, channels - 1);
  const bool mine = mark == c;
  const float bias = b ? load_float(b, btype, c) : 0.0f;
  const u32 from = bidy() * plan.per, to = g_min(from + plan.per, plan.rows);
  u32 r0 = from; // where the sequence begins, or k - 1 rows before
  while (source(plan, r0) == ON && r0 + (k - 1) > from) r0--;
  for (u32 s = from; s < to; s++) {
    const int src = source(plan, s);
    if (src == PAD) {
      if (mine) y[(u64)s * channels + c] = 0.0f;
      continue;
    }
    if (src == ON) {
      if (s < r0 + (k - 1)) continue;
      float v = bias;
      for (u32 j = 0; j < k; j++)
        v = g_fma(load_float(w, wtype, (u64)c * k + j), x[(u64)(s - (k - 1 - j)) * xstride + c], v);
      if (mine) y[(u64)s * channels + c] = v;
      continue;
    }
    r0 = s;
    u32 end = s + 1; // of the sequence
    if (!last(plan, s)) {
      for (end += lane(); end < plan.rows && source(plan, end) == ON;) end += G_WAVE;
      G_UNROLL for (u32 o = G_WAVE / 2; o; o >>= 1) end = g_min(end, f2u(shfl_xor(u2f(end), o)));
      end = g_min(end, plan.rows);
    }
    if (!mine) continue;
#define SEEN(i, back)                                                                           \
  (i >= s + (back) ? x[(u64)(i - (back)) * xstride + c]                                         \
   : src < 0       ? 0.0f                                                                       \
                   : state[(u64)src * width + (u64)(k - 1 + i - s - (back)) * channels + c])
    for (u32 i = s; i < end && (i == s || i < s + (k - 1)); i++) {
      float v = bias;
      for (u32 j = 0; j < k; j++) v = g_fma(load_float(w, wtype, (u64)c * k + j), SEEN(i, k - 1 - j), v);
      y[(u64)i * channels + c] = v;
    }
    float *left = state + (u64)target(plan, s) * width + c;
    for (u32 j = 0; j + 1 < k; j++) { // what is read lies behind what was written
      const float e = SEEN(end - 1, k - 2 - j);
      left[(u64)j * channels] = e;
    }
  }
}

// channels takes a channel of scan or wkv through the step, of which it reads AHEAD rows at a time, so that memory answers
// once for all of them: op.begin takes a slot or null, op.row what a row brings, op.end leaves what it has in a slot.
#define AHEAD 8
template <class Op> G_FN void channels(float *state, const Plan &plan, float *y, const float *x, u32 xstride, const float *a,
                                       u32 astride, u32 channels, u32 width, u32 c, Op op) {
  const Turn mine = turn(plan);
  if (c >= channels || mine.from == mine.behind) return;
  for (u32 first = mine.from; first < plan.rows; first += AHEAD) {
    float xs[AHEAD], as[AHEAD];
    int from[AHEAD + 1];
    G_UNROLL for (u32 i = 0; i <= AHEAD; i++) from[i] = first + i < plan.rows ? source(plan, first + i) : PAD;
    G_UNROLL for (u32 i = 0; i < AHEAD; i++) {
      const u32 s = g_min(first + i, plan.rows - 1);
      xs[i] = x[(u64)s * xstride + c];
      as[i] = a[(u64)s * astride + c];
    }
    G_UNROLL for (u32 i = 0; i < AHEAD; i++) {
      const u32 s = first + i;
      if (s == plan.rows || (from[i] != ON && s >= mine.behind)) return;
      if (from[i] == PAD) {
        y[(u64)s * channels + c] = 0.0f;
        continue;
      }
      if (from[i] != ON) op.begin(from[i] < 0 ? nullptr : state + (u64)from[i] * width + c);
      y[(u64)s * channels + c] = op.row(xs[i], as[i]);
      if (from[i + 1] != ON) op.end(state + (u64)target(plan, s) * width + c);
    }
  }
}

struct Scan {
  float h;
  G_FN_IN void begin(const float *slot) { h = slot ? *slot : 0.0f; }
  G_FN_IN float row(float x, float a) { return h = g_fma(a, h, x); }
  G_FN_IN void end(float *slot) const { *slot = h; }
};

// y[s] = a[s] y[s-1] + x[s]
G_KERNEL G_BOUNDS(NT) scan(float *state, Plan plan, float *y, const float *a, u32 astride, const float *x, u32 xstride,
                           u32 count, u32 width) {
  begin_next();
  wait_previous();
  channels(state, plan, y, x, xstride, a, astride, count, width, bidx() * NT + tid(), Scan{0.0f});
}

// ops.WKVStep
struct WKV {
  float fall, bonus, num, den, top;
  u32 apart;
  G_FN_IN void begin(const float *slot) {
    num = slot ? slot[0] : 0.0f;
    den = slot ? slot[apart] : 0.0f;
    top = slot ? slot[2 * (u64)apart] : -1.0e38f;
  }
  G_FN_IN float row(float k, float v) {
    float m = g_max(top, bonus + k), was = g_exp(top - m), is = g_exp(bonus + k - m);
    const float y = (was * num + is * v) / (was * den + is);
    m = g_max(top - fall, k);
    was = g_exp(top - fall - m);
    is = g_exp(k - m);
    num = was * num + is * v;
    den = was * den + is;
    top = m;
    return y;
  }
  G_FN_IN void end(float *slot) const {
    slot[0] = num;
    slot[apart] = den;
    slot[2 * (u64)apart] = top;
  }
};
G_KERNEL G_BOUNDS(NT) wkv(float *state, Plan plan, float *y, const float *keys, u32 kstride, const float *values,
                          u32 vstride, const void *w, u32 wtype, const void *u, u32 utype, u32 count, u32 width) {
  begin_next();
  wait_previous();
  const u32 c = bidx() * NT + tid(), own = g_min(c, count - 1);
  channels(state, plan, y, keys, kstride, values, vstride, count, width, c,
           WKV{load_float(w, wtype, own), load_float(u, utype, own), 0.0f, 0.0f, -1.0e38f, count});
}
