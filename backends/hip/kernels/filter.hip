// Leaves of each row the tokens that a choice may fall on: y = x for those, minus infinity elsewhere. A block a row.
// A filter is the last token that it leaves, in its own order. That one is found without sorting: what tokens count goes
// into bins by distance, in one of which the filter ends; that one's go into others by the highest bits of their keys,
// and so on. Where those that are left are few they are listed, and only the list is read. What tokens count is a whole
// number of 64 bits in two words, so that sums are the same in any order.
#include "prelude.h"
#include "log.h"
#define NT 512
#define UN 8       // tokens that a thread reads at once
#define BINS 1024
#define LIST 1024
#define ALL 0xffffffffu
#define LOW 0xff800000u // minus infinity
enum { COUNT, TYPICAL, MASS }; // by count; by mass, the most typical first; by mass, the largest first

// A place in an order: bin, key and number of a token.
struct Place { u32 bin, key, id; };
G_FN bool up_to(Place p, Place l) {
  return p.bin < l.bin || (p.bin == l.bin && (p.key < l.key || (p.key == l.key && p.id <= l.id)));
}

// order maps floats to whole numbers of the same order: NaNs come before all numbers, both zeros are equal.
G_FN u32 order(float f) {
  u32 u = f2u(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return ALL;
  if (u == 0x80000000u) u = 0;
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
#define LOWEST 0x007fffffu // of minus infinity
#define INFINITE 0xff800000u
G_FN float number(u32 o) { return u2f(o & 0x80000000u ? o & 0x7fffffffu : ~o); }

struct Shared {
  u32 low[BINS], high[BINS]; // what tokens count: low, and high where it carries
  u32 list[LIST];
  u64 part[256], group[16], need;
  u32 listed, at;
};

struct Row {
  const float *x;
  const u32 *allowed;
  u32 cols;
  float top, scale, base, mean; // base: what masses are relative to; mean: the mean distance from the top
  Place last, typical;          // what is left: up to these
  bool by_typical;
};

G_FN Place place(const Row &r, bool near, float v, u32 id) {
  float far = r.top - v;
  Place p;
  p.key = ~order(v);
  if (near) {
    const float apart = g_abs(far - r.mean);
    p.key = f2u(apart) << 1 | (far > r.mean ? 1u : 0u);
    far = apart;
  }
  const float bin = far * r.scale;
  p.bin = bin < (float)(BINS - 1) ? (u32)bin : BINS - 1;
  p.id = id;
  return p;
}

// left says whether a token is; one that is not allowed comes as minus infinity.
G_FN bool left(const Row &r, float v, u32 id) {
  return order(v) > LOWEST && up_to(place(r, false, v, id), r.last) &&
         (!r.by_typical || up_to(place(r, true, v, id), r.typical));
}

// e in [0, 1] as a multiple of 2^-40.
G_FN u64 whole(float e) {
  const float s = e * 256.0f;
  const u32 h = (u32)s;
  return (u64)h << 32 | (u32)((s - (float)h) * 4294967296.0f);
}

G_FN void count(Shared &s, u32 bin, u64 m) {
  const u32 l = (u32)m;
  u32 h = (u32)(m >> 32);
  if (l != 0 && add_shared(&s.low[bin], l) + l < l) h++;
  if (h != 0) add_shared(&s.high[bin], h);
}
G_FN u64 counted(const Shared &s, u32 bin) { return (u64)s.high[bin] << 32 | s.low[bin]; }

// The tokens of a thread among those from number from on, of the row or of the list.
G_FN void fetch(const Row &r, const u32 *list, u32 from, u32 tokens, float v[UN], u32 id[UN]) {
  G_UNROLL for (u32 i = 0; i < UN; i++) {
    const u32 j = from + i * NT + tid(), k = j < tokens ? j : 0;
    id[i] = list ? list[k] : k;
    const u32 bits = r.allowed[id[i] / 32];
    const float f = r.x[id[i]];
    v[i] = j < tokens && (bits >> (id[i] & 31) & 1) ? f : u2f(LOW);
  }
}

// The least whole number that is at least p of sum, and one at least.
G_FN u64 share_of(u64 sum, float p) {
  const u64 parts = (u64)(u32)(p * 4294967296.0f), low = (sum & ALL) * parts;
  const u64 n = (sum >> 32) * parts + (low >> 32) + ((u32)low != 0 ? 1 : 0);
  return n ? n : 1;
}

// end finds the bin in which what is counted comes to need, to the share p where that is positive, and what is needed
// of that bin.
G_FN u32 end(Shared &s, u64 &need, float p) {
  const u32 t = tid();
  bar();
  for (u32 i = t; i < 256; i += NT) {
    u64 sum = 0;
    for (u32 j = 4 * i; j < 4 * i + 4; j++) sum += counted(s, j);
    s.part[i] = sum;
  }
  bar();
  if (t < 16) {
    u64 sum = 0;
    for (u32 j = 16 * t; j < 16 * t + 16; j++) sum += s.part[j];
    s.group[t] = sum;
  }
  bar();
  if (t == 0) {
    u64 all = 0;
    for (u32 j = 0; j < 16; j++) all += s.group[j];
    if (p > 0) need = share_of(all, p);
    if (all < need) need = all;
    u32 i = 0, to = 15;
    for (; i < to && s.group[i] < need; i++) need -= s.group[i];
    i *= 16;
    for (to = i + 15; i < to && s.part[i] < need; i++) need -= s.part[i];
    i *= 4;
    for (to = i + 3; i < to && counted(s, i) < need; i++) need -= counted(s, i);
    s.at = i;
    s.need = need;
  }
  bar();
  need = s.need;
  return s.at;
}

// find gives the last of the fewest tokens that come to so many, or to the share p of the mass of all that are left.
G_FN Place find(Shared &s, const Row &r, u32 by, u32 many, float p) {
  u32 tokens = r.cols;
  const u32 *list = nullptr; // else the list is read
  u64 need = many;
  Place l = {0, 0, 0};
  for (u32 level = 0; level < 9; level++) { // a bin, four times 8 bits of the key, four times 8 of the number
    const u32 shift = level == 0 ? 0 : (level <= 4 ? 32 : 64) - 8 * level;
    if (level > 4 && shift != 0 && (r.cols - 1) >> shift == 0) continue;
    for (u32 i = tid(); i < BINS; i += NT) s.low[i] = s.high[i] = 0;
    if (tid() == 0) s.listed = 0;
    bar();
    for (u32 from = 0; from < tokens; from += UN * NT) {
      float v[UN];
      u32 id[UN];
      fetch(r, list, from, tokens, v, id);
      G_UNROLL for (u32 i = 0; i < UN; i++) {
        if (!left(r, v[i], id[i])) continue;
        const Place q = place(r, by == TYPICAL, v[i], id[i]);
        u32 at = q.bin;
        if (level > 0) {
          const u32 mine = level <= 4 ? q.key : q.id, found = level <= 4 ? l.key : l.id;
          if (q.bin != l.bin || (level > 4 && q.key != l.key)) continue;
          if (shift < 24 && (mine ^ found) >> (shift + 8) != 0) continue;
          at = mine >> shift & 255;
          if (!list) {
            const u32 k = add_shared(&s.listed, 1);
            if (k < LIST) s.list[k] = id[i];
          }
        }
        count(s, at, by == COUNT ? 1 : whole(g_exp(v[i] - r.base)));
      }
    }
    const u32 at = end(s, need, level == 0 ? p : 0.0f);
    if (level == 0) l.bin = at;
    else if (level <= 4) l.key |= at << shift;
    else l.id |= at << shift;
    if (level > 0 && !list && s.listed <= LIST) {
      list = s.list;
      tokens = s.listed;
    }
    bar();
    if (list && tokens == 1) return place(r, by == TYPICAL, r.x[list[0]], list[0]);
  }
  return l;
}

// The greatest order of those that are left, or of all that are allowed, and the least above minus infinity.
G_FN u2 ends(Shared &s, const Row &r, bool all) {
  u32 most = 0, least = ALL;
  const u32 t = tid();
  for (u32 from = 0; from < r.cols; from += UN * NT) {
    float v[UN];
    u32 id[UN];
    fetch(r, nullptr, from, r.cols, v, id);
    G_UNROLL for (u32 i = 0; i < UN; i++) {
      const u32 o = order(v[i]);
      if (all ? o <= LOWEST : !left(r, v[i], id[i])) continue;
      if (o > most) most = o;
      if (o < least) least = o;
    }
  }
  s.low[t] = most;
  s.high[t] = least;
  bar();
  for (u32 o = NT / 2; o; o >>= 1) {
    if (t < o && s.low[t + o] > s.low[t]) s.low[t] = s.low[t + o];
    if (t < o && s.high[t + o] < s.high[t]) s.high[t] = s.high[t + o];
    bar();
  }
  const u2 found = {s.low[0], s.high[0]};
  bar();
  return found;
}

// The mean distance from the top by mass of what is left.
G_FN float expected(Shared &s, const Row &r) {
  if (tid() < 2) s.low[tid()] = s.high[tid()] = 0;
  bar();
  u64 mass = 0, far = 0;
  for (u32 from = 0; from < r.cols; from += UN * NT) {
    float v[UN];
    u32 id[UN];
    fetch(r, nullptr, from, r.cols, v, id);
    G_UNROLL for (u32 i = 0; i < UN; i++) {
      if (!left(r, v[i], id[i])) continue;
      const float e = g_exp(v[i] - r.base);
      mass += whole(e);
      far += whole(e * (r.top - v[i]));
    }
  }
  count(s, 0, mass);
  count(s, 1, far);
  bar();
  const float mean = (float)counted(s, 1) / (float)counted(s, 0);
  bar();
  return mean;
}

G_FN bool a_share(float p) { return p > 0.0f && p < 1.0f; }

G_KERNEL G_BOUNDS(NT) filter(float *__restrict__ y, const float *x, Rows xr, const u32 *most, const float *shares,
                             const u32 *allowed, u32 words) {
  __shared__ Shared s;
  begin_next();
  wait_previous();
  const u32 row = bidx(), k = most[row];
  const float *share = shares + 3 * (u64)row;
  const Place none = {ALL, ALL, ALL};
  Row r = {x + at(xr, row), allowed + (u64)row * words, xr.cols, 0, 0, 0, 0, none, none, false};
  bool filtered = (int)k > 0 || a_share(share[0]) || a_share(share[1]) || share[2] > 0.0f;
  if (filtered) {
    const u2 o = ends(s, r, true);
    filtered = o.x > LOWEST && o.x < INFINITE;
    r.top = r.base = number(o.x);
    const float range = r.top - number(o.y), most_far = 44.0f; // beyond that masses are less than 2^-40
    r.scale = range > 1e-30f ? (float)BINS / (range < most_far ? range : most_far) : 0.0f;
  }
#pragma unroll 1
  for (u32 by = COUNT; filtered && by <= MASS; by++) { // in one place: it is long
    const float p = by == COUNT ? 0.0f : share[by - TYPICAL];
    if (by == COUNT ? (int)k <= 0 || k >= xr.cols : !a_share(p)) continue;
    if (by == TYPICAL) r.mean = expected(s, r);
    const Place l = find(s, r, by, k, p);
    if (by == TYPICAL) {
      r.typical = l;
      r.by_typical = true;
      r.base = number(ends(s, r, false).x);
    } else {
      r.last = l;
    }
  }
  float least = u2f(LOW); // from the best, how far a token may lie behind it
  if (share[2] > 0.0f) least = share[2] < 1.0f ? g_log(share[2]) : 0.0f;
  for (u32 from = 0; from < xr.cols; from += UN * NT) {
    float v[UN];
    u32 id[UN];
    fetch(r, nullptr, from, xr.cols, v, id);
    G_UNROLL for (u32 i = 0; i < UN; i++) {
      const bool stays = !filtered || (left(r, v[i], id[i]) && v[i] - r.base >= least);
      if (from + i * NT + tid() < xr.cols) y[(u64)row * xr.cols + id[i]] = stays ? v[i] : u2f(LOW);
    }
  }
}
