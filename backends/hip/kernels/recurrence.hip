// Recurrences of channels, and the plan of all: slots says for each row from which slot of the state its sequence goes
// on and which one it writes; the others go through the step's rows, a channel a thread.
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

// y[s,c] = b[c] + Σj w[c,j] x[s-k+1+j, c]
G_KERNEL G_BOUNDS(NT) short_conv(float *state, Plan plan, float *y, const float *x, u32 xstride, const void *w, u32 wtype,
                                 const void *b, u32 btype, u32 channels, u32 k, u32 width) {
  begin_next();
  wait_previous();
  const u32 c = bidx() * NT + tid();
  if (c >= channels) return;
  u32 r0 = 0;
  int src = FRESH;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      y[(u64)s * channels + c] = 0.0f;
      continue;
    }
    if (now != ON) r0 = s, src = now;
#define SEEN(back)                                                                              \
  (s >= r0 + (back) ? x[(u64)(s - (back)) * xstride + c]                                        \
   : src < 0        ? 0.0f                                                                      \
                    : state[(u64)src * width + (u64)(k - 1 + s - r0 - (back)) * channels + c])
    float v = b ? load_float(b, btype, c) : 0.0f;
    for (u32 j = 0; j < k; j++) v = g_fma(load_float(w, wtype, (u64)c * k + j), SEEN(k - 1 - j), v);
    y[(u64)s * channels + c] = v;
    if (!last(plan, s)) continue;
    for (u32 j = 0; j + 1 < k; j++) { // what is read lies behind what was written
      const float e = SEEN(k - 2 - j);
      state[(u64)target(plan, s) * width + (u64)j * channels + c] = e;
    }
  }
}

// y[s] = a[s] y[s-1] + x[s]
G_KERNEL G_BOUNDS(NT) scan(float *state, Plan plan, float *y, const float *a, u32 astride, const float *x, u32 xstride,
                           u32 channels, u32 width) {
  begin_next();
  wait_previous();
  const u32 c = bidx() * NT + tid();
  if (c >= channels) return;
  float h = 0.0f;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      y[(u64)s * channels + c] = 0.0f;
      continue;
    }
    if (now != ON) h = now < 0 ? 0.0f : state[(u64)now * width + c];
    h = g_fma(a[(u64)s * astride + c], h, x[(u64)s * xstride + c]);
    y[(u64)s * channels + c] = h;
    if (last(plan, s)) state[(u64)target(plan, s) * width + c] = h;
  }
}

// ops.WKVStep
G_KERNEL G_BOUNDS(NT) wkv(float *state, Plan plan, float *y, const float *keys, u32 kstride, const float *values,
                          u32 vstride, const void *w, u32 wtype, const void *u, u32 utype, u32 channels, u32 width) {
  begin_next();
  wait_previous();
  const u32 c = bidx() * NT + tid();
  if (c >= channels) return;
  const float fall = load_float(w, wtype, c), bonus = load_float(u, utype, c);
  float num = 0.0f, den = 0.0f, top = -1.0e38f;
  for (u32 s = 0; s < plan.rows; s++) {
    const int now = source(plan, s);
    if (now == PAD) {
      y[(u64)s * channels + c] = 0.0f;
      continue;
    }
    if (now != ON) {
      num = den = 0.0f;
      top = -1.0e38f;
      if (now >= 0) {
        const float *h = state + (u64)now * width + c;
        num = h[0];
        den = h[channels];
        top = h[2 * (u64)channels];
      }
    }
    const float k = keys[(u64)s * kstride + c], v = values[(u64)s * vstride + c];
    float m = g_max(top, bonus + k), was = g_exp(top - m), is = g_exp(bonus + k - m);
    y[(u64)s * channels + c] = (was * num + is * v) / (was * den + is);
    m = g_max(top - fall, k);
    was = g_exp(top - fall - m);
    is = g_exp(k - m);
    num = was * num + is * v;
    den = was * den + is;
    top = m;
    if (last(plan, s)) {
      float *h = state + (u64)target(plan, s) * width + c;
      h[0] = num;
      h[channels] = den;
      h[2 * (u64)channels] = top;
    }
  }
}
