// y = x·wᵀ (+ b) (+ r) for many rows, both in half precision, sums in f32, on
// Hopper's tensor cores. x comes from halves.hip: rows padded to whole steps, each
// with the factor that undoes its scaling; w as stored, or from there too, then
// with factors as well.
//
// A block gives 128 rows of x by BN of w: two groups of four waves, 64 rows each.
// Steps of 64 elements go through STAGES of shared memory: while the hardware
// multiplies one, the copies of the next but one are under way. With PAIRED the
// tile is half of rows of the first matrix and half of the same rows of the second, and
// y = silu(a)·b (or geglu's). Blocks that run together share rows of w and of x.
#include "prelude.h"
#include "pair.h"
#include "wgmma.h"
#define NT 256
#define BM 128
#define BK 64
// Steps that are under way before they are needed. With LAG 2 a step is multiplied
// while the barrier of the next is waited at; with LAG 1 one more is under way, and
// another block of the multiprocessor multiplies meanwhile.
#define AHEAD (STAGES - LAG)
#define A_BYTES (BM * BK * 2)
#define STAGE_BYTES ((BM + BN) * BK * 2)
#define COLUMNS (PAIRED ? BN / 2 : BN) // of y in a tile

struct Half {
  const u16 *w;
  const float *factor; // of its rows, or null
  const void *bias;
  float *y;
  u64 row;      // elements from row to row
  u32 n, first; // rows, and the number of its first tile
};
struct Halves { Half m[MATS]; };

struct Inputs {
  const u16 *a, *b, *b2; // a thread's first lines, b2 of the second matrix of a pair
  u64 arow, brow;        // elements to its next ones
  u32 a_left, b_left;    // rows from its first on
  u32 to;                // where the line goes in a stage's first rows, bytes
};

G_FN void copy_step(const Inputs &in, u32 stage, u32 k0, u32 k) {
  // a's rows are padded; w's are not
  const bool inside = FULL || k0 + tid() % 8 * 8 < k;
  G_UNROLL for (u32 i = 0; i < BM / 32; i++)
    copy16(stage + in.to + i * 4096, in.a + i * in.arow + k0, FULL || i * 32 < in.a_left ? 16 : 0);
  G_UNROLL for (u32 i = 0; i < BN / 32; i++) {
    const bool second = PAIRED && i >= BN / 64;
    const u32 j = second ? i - BN / 64 : i;
    const u16 *from = (second ? in.b2 : in.b) + j * in.brow + (inside ? k0 : 0);
    copy16(stage + A_BYTES + in.to + i * 4096, from, FULL || (inside && j * 32 < in.b_left) ? 16 : 0);
  }
}

G_KERNEL G_BOUNDS2(NT, RESIDENT)
    gemm(const u16 *a, const float *afactor, u32 kp, u32 rows, u32 k, Halves all, u32 rowtiles,
         u32 coltiles, const float *res, Rows rr, float *out) {
  extern __shared__ u4 shared_memory[];
  const u32 base = tiles_at(shared_memory);
  // Eight rows of tiles at a time, so that the blocks that run have few rows of either.
  const u32 per = 8 * coltiles, band = bidx() / per, high = g_min(8, rowtiles - band * 8);
  const u32 m0 = (band * 8 + bidx() % per % high) * BM;
  const u32 tile = bidx() % per / high;
  Half w = all.m[0];
  G_UNROLL for (int i = 1; i < MATS; i++) {
    if (!PAIRED && tile >= all.m[i].first) w = all.m[i];
  }
  const u32 n0 = (tile - w.first) * COLUMNS;
  const u32 t = tid(), group = t / 128;
  Inputs in;
  {
    const u32 row = t / 8, c = t % 8 * 8;
    in.a_left = m0 + row < rows ? rows - m0 - row : 0;
    in.b_left = n0 + row < w.n ? w.n - n0 - row : 0;
    // where there is none the first of all is named, and not read
    in.a = in.a_left ? a + (u64)(m0 + row) * kp + c : a;
    in.arow = in.a_left ? (u64)32 * kp : 0;
    const u64 from = in.b_left ? (u64)(n0 + row) * w.row + (c < k ? c : 0) : 0;
    in.b = w.w + from;
    in.b2 = PAIRED ? all.m[MATS - 1].w + from : nullptr;
    in.brow = in.b_left ? 32 * w.row : 0;
    in.to = swizzled(row, t % 8);
  }
  wait_previous();
  begin_next(); // not before: see widen
  float acc[BN / 2];
  G_UNROLL for (int i = 0; i < BN / 2; i++) acc[i] = 0;
  const u32 steps = kp / BK;
  G_UNROLL for (u32 s = 0; s < AHEAD; s++) {
    if (s < steps) copy_step(in, base + s * STAGE_BYTES, s * BK, k);
    copies_commit();
  }
  u32 stage = 0, fill = AHEAD;
  for (u32 step = 0; step < steps; step++) {
    copies_wait<AHEAD - 1>();
    if (LAG == 1) mma_wait<0>();
    fence_async();
    bar(); // all copies of the step are there, and the stage to be filled is no longer read
    const u64 da = tile_descriptor(base + stage * STAGE_BYTES + group * (64 * BK * 2));
    const u64 db = tile_descriptor(base + stage * STAGE_BYTES + A_BYTES);
    mma_begin();
    G_UNROLL for (u32 i = 0; i < BK / 16; i++) wgmma(acc, da + 2 * i, db + 2 * i);
    mma_commit();
    if (step + AHEAD < steps) copy_step(in, base + fill * STAGE_BYTES, (step + AHEAD) * BK, k);
    copies_commit();
    if (LAG == 2) mma_wait<1>();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    fill = fill + 1 == STAGES ? 0 : fill + 1;
  }
  mma_wait<0>();
  const u32 l = lane(), r0 = m0 + group * 64 + t % 128 / 32 * 16 + l / 4;
  G_UNROLL for (u32 half = 0; half < 2; half++) {
    const u32 m = r0 + 8 * half;
    if (!FULL && m >= rows) continue;
    const float up = afactor[m];
    G_UNROLL for (u32 j = 0; j < COLUMNS / 8; j++) {
      G_UNROLL for (u32 e = 0; e < 2; e++) {
        const u32 c = n0 + j * 8 + l % 4 * 2 + e;
        if (!FULL && c >= w.n) continue;
        float v = acc[j * 4 + half * 2 + e] * up;
        if (w.factor) v *= w.factor[c];
        if (BIAS) v += load_float(w.bias, BIAS - 1, c);
#if PAIRED
        float u = acc[BN / 4 + j * 4 + half * 2 + e] * up;
        const Half &second = all.m[MATS - 1];
        if (second.factor) u *= second.factor[c];
        if (BIAS) u += load_float(second.bias, BIAS - 1, c);
        out[(u64)m * w.n + c] = PAIRED_OF(v, u);
        if (w.y) {
          w.y[(u64)m * w.n + c] = v;
          second.y[(u64)m * w.n + c] = u;
        }
#else
        if (res) v += res[at(rr, m) + c];
        w.y[(u64)m * w.n + c] = v;
#endif
      }
    }
  }
}
