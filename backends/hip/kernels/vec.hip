// y = x·wᵀ (+ b) (+ r) for one row of x: decoding. Every weight is read once, so
// what counts is that memory never waits. A block stays on its multiprocessor;
// each of its waves takes pairs of rows, one after another. With STREAM (Hopper) their
// weights come through a ring of the wave's own in shared memory, always full; else
// UNROLL units of both rows are loaded at once.
//
// x lies in shared memory: as f32, or with INT8 rounded to eight bits in blocks of 32
// with a scale each, so that products with block formats are dot products of bytes.
//
// A launch has up to MATS matrices with rows of one length, which share x. With INT8 and STREAM those from
// number FIRST on may be of another type, W_TYPE2; of the two q6_K is the second, as x lies as the first wants it. With
// PAIRED row i of the first and of the second are a pair, and y = silu(a)·b (or
// geglu's). With NORM x is rmsnorm(x, nw), which every block computes for itself,
// in the order of norm.hip, so to the same bits.
//
// Blocks start while the launch before them ends: they fill their rings, with weights
// that no launch writes, and wait before they read x. With late the launches behind
// begin no sooner than that wait ends.
#include "prelude.h"
#include "pair.h"
#include "norm.h"
#include "weights.h"
#ifdef W_TYPE2
#define MIXED 1
#if !INT8 || !STREAM || DRAW || PAIRED
#error "matrices of two types are dealt out through rings, and meet x in eight bits"
#endif
#else
#define MIXED 0
#define W_TYPE2 W_TYPE
#define FIRST MATS
#define CHUNK2 CHUNK
#endif
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
// TURNS quads of x are a thread's, ONCE of which are loaded at once.
#define MOST (NORM ? 4 : 6)
#define ONCE (TURNS < MOST ? TURNS : MOST)

#if INT8
typedef Codes8<W_TYPE> Raw;
G_FN Raw unit_load(const Row &w, u32 u) { return Raw::load(w, u); }
G_FN float unit_dot(const Raw &r, const Shared8 &x, u32 u, u32) { return r.dot(x, u); }
#define UNIT_QUADS (Raw::QUADS)
G_FN u32 unit_count(u32 k) { return k / (4 * UNIT_QUADS); }
#elif !F8
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
#ifdef SCALED
  const float *scale; // of rows
#endif
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

// the factors of the rows of pair p
struct Factors { float a, b; };
G_FN Factors factors_of(const Matrices &all, u32 p) {
  Factors f = {1, 1};
#ifdef SCALED
  const Pair r = pair_of(all, p);
  G_UNROLL for (int i = 0; i < MATS; i++) {
    if (PAIRED ? i == 0 : r.m == i) f.a = all.m[i].scale[r.ra];
    if (PAIRED ? i == MATS - 1 : r.m == i) f.b = all.m[i].scale[r.rb];
  }
#endif
  return f;
}

#if STREAM
// The stream of a wave's weights: chunks of two rows, CHUNK blocks of each (of the second type CHUNK2), go
// through STAGES of shared memory of its own. With APART the rows of a pair come one
// after the other, CHUNK blocks of one in a chunk: fewer copies of as many bytes.
#if W_PLAIN
#define BLOCK_ELEMS (16 / (int)sizeof(w_elem))
#define BLOCK_SIZES 16, 0, 0, 0
#else
#define BLOCK_ELEMS W_BLOCK
#define BLOCK_SIZES W_SIZES
#endif
#if !MIXED
#define BLOCK_SIZES2 BLOCK_SIZES
#define UNIT_QUADS2 UNIT_QUADS
#else
#define UNIT_QUADS2 (Codes8<W_TYPE2>::QUADS)
#if W_TYPE2 == W_Q5_K
#define BLOCK_SIZES2 W_SIZES_Q5_K
#elif W_TYPE2 == W_Q6_K
#define BLOCK_SIZES2 W_SIZES_Q6_K
#else
#error "q5_K and q6_K can be the second type"
#endif
#endif
constexpr u32 block_sizes[2][4] = {{BLOCK_SIZES}, {BLOCK_SIZES2}};
constexpr u32 stage_rows = APART ? 1 : 2;
// How chunks of the matrices of a type, 0 or 1, lie in a stage.
template <u32 T> struct Chunk {
  static constexpr u32 blocks = T ? CHUNK2 : CHUNK; // of a row
  static constexpr u32 row = blocks * (block_sizes[T][0] + block_sizes[T][1] + block_sizes[T][2] + block_sizes[T][3]); // bytes
  static constexpr u32 bytes = stage_rows * row;
  static constexpr u32 units = blocks * BLOCK_ELEMS / (4 * (T ? UNIT_QUADS2 : UNIT_QUADS)); // of a row
  static constexpr u32 planes = 1 + (block_sizes[T][1] > 0) + (block_sizes[T][2] > 0) + (block_sizes[T][3] > 0);
  static constexpr u32 copies = stage_rows * planes;
};
constexpr u32 stage_bytes = Chunk<0>::bytes > Chunk<1>::bytes ? Chunk<0>::bytes : Chunk<1>::bytes;

// Weights are read once a token. With 8-bit floats the hint cost a hundredth instead of
// gaining two.
G_FN void weights_copy(u32 to, const void *from, u32 bytes, u32 arrival) {
  if (F8)
    bulk_copy(to, from, bytes, arrival);
  else
    bulk_copy_once(to, from, bytes, arrival);
}

// where a row's part of a stage lies, as a row that begins there
template <u32 T> G_FN Row stage_row(const u8 *at, u32 k) {
  const u32 n = Chunk<T>::blocks;
  const u8 *p1 = at + n * block_sizes[T][0], *p2 = p1 + n * block_sizes[T][1];
  return Row{at, p1, p2, p2 + n * block_sizes[T][2], k};
}
// What is asked for before x: the rest comes behind it, as reads of x that wait behind a
// full ring of weights hold the whole block up.
constexpr u32 early_stages = (STAGES + 1) / 2;

// What a wave asks for, pair after pair; its first lanes copy a part of each stage. With DRAW the first pairs are
// dealt out and the others drawn from a counter, so that it does not matter where
// blocks start. A wave draws at its beginning and with each pair, and looks at it a pair
// later; the last draw of all sets the counter back. With DRAW 2 the waves of a number
// have every WAVES-th pair and a counter of their own, COUNTERS words from the next:
// draws from one word come one after another.
//
// With ROUND a pair's chunks are a round of the ring, so that a chunk's number is its
// stage's and all places are constants.
#define COUNTERS 32
#define NO_PAIR ~0u
struct Stream {
  u32 ring, arrivals; // of the wave, in shared memory
  u32 *names;         // the pair in each stage
  u32 *counter;
  u32 pairs, stride, dealt, last, chunks, blocks; // chunks of a row of the first type
  u32 p, row, c, slot, drawn; // with APART row is that of the next chunk
  // what a lane copies of each stage of a type: of a row (without APART) a plane's part, where in the stage
  struct { u32 row, plane, size, place; } part[1 + MIXED];
  const u8 *from;
  template <u32 T> G_FN_IN void begin() {
    auto &mine = part[T];
    mine.row = APART ? 0 : lane() / Chunk<T>::planes;
    mine.plane = lane() % Chunk<T>::planes;
    mine.size = block_sizes[T][0];
    mine.place = mine.row ? Chunk<T>::row : 0;
    G_UNROLL for (u32 i = 1; i < Chunk<T>::planes; i++) {
      if (mine.plane < i) continue;
      mine.place += Chunk<T>::blocks * block_sizes[T][i - 1];
      mine.size = block_sizes[T][i];
    }
  }
  template <u32 T> G_FN_IN const u8 *part_of(const Weights &w, u32 r) const {
#if W_PLAIN
    return w.p + (u64)r * (w.row * sizeof(w_elem));
#else
    const u32 plane = part[T].plane;
    return w.p + (plane == 0 ? 0 : plane == 1 ? w.p1 : plane == 2 ? w.p2 : w.p3) + (u64)r * w_stride(w, part[T].size);
#endif
  }
  template <u32 T> G_FN_IN u32 chunks_of() const { return MIXED ? (blocks + Chunk<T>::blocks - 1) / Chunk<T>::blocks : chunks; }
  // All lanes call it. n is the chunk's number with ROUND.
  G_FN_IN void ask(const Matrices &all, u32 n) {
    if (DRAW ? p == NO_PAIR : p >= pairs) return;
#if MIXED
    if (p >= all.m[FIRST].first) {
      ask_of<1>(all, n);
      return;
    }
#endif
    ask_of<0>(all, n);
  }
  template <u32 T> G_FN_IN void ask_of(const Matrices &all, u32 n) {
    if (ROUND) c = slot = n;
    const u32 arrival = arrivals + slot * 8, which = APART ? row : part[T].row;
    if (c == 0) {
      if (DRAW && !(APART && row)) {
        if (lane() == 0) names[slot] = p < pairs ? p : NO_PAIR;
        if (p >= pairs) {
          p = NO_PAIR;
          if (lane() == 0) arrival_expect(arrival, 0);
          return;
        }
      }
      if (PAIRED) {
        from = which ? part_of<T>(all.m[MATS - 1].w, p) : part_of<T>(all.m[0].w, p);
      } else {
        constexpr int begin = T ? FIRST : 0, end = T ? MATS : FIRST;
        G_UNROLL for (int i = begin; i < end; i++) {
          if (i == begin || p >= all.m[i].first) from = part_of<T>(all.m[i].w, g_min(2 * (p - all.m[i].first) + which, all.m[i].n - 1));
        }
      }
    }
    const u32 first = c * Chunk<T>::blocks, count = g_min(Chunk<T>::blocks, blocks - first), size = part[T].size;
    // The bytes are announced apart from the copies: the phase cannot end before, as the
    // announcement is the arrival it waits for.
    if (lane() < Chunk<T>::copies) weights_copy(ring + slot * stage_bytes + part[T].place, from + first * size, (count * size + 15) & ~15u, arrival);
    if (lane() == 0) {
      u32 bytes = 0;
      G_UNROLL for (u32 i = 0; i < Chunk<T>::planes; i++) bytes += stage_rows * ((count * block_sizes[T][i] + 15) & ~15u);
      arrival_expect(arrival, bytes);
    }
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    if (++c < chunks_of<T>()) return;
    c = 0;
    if (APART) {
      row ^= 1;
      if (row) return;
    }
    if (!DRAW) {
      p += stride;
      return;
    }
    p = dealt + first_lane(drawn);
    if (DRAW == 2) p = p * WAVES + tid() / G_WAVE;
    draw();
  }
  G_FN_IN void draw() {
    if (DRAW && lane() == 0) drawn = count_round(counter, last);
  }
};
#endif

#if STREAM
// adds the products of unit u of a stage with rows, with APART of one, whose first unit there is number u0
template <u32 T, class X> G_FN void add_unit(const Row &ra, const Row &rb, const X &x, u32 u, u32 u0, u32 k, float &a, float &b) {
#if INT8
  using Of = Codes8<T ? W_TYPE2 : W_TYPE>;
  if (!APART) a += Of::load(ra, u).dot(x, u0 + u);
  b += Of::load(rb, u).dot(x, u0 + u);
#else
#if F8
  const f4 *const all = x.all;
#else
  const f4 *const all = x;
#endif
  a += unit_dot(unit_load(ra, u), all, u0 + u, k);
  b += unit_dot(unit_load(rb, u), all, u0 + u, k);
#endif
}

// Adds up the products of a pair's rows, a type's, chunk by chunk from the ring, the stage of whose next chunk is slot.
// The first chunk is there.
template <u32 T, class X>
G_FN void multiply(Stream &stream, const Matrices &all, const u8 *ring, const X &x, u32 k, u32 &slot, u32 &phase, float &a, float &b) {
  using C = Chunk<T>;
  const u32 chunks = stream.chunks_of<T>(), units = T ? k / (4 * UNIT_QUADS2) : unit_count(k);
#if ROUND
  G_UNROLL
#endif
  for (u32 n = 0; n < (APART ? 2 : 1) * chunks; n++) {
    if (ROUND) slot = n;
    if (n) arrival_wait(stream.arrivals + slot * 8, phase);
    const u32 c = APART && n >= chunks ? n - chunks : n;
    if (APART && n == chunks) {
      a = b;
      b = 0;
    }
    const u8 *at = ring + slot * stage_bytes;
    const Row ra = stage_row<T>(at, k), rb = stage_row<T>(at + (C::bytes - C::row), k);
    const u32 u0 = c * C::units;
    if (ROUND || u0 + C::units <= units) { // whole: loads of several units at once
      G_UNROLL for (u32 j = 0; j < C::units; j += G_WAVE) {
#if F8
        f4 quads[4];
        x.load(quads, u0 + j);
        a += unit_dot(unit_load(ra, j + lane()), quads);
        b += unit_dot(unit_load(rb, j + lane()), quads);
#else
        add_unit<T>(ra, rb, x, j + lane(), u0, k, a, b);
#endif
      }
    } else {
      for (u32 u = lane(); u0 + u < units; u += G_WAVE) add_unit<T>(ra, rb, x, u, u0, k, a, b);
    }
    wave_sync(); // all lanes have read the stage
    stream.ask(all, n);
    slot++;
    if (slot == STAGES) {
      slot = 0;
      phase ^= 1;
    }
  }
}
#endif

G_FN void put(const Matrix &m, u32 row, float v, const float *res) {
  if (BIAS) v += load_float(m.bias, BIAS - 1, row);
  if (res) v += res[row];
  m.y[row] = v;
}

G_KERNEL G_BOUNDS2(NT, BLOCKS) vec(const float *x, u32 k, Matrices all, u32 pairs, const float *res,
                              const void *nw, u32 ntype, float eps, float *h, float *out, u32 *counter, u32 late) {
  extern __shared__ u4 shared_memory[];
#if NORM
  alignas(16) __shared__ float part[WAVES];
#endif
  if (!late) begin_next();
  const u32 wave = tid() / G_WAVE, stride = gdimx() * WAVES;
#if STREAM
  u32 p = DRAW == 2 ? bidx() * WAVES + wave : wave * gdimx() + bidx();
  __shared__ u64 arrivals[WAVES * STAGES];
  __shared__ u32 names[WAVES * STAGES];
  u8 *const ring = (u8 *)shared_memory + wave * (STAGES * stage_bytes);
  Stream stream;
  stream.ring = shared_at(ring);
  stream.arrivals = shared_at(arrivals) + wave * (STAGES * 8);
  stream.names = names + wave * STAGES;
  stream.counter = counter + (DRAW == 2 ? wave * COUNTERS : 0);
  stream.pairs = pairs;
  stream.stride = stride;
  stream.dealt = DRAW == 2 ? gdimx() : stride; // one for each wave that draws
  stream.last = stream.dealt + (DRAW == 2 ? (pairs + WAVES - 1 - wave) / WAVES : pairs) - 1;
  stream.blocks = ROUND ? STAGES * CHUNK : (k + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
  stream.chunks = (stream.blocks + CHUNK - 1) / CHUNK;
  stream.p = p;
  stream.c = stream.slot = 0;
  if (lane() == 0) {
    G_UNROLL for (u32 i = 0; i < STAGES; i++) arrival_init(stream.arrivals + 8 * i);
    arrival_fence();
  }
  wave_sync();
  stream.row = 0;
  stream.begin<0>();
#if MIXED
  stream.begin<1>();
#endif
  stream.draw();
  for (u32 i = 0; i < early_stages; i++) stream.ask(all, i);
  u4 *const shared_x = shared_memory + WAVES * STAGES * stage_bytes / 16;
#else
  u32 p = wave * gdimx() + bidx();
  u4 *const shared_x = shared_memory;
#endif
  const auto quad_of = [](u32 j) { return 4 * (tid() + j * NT); };
#if NORM
  const auto norm_of = [&](u32 i) {
    if (i >= k) return f4{0, 0, 0, 0};
    return NORM_F32 ? *(const f4 *)((const float *)nw + i) : norm_weights(nw, ntype, i);
  };
  f4 weights[ONCE];
  G_UNROLL for (u32 j = 0; j < ONCE; j++) weights[j] = norm_of(quad_of(j));
#endif
  wait_previous();
  if (late) begin_next();
  const auto ask_rest = [&](u32 j0) {
#if STREAM
    if (j0 == 0) for (u32 i = early_stages; i < STAGES; i++) stream.ask(all, i);
#endif
  };
  f4 mine[ONCE];
  const auto load = [&](u32 j0) {
    G_UNROLL for (u32 j = 0; j < ONCE; j++) {
      const u32 i = quad_of(j0 + j);
      f4 v = f4{0, 0, 0, 0};
#if (X_SCALAR || W_SCALAR) && !NORM
      if (i < k) v.x = x[i];
      if (i + 1 < k) v.y = x[i + 1];
      if (i + 2 < k) v.z = x[i + 2];
      if (i + 3 < k) v.w = x[i + 3];
#elif G_AMD // a quad copied as a whole would lie in the lane's own memory first
      if (i < k) {
        const f4 &q = *(const f4 *)(x + i);
        v = f4{q.x, q.y, q.z, q.w};
      }
#else
      if (i < k) v = *(const f4 *)(x + i);
#endif
      mine[j] = v;
    }
  };
#if NORM
  float ss = 0;
  G_UNROLL for (u32 j0 = 0; j0 < TURNS; j0 += ONCE) {
    load(j0);
    ask_rest(j0);
    G_UNROLL for (u32 j = 0; j < ONCE; j++) ss = norm_square(mine[j], ss);
  }
  const float by = norm_scale(block_sum_once<NT>(ss, part), k, eps);
#endif
#if INT8
  const Shared8 xs(shared_x, k);
  const u32 end = round_up(k, 4 * G_WAVE); // whole waves, for their shuffles
#else
  f4 *const xs = (f4 *)shared_x;
  const u32 end = round_up(k, 32);
#endif
  G_UNROLL for (u32 j0 = 0; j0 < TURNS; j0 += ONCE) {
    if (!NORM || TURNS > ONCE) load(j0);
    if (!NORM) ask_rest(j0);
    G_UNROLL for (u32 j = 0; j < ONCE; j++) {
      const u32 i = quad_of(j0 + j);
      f4 v = mine[j];
#if NORM
      v = norm_by(v, j0 ? norm_of(i) : weights[j], by);
      if (h && bidx() == 0 && i < k) *(f4 *)(h + i) = v;
#endif
#if INT8
      if (i < end) xs.store(i, v, i < k);
#else
      if (i < end) xs[x_place(i / 4)] = v;
#endif
    }
  }
  bar();
#if STREAM
  u32 slot = 0, phase = 0;
#if F8
  const LaneX x_of_lane(xs, lane());
#else
  const auto &x_of_lane = xs;
#endif
#endif
#if STREAM
  for (; DRAW || p < pairs; p += stride) {
    arrival_wait(stream.arrivals + slot * 8, phase);
    if (DRAW) {
      p = stream.names[slot];
      if (p == NO_PAIR) break;
    }
#else
  for (; p < pairs; p += stride) {
#endif
    float a = 0, b = 0;
    const Factors factors = factors_of(all, p); // there by the time that the sums are
#if STREAM
#if MIXED
    if (p >= all.m[FIRST].first) multiply<1>(stream, all, ring, x_of_lane, k, slot, phase, a, b);
    else
#endif
      multiply<0>(stream, all, ring, x_of_lane, k, slot, phase, a, b);
    const Pair r = pair_of(all, p);
#else
    const Pair r = pair_of(all, p);
    const u32 units = unit_count(k);
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
    a = wave_sum(a) * factors.a;
    b = wave_sum(b) * factors.b;
    if (lane() != 0) {
      // the first lane has the sums
    } else if (PAIRED) {
      if (BIAS) {
        a += load_float(all.m[0].bias, BIAS - 1, p);
        b += load_float(all.m[MATS - 1].bias, BIAS - 1, p);
      }
      if (all.m[0].y) {
        all.m[0].y[p] = a;
        all.m[MATS - 1].y[p] = b;
      }
      out[p] = PAIRED_OF(a, b);
    } else {
      G_UNROLL for (int i = 0; i < MATS; i++) {
        if (r.m != i) continue;
        put(all.m[i], r.ra, a, res);
        if (r.rb != r.ra) put(all.m[i], r.rb, b, res);
      }
    }
  }
}
