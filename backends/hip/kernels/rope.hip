// Rotation by position, and storing in a cache: up to JOBS tensors of the same
// tokens. A block has a token and some heads of one of them; angles are computed
// once for all its heads.
//
// y[a], y[b] = m·rotate(x[a], x[b]) by the angle pos·freq; elements behind the
// rotated ones are copied. With positions above zero y is a cache of type ytype
// whose row pos[s] is written, else the dense result.
#include "prelude.h"
#include "cache.h"
#include "turn.h"
#define NT 128
#define MOST 512 // pairs whose angles are kept
#define ONCE 4   // heads that a thread loads at once

struct Job {
  void *y;
  const float *x;
  const double *freq;
  const void *factors;
  u32 ytype, positions, xstride, heads, dh, half, pair, ftype;
  float m;
  u32 launch, first, unused; // first: number of its first block along y
};
struct Rotations { Job j[JOBS]; };

// Whether token s writes its position: not where it lies outside the cache,
// and not where a later token of the step has the same one.
G_FN bool writes(const int *pos, u32 s, u32 tokens, u32 positions, u32 *status, u32 launch) {
  __shared__ u32 later;
  int p = pos[s];
  if (p < 0 || (u32)p >= positions) {
    if (tid() == 0) fail(status, launch, s, p);
    return false;
  }
  if (s + 1 >= tokens) return true;
  if (tid() == 0) later = 0;
  bar();
  for (u32 i = s + 1 + tid(); i < tokens; i += NT)
    if (pos[i] == p) later = 1;
  bar();
  return !later;
}

G_FN Turn turn_of(const Job &j, int p, u32 i) { return turn_of(j.freq, j.factors, j.ftype, j.m, p, i); }

G_KERNEL G_BOUNDS(NT) rotate(const int *pos, u32 tokens, u32 per, Rotations jobs, u32 *status) {
  __shared__ Turn turns[MOST];
  begin_next();
  wait_previous();
  Job j = jobs.j[0];
  G_UNROLL for (int i = 1; i < JOBS; i++) {
    if (bidy() >= jobs.j[i].first) j = jobs.j[i];
  }
  const u32 s = bidx(), from = (bidy() - j.first) * per, heads = g_min(per, j.heads - from);
  const int p = pos[s];
  if (j.positions && !writes(pos, s, tokens, j.positions, status, j.launch)) return;
  if (!j.positions && p < 0 && tid() == 0) fail(status, j.launch, s, p);
  const float *x = j.x + (u64)s * j.xstride + from * j.dh;
  const u64 out = ((u64)(j.positions ? (u32)p : s) * j.heads + from) * j.dh;
  for (u32 i = tid(); i < g_min(j.half, MOST); i += NT) turns[i] = turn_of(j, p, i);
  bar();
  if (j.ytype == T_Q8_0) { // 32 lanes a block
    const u32 each = j.dh / 32;
    for (u32 b = tid() / 32; b < heads * each; b += NT / 32) {
      const u32 h = b / each * j.dh, e = b % each * 32 + tid() % 32;
      float v = x[h + e];
      if (e < 2 * j.half) {
        const bool first = j.pair ? e % 2 == 0 : e < j.half;
        const u32 i = j.pair ? e / 2 : first ? e : e - j.half;
        const float w = x[h + (j.pair ? e ^ 1 : first ? e + j.half : e - j.half)];
        const Turn t = i < MOST ? turns[i] : turn_of(j, p, i);
        v = first ? turn_first(v, w, t) : turn_second(w, v, t);
      }
      store_q8(j.y, out / 32 + b, v);
    }
    return;
  }
  // threads in rows of a head each, as many as there are; some heads are loaded at once
  const u32 wide = g_min(j.half ? j.half : 1, NT), i0 = tid() % wide, rows = NT / wide;
  const u32 last = heads - 1;
  for (u32 h0 = tid() / wide; h0 < heads && tid() / wide < rows; h0 += ONCE * rows) {
    for (u32 i = i0; i < j.half; i += wide) {
      const u32 a = j.pair ? 2 * i : i, b = j.pair ? 2 * i + 1 : i + j.half;
      const Turn t = i < MOST ? turns[i] : turn_of(j, p, i);
      float va[ONCE], vb[ONCE];
      G_UNROLL for (u32 o = 0; o < ONCE; o++) {
        const u32 h = g_min(h0 + o * rows, last) * j.dh;
        va[o] = x[h + a];
        vb[o] = x[h + b];
      }
      G_UNROLL for (u32 o = 0; o < ONCE; o++) {
        const u32 h = (h0 + o * rows) * j.dh;
        if (h0 + o * rows >= heads) break;
        store_cache(j.y, j.ytype, out + h + a, turn_first(va[o], vb[o], t));
        store_cache(j.y, j.ytype, out + h + b, turn_second(va[o], vb[o], t));
      }
    }
  }
  const u32 rest = j.dh - 2 * j.half, all = heads * rest; // elements of all heads that are copied
  for (u32 e0 = tid(); e0 < all; e0 += 2 * ONCE * NT) {
    float v[2 * ONCE];
    u32 e[2 * ONCE];
    G_UNROLL for (u32 o = 0; o < 2 * ONCE; o++) {
      const u32 c = g_min(e0 + o * NT, all - 1);
      e[o] = j.half ? c / rest * j.dh + 2 * j.half + c % rest : c;
      v[o] = x[e[o]];
    }
    G_UNROLL for (u32 o = 0; o < 2 * ONCE; o++) {
      if (e0 + o * NT < all) store_cache(j.y, j.ytype, out + e[o], v[o]);
    }
  }
}
