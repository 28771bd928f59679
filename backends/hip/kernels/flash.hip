// Attention of many queries on tensor cores (mma.sync, from sm_80 on; with ASYNC the
// asynchronous instructions of sm_90a), caches in f16:
// y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j] over the positions up to each
// token's own, online, tile by tile (Dao et al., arXiv 2205.14135). A block has 64
// queries of one key/value head, the query index being token · share + head; a wave
// has 16. Tiles of 64 positions go through two stages of shared memory; those that
// no query of the block sees are left out.
//
// Results are as exact as attention.hip's: keys and values are halves already, and
// queries and weights are divided in two parts of f16, which hold 22 bits. Queries are
// scaled by log2 e too, so that weights are powers of two.
//
// With ASYNC the weights of a tile are multiplied by its values while the keys of the next
// are by the queries, whose low parts lie in shared memory: with both parts in registers the
// compiler has too few and lets one instruction wait for the other.
//
// Compile time: DH, DV elements of a head of keys and values, with ASYNC 64 or 128, keys
// also 192; CAP with softcap; SINKS with one more score a head, whose value is zero.
#include "prelude.h"
#include "ldmatrix.h"
#if ASYNC
#include "turned.h"
#endif
#define NT 128
#define QUERIES 64
#define TILE 64
#define KS (DH / 16) // steps over a key
#define LOG2_E 1.44269504f
#define UNSEEN -3.0e38f // a score beside LEAST, a row's largest at first, weighs nothing
#define LEAST -1.0e30f
#if ASYNC
#define PANEL (TILE * 128) // bytes of 64 columns
#define K_BYTES (DH / 64 * PANEL)
#define STAGE (K_BYTES + DV / 64 * PANEL)
#define LOW (2 * STAGE) // where the low parts of queries lie, as keys do
#else
#define K_BYTES (TILE * (DH * 2 + 16))
#define STAGE (K_BYTES + TILE * (DV * 2 + 16))
#endif

// A lane has rows l/4 and l/4 + 8 of its wave's 16: of each eight columns of scores or sums
// the two from l%4·2 on, element 4·n + 2·row + column; of queries and weights two parts.
typedef float Scores[TILE / 2];
typedef float Sums[DV / 2];
typedef u32 Queries[KS][4];
#if ASYNC
typedef u32 LowQueries; // where they lie
#else
typedef Queries LowQueries;
#endif
typedef u32 Weights16[TILE / 16][4];

// Where line c of 16 bytes of a row of W halves lies. Without ASYNC a line more than a row
// has keeps eight rows on different banks.
template <int W> G_FN u32 line_at(u32 row, u32 c) {
#if ASYNC
  return c / 8 * PANEL + swizzled(row, c % 8);
#else
  return row * (W * 2 + 16) + c * 16;
#endif
}

// copies a thread's lines of TILE rows of W halves from row j0 on, zeros from row `end` on
template <int W> G_FN void copy_tile(u32 to, const u16 *from, u32 stride, u32 j0, u32 end) {
  const u32 per = W / 8, step = NT / per; // where rows of lines divide the threads, a thread's lie below each other
  if (NT % per == 0 && step % 8 == 0) {
    const u32 row = tid() / per, c = tid() % per, left = end - j0;
    const u16 *at = from + (u64)(j0 + row) * stride + c * 8;
    to += line_at<W>(row, c);
    G_UNROLL for (u32 i = 0; i < TILE / step; i++) {
      const bool real = row + i * step < left;
      copy16(to + (line_at<W>(i * step, 0) - line_at<W>(0, 0)), real ? at + (u64)(i * step) * stride : from, real ? 16 : 0);
    }
    return;
  }
  for (u32 i = tid(); i < TILE * per; i += NT) {
    const u32 row = i / per, c = i % per;
    const bool real = j0 + row < end;
    copy16(to + line_at<W>(row, c), from + (u64)(real ? j0 + row : j0) * stride + c * 8, real ? 16 : 0);
  }
}

// the keys and values of a key/value head, up to some position
struct Cache {
  const u16 *k, *v;
  u32 kstride, vstride, end;
};
// asks for a tile of both
G_FN void copy_tiles(u32 stage, const Cache &c, u32 j0) {
  copy_tile<DH>(stage, c.k, c.kstride, j0, c.end);
  copy_tile<DV>(stage + K_BYTES, c.v, c.vstride, j0, c.end);
}

G_FN float max_of(float a, float b) {
  float r;
  asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
// whether something holds for a lane of the wave
G_FN bool some_lane(bool v) {
  u32 r;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"((u32)v));
  return r;
}
// two parts of a pair of numbers
G_FN void divide(float a, float b, u32 &high, u32 &low) {
  high = pack_halves(a, b);
  low = pack_halves(a - h2f((u16)high), b - h2f((u16)(high >> 16)));
}

// begins s = q·keysᵀ
G_FN void score(Scores &s, const Queries &qh, const LowQueries &ql, u32 keys) {
#if ASYNC
  mma_begin();
  G_UNROLL for (u32 k = 0; k < KS; k++) {
    const u32 at = k / 4 * PANEL + k % 4 * 32;
    const u64 a = tile_descriptor(ql + at), b = tile_descriptor(keys + at);
    if (k == 0) wgmma_first(s, a, b);
    else wgmma(s, a, b);
    wgmma_rs(s, qh[k], b);
  }
  mma_commit();
#else
  const u32 l = lane();
  G_UNROLL for (u32 i = 0; i < TILE / 2; i++) s[i] = 0;
  G_UNROLL for (u32 k = 0; k < KS; k++) {
    G_UNROLL for (u32 n = 0; n < TILE / 16; n++) {
      u32 b[4];
      ldmatrix(b, keys + line_at<DH>(n * 16 + l / 16 * 8 + l % 8, k * 2 + l / 8 % 2));
      mma16(s + 8 * n, ql[k], b[0], b[1]);
      mma16(s + 8 * n, qh[k], b[0], b[1]);
      mma16(s + 8 * n + 4, ql[k], b[2], b[3]);
      mma16(s + 8 * n + 4, qh[k], b[2], b[3]);
    }
  }
#endif
}

// begins acc += p·values
G_FN void weigh(Sums &acc, const Weights16 &ph, const Weights16 &pl, u32 values) {
#if ASYNC
  mma_begin();
  G_UNROLL for (u32 k = 0; k < TILE / 16; k++) {
    const u64 b = turned_descriptor(values + k * 2048, PANEL);
    wgmma_rs<1>(acc, pl[k], b);
    wgmma_rs<1>(acc, ph[k], b);
  }
  mma_commit();
#else
  const u32 l = lane();
  G_UNROLL for (u32 k = 0; k < TILE / 16; k++) {
    G_UNROLL for (u32 n = 0; n < DV / 16; n++) {
      u32 b[4];
      ldmatrix_turned(b, values + line_at<DV>(k * 16 + l / 8 % 2 * 8 + l % 8, n * 2 + l / 16));
      mma16(acc + 8 * n, pl[k], b[0], b[1]);
      mma16(acc + 8 * n, ph[k], b[0], b[1]);
      mma16(acc + 8 * n + 4, pl[k], b[2], b[3]);
      mma16(acc + 8 * n + 4, ph[k], b[2], b[3]);
    }
  }
#endif
}

G_KERNEL G_BOUNDS2(NT, 2) flash(float *y, const float *q, u32 qstride, const u16 *kc, u32 kstride, const u16 *vc, u32 vstride,
                                const int *pos, u32 positions, u32 tokens, u32 heads, u32 groups, float scale, float cap,
                                u32 window, u32 at_once, u32 *status, u32 launch
#if SINKS
                                , const void *sinks, u32 sink_type
#endif
                                ) {
  extern __shared__ u4 shared_memory[];
  begin_next();
  wait_previous();
#if ASYNC
  const u32 base = tiles_at(shared_memory);
#else
  const u32 base = shared_at(shared_memory);
#endif
  const u32 l = lane(), wave = tid() / 32, g = bidx();
  const u32 share = heads / groups, queries = tokens * share;
  // Later queries see more positions: they come first, so that blocks end evenly. Where all run at
  // once, two a multiprocessor, those of the second half come in the opposite order, as they
  // share one each with those of the first.
  const u32 tiles = (queries + QUERIES - 1) / QUERIES, first_half = (tiles + 1) / 2;
  const u32 q0 = (at_once && bidy() >= first_half ? bidy() - first_half : tiles - 1 - bidy()) * QUERIES;
  // what the queries of the block see: every wave finds it by itself
  u32 from, end, all_from, all_end; // of some query, of all
  {
    float f = 3e9f, e = 0, af = 0, ae = 3e9f;
    G_UNROLL for (u32 i = 0; i < QUERIES; i += 32) {
      const u32 s = g_min(q0 + i + l, queries - 1) / share;
      int p = pos[s];
      if (p < 0 || (u32)p >= positions) {
        if (wave == 0) fail(status, launch, s, p);
        p = 0;
      }
      const u32 stop = (u32)p + 1, start = window && stop > window ? stop - window : 0;
      f = -g_max(-f, -(float)start);
      e = g_max(e, (float)stop);
      af = g_max(af, (float)start);
      ae = -g_max(-ae, -(float)stop);
    }
    from = (u32)-wave_max(-f);
    end = (u32)wave_max(e);
    all_from = (u32)wave_max(af);
    all_end = (u32)-wave_max(-ae);
  }
  const u32 first = from / TILE * TILE;
  if (!CAP) scale *= LOG2_E;
  const Cache cache{kc + g * DH, vc + g * DV, kstride, vstride, end};
  copy_tiles(base, cache, first);
  copies_commit();

  u32 qi[2], qfrom[2], qend[2];
  Queries qh;
#if ASYNC
  const LowQueries ql = base + LOW;
#else
  LowQueries ql;
#endif
  G_UNROLL for (u32 r = 0; r < 2; r++) {
    qi[r] = q0 + wave * 16 + l / 4 + 8 * r;
    const u32 c = g_min(qi[r], queries - 1), s = c / share;
    const int p = pos[s];
    qend[r] = p < 0 || (u32)p >= positions ? 1 : (u32)p + 1;
    qfrom[r] = window && qend[r] > window ? qend[r] - window : 0;
    const float *src = q + (u64)s * qstride + (g * share + c % share) * DH + l % 4 * 2;
    G_UNROLL for (u32 k = 0; k < KS; k++) {
      G_UNROLL for (u32 h = 0; h < 2; h++) {
        u32 low;
        const f2 pair = *(const f2 *)(src + k * 16 + h * 8);
        divide(pair.x * scale, pair.y * scale, qh[k][h * 2 + r], low);
#if ASYNC
        put_shared(ql + line_at<DH>(wave * 16 + l / 4 + 8 * r, k * 2 + h) + l % 4 * 4, low);
#else
        ql[k][h * 2 + r] = low;
#endif
      }
    }
  }
  Scores s;
  Sums acc;
  float m[2] = {LEAST, LEAST}, sum[2] = {0, 0};
  G_UNROLL for (u32 i = 0; i < DV / 2; i++) acc[i] = 0;
  u32 stage = 0;
#if ASYNC
  copies_wait<0>();
  fence_async();
  bar();
  if (first + TILE < end) copy_tiles(base + STAGE, cache, first + TILE);
  copies_commit();
  score(s, qh, ql, base);
  mma_wait<0>();
  settle(s);
#endif
  for (u32 j0 = first; j0 < end; j0 += TILE, stage ^= 1) {
    const u32 keys = base + stage * STAGE, other = base + (stage ^ 1) * STAGE;
#if !ASYNC
    copies_wait<0>();
    bar(); // the tile is there, and the other stage is no longer read
    if (j0 + TILE < end) copy_tiles(other, cache, j0 + TILE);
    copies_commit();
    score(s, qh, ql, keys);
#endif
    if (CAP) {
      G_UNROLL for (u32 i = 0; i < TILE / 2; i++) s[i] = LOG2_E * cap * g_tanh(s[i] / cap);
    }
    if (j0 < all_from || j0 + TILE > all_end) {
      G_UNROLL for (u32 i = 0; i < TILE / 2; i++) {
        const u32 j = j0 + i / 4 * 8 + l % 4 * 2 + i % 2;
        if (j < qfrom[i / 2 % 2] || j >= qend[i / 2 % 2]) s[i] = UNSEEN;
      }
    }
    float by[2]; // of what was summed before
    G_UNROLL for (u32 r = 0; r < 2; r++) {
      float top = m[r];
      G_UNROLL for (u32 n = 2 * r; n < TILE / 2; n += 4) top = max_of(top, max_of(s[n], s[n + 1]));
      top = max_of(top, shfl_xor(top, 1));
      top = max_of(top, shfl_xor(top, 2));
      by[r] = approx_exp2(m[r] - top);
      m[r] = top;
      sum[r] *= by[r];
      G_UNROLL for (u32 n = 2 * r; n < TILE / 2; n += 4) {
        G_UNROLL for (u32 e = 0; e < 2; e++) {
          s[n + e] = approx_exp2(s[n + e] - top);
          sum[r] += s[n + e];
        }
      }
    }
    if (some_lane(by[0] != 1.0f || by[1] != 1.0f)) {
      G_UNROLL for (u32 i = 0; i < DV / 2; i++) acc[i] *= by[i / 2 % 2];
    }
    Weights16 ph, pl;
    G_UNROLL for (u32 k = 0; k < TILE / 16; k++) {
      G_UNROLL for (u32 i = 0; i < 4; i++) divide(s[8 * k + 2 * i], s[8 * k + 2 * i + 1], ph[k][i], pl[k][i]);
    }
    weigh(acc, ph, pl, keys + K_BYTES);
#if ASYNC
    if (j0 + TILE < end) {
      copies_wait<0>();
      fence_async();
      bar(); // the next tile is there
      score(s, qh, ql, other);
      mma_wait<1>();
      settle(acc);
      bar(); // this one is no longer read
      if (j0 + 2 * TILE < end) copy_tiles(keys, cache, j0 + 2 * TILE);
      copies_commit();
    }
    mma_wait<0>();
    settle(acc);
    settle(s);
#endif
  }
  G_UNROLL for (u32 r = 0; r < 2; r++) {
    sum[r] += shfl_xor(sum[r], 1);
    sum[r] += shfl_xor(sum[r], 2);
    if (qi[r] >= queries) continue;
#if SINKS
    const float sink = LOG2_E * load_float(sinks, sink_type, g * share + qi[r] % share), top = max_of(m[r], sink);
    const float c = approx_exp2(m[r] - top), over = c / g_fma(sum[r], c, approx_exp2(sink - top));
#else
    const float over = 1.0f / sum[r];
#endif
    float *dst = y + ((u64)(qi[r] / share) * heads + g * share + qi[r] % share) * DV + l % 4 * 2;
    G_UNROLL for (u32 n = 2 * r; n < DV / 2; n += 4) *(f2 *)(dst + 2 * (n - 2 * r)) = f2{acc[n] * over, acc[n + 1] * over};
  }
}
