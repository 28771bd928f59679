// y = x·wᵀ (+ b) (+ r) in f32 by tiles with plain multiply-adds, as tile128.hip, where
// copies to shared memory need no registers (NVIDIA, from sm_80 on). Rows lie in shared
// memory as they do outside, four elements longer than a step: a thread reads four
// elements of a row at once, and eight rows that follow each other are on different banks.
//
// Compile time: TM by TN sums of a thread, in steps of BK elements through STAGES;
// RESIDENT blocks shall share a multiprocessor.
#include "prelude.h"
#include "ldmatrix.h"
#define NT 256
#define BM (16 * TM)
#define BN (16 * TN)
#define LINES (BK / 4)      // of 16 bytes in a row of a step
#define APART (NT / LINES)  // rows between a thread's copies
#define PITCH (BK * 4 + 16) // bytes of a row
#define STAGE_BYTES ((BM + BN) * PITCH)

struct Inputs {
  const float *a, *b;
  u64 arow, brow;     // elements to a thread's next copies
  u32 a_left, b_left; // rows from its first on
  u32 to;
};
G_FN void copy_step(const Inputs &in, u32 stage, u32 k0, u32 k) {
  const bool inside = k0 + tid() % LINES * 4 < k;
  const u32 from = inside ? k0 : 0;
  G_UNROLL for (u32 i = 0; i < BM / APART; i++)
    copy16(stage + in.to + i * (APART * PITCH), in.a + i * in.arow + from, inside && i * APART < in.a_left ? 16 : 0);
  G_UNROLL for (u32 i = 0; i < BN / APART; i++)
    copy16(stage + (BM + i * APART) * PITCH + in.to, in.b + i * in.brow + from, inside && i * APART < in.b_left ? 16 : 0);
}
G_FN f4 shared_four(u32 at) {
  f4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
  return v;
}

G_KERNEL G_BOUNDS2(NT, RESIDENT) tilecopy(float *y, const float *x, u32 stride, const float *w, u64 wrow, u32 k, u32 n, u32 columns,
                                         const void *bias, const float *res, Rows rr) {
  extern __shared__ u4 shared_memory[];
  const u32 base = shared_at(shared_memory);
  begin_next();
  wait_previous();
  const u32 t = tid(), m0 = bidy() * BM, n0 = bidx() * BN;
  Inputs in;
  {
    const u32 row = t / LINES, c = t % LINES * 4;
    in.a_left = m0 + row < columns ? columns - m0 - row : 0;
    in.b_left = n0 + row < n ? n - n0 - row : 0;
    const u32 e = c < k ? c : 0;
    // where there is no row the first of all is named, and not read
    in.a = x + (in.a_left ? (u64)(m0 + row) * stride + e : 0);
    in.b = w + (in.b_left ? (u64)(n0 + row) * wrow + e : 0);
    in.arow = (u64)APART * stride;
    in.brow = APART * wrow;
    in.to = row * PITCH + c * 4;
  }
  // A thread has every sixteenth row, and every sixteenth column.
  const u32 tx = t % 16, ty = t / 16, as = base + ty * PITCH, bs = base + (BM + tx) * PITCH;
  float acc[TM][TN];
  G_UNROLL for (int i = 0; i < TM; i++) {
    G_UNROLL for (int j = 0; j < TN; j++) acc[i][j] = 0;
  }
  const u32 steps = (k + BK - 1) / BK;
  G_UNROLL for (u32 s = 0; s < STAGES - 1; s++) {
    if (s < steps) copy_step(in, base + s * STAGE_BYTES, s * BK, k);
    copies_commit();
  }
  u32 stage = 0, fill = (STAGES - 1) * STAGE_BYTES;
  for (u32 step = 0; step < steps; step++) {
    copies_wait<STAGES - 2>();
    bar(); // the step is there, and the stage to be filled is no longer read
    if (step + STAGES - 1 < steps) copy_step(in, base + fill, (step + STAGES - 1) * BK, k);
    copies_commit();
    G_UNROLL for (u32 e = 0; e < LINES; e++) {
      f4 b[TN];
      G_UNROLL for (u32 j = 0; j < TN; j++) b[j] = shared_four(bs + stage + j * (16 * PITCH) + e * 16);
      G_UNROLL for (u32 i = 0; i < TM; i++) {
        const f4 a = shared_four(as + stage + i * (16 * PITCH) + e * 16);
        G_UNROLL for (u32 j = 0; j < TN; j++) acc[i][j] = g_fma(a.x, b[j].x, acc[i][j]);
        G_UNROLL for (u32 j = 0; j < TN; j++) acc[i][j] = g_fma(a.y, b[j].y, acc[i][j]);
        G_UNROLL for (u32 j = 0; j < TN; j++) acc[i][j] = g_fma(a.z, b[j].z, acc[i][j]);
        G_UNROLL for (u32 j = 0; j < TN; j++) acc[i][j] = g_fma(a.w, b[j].w, acc[i][j]);
      }
    }
    stage = stage == (STAGES - 1) * STAGE_BYTES ? 0 : stage + STAGE_BYTES;
    fill = fill == (STAGES - 1) * STAGE_BYTES ? 0 : fill + STAGE_BYTES;
  }
  G_UNROLL for (u32 i = 0; i < TM; i++) {
    const u32 m = m0 + ty + 16 * i;
    if (m >= columns) continue;
    G_UNROLL for (u32 j = 0; j < TN; j++) {
      const u32 c = n0 + tx + 16 * j;
      if (c >= n) continue;
      float v = acc[i][j];
      if (BIAS) v += load_float(bias, BIAS - 1, c);
      if (res) v += res[at(rr, m) + c];
      y[(u64)m * n + c] = v;
    }
  }
}
