// y = x·wᵀ (+ b) (+ r) for one row of x: decoding. Every weight is read once, so
// what counts is that memory never waits. A block stays on its multiprocessor;
// each of its waves takes pairs of rows, one after another. With STREAM (Hopper) their
// weights come through a ring of the wave's own in shared memory, always full; else
// UNROLL units of both rows are loaded at once.
//
// x lies in shared memory: as f32, or with INT8 rounded to eight bits in blocks of 32
// with a scale each, so that products with block formats are dot products of bytes.
//
// A launch has up to MATS matrices with rows of one length, which share x. With
// PAIRED row i of the first and of the second are a pair, and y = silu(a)·b (or
// geglu's). With NORM x is rmsnorm(x, nw), which every block computes for itself,
// in the order of norm.hip, so to the same bits.
//
// Blocks start while the launch before them ends: they fill their rings, with weights
// that no launch writes, and wait before they read x.
#include "prelude.h"
#include "pair.h"
#include "norm.h"
#include "weights.h"
#define F8 (W_TYPE >= W_E4M3 && W_TYPE <= W_E5M2Z && !W_SCALAR)
#if INT8
#include "int8.h"
#elif F8
#include "f8vec.h"
#else
#define UNIT_QUADS W_NQ
#endif
#if STREAM
#include "bulk.h"
#endif
#define NT NORM_NT
#define WAVES (NT / G_WAVE)
#define KEEP 4

#if !INT8 && !F8
// A unit is what a lane loads at once; its elements meet x as f32.
G_FN u32 x_place(u32 i) { return i; } // of quad i of x
#if W_LINES
struct Raw { w_line l; };
G_FN Raw unit_load(const Row &w, u32 u) { return Raw{((const w_line *)w.p)[u]}; }
G_FN Quad raw_quad(const Raw &r, int i) { return w_convert(r.l.q[i]); }
#else
struct Raw { Quad q[W_NQ]; };
G_FN Raw unit_load(const Row &w, u32 u) {
  Raw r;
  w_unit(w, u, r.q);
  return r;
}
G_FN Quad raw_quad(const Raw &r, int i) { return r.q[i]; }
#endif
G_FN u32 unit_count(u32 k) { return (k + 4 * W_NQ - 1) / (4 * W_NQ); }
G_FN float unit_dot(const Raw &r, const f4 *xs, u32 u, u32) {
  float sum = 0;
  G_UNROLL for (int i = 0; i < W_NQ; i++) {
    const Quad q = raw_quad(r, i);
    const f4 v = xs[(w_pos(u) + W_STEP * i) / 4];
    float d = q.v[0] * v.x;
    d = g_fma(q.v[1], v.y, d);
    d = g_fma(q.v[2], v.z, d);
    d = g_fma(q.v[3], v.w, d);
    sum = W_PLAIN ? sum + d : g_fma(q.s, d, sum);
    if (W_OFFSET) sum = g_fma(q.o, v.x + v.y + v.z + v.w, sum);
  }
  return sum;
}
#endif

// one matrix of a launch
struct Matrix {
  Weights w;
  float *y;
  const void *bias;
  u32 n, first; // rows, and the number of its first pair
};
struct Matrices { Matrix m[MATS]; };

// the two rows of a pair; b is a again where a matrix ends at an odd row
struct Pair {
  Row a, b;
  u32 ra, rb; // rows in their matrix
  int m;
};
G_FN Pair pair_of(const Matrices &all, u32 p) {
  Pair r;
  if (PAIRED) {
    r.ra = r.rb = p;
    r.m = 0;
    r.a = w_row(all.m[0].w, p);
    r.b = w_row(all.m[MATS - 1].w, p);
    return r;
  }
  r.m = 0;
  G_UNROLL for (int i = 0; i < MATS; i++) {
    if (i > 0 && p < all.m[i].first) break;
    r.m = i;
    r.ra = 2 * (p - all.m[i].first);
    r.rb = g_min(r.ra + 1, all.m[i].n - 1);
    r.a = w_row(all.m[i].w, r.ra);
    r.b = w_row(all.m[i].w, r.rb);
  }
  return r;
}

#if STREAM
// The stream of a wave's weights: chunks of two rows, CHUNK blocks of each, go
// through STAGES of shared memory of its own.
#if W_PLAIN
#define BLOCK_ELEMS (16 / (int)sizeof(w_elem))
#define BLOCK_SIZES 16, 0, 0, 0
#else
#define BLOCK_ELEMS W_BLOCK
#define BLOCK_SIZES W_SIZES
#endif
constexpr u32 block_sizes[4] = {BLOCK_SIZES};
constexpr u32 row_chunk = CHUNK * (block_sizes[0] + block_sizes[1] + block_sizes[2] + block_sizes[3]);
constexpr u32 stage_bytes = 2 * row_chunk;
constexpr u32 chunk_units = CHUNK * BLOCK_ELEMS / (4 * UNIT_QUADS); // of a row

// where a row's part of a stage lies, as a row that begins there
G_FN Row stage_row(const u8 *at, u32 k) {
  const u8 *p1 = at + CHUNK * block_sizes[0], *p2 = p1 + CHUNK * block_sizes[1];
  return Row{at, p1, p2, p2 + CHUNK * block_sizes[2], k};
}
// copies a row's part of a chunk: n blocks, CHUNK of them but at a row's end
G_FN u32 copy_row(u32 to, const Row &r, u32 first, u32 n, u32 arrival) {
  const u8 *from[4] = {r.p, r.p1, r.p2, r.p3};
  u32 sum = 0;
  G_UNROLL for (int i = 0; i < 4; i++) {
    if (block_sizes[i] == 0) continue;
    const u32 bytes = n == CHUNK ? CHUNK * block_sizes[i] : (n * block_sizes[i] + 15) & ~15u;
    bulk_copy(to, from[i] + first * block_sizes[i], bytes, arrival);
    to += CHUNK * block_sizes[i];
    sum += bytes;
  }
  return sum;
}

// What a wave's first lane asks for, pair after pair. With DRAW the first pairs are
// dealt out and the others drawn from a counter, so that it does not matter where
// blocks start; the last draw of all sets the counter back.
#define NO_PAIR ~0u
struct Stream {
  u32 ring, arrivals; // of the wave, in shared memory
  u32 *names;         // the pair in each stage
  u32 *counter;
  u32 pairs, stride, dealt, chunks, blocks;
  u32 p, c, slot, drawn;
  Row a, b;
  G_FN_IN void ask(const Matrices &all) {
    if (p == NO_PAIR) return;
    const u32 arrival = arrivals + slot * 8, to = ring + slot * stage_bytes;
    if (c == 0) {
      names[slot] = p < pairs ? p : NO_PAIR;
      if (p >= pairs) {
        p = NO_PAIR;
        arrival_expect(arrival, 0);
        return;
      }
      const Pair r = pair_of(all, p);
      a = r.a;
      b = r.b;
      if (DRAW) drawn = count_up_loose(counter);
    }
    const u32 first = c * CHUNK, n = g_min(CHUNK, blocks - first);
    // The bytes are announced behind the copies: the phase cannot end before, as the
    // announcement is the arrival it waits for.
    u32 bytes = copy_row(to, a, first, n, arrival);
    bytes += copy_row(to + row_chunk, b, first, n, arrival);
    arrival_expect(arrival, bytes);
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    if (++c < chunks) return;
    c = 0;
    if (!DRAW) {
      p += stride;
      return;
    }
    p = dealt + drawn;
    if (drawn == pairs - 1) *counter = 0;
  }
};
#endif

G_FN void put(const Matrix &m, u32 row, float v, const float *res) {
  if (BIAS) v += load_float(m.bias, BIAS - 1, row);
  if (res) v += res[row];
  m.y[row] = v;
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) vec(const float *x, u32 k, Matrices all, u32 pairs, const float *res,
                              const void *nw, u32 ntype, float eps, float *h, float *out, u32 *counter) {
  extern __shared__ u4 shared_memory[];
#if NORM
  __shared__ float part[WAVES];
#endif
  begin_next();
  const u32 wave = tid() / G_WAVE, stride = gdimx() * WAVES;
  u32 p = wave * gdimx() + bidx();
#if STREAM
  __shared__ u64 arrivals[WAVES * STAGES];
  __shared__ u32 names[WAVES * STAGES];
  u8 *const ring = (u8 *)shared_memory + wave * (STAGES * stage_bytes);
  Stream stream;
  stream.ring = shared_at(ring);
  stream.arrivals = shared_at(arrivals) + wave * (STAGES * 8);
  stream.names = names + wave * STAGES;
  stream.counter = counter;
  stream.pairs = pairs;
  stream.stride = stride;
  stream.dealt = g_min(stride, pairs);
  stream.blocks = (k + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
  stream.chunks = (stream.blocks + CHUNK - 1) / CHUNK;
  stream.p = p;
  stream.c = stream.slot = 0;
  if (lane() == 0) {
    G_UNROLL for (u32 i = 0; i < STAGES; i++) arrival_init(stream.arrivals + 8 * i);
    arrival_fence();
  }
  wave_sync();
  if (lane() == 0) {
    for (u32 i = 0; i < STAGES; i++) stream.ask(all);
  }
  u4 *const shared_x = shared_memory + WAVES * STAGES * stage_bytes / 16;
#else
  u4 *const shared_x = shared_memory;
#endif
#if NORM
  // Weights of the norm, and then x times them, of the first elements of a thread.
  f4 keep[KEEP];
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    if (i < k) keep[j] = norm_weights(nw, ntype, i);
  }
#endif
  wait_previous();
#if NORM
  float ss = 0;
  for (u32 i = 4 * tid(), j = 0; i < k; i += 4 * NT, j++) {
    const f4 v = *(const f4 *)(x + i);
    ss = norm_square(v, ss);
    G_UNROLL for (u32 n = 0; n < KEEP; n++) {
      if (n == j) keep[n] = norm_by(v, keep[n], 1);
    }
  }
  const float by = norm_root<NT>(ss, k, eps, part);
#endif
  // elements i … i+3 of what is multiplied, the n-th that a thread asks for
  auto input = [&](u32 i, u32 n) {
    f4 v = f4{0, 0, 0, 0};
#if NORM
    if (i >= k) return v;
    G_UNROLL for (u32 j = 0; j < KEEP; j++) {
      if (n == j) v = keep[j];
    }
    if (n >= KEEP) v = norm_by(*(const f4 *)(x + i), norm_weights(nw, ntype, i), 1);
    v = f4{v.x * by, v.y * by, v.z * by, v.w * by};
    if (h && bidx() == 0) *(f4 *)(h + i) = v;
#elif X_SCALAR || W_SCALAR
    (void)n;
    v.x = i < k ? x[i] : 0.0f;
    v.y = i + 1 < k ? x[i + 1] : 0.0f;
    v.z = i + 2 < k ? x[i + 2] : 0.0f;
    v.w = i + 3 < k ? x[i + 3] : 0.0f;
#else
    (void)n;
    if (i < k) v = *(const f4 *)(x + i);
#endif
    return v;
  };
#if INT8
  const Shared8 xs(shared_x, k);
  for (u32 i = 4 * tid(), n = 0; i < round_up(k, 4 * G_WAVE); i += 4 * NT, n++) xs.store(i, input(i, n), i < k); // whole waves, for their shuffles
#else
  f4 *const xs = (f4 *)shared_x;
  for (u32 i = 4 * tid(), n = 0; i < round_up(k, 32); i += 4 * NT, n++) xs[x_place(i / 4)] = input(i, n);
#endif
  bar();
#if STREAM
  u32 slot = 0, phase = 0;
#endif
  const u32 units = unit_count(k);
#if STREAM
  for (;;) {
    arrival_wait(stream.arrivals + slot * 8, phase);
    p = stream.names[slot];
    if (p == NO_PAIR) break;
#else
  for (; p < pairs; p += stride) {
#endif
    float a = 0, b = 0;
#if STREAM
    for (u32 c = 0; c < stream.chunks; c++) {
      if (c) arrival_wait(stream.arrivals + slot * 8, phase);
      const u8 *at = ring + slot * stage_bytes;
      const Row ra = stage_row(at, k), rb = stage_row(at + row_chunk, k);
      const u32 u0 = c * chunk_units;
      G_UNROLL for (u32 j = 0; j < chunk_units; j += G_WAVE) {
        const u32 u = j + lane();
        if (u0 + u < units) {
          a += unit_dot(unit_load(ra, u), xs, u0 + u, k);
          b += unit_dot(unit_load(rb, u), xs, u0 + u, k);
        }
      }
      wave_sync(); // all lanes have read the stage
      if (lane() == 0) stream.ask(all);
      slot++;
      if (slot == STAGES) {
        slot = 0;
        phase ^= 1;
      }
    }
    const Pair r = pair_of(all, p);
#else
    const Pair r = pair_of(all, p);
    for (u32 u0 = lane(); u0 < units; u0 += UNROLL * G_WAVE) {
      Raw wa[UNROLL], wb[UNROLL];
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        const u32 u = g_min(u0 + j * G_WAVE, units - 1);
        wa[j] = unit_load(r.a, u);
        wb[j] = unit_load(r.b, u);
      }
      G_UNROLL for (u32 j = 0; j < UNROLL; j++) {
        const u32 u = u0 + j * G_WAVE;
        if (u < units) {
          a += unit_dot(wa[j], xs, u, k);
          b += unit_dot(wb[j], xs, u, k);
        }
      }
    }
#endif
    a = wave_sum(a);
    b = wave_sum(b);
    if (lane() != 0) continue;
    if (PAIRED) {
      if (BIAS) {
        a += load_float(all.m[0].bias, BIAS - 1, p);
        b += load_float(all.m[MATS - 1].bias, BIAS - 1, p);
      }
      if (all.m[0].y) {
        all.m[0].y[p] = a;
        all.m[MATS - 1].y[p] = b;
      }
      out[p] = PAIRED_OF(a, b);
      continue;
    }
    G_UNROLL for (int i = 0; i < MATS; i++) {
      if (r.m != i) continue;
      put(all.m[i], r.ra, a, res);
      if (r.rb != r.ra) put(all.m[i], r.rb, b, res);
    }
  }
}
