// y = x wᵀ for weights of 8-bit floats (e4m3) that are packed once, when they are loaded. The contract:
//   x f32 [rows, K], K a multiple of 16; w e4m3 [N, K], finite; y f32 [rows, N], sums in f32
//   w lies in tiles of 32 rows by 16 columns (tiles: {w: [32, 16]}): row r of a tile is its bytes [16 r, 16 r + 16),
//   tiles of the same rows follow each other, rows beyond N are zero
//   a block has 32 WAVES threads and computes 32 columns of y for one row of x; grid [ceil(N/32), rows]
#include "prelude.h"

// The bits of e4m3, moved to where f32 has them, are its value times 2^-120, denormal ones too.
G_FN float e4m3(u32 b) { return u2f((b & 0x80u) << 24 | (b & 0x7fu) << 20) * 0x1p120f; }

G_KERNEL G_BOUNDS(32 * WAVES) fp8(const float *x, const u4 *w, float *y, int n, int k) {
  __shared__ float parts[WAVES][32];
  const u32 lane = tid() % 32, wave = tid() / 32, tiles = k / 16, col = bidx() * 32 + lane;
  x += (u64)bidy() * k;
  w += (u64)bidx() * tiles * 32; // 32 pieces of 16 bytes a tile: a wave reads 512 bytes that follow each other
  float sum = 0;
  for (u32 t = wave; t < tiles; t += WAVES) {
    const u4 q = w[t * 32 + lane];
    const u32 words[4] = {q.x, q.y, q.z, q.w};
    const float *a = x + 16 * t;
    G_UNROLL for (u32 i = 0; i < 16; i++) sum += a[i] * e4m3(words[i / 4] >> (8 * (i % 4)) & 255u);
  }
  parts[wave][lane] = sum;
  bar();
  if (wave > 0 || col >= (u32)n) return;
  G_UNROLL for (u32 i = 1; i < WAVES; i++) sum += parts[i][lane];
  y[(u64)bidy() * n + col] = sum;
}
