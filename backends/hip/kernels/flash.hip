// Attention of many queries on tensor cores (mma.sync, from sm_80 on), caches in
// f16: y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j] over the positions up to each
// token's own, online, tile by tile (Dao et al., arXiv 2205.14135). A block has 64
// queries of one key/value head, the query index being token · share + head; a wave
// has 16. Tiles of 64 positions go through two stages of shared memory; those that
// no query of the block sees are left out.
//
// Results are as exact as attention.hip's: keys and values are halves already, and
// queries and weights are divided in two parts of f16, which hold 22 bits.
//
// Compile time: DH, DV elements of a head of keys and values, CAP with softcap.
#include "prelude.h"
#include "ldmatrix.h"
#define NT 128
#define QUERIES 64
#define TILE 64
#define KS (DH / 16) // steps over a key
#define VN (DV / 16) // pairs of eight columns of values
#define K_BYTES (TILE * (DH * 2 + 16))
#define STAGE (K_BYTES + TILE * (DV * 2 + 16))

// where line c of 16 bytes of a row of W halves lies; a line more than a row has
// keeps eight rows on different banks
template <int W> G_FN u32 line_at(u32 row, u32 c) { return row * (W * 2 + 16) + c * 16; }

template <int W> G_FN void copy_tile(u32 to, const u16 *from, u32 stride, u32 j0, u32 end) {
  for (u32 i = tid(); i < TILE * (W / 8); i += NT) {
    const u32 row = i / (W / 8), c = i % (W / 8);
    const bool real = j0 + row < end;
    copy16(to + line_at<W>(row, c), from + (u64)(real ? j0 + row : j0) * stride + c * 8, real ? 16 : 0);
  }
}

// two parts of a pair of numbers
G_FN void divide(float a, float b, u32 &high, u32 &low) {
  high = pack_halves(a, b);
  low = pack_halves(a - h2f((u16)high), b - h2f((u16)(high >> 16)));
}

G_KERNEL G_BOUNDS2(NT, 2) flash(float *y, const float *q, u32 qstride, const u16 *kc, u32 kstride, const u16 *vc, u32 vstride,
                                const int *pos, u32 positions, u32 tokens, u32 heads, u32 groups, float scale, float cap,
                                u32 window, u32 *status, u32 launch) {
  extern __shared__ u4 shared_memory[];
  begin_next();
  wait_previous();
  const u32 base = shared_at(shared_memory), l = lane(), wave = tid() / 32, g = bidy();
  const u32 share = heads / groups, queries = tokens * share;
  // Later queries see more positions: they come first, so that blocks end evenly.
  const u32 q0 = ((queries + QUERIES - 1) / QUERIES - 1 - bidx()) * QUERIES;
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
  kc += g * DH;
  vc += g * DV;
  copy_tile<DH>(base, kc, kstride, first, end);
  copy_tile<DV>(base + K_BYTES, vc, vstride, first, end);
  copies_commit();

  // A lane has rows l/4 and l/4 + 8 of its wave's queries.
  u32 qi[2], qfrom[2], qend[2];
  u32 qh[KS][4], ql[KS][4];
  G_UNROLL for (u32 r = 0; r < 2; r++) {
    qi[r] = q0 + wave * 16 + l / 4 + 8 * r;
    const u32 c = g_min(qi[r], queries - 1), s = c / share;
    const int p = pos[s];
    qend[r] = p < 0 || (u32)p >= positions ? 1 : (u32)p + 1;
    qfrom[r] = window && qend[r] > window ? qend[r] - window : 0;
    const float *src = q + (u64)s * qstride + (g * share + c % share) * DH + l % 4 * 2;
    G_UNROLL for (u32 k = 0; k < KS; k++) {
      G_UNROLL for (u32 h = 0; h < 2; h++)
        divide(src[k * 16 + h * 8] * scale, src[k * 16 + h * 8 + 1] * scale, qh[k][h * 2 + r], ql[k][h * 2 + r]);
    }
  }
  float acc[2 * VN][4], m[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0, 0};
  G_UNROLL for (u32 n = 0; n < 2 * VN; n++) {
    G_UNROLL for (u32 e = 0; e < 4; e++) acc[n][e] = 0;
  }
  u32 stage = 0;
  for (u32 j0 = first; j0 < end; j0 += TILE, stage ^= 1) {
    const u32 keys = base + stage * STAGE, values = keys + K_BYTES;
    copies_wait<0>();
    bar(); // the tile is there, and the other stage is no longer read
    if (j0 + TILE < end) {
      copy_tile<DH>(base + (stage ^ 1) * STAGE, kc, kstride, j0 + TILE, end);
      copy_tile<DV>(base + (stage ^ 1) * STAGE + K_BYTES, vc, vstride, j0 + TILE, end);
    }
    copies_commit();
    float s[TILE / 8][4];
    G_UNROLL for (u32 n = 0; n < TILE / 8; n++) {
      G_UNROLL for (u32 e = 0; e < 4; e++) s[n][e] = 0;
    }
    G_UNROLL for (u32 k = 0; k < KS; k++) {
      G_UNROLL for (u32 n = 0; n < TILE / 16; n++) {
        u32 b[4];
        ldmatrix(b, keys + line_at<DH>(n * 16 + l / 16 * 8 + l % 8, k * 2 + l / 8 % 2));
        mma16(s[2 * n], ql[k], b[0], b[1]);
        mma16(s[2 * n], qh[k], b[0], b[1]);
        mma16(s[2 * n + 1], ql[k], b[2], b[3]);
        mma16(s[2 * n + 1], qh[k], b[2], b[3]);
      }
    }
    if (CAP) {
      G_UNROLL for (u32 n = 0; n < TILE / 8; n++) {
        G_UNROLL for (u32 e = 0; e < 4; e++) s[n][e] = cap * g_tanh(s[n][e] / cap);
      }
    }
    if (j0 < all_from || j0 + TILE > all_end) {
      G_UNROLL for (u32 n = 0; n < TILE / 8; n++) {
        G_UNROLL for (u32 e = 0; e < 4; e++) {
          const u32 j = j0 + n * 8 + l % 4 * 2 + e % 2;
          if (j < qfrom[e / 2] || j >= qend[e / 2]) s[n][e] = -3.0e38f;
        }
      }
    }
    G_UNROLL for (u32 r = 0; r < 2; r++) {
      float top = m[r];
      G_UNROLL for (u32 n = 0; n < TILE / 8; n++) top = g_max(top, g_max(s[n][2 * r], s[n][2 * r + 1]));
      top = g_max(top, shfl_xor(top, 1));
      top = g_max(top, shfl_xor(top, 2));
      const float c = g_exp(m[r] - top);
      m[r] = top;
      sum[r] *= c;
      G_UNROLL for (u32 n = 0; n < 2 * VN; n++) {
        acc[n][2 * r] *= c;
        acc[n][2 * r + 1] *= c;
      }
      G_UNROLL for (u32 n = 0; n < TILE / 8; n++) {
        G_UNROLL for (u32 e = 0; e < 2; e++) {
          float &v = s[n][2 * r + e];
          v = v < -2.0e38f ? 0.0f : g_exp(v - top); // also where a row has seen nothing yet
          sum[r] += v;
        }
      }
    }
    G_UNROLL for (u32 k = 0; k < TILE / 16; k++) {
      u32 ph[4], pl[4];
      divide(s[2 * k][0], s[2 * k][1], ph[0], pl[0]);
      divide(s[2 * k][2], s[2 * k][3], ph[1], pl[1]);
      divide(s[2 * k + 1][0], s[2 * k + 1][1], ph[2], pl[2]);
      divide(s[2 * k + 1][2], s[2 * k + 1][3], ph[3], pl[3]);
      G_UNROLL for (u32 n = 0; n < VN; n++) {
        u32 b[4];
        ldmatrix_turned(b, values + line_at<DV>(k * 16 + l / 8 % 2 * 8 + l % 8, n * 2 + l / 16));
        mma16(acc[2 * n], pl, b[0], b[1]);
        mma16(acc[2 * n], ph, b[0], b[1]);
        mma16(acc[2 * n + 1], pl, b[2], b[3]);
        mma16(acc[2 * n + 1], ph, b[2], b[3]);
      }
    }
  }
  G_UNROLL for (u32 r = 0; r < 2; r++) {
    sum[r] += shfl_xor(sum[r], 1);
    sum[r] += shfl_xor(sum[r], 2);
    if (qi[r] >= queries) continue;
    const float by = 1.0f / sum[r];
    float *dst = y + ((u64)(qi[r] / share) * heads + g * share + qi[r] % share) * DV + l % 4 * 2;
    G_UNROLL for (u32 n = 0; n < 2 * VN; n++) {
      dst[n * 8] = acc[n][2 * r] * by;
      dst[n * 8 + 1] = acc[n][2 * r + 1] * by;
    }
  }
}
