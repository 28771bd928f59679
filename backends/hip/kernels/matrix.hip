// y = x·wᵀ (+ b) (+ r) on matrix cores, to the accuracy of f32. Activations come
// as AT parts of half precision whose sum is the number: two of f16, scaled by
// row so that none overflows, hold 22 bits; three of bf16 hold 24. Weights are one
// part, which half precision holds exactly: plain f16, bf16 and f8, and of blocks
// their whole numbers. With FP8 w is rows of 8-bit floats and activations are one part of e4m3, which fp8
// instructions multiply; two of them are taken for one element of 16 bits, in shared memory and in kp and w.k. A block's scale is applied to the sum over the W_SUB
// elements that share it, its offset to the sum of the activations there.
//
// A block gives 128 rows of x by BN of w in steps of 32 elements; the next step
// is loaded to registers while this one is multiplied. Sums of tensor cores
// truncate: every 128 elements at most go to sums that are rounded. With FULL all
// tiles are whole.
//
// With IDS each row of y is of its own expert's matrix: moe.hip has put the rows in the order of their experts, a tile
// has up to BM rows of one expert. With ROUNDED activations are one part, and sums are rounded once.
#include "prelude.h"
#include "weights.h"
#ifndef FP8
#define FP8 0
#endif
#define MMA_BF16 (W_TYPE == W_BF16)
#include "mma.h"
#include "scale.h"
#if FP8
#include "cvt8.h"
#endif
#ifndef IDS
#define IDS 0
#define ROUNDED 0
#endif
#define AT (FP8 || ROUNDED ? 1 : MMA_BF16 ? 3 : 2)
#if W_TYPE == W_Q2_K || W_TYPE == W_Q3_K || W_TYPE == W_Q6_K
#define W_SUB 16
#else
#define W_SUB 32
#endif
#define SUBS (BK / W_SUB) // in a step
#define NT 256
#define BM (IDS ? 64 : 128)
#if (FP8 || !W_SCALAR && (W_TYPE == W_F16 || ROUNDED && W_TYPE == W_BF16)) && !G_AMD // two stages in shared memory, one block
#define BN 128
#define RESIDENT (IDS ? 3 : 1)
#else // one stage: two blocks take turns
#define BN 64
#define RESIDENT (IDS ? 3 : 2)
#endif
#define BK 32
#define WAVES_N 2
#define WAVES_M (NT / G_WAVE / WAVES_N)
#define TM (BM / WAVES_M / 16)
#define TN (BN / WAVES_N / 16)
#define KEEP (FP8 ? 2 : 4) // steps between roundings
#define A_LOADS (BM * BK / 8 / NT) // lines of 16 bytes of a part a thread
#define TOP (FP8 ? 6 : 14) // exponent of a row's largest activation
#define W_LOADS (BN * BK / 8 / NT) // lines of 16 bytes a thread
#define W_QUADS (BN * BK / 4 / NT)

// Divides rows of x in parts: a block a row, columns padded with zeros to kp.
// parts has AT planes of rows × kp, scale the factor that undoes a row's scaling,
// sums the scaled sum of every W_SUB elements where W_OFFSET needs them.
G_KERNEL G_BOUNDS(NT) divide(u16 *__restrict__ parts, float *__restrict__ scale, float *__restrict__ sums,
                             const float *x, Rows xr, u32 rows, u32 kp) {
  begin_next();
  wait_previous();
  __shared__ float red[NT / G_WAVE];
  const u32 r = bidx(), k = xr.cols;
  const float *a = x + at(xr, r);
  float up = 1;
  if (!MMA_BF16) {
    float top = 0;
    for (u32 i = tid(); i < k; i += NT) {
      top = g_max(top, g_abs(a[i]));
      if (FP8 && !(a[i] - a[i] == 0)) top = u2f(0x7f800000);
    }
    top = block_max<NT>(top, red);
    up = scale_for<TOP>(top);
    if (tid() == 0) scale[r] = FP8 && f2u(top) == 0x7f800000 ? u2f(0x7fc00000) : 1.0f / up; // e4m3 would make infinity a number
  } else if (tid() == 0) {
    scale[r] = 1;
  }
  u16 *out = parts + (u64)r * kp;
#if FP8
  for (u32 i = tid(); i < kp / 2; i += NT) {
    float v[4];
    G_UNROLL for (u32 j = 0; j < 4; j++) v[j] = 4 * i + j < k ? a[4 * i + j] * up : 0.0f;
    ((u32 *)out)[i] = four_e4m3(v[0], v[1], v[2], v[3]);
  }
#else
  const u64 plane = (u64)rows * kp;
  for (u32 i = tid(); i < kp; i += NT) {
    float v = i < k ? a[i] * up : 0.0f;
    G_UNROLL for (u32 t = 0; t < AT; t++) {
      u16 h = MMA_BF16 ? f2b(v) : f2h(v);
      v -= MMA_BF16 ? b2f(h) : h2f(h);
      out[t * plane + i] = h;
    }
  }
#endif
  if (!W_OFFSET) return;
  for (u32 i = tid(); i < kp / W_SUB; i += NT) {
    float v = 0;
    G_UNROLL for (u32 j = 0; j < W_SUB; j++) {
      u32 e = i * W_SUB + j;
      if (e < k) v += a[e] * up;
    }
    sums[(u64)r * (kp / W_SUB) + i] = v;
  }
}

struct alignas(8) four16 { u16 c[4]; };

// a step's share of a thread, on its way to shared memory
struct Step {
  u4 a[AT][A_LOADS];
#if FP8 || W_TYPE == W_F16 && !W_SCALAR || W_TYPE == W_BF16 && !W_SCALAR
#define W_DIRECT 1
  u4 w[W_LOADS];
#else
#define W_DIRECT 0
  four16 w[W_QUADS];
  float s[W_QUADS], o[W_QUADS]; // scale and offset of the quads
  float sum;        // of a row's W_SUB activations
#endif
};

// where a thread's share comes from, at the first step
struct Source {
  const u16 *a;
  const u16 *w;
  const float *sums;
  Row row;
  u64 plane, arow; // elements from part to part, and to the next row of a that is loaded
  u32 left_a, left_w; // rows that are there from the thread's first on, 0 or less: none
};

// w0 is the number of the tile's first row of w
G_FN void fetch(Step &s, const Source &from, const Weights &w, u32 w0, u32 k0) {
  const u32 t = tid();
  G_UNROLL for (u32 i = 0; i < A_LOADS; i++) {
    G_UNROLL for (u32 p = 0; p < AT; p++) {
      s.a[p][i] = u4{0, 0, 0, 0};
      if (FULL || i * 64 < from.left_a) s.a[p][i] = *(const u4 *)(from.a + p * from.plane + i * from.arow + k0);
    }
  }
#if W_DIRECT
  G_UNROLL for (u32 i = 0; i < W_LOADS; i++) {
    s.w[i] = u4{0, 0, 0, 0};
    if (FULL || (i * 64 < from.left_w && k0 + t % 4 * 8 < w.k)) s.w[i] = *(const u4 *)(from.w + i * (64 * w.row) + k0);
  }
#else
  const u32 col = k0 + t % 8 * 4;
  G_UNROLL for (u32 i = 0; i < W_QUADS; i++) {
    Quad q = {};
    if (FULL || (i * 32 < from.left_w && col < w.k)) {
#if W_PLAIN
      q = w_quad(w_row(w, w0 + t / 8 + i * 32), col);
#else
      q = w_quad(w_down(from.row, w, i * 32), col);
#endif
    }
    G_UNROLL for (u32 j = 0; j < 4; j++) s.w[i].c[j] = MMA_BF16 ? f2b(q.v[j]) : f2h(q.v[j]);
    s.s[i] = q.s;
    s.o[i] = q.o;
  }
  if (W_OFFSET) s.sum = from.sums ? from.sums[k0 / W_SUB] : 0.0f;
#endif
}

#define STAGES (AT == 1 || W_DIRECT && AT <= 2 ? 2 : 1) // as many as 48 KiB hold

G_KERNEL G_BOUNDS2(NT, RESIDENT)
    matrix(float *__restrict__ y, const u16 *parts, const float *scale,
           const float *sums, u32 kp, u32 rows, Weights w, u32 n, const void *bias,
           const float *res, Rows rr
#if IDS
           , const u32 *order, u32 pairs, u32 share
#endif
           ) {
  begin_next();
  wait_previous();
#if IDS
  const Group group = ((const Group *)(order + round_up(pairs, 4)))[bidy()];
  if (group.count == 0) return;
  __shared__ u32 who[BM];
  if (tid() < BM) who[tid()] = tid() < group.count ? order[group.first + tid()] : 0;
  bar();
  const u32 m0 = 0, there = group.count, e0 = group.expert * n; // e0: the expert's first row of w
#define X_ROW(m) (who[m] / share)
#define Y_ROW(m) who[m]
#else
  const u32 m0 = bidy() * BM, there = rows, e0 = 0;
#define X_ROW(m) (m)
#define Y_ROW(m) (m)
#endif
  __shared__ u4 amem[STAGES * AT * BM * BK / 8], wmem[STAGES * BN * BK / 8]; // of 16 bytes, so aligned
#if !W_PLAIN
  __shared__ float scales[STAGES * BN * SUBS], offsets[STAGES * BN * SUBS], xsums[STAGES * BM * SUBS];
#endif
  const u32 t = tid(), wave = t / G_WAVE;
  const u32 n0 = bidx() * BN;
  const u32 wm = wave / WAVES_N * (TM * 16), wn = wave % WAVES_N * (TN * 16);
  const u64 plane = (u64)rows * kp;
  float total[TM][TN][ACC];
  Acc acc[TM][TN];
  G_UNROLL for (int i = 0; i < TM; i++) {
    G_UNROLL for (int j = 0; j < TN; j++) {
      G_UNROLL for (int e = 0; e < ACC; e++) total[i][j][e] = acc[i][j].v[e] = 0;
    }
  }
  Source from;
  {
    const u32 m = m0 + t / 4, c = n0 + t / 4, q = n0 + t / 8;
    from.left_a = m < there ? there - m : 0;
    from.a = parts + (u64)X_ROW(m) * kp + t % 4 * 8;
    from.plane = plane;
    from.arow = (u64)64 * kp;
    from.w = (const u16 *)w.p + ((u64)e0 + c) * w.row + t % 4 * 8;
    from.row = w_row(w, (u64)e0 + q);
    from.left_w = W_DIRECT ? (c < n ? n - c : 0) : q < n ? n - q : 0;
    const u32 sm = m0 + t / SUBS;
    from.sums = t < BM * SUBS && sm < there ? sums + (u64)X_ROW(sm) * (kp / W_SUB) + t % SUBS : nullptr;
  }
  Step s;
  fetch(s, from, w, e0 + n0, 0);
  // A lane's places in tiles do not change: rows of a fragment are 16 apart.
  const u32 lane_a[2] = {wm * 32 + frag_at(0), wm * 32 + frag_at(16)};
  const u32 lane_w[2] = {wn * 32 + frag_at(0), wn * 32 + frag_at(16)};
  const Tile atile = tile_of((u16 *)amem), wtile = tile_of((u16 *)wmem);
  const u32 steps = kp / BK;
  for (u32 step = 0; step < steps; step++) {
    // With two stages the one barrier of a step also says that the stage of the
    // step before the last is no longer read.
    const u32 astage = step % STAGES * (AT * BM * BK), wstage = step % STAGES * (BN * BK);
    u16 *const as = (u16 *)amem + astage, *const ws = (u16 *)wmem + wstage;
#if !W_PLAIN
    float *const ssm = scales + step % STAGES * (BN * SUBS), *const osm = offsets + step % STAGES * (BN * SUBS);
    float *const xsm = xsums + step % STAGES * (BM * SUBS);
#endif
    G_UNROLL for (u32 i = 0; i < A_LOADS; i++) {
      G_UNROLL for (u32 p = 0; p < AT; p++) *(u4 *)(as + p * BM * BK + mma_at(t / 4 + i * 64, t % 4 * 8)) = s.a[p][i];
    }
#if W_DIRECT
    G_UNROLL for (u32 i = 0; i < W_LOADS; i++) *(u4 *)(ws + mma_at(t / 4 + i * 64, t % 4 * 8)) = s.w[i];
#else
    G_UNROLL for (u32 i = 0; i < W_QUADS; i++) {
      u32 row = t / 8 + i * 32, col = t % 8 * 4;
      *(four16 *)(ws + mma_at(row, col)) = s.w[i];
#if !W_PLAIN
      if (col % W_SUB == 0) {
        ssm[row * SUBS + col / W_SUB] = s.s[i];
        if (W_OFFSET) osm[row * SUBS + col / W_SUB] = s.o[i];
      }
#endif
    }
#if W_OFFSET
    if (t < BM * SUBS) xsm[t] = s.sum;
#endif
#endif
    bar();
    if (step + 1 < steps) fetch(s, from, w, e0 + n0, (step + 1) * BK);
    G_UNROLL for (u32 k = 0; k < BK; k += 16) {
      Frag b[TN];
      G_UNROLL for (int j = 0; j < TN; j++) b[j] = frag_load(wtile, wstage + lane_w[k / 16] + 512 * j);
      G_UNROLL for (int i = 0; i < TM; i++) {
        G_UNROLL for (int p = AT - 1; p >= 0; p--) { // the small parts first
          Frag a = frag_load(atile, astage + lane_a[k / 16] + p * (BM * BK) + 512 * i);
          G_UNROLL for (int j = 0; j < TN; j++) mma(acc[i][j], a, b[j]);
        }
      }
#if W_PLAIN
    }
    if (!ROUNDED && ((step + 1) % KEEP == 0 || step + 1 == steps)) {
      G_UNROLL for (int i = 0; i < TM; i++) {
        G_UNROLL for (int j = 0; j < TN; j++) {
          G_UNROLL for (int e = 0; e < ACC; e++) {
            total[i][j][e] += acc[i][j].v[e];
            acc[i][j].v[e] = 0;
          }
        }
      }
    }
#else
      if ((k + 16) % W_SUB) continue;
      const u32 sub = k / W_SUB;
      G_UNROLL for (int j = 0; j < TN; j++) {
        G_UNROLL for (int e = 0; e < ACC; e++) {
          const u32 c = (wn + 16 * j + acc_col(e)) * SUBS + sub;
          const float sc = ssm[c], of = W_OFFSET ? osm[c] : 0.0f;
          G_UNROLL for (int i = 0; i < TM; i++) {
            total[i][j][e] = g_fma(sc, acc[i][j].v[e], total[i][j][e]);
            if (W_OFFSET) total[i][j][e] = g_fma(of, xsm[(wm + 16 * i + acc_row(e)) * SUBS + sub], total[i][j][e]);
            acc[i][j].v[e] = 0;
          }
        }
      }
    }
#endif
    if (STAGES == 1) bar();
  }
  G_UNROLL for (int i = 0; i < TM; i++) {
    G_UNROLL for (int j = 0; j < TN; j++) {
      G_UNROLL for (int e = 0; e < ACC; e++) {
        u32 m = m0 + wm + 16 * i + acc_row(e), c = n0 + wn + 16 * j + acc_col(e);
        if (!FULL && (m >= there || c >= n)) continue;
        float v = (ROUNDED && W_PLAIN ? acc[i][j].v[e] : total[i][j][e]) * scale[X_ROW(m)];
        if (BIAS) v += load_float(bias, BIAS - 1, (u64)e0 + c);
        if (res) v += res[at(rr, Y_ROW(m)) + c];
        y[(u64)Y_ROW(m) * n + c] = v;
      }
    }
  }
}
