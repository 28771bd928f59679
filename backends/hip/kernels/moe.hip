// Routing of experts, and what moves rows.
#include "prelude.h"
#define NT 128

// The place of the first of a lane's largest numbers, which lie G_WAVE apart, that are not taken, ~0: none
G_FN void lane_best(const float *a, u32 d, u32 t, u32 taken, float &v, u32 &at_i) {
  v = -3.4e38f;
  at_i = ~0u;
  for (u32 i = t, bit = 1; i < d; i += G_WAVE, bit <<= 1) {
    const float c = a[i];
    if (!(taken & bit) && (at_i == ~0u || c > v)) v = c, at_i = i;
  }
}

// topk of a row of up to 32 numbers a lane by one wave: each lane knows its best, and looks again where that was taken
G_FN void topk_by_wave(float *p, int *e, const float *a, u32 d, u32 k, u32 mode, u32 t) {
  float v, mine = 0, top = 0, sum = 0;
  u32 at_i, taken = 0;
  lane_best(a, d, t, taken, v, at_i);
  for (u32 n = 0; n < k; n++) {
    float best = v;
    u32 where = at_i;
    G_UNROLL for (u32 o = G_WAVE / 2; o; o >>= 1) {
      const float c = shfl_xor(best, o);
      const u32 i = f2u(shfl_xor(u2f(where), o));
      if (i != ~0u && (where == ~0u || c > best || (c == best && i < where))) best = c, where = i;
    }
    if (n == 0) top = best;
    if (mode == 2) sum += g_exp(best - top);
    if (t == n) {
      mine = best;
      e[n] = (int)where;
    }
    if (where != ~0u && where % G_WAVE == t) {
      taken |= 1u << where / G_WAVE;
      lane_best(a, d, t, taken, v, at_i);
    }
  }
  if (mode == 1) {
    for (u32 i = t; i < d; i += G_WAVE) sum += g_exp(a[i] - top);
    G_UNROLL for (u32 o = G_WAVE / 2; o; o >>= 1) sum += shfl_xor(sum, o);
  }
  if (t < k) p[t] = mode ? g_exp(mine - top) / sum : mine;
}

// The k largest of each row in falling order, of equal ones the lower index
// first: a block a row, one search a place, or one wave where rows are short. mode: 0 as they are, 1 of the
// softmax over the row, 2 softmax among themselves. Of groups equal parts of the row, 0: none, only
// the keep best are chosen from, by their largest or, with top2, the sum of their two largest.
G_KERNEL G_BOUNDS(NT) topk(float *p, int *e, const float *x, Rows xr, u32 k, u32 mode, u32 groups,
                           u32 keep, u32 top2) {
  begin_next();
  wait_previous();
  __shared__ float part[NT / G_WAVE], best[NT];
  __shared__ u32 where[NT];
  const u32 d = xr.cols, row = bidx(), t = tid();
  const float *a = x + at(xr, row);
  p += (u64)row * k;
  e += (u64)row * k;
  __shared__ float worth[NT];
  __shared__ u32 kept[NT];
  const u32 size = groups ? d / groups : d;
  if (!groups && d <= 32 * G_WAVE && k <= G_WAVE) {
    if (t < G_WAVE) topk_by_wave(p, e, a, d, k, mode, t);
    return;
  }
  if (groups) {
    if (t < groups) {
      float first = u2f(0xff800000u), second = first;
      for (u32 i = 0; i < size; i++) {
        float c = a[t * size + i];
        if (c > first) second = first, first = c;
        else second = g_max(second, c);
      }
      worth[t] = top2 ? first + second : first;
    }
    bar();
    if (t < groups) {
      u32 before = 0;
      for (u32 i = 0; i < groups; i++) before += worth[i] > worth[t] || (worth[i] == worth[t] && i < t);
      kept[t] = before < keep;
    }
    bar();
  }
  float last = 0, top = 0, sum = 0;
  u32 last_i = 0;
  for (u32 n = 0; n < k; n++) {
    float v = -3.4e38f;
    u32 at_i = ~0u;
    for (u32 i = t; i < d; i += NT) {
      float c = a[i];
      bool after = n == 0 || c < last || (c == last && i > last_i);
      if (groups) after = after && kept[i / size];
      if (after && (at_i == ~0u || c > v)) {
        v = c;
        at_i = i;
      }
    }
    best[t] = v;
    where[t] = at_i;
    bar();
    for (u32 o = NT / 2; o; o >>= 1) {
      if (t < o) {
        float c = best[t + o];
        u32 i = where[t + o];
        if (i != ~0u && (where[t] == ~0u || c > best[t] || (c == best[t] && i < where[t]))) {
          best[t] = c;
          where[t] = i;
        }
      }
      bar();
    }
    last = best[0];
    last_i = where[0];
    bar();
    if (n == 0) top = last;
    if (mode == 2) sum += g_exp(last - top);
    if (t == 0) {
      p[n] = last;
      e[n] = (int)last_i;
    }
  }
  if (mode == 0) return;
  if (mode == 1) {
    if (groups) { // the largest may lie in a part that is not kept
      float largest = top;
      for (u32 i = t; i < d; i += NT) largest = g_max(largest, a[i]);
      top = block_max<NT>(largest, part);
    }
    for (u32 i = t; i < d; i += NT) sum += g_exp(a[i] - top);
    sum = block_sum<NT>(sum, part);
  }
  if (t == 0)
    for (u32 n = 0; n < k; n++) p[n] = g_exp(p[n] - top) / sum;
}

// Puts the pairs of a token and an expert, numbered as ids has them, in the order of experts, up to 1024 of them: a block.
// Behind the order, at a multiple of 16 bytes, tiles of up to tall pairs of one expert, those that are left over without
// any.
G_KERNEL G_BOUNDS(1024) group(u32 *plan, const int *ids, u32 pairs, u32 experts, u32 tall, u32 tiles, u32 *status,
                              u32 launch) {
  begin_next();
  wait_previous();
  __shared__ u32 next[1024], sums[2][1024];
  Group *const out = (Group *)(plan + round_up(pairs, 4));
  const u32 t = tid();
#define EXPERT(i) ((u32)ids[i] < experts ? (u32)ids[i] : 0)
  next[t] = 0;
  bar();
  for (u32 i = t; i < pairs; i += 1024) {
    if ((u32)ids[i] >= experts) fail(status, launch, i, ids[i]);
    add_shared(&next[EXPERT(i)], 1);
  }
  bar();
  const u32 count = next[t];
  u32 pair = count, tile = (count + tall - 1) / tall; // and those of all experts before
  for (u32 o = 1; o < 1024; o *= 2) {
    sums[0][t] = pair;
    sums[1][t] = tile;
    bar();
    if (t >= o) {
      pair += sums[0][t - o];
      tile += sums[1][t - o];
    }
    bar();
  }
  if (t == 1023) sums[1][0] = tile;
  const u32 first = pair - count;
  next[t] = first;
  bar();
  const u32 all = sums[1][0];
  tile -= (count + tall - 1) / tall;
  for (u32 i = 0; i < count; i += tall) out[tile++] = Group{t, first + i, g_min(tall, count - i), 0};
  for (u32 i = all + t; i < tiles; i += 1024) out[i] = Group{0, 0, 0, 0};
  for (u32 i = t; i < pairs; i += 1024) plan[add_shared(&next[EXPERT(i)], 1)] = i;
}

// y[s] = Σu p[s,u]·x[s,u]: a thread an element
G_KERNEL G_BOUNDS(NT) mix(float *y, const float *x, u32 xstride, const float *p, u32 pstride, u32 tokens, u32 u,
                          u32 n) {
  begin_next();
  wait_previous();
  u32 i = bidx() * NT + tid(), s = bidy();
  if (i >= n || s >= tokens) return;
  float v = 0;
  for (u32 k = 0; k < u; k++) v = g_fma(p[(u64)s * pstride + k], x[(u64)s * xstride + (u64)k * n + i], v);
  y[(u64)s * n + i] = v;
}

// y[r] = x[at[r]], words of 4 bytes: a block a row
G_KERNEL G_BOUNDS(NT) rows(u32 *y, const u32 *x, u32 row, u32 stride, u32 n, const int *index, u32 *status,
                           u32 launch) {
  begin_next();
  wait_previous();
  u32 r = bidx();
  int i = index[r];
  if (i < 0 || (u32)i >= n) {
    if (tid() == 0) fail(status, launch, r, i);
    i = 0;
  }
  for (u32 c = tid(); c < row; c += NT) y[(u64)r * row + c] = x[(u64)i * stride + c];
}

// y[r] = the mean of the rows [ends[2r], ends[2r+1]) of x: a block has 32 columns of a result, and takes a row of them
// for each 32 threads at a time.
G_KERNEL G_BOUNDS(NT) pool(float *y, const float *x, u32 stride, u32 cols, u32 n, const int *ends, u32 *status,
                           u32 launch) {
  begin_next();
  wait_previous();
  __shared__ float part[NT];
  const u32 t = tid(), r = bidy(), c = bidx() * 32 + t % 32;
  int from = ends[2 * r], to = ends[2 * r + 1];
  if (from < 0 || from >= to || (u32)to > n) {
    if (t == 0 && bidx() == 0) fail(status, launch, r, from < 0 || (u32)from >= n ? from : to);
    return;
  }
  float sum = 0;
  if (c < cols)
    for (u32 i = (u32)from + t / 32; i < (u32)to; i += NT / 32) sum += x[(u64)i * stride + c];
  part[t] = sum;
  bar();
  if (t >= 32 || c >= cols) return;
  for (u32 i = 1; i < NT / 32; i++) sum += part[32 * i + t];
  y[(u64)r * cols + c] = sum / (float)(to - from);
}

// y dense = columns [from, from + width) of x's rows, words of 4 bytes
G_KERNEL G_BOUNDS(NT) columns(u32 *y, const u32 *x, Rows xr, u32 from, u32 width) {
  begin_next();
  wait_previous();
  u32 r = bidx(), i = bidy() * NT + tid();
  if (i >= width) return;
  y[(u64)r * width + i] = x[at(xr, r) + from + i];
}
