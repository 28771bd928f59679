// y = x·wᵀ (+ b) (+ r) for many rows, as gemm.hip, with tiles that the hardware
// copies (TMA): a block is a group of four waves that only asks for copies, and two
// that multiply, 64 rows each, by BN of w. Stages of 64 elements pass between them by
// barriers in shared memory: full when the bytes are there, empty when they are read.
// With CLUSTER 2 two blocks that have the same rows of w and 128 rows of x each get
// half of w's tile each, and every half goes to both. Blocks stay and take tile after
// tile, so that the first stages of one are copied while the sums of the one before
// are stored.
//
// With PARTS the blocks of a cluster have the same tile and a part of k each, so that there are blocks for more
// multiprocessors. What each has of the sums it lays where its stages were, and every block adds up and stores a
// part of the columns, always in the order of k.
//
// With DECODE w is of a block format: its tile is not copied but made by DECODE
// groups of four waves in turns. Of a cluster each block makes half of it, which is copied to the
// other from shared memory to shared memory.
//
// Compile time: BN, STAGES, CLUSTER, PARTS (CLUSTER or 1), MATS, PAIRED, BIAS, MMA_BF16 as gemm.hip has
// them; FULL: tiles are whole; EVEN: pairs of results lie at multiples of 8 bytes.
#include "prelude.h"
#include "pair.h"
#include "wgmma.h"
#include "bulk.h"
#include "tensormap.h"
#if DECODE
#include "decode.h"
#define MAKERS (DECODE * 128)
#define ARRIVALS (1 + 4)       // of a full stage: the copy of x, and waves that make w
#define AHEAD (CLUSTER * 4 / (GROUP * DECODE)) // of its parts that a group of waves loads early
#define EIGHTS (BN / 8)        // eight rows of w at a time
#define OWN (EIGHTS / CLUSTER) // that a block makes, a wave's number PASSES
#define PASSES ((OWN + 3) / 4)
#define EIGHT_BYTES (8 * BK * 2)
#else
#define MAKERS 128
#define ARRIVALS 1
#define SHRUNK 1.0f
#endif
#define NT (MAKERS + 256)
#ifndef PARTS
#define PARTS 1
#endif
#define BM 128
#define SHARES (PARTS > 1 ? 1 : CLUSTER) // blocks that have a stage's tile of w in common
#define BK 64
#define A_BYTES (BM * BK * 2)
// what a copy of x brings: of fewer than BM rows those that are there, in eights. The others of a tile hold what they
// held: their results are not stored.
#define X_BYTES(rows) (g_min(((rows) + 7) / 8 * 8, BM) * BK * 2)
#define STAGE_BYTES ((BM + BN) * BK * 2)
#define COLUMNS (PAIRED ? BN / 2 : BN) // of y in a tile
#define READERS 8                      // waves that multiply
#define OWN_EIGHTS (COLUMNS / 8 / PARTS) // eights of columns that a block stores, of k's parts
#define BATCH (DECODE ? 4 : 8)         // pairs of results whose addends are loaded at once

struct Half {
  const float *factor; // of its rows, or null
  const void *bias;
  float *y;
  u32 n, first; // rows, and the number of its first tile
};
struct Halves { Half m[MATS]; };
#if DECODE
struct Maps { Map x; };
struct Codes { Weights m[MATS]; };
#else
struct Maps { Map x, w[MATS]; };
struct Codes { u64 none; };
#endif
struct Tile { u32 m0, n0, matrix; };

G_FN Tile tile_of(const Halves &all, u32 number, u32 rank, u32 groups, u32 coltiles) {
  // Some groups of rows at a time, so that the blocks that run have few rows of either.
  const u32 some = 8 / SHARES, per = some * coltiles, band = number / per, high = g_min(some, groups - band * some);
  const u32 c = number % per / high;
  Tile t{((band * some + number % per % high) * SHARES + (SHARES > 1 ? rank : 0)) * BM, c, 0};
  if (!PAIRED) {
    G_UNROLL for (u32 i = 1; i < MATS; i++) {
      if (c >= all.m[i].first) t.matrix = i, t.n0 = c - all.m[i].first;
    }
  }
  t.n0 *= COLUMNS;
  return t;
}

G_KERNEL G_BOUNDS2(NT, 1) pipeline(G_CONSTANT Maps maps, const float *afactor, u32 steps, u32 rows, Halves all, u32 groups,
                                   u32 coltiles, const float *res, Rows rr, float *out, Codes codes) {
  extern __shared__ u4 shared_memory[];
  const u32 start = tiles_at(shared_memory), full = start + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
  const u32 t = tid(), rank = bidx() % CLUSTER, tiles = groups * coltiles;
  const u32 first_step = PARTS > 1 ? steps * rank / PARTS : 0, end_step = PARTS > 1 ? steps * (rank + 1) / PARTS : steps;
  if (t == 0) {
    G_UNROLL for (u32 s = 0; s < STAGES; s++) {
      arrivals_init(full + 8 * s, ARRIVALS);
      arrivals_init(empty + 8 * s, READERS * SHARES);
    }
    arrival_fence();
  }
  meet<CLUSTER>();
  wait_previous();
  begin_next(); // not before: see widen
  if (t < MAKERS) {
#if DECODE
    if (DECODE == 2) registers_less<120>();
    const u32 wave = t % 128 / 32, group = t / 128;
    u32 done = 0; // steps of tiles before
    for (u32 number = bidx() / CLUSTER; number < tiles; number += gdimx() / CLUSTER, done += steps) {
      const Tile tile = tile_of(all, number, rank, groups, coltiles);
      Weights w = codes.m[0];
      Half m = all.m[0];
      G_UNROLL for (u32 i = 1; i < MATS; i++) {
        if (!PAIRED && tile.matrix == i) w = codes.m[i], m = all.m[i];
      }
      Weights of[PASSES];
      u32 r[PASSES];
      float up[PASSES];
      G_UNROLL for (u32 i = 0; i < PASSES; i++) {
        const u32 eight = rank * OWN + g_min(wave + 4 * i, OWN - 1);
        const bool second = PAIRED && eight >= EIGHTS / 2;
        of[i] = w;
        if (second) of[i].p = codes.m[MATS - 1].p, of[i].p1 = codes.m[MATS - 1].p1; // the two have one shape
        // where there is no row the last one is taken, for results that are not stored
        r[i] = g_min(tile.n0 + (second ? eight - EIGHTS / 2 : eight) * 8 + line_row(), m.n - 1);
        up[i] = 1.0f / (SHRUNK * (second ? all.m[MATS - 1].factor : m.factor)[r[i]]);
      }
      // Groups take parts of GROUP steps in turn.
      const u32 parts = (steps + GROUP - 1) / GROUP;
      Line line[AHEAD][PASSES];
      G_UNROLL for (u32 d = 0; d < AHEAD; d++) {
        G_UNROLL for (u32 i = 0; i < PASSES; i++) line_load(line[d][i], w_row(of[i], r[i]), g_min(group + d * DECODE, parts - 1));
      }
      for (u32 first = group; first < parts; first += AHEAD * DECODE) {
        G_UNROLL for (u32 d = 0; d < AHEAD; d++) {
          const u32 part = first + d * DECODE;
          if (part >= parts) break;
          u32 to[2], full_at[2];
          bool there[2];
          G_UNROLL for (u32 g = 0; g < GROUP; g++) {
            const u32 step = part * GROUP + g, all_steps = done + step, stage = all_steps % STAGES;
            there[g] = step < steps;
            to[g] = start + stage * STAGE_BYTES;
            full_at[g] = full + 8 * stage;
            if (!there[g]) continue;
            arrival_wait(empty + 8 * stage, all_steps / STAGES % 2 ^ 1);
            if (t % 128 == 0) {
              arrival_expect(full_at[g], X_BYTES(rows) + (EIGHTS - OWN) * EIGHT_BYTES);
              tile_copy(to[g], param_address(maps, "pipeline_param_0"), step * BK, tile.m0, full_at[g]);
            }
          }
          if (GROUP == 1) to[1] = to[0];
          G_UNROLL for (u32 i = 0; i < PASSES; i++) {
            if (wave + 4 * i < OWN && (GROUP == 1 || there[1] || lane() < 16))
              line_store(line[d][i], to[0] + A_BYTES, to[1] + A_BYTES, (rank * OWN + wave + 4 * i) * 8 + line_row(), up[i]);
          }
          fence_async();
          wave_sync();
          if (lane() == 0) {
            G_UNROLL for (u32 g = 0; g < GROUP; g++) {
              if (!there[g]) continue;
              arrive_at<1>(full_at[g], 0);
              if (CLUSTER == 1) continue;
              G_UNROLL for (u32 i = 0; i < PASSES; i++) {
                const u32 at = to[g] + A_BYTES + (rank * OWN + wave + 4 * i) * EIGHT_BYTES;
                if (wave + 4 * i < OWN) copy_to_block(at, EIGHT_BYTES, full_at[g], rank ^ 1);
              }
            }
          }
          G_UNROLL for (u32 i = 0; i < PASSES; i++) line_load(line[d][i], w_row(of[i], r[i]), g_min(part + AHEAD * DECODE, parts - 1));
        }
      }
    }
#else
    registers_less<40>();
    if (t == 0) {
      const u64 at = param_address(maps, "pipeline_param_0");
      u32 stage = 0, phase = 1;
      for (u32 number = bidx() / CLUSTER; number < tiles; number += gdimx() / CLUSTER) {
        const Tile tile = tile_of(all, number, rank, groups, coltiles);
        const u64 map = at + sizeof(Map) * (1 + (PAIRED ? 0 : tile.matrix));
        for (u32 k0 = first_step * BK; k0 < end_step * BK; k0 += BK) {
          const u32 to = start + stage * STAGE_BYTES, done = full + 8 * stage;
          arrival_wait(empty + 8 * stage, phase);
          arrival_expect(done, X_BYTES(rows) + STAGE_BYTES - A_BYTES);
          tile_copy(to, at, k0, tile.m0, done);
          G_UNROLL for (u32 h = 0; h < 2; h++) {
            if (SHARES == 2 && h != rank) continue;
            const u32 half = to + A_BYTES + h * (BN / 2 * BK * 2), row = tile.n0 + (PAIRED ? 0 : h * (BN / 2));
            const u64 from = map + (PAIRED ? h * sizeof(Map) : 0);
            if (SHARES == 2) tile_copy_all(half, from, k0, row, done, 3);
            else tile_copy(half, from, k0, row, done);
          }
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
#endif
    if (PARTS > 1) {
      meet<CLUSTER>();
      meet<CLUSTER>();
    }
  } else {
    if (DECODE == 2) registers_more<136>();
    else if (!DECODE) registers_more<232>();
    const u32 l = lane(), own = (t - MAKERS) / 128 * 64;
    u32 stage = 0, phase = 0;
    for (u32 number = bidx() / CLUSTER; number < tiles; number += gdimx() / CLUSTER) {
      const Tile tile = tile_of(all, number, rank, groups, coltiles);
      float acc[BN / 2];
      G_UNROLL for (int i = 0; i < BN / 2; i++) acc[i] = 0;
      u32 before = 0;
      for (u32 step = first_step; step < end_step; step++) {
        arrival_wait(full + 8 * stage, phase);
        const u64 da = tile_descriptor(start + stage * STAGE_BYTES + own * (BK * 2));
        const u64 db = tile_descriptor(start + stage * STAGE_BYTES + A_BYTES);
        mma_begin();
        G_UNROLL for (u32 i = 0; i < BK / 16; i++) wgmma(acc, da + 2 * i, db + 2 * i);
        mma_commit();
        mma_wait<1>();
        if (step != first_step && l < SHARES) arrive_at<SHARES>(empty + 8 * before, l);
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      mma_wait<0>();
      if (l < SHARES) arrive_at<SHARES>(empty + 8 * before, l);
#if PARTS > 1
      meet<CLUSTER>(); // nobody multiplies what lies in the stages any more
      const u32 mine = start + 8 * (t - MAKERS);
      G_UNROLL for (u32 i = 0; i < BN / 4; i++) {
        if (i / 2 % (COLUMNS / 8) / OWN_EIGHTS != rank) shared_store(mine + i * (8 * 256), f2{acc[2 * i], acc[2 * i + 1]});
      }
      meet<CLUSTER>();
      G_UNROLL for (u32 i = 0; i < BN / 4; i++) {
        if (i / 2 % (COLUMNS / 8) / OWN_EIGHTS != rank) continue;
        f2 sum{0, 0};
        G_UNROLL for (u32 part = 0; part < PARTS; part++) {
          const f2 more = part == rank ? f2{acc[2 * i], acc[2 * i + 1]} : shared_load(mine + i * (8 * 256), part);
          sum.x += more.x;
          sum.y += more.y;
        }
        acc[2 * i] = sum.x;
        acc[2 * i + 1] = sum.y;
      }
#endif
      Half w = all.m[0];
      G_UNROLL for (u32 i = 1; i < MATS; i++) {
        if (!PAIRED && tile.matrix == i) w = all.m[i];
      }
      const u32 r0 = tile.m0 + own + t % 128 / 32 * 16 + l / 4;
      G_UNROLL for (u32 half = 0; half < 2; half++) {
        const u32 m = r0 + 8 * half;
        if (!FULL && m >= rows) continue;
        const float up = afactor[m];
        const u64 row = (u64)m * w.n;
        const float *r = !PAIRED && res ? res + at(rr, m) : nullptr;
        float *y = (PAIRED ? out : w.y) + row;
        G_UNROLL for (u32 j0 = 0; j0 < COLUMNS / 8; j0 += BATCH) {
          // What results need is asked for before some are stored: for all that the compiler knows it could be the same.
          f2 more[BATCH], by[BATCH];
          G_UNROLL for (u32 i = 0; EVEN && i < BATCH && j0 + i < COLUMNS / 8; i++) {
            const u32 c = tile.n0 + (j0 + i) * 8 + l % 4 * 2;
            if (!FULL && c >= w.n) break;
            if (PARTS > 1 && (j0 + i) / OWN_EIGHTS != rank) continue;
            if (r) more[i] = *(const f2 *)(r + c);
            if (w.factor) by[i] = f2{w.factor[c], w.factor[c + 1]};
          }
          G_UNROLL for (u32 i = 0; i < BATCH && j0 + i < COLUMNS / 8; i++) {
            const u32 j = j0 + i, c = tile.n0 + j * 8 + l % 4 * 2;
            if (!FULL && c >= w.n) break;
            if (PARTS > 1 && j / OWN_EIGHTS != rank) continue;
            float v[2];
            G_UNROLL for (u32 e = 0; e < 2; e++) {
              if (!FULL && !EVEN && c + e >= w.n) continue;
              v[e] = acc[j * 4 + half * 2 + e] * up;
              if (w.factor) v[e] *= SHRUNK * (!EVEN ? w.factor[c + e] : e ? by[i].y : by[i].x);
              if (BIAS) v[e] += load_float(w.bias, BIAS - 1, c + e);
#if PAIRED
              float u = acc[BN / 4 + j * 4 + half * 2 + e] * up;
              const Half &second = all.m[MATS - 1];
              if (second.factor) u *= SHRUNK * second.factor[c + e];
              if (BIAS) u += load_float(second.bias, BIAS - 1, c + e);
              if (w.y) {
                w.y[row + c + e] = v[e];
                second.y[row + c + e] = u;
              }
              v[e] = PAIRED_OF(v[e], u);
#endif
            }
#if EVEN
            if (r) {
              v[0] += more[i].x;
              v[1] += more[i].y;
            }
            *(f2 *)(y + c) = f2{v[0], v[1]};
#else
            G_UNROLL for (u32 e = 0; e < 2; e++) {
              if (FULL || c + e < w.n) y[c + e] = r ? v[e] + r[c + e] : v[e];
            }
#endif
          }
        }
      }
    }
  }
  meet<CLUSTER>(); // a block's memory is written by the other one until both are done
}
