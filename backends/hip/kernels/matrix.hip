// y = x·wᵀ (+ b) (+ r) on matrix cores, to the accuracy of f32. Activations come
// as AT parts of half precision whose sum is the number: two of f16, scaled by
// row so that none overflows, hold 22 bits; three of bf16 hold 24. Weights that
// f16 (or bf16) holds exactly are one part; others are two, times W_SCALE, of
// which the product of the small ones is left out (2^-22 of the whole). So
// weights beyond ±1023 in block formats are too large for this kernel.
//
// A block gives 128 rows of x by 64 of w in steps of 32 elements; the next step
// is loaded to registers while this one is multiplied. Sums of tensor cores
// truncate: every 128 elements go to sums that are rounded.
#include "prelude.h"
#include "weights.h"
#define MMA_BF16 (W_TYPE == W_BF16)
#include "mma.h"
#define AT (MMA_BF16 ? 3 : 2)
#define WT (W_PLAIN ? 1 : 2)
#define W_SCALE (W_PLAIN ? 1.0f : 64.0f)
#define NT 256
#define BM 128
#define BN 64
#define BK 32
#define LD 40 // of rows in shared memory, padded against bank conflicts
#define WAVES_N 2
#define WAVES_M (NT / G_WAVE / WAVES_N)
#define TM (BM / WAVES_M / 16)
#define TN (BN / WAVES_N / 16)
#define KEEP 4 // steps between roundings

// Divides rows of x in parts: a block a row, columns padded with zeros to kp.
// parts has AT planes of rows × kp, scale the factor that undoes a row's scaling.
G_KERNEL G_BOUNDS(NT) divide(u16 *parts, float *scale, const float *x, Rows xr, u32 rows, u32 kp) {
  __shared__ float red[NT / G_WAVE];
  const u32 r = bidx(), k = xr.cols;
  const float *a = x + at(xr, r);
  float up = 1;
  if (!MMA_BF16) {
    float top = 0;
    for (u32 i = tid(); i < k; i += NT) top = g_max(top, g_abs(a[i]));
    top = block_max<NT>(top, red);
    // 2^(14 - exponent of the largest), kept a normal number
    u32 e = f2u(top) >> 23;
    e = e < 15 ? 15 : e > 253 ? 253 : e;
    up = u2f((127 + 14 + 127 - e > 254 ? 254 : 127 + 14 + 127 - e) << 23);
    if (tid() == 0) scale[r] = 1.0f / up;
  } else if (tid() == 0) {
    scale[r] = 1;
  }
  u16 *out = parts + (u64)r * kp;
  const u64 plane = (u64)rows * kp;
  for (u32 i = tid(); i < kp; i += NT) {
    float v = i < k ? a[i] * up : 0.0f;
    G_UNROLL for (u32 t = 0; t < AT; t++) {
      u16 h = MMA_BF16 ? f2b(v) : f2h(v);
      v -= MMA_BF16 ? b2f(h) : h2f(h);
      out[t * plane + i] = h;
    }
  }
}

struct alignas(8) four16 { u16 c[4]; };

// a step's share of a thread, on its way to shared memory
struct Step {
  u4 a[AT][2];
#if W_TYPE == W_F16 && !W_SCALAR || W_TYPE == W_BF16 && !W_SCALAR
#define W_DIRECT 1
  u4 w;
#else
#define W_DIRECT 0
  four16 w[WT][2];
#endif
};

G_FN void fetch(Step &s, const u16 *parts, u64 plane, u32 kp, u32 m0, u32 rows, const Weights &w, u32 n0, u32 n, u32 k0) {
  const u32 t = tid();
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    u32 row = m0 + t / 4 + i * 64, col = k0 + t % 4 * 8;
    G_UNROLL for (u32 p = 0; p < AT; p++) {
      s.a[p][i] = u4{0, 0, 0, 0};
      if (row < rows) s.a[p][i] = *(const u4 *)(parts + p * plane + (u64)row * kp + col);
    }
  }
#if W_DIRECT
  u32 row = n0 + t / 4, col = k0 + t % 4 * 8;
  s.w = u4{0, 0, 0, 0};
  if (row < n && col < w.k) s.w = *(const u4 *)((const u16 *)w.p + (u64)row * w.row + col);
#else
  G_UNROLL for (u32 i = 0; i < 2; i++) {
    u32 row = n0 + t / 8 + i * 32, col = k0 + t % 8 * 4;
    Quad q = {};
    if (row < n && col < w.k) {
      q = w_quad(w, row, col);
      w_apply(q);
    }
    G_UNROLL for (u32 j = 0; j < 4; j++) {
      float v = q.v[j] * W_SCALE;
      G_UNROLL for (u32 p = 0; p < WT; p++) {
        u16 h = MMA_BF16 ? f2b(v) : f2h(v);
        if (p + 1 < WT) v -= h2f(h);
        s.w[p][i].c[j] = h;
      }
    }
  }
#endif
}

G_KERNEL G_BOUNDS(NT) matrix(float *y, const u16 *parts, const float *scale, u32 kp, u32 rows, Weights w, u32 n,
                             const void *bias, u32 bias_type, const float *res, Rows rr) {
  __shared__ u4 amem[AT * BM * LD / 8], wmem[WT * BN * LD / 8]; // of 16 bytes, so aligned
  u16 *const as = (u16 *)amem, *const ws = (u16 *)wmem;
  const u32 t = tid(), wave = t / G_WAVE;
  const u32 m0 = bidy() * BM, n0 = bidx() * BN;
  const u32 wm = wave / WAVES_N * (TM * 16), wn = wave % WAVES_N * (TN * 16);
  const u64 plane = (u64)rows * kp;
  float total[TM][TN][ACC];
  Acc acc[TM][TN];
  G_UNROLL for (int i = 0; i < TM; i++) {
    G_UNROLL for (int j = 0; j < TN; j++) {
      G_UNROLL for (int e = 0; e < ACC; e++) total[i][j][e] = acc[i][j].v[e] = 0;
    }
  }
  Step s;
  fetch(s, parts, plane, kp, m0, rows, w, n0, n, 0);
  const u32 steps = kp / BK;
  for (u32 step = 0; step < steps; step++) {
    G_UNROLL for (u32 i = 0; i < 2; i++) {
      G_UNROLL for (u32 p = 0; p < AT; p++) *(u4 *)(as + p * BM * LD + (t / 4 + i * 64) * LD + t % 4 * 8) = s.a[p][i];
    }
#if W_DIRECT
    *(u4 *)(ws + t / 4 * LD + t % 4 * 8) = s.w;
#else
    G_UNROLL for (u32 i = 0; i < 2; i++) {
      G_UNROLL for (u32 p = 0; p < WT; p++) *(four16 *)(ws + p * BN * LD + (t / 8 + i * 32) * LD + t % 8 * 4) = s.w[p][i];
    }
#endif
    bar();
    if (step + 1 < steps) fetch(s, parts, plane, kp, m0, rows, w, n0, n, (step + 1) * BK);
    G_UNROLL for (u32 k = 0; k < BK; k += 16) {
      Frag b[WT][TN];
      G_UNROLL for (int p = 0; p < WT; p++) {
        G_UNROLL for (int j = 0; j < TN; j++) b[p][j] = frag_load(ws + p * BN * LD + (wn + 16 * j) * LD + k, LD);
      }
      G_UNROLL for (int i = 0; i < TM; i++) {
        G_UNROLL for (int p = AT - 1; p >= 0; p--) { // the small parts first
          Frag a = frag_load(as + p * BM * LD + (wm + 16 * i) * LD + k, LD);
          G_UNROLL for (int j = 0; j < TN; j++) {
            if (p == 0 && WT > 1) mma(acc[i][j], a, b[WT - 1][j]);
            mma(acc[i][j], a, b[0][j]);
          }
        }
      }
    }
    if ((step + 1) % KEEP == 0 || step + 1 == steps) {
      G_UNROLL for (int i = 0; i < TM; i++) {
        G_UNROLL for (int j = 0; j < TN; j++) {
          G_UNROLL for (int e = 0; e < ACC; e++) {
            total[i][j][e] += acc[i][j].v[e];
            acc[i][j].v[e] = 0;
          }
        }
      }
    }
    bar();
  }
  G_UNROLL for (int i = 0; i < TM; i++) {
    G_UNROLL for (int j = 0; j < TN; j++) {
      G_UNROLL for (int e = 0; e < ACC; e++) {
        u32 m = m0 + wm + 16 * i + acc_row(e), c = n0 + wn + 16 * j + acc_col(e);
        if (m >= rows || c >= n) continue;
        float v = total[i][j][e] * (scale[m] / W_SCALE);
        if (bias) v += load_float(bias, bias_type, c);
        if (res) v += res[at(rr, m) + c];
        y[(u64)m * n + c] = v;
      }
    }
  }
}
