// y = x·wᵀ (+ b) (+ r) with weights of f16 or of a block FORMAT on Hopper's asynchronous matrix instructions, for which
// Vulkan's languages have no word: in the dialect of backends/hip/kernels, compiled to PTX, launched by VK_NVX_binary_import.
// A multiprocessor then has 47 KiB of shared memory for all its blocks, so there is one block on it, and activations come to
// registers.
//
// A block gives 128·MT rows of x by 128 of w: two groups of four waves, MT times 64 rows each, and COPIERS that bring w.
// x lies as the registers want it (fragments in forms.glsl): a lane's eight elements of 16 rows by 16 columns follow each
// other. Steps of 32 columns of w go through a ring of STAGES. Of f16 each of four waves has every fourth step, so that
// what it waits for at its fence are its own copies alone; block formats are decoded on the way, by four waves a pair of
// steps (wgmma_decode.h). Loads of x are GROUP steps ahead and in two sets of registers, because the hardware waits for all
// loads of a wave that are under way at once.
#include "prelude.h"
#include "f8wgmma.h"
#include "bulk.h"
#include "tensormap.h"
// the formats of w
#define F16 0
#define Q4_0 1
#define Q8_0 2
#define Q4_K 3
#define Q5_K 4
#define Q6_K 5
#if FORMAT != F16
#include "wgmma_decode.h"
#endif
#define BN 128
#define BK 32
#define STAGES 5
// COPIERS are waves, of which four make a pair of steps of a block format; with AHEAD what they read for their next pair has
// registers of its own. GROUP is how many steps loads of x are ahead. OWN and MAKE are the registers of
// who multiplies and of who copies; where they are equal a block begins with as many.
#if FORMAT == F16
#define COPIERS 4
#define GROUP (4 / MT)
#define OWN 224
#define MAKE 56
#elif FORMAT == Q5_K || FORMAT == Q6_K // which read more
#define COPIERS 4
#define AHEAD 1
#define GROUP 4
#define OWN 168
#define MAKE 168
#elif FORMAT == Q8_0
#define COPIERS 8
#define AHEAD 0
#define GROUP 5
#define OWN 184
#define MAKE 72
#else
#define COPIERS 8
#define AHEAD 0
#define GROUP 6
#define OWN 200
#define MAKE 56
#endif
#define SETS (COPIERS / 4)
#define BM (128 * MT)
#define NT (256 + 32 * COPIERS)
#define STAGE_BYTES (BN * BK * 2)

struct alignas(1024) Kilobyte { u32 w[256]; };

// What is bound, and the constants behind it, as wgmma.go has them. Offsets and strides of y and r are in elements.
struct Product {
  const u8 *w;
  const u16 *x;
  const void *bias;
  const float *r;
  float *y;
  const float *scale; // of rows of x
  u32 rows, n, k;     // of x, of w, columns
  u32 woff, wstride;  // bytes
  u32 blocks;         // of 16 columns in a row of x
  u32 boff, btype;
  u32 roff, rstride, rinner;
  u32 yoff, ystride, yinner;
  u32 cols;           // of a row of y and r
  u32 pairs;          // whether two results can be stored at once
  u32 residual;       // whether there is r
};

// 64 bytes of a row, permuted by the swizzle of 64 bytes: eight rows are 512 bytes
G_FN u64 stage_descriptor(u32 at) { return (u64)(at >> 4 & 0x3fff) | 1ull << 16 | 32ull << 32 | 2ull << 62; }

// 16 bytes that are read once: not kept in the first-level cache, where rows of w are
G_FN u4 load_passing(const u16 *p) {
#if FORMAT == F16
  return *(const u4 *)p;
#else
  u4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
#endif
}

// element i of a vector of f32, f16 or bf16: 1, 2, 3
G_FN float narrow(const void *p, u32 type, u32 i) {
  if (type == 1) return ((const float *)p)[i];
  const u16 h = ((const u16 *)p)[i];
  return type == 2 ? h2f(h) : b2f(h);
}

G_KERNEL G_BOUNDS2(NT, 1) wgmma_product(Product p) {
  __shared__ Kilobyte ring[STAGES * STAGE_BYTES / 1024];
  __shared__ u64 gates[2 * STAGES];
  const u32 base = shared_at(ring), full = shared_at(gates), empty = full + 8 * STAGES, t = tid(), l = t % 32;
  // Some tiles of rows at a time, so that the blocks that run have few rows of either.
  const u32 down = (p.rows + BM - 1) / BM, across = (p.n + BN - 1) / BN, some = 8 / MT;
  const u32 per = some * across, band = bidx() / per, high = g_min(some, down - band * some);
  const u32 m0 = (band * some + bidx() % per % high) * BM, n0 = bidx() % per / high * BN, steps = p.k / BK;
  if (t == 0) {
    G_UNROLL for (u32 s = 0; s < STAGES; s++) arrivals_init(full + 8 * s, FORMAT == F16 ? 32 : 4), arrivals_init(empty + 8 * s, 8);
    arrival_fence();
  }
  bar();
  if (t >= 256) {
#if FORMAT != F16
    if (MAKE < OWN) registers_less<MAKE>();
    const u32 number = t / 32 - 8, left = p.n - n0, part = l % LANES, row = number % 4 * 32 + l / LANES, pairs = (steps + 1) / 2;
    const u8 *from[LANES];
    G_UNROLL for (u32 i = 0; i < LANES; i++) from[i] = p.w + p.woff + (u64)(n0 + g_min(row + i * PASS_ROWS, left - 1)) * p.wstride;
    Raw raw[AHEAD + 1][LANES];
    auto load = [&](Raw &v, u32 i, u32 pair) { v = raw_load(from[i], p.k, g_min(pair, pairs - 1), part); };
    G_UNROLL for (u32 i = 0; i < LANES; i++) load(raw[0][i], i, number / 4);
    u32 stage = number / 4 * 2, phase = 1;
    const auto next = [&] {
      if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    for (u32 p0 = number / 4; p0 < pairs; p0 += SETS * (AHEAD + 1)) {
      G_UNROLL for (u32 set = 0; set <= AHEAD; set++) {
        const u32 pair = p0 + set * SETS;
        if (pair >= pairs) break;
        if (AHEAD) {
          G_UNROLL for (u32 i = 0; i < LANES; i++) load(raw[set ^ 1][i], i, pair + SETS);
        }
        const bool second = 2 * pair + 1 < steps;
        u32 at[2], to[2];
        G_UNROLL for (u32 d = 0; d < 2; d++) {
          at[d] = full + 8 * stage;
          to[d] = base + stage * STAGE_BYTES;
          if (d && !second) break;
          arrival_wait(empty + 8 * stage, phase);
          next();
        }
        G_UNROLL for (u32 i = 0; i < LANES; i++) {
          u32 made[LINES][4];
          raw_make(made, raw[set][i], pair, part);
          if (!AHEAD) load(raw[set][i], i, pair + SETS);
          raw_put(made, to[0], to[1] - to[0], second, row + i * PASS_ROWS, part);
        }
        fence_async();
        wave_sync();
        if (l == 0) arrive_at<1>(at[0], 0);
        if (l == 0 && second) arrive_at<1>(at[1], 0);
        G_UNROLL for (u32 d = 0; d < 2 * (SETS - 1); d++) next();
      }
    }
    return;
#else
    registers_less<MAKE>();
    const u32 number = t / 32 - 8, row = l / 4, left = p.n - n0;
    const u8 *from = p.w + p.woff + (u64)n0 * p.wstride + l % 4 * 16 + number * (2 * BK);
    const u32 to = base + row * 64 + ((l % 4 ^ (row >> 1 & 3)) << 4);
    u32 stage = number, phase = 1;
    for (u32 s = number; s < steps; s += COPIERS) {
      arrival_wait(empty + 8 * stage, phase);
      // where there is no row the last one is taken, for results that are not stored
      G_UNROLL for (u32 i = 0; i < BN / 8; i++) copy16(to + stage * STAGE_BYTES + i * 512, from + (u64)g_min(row + 8 * i, left - 1) * p.wstride, 16);
      from += COPIERS * 2 * BK;
      copies_commit();
      copies_wait<0>();
      fence_async();
      arrive_at<1>(full + 8 * stage, 0);
      stage += COPIERS;
      if (stage >= STAGES) stage -= STAGES, phase ^= 1;
    }
    return;
#endif
  }
  if (MAKE < OWN) registers_more<OWN>();
  const u32 first = t / 128 * 4 * MT + t % 128 / 32, last = (p.rows - 1) / 16; // of 16 rows each; then every fourth
  const u16 *x[MT];
  G_UNROLL for (u32 i = 0; i < MT; i++) x[i] = p.x + (u64)g_min(m0 / 16 + first + 4 * i, last) * p.blocks * 256 + l * 8;
  float acc[MT][BN / 2];
  G_UNROLL for (u32 j = 0; j < MT; j++) {
    G_UNROLL for (u32 i = 0; i < BN / 2; i++) acc[j][i] = 0;
  }
  u4 a[2][GROUP][MT][2];
  auto load = [&](u32 set, u32 s) {
    G_UNROLL for (u32 d = 0; d < GROUP; d++) {
      if (s + d >= steps) break;
      G_UNROLL for (u32 i = 0; i < MT; i++) {
        G_UNROLL for (u32 h = 0; h < 2; h++) a[set][d][i][h] = load_passing(x[i] + (s + d) * 512 + h * 256);
      }
    }
  };
  load(0, 0);
  u32 stage = 0, phase = 0, before = 0;
  for (u32 s0 = 0; s0 < steps; s0 += 2 * GROUP) {
    G_UNROLL for (u32 set = 0; set < 2; set++) {
      G_UNROLL for (u32 d = 0; d < GROUP; d++) {
        const u32 s = s0 + set * GROUP + d;
        if (s >= steps) break;
        arrival_wait(full + 8 * stage, phase);
        const u64 b = stage_descriptor(base + stage * STAGE_BYTES);
        mma_begin();
        G_UNROLL for (u32 i = 0; i < MT; i++) {
          G_UNROLL for (u32 h = 0; h < 2; h++) {
            const u4 v = a[set][d][i][h];
            const u32 part[4] = {v.x, v.y, v.z, v.w};
            wgmma_rs(acc[i], part, b + 2 * h);
          }
        }
        mma_commit();
        mma_wait<1>();
        if (s && l == 0) arrive_at<1>(empty + 8 * before, 0);
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
        if (d == 0) load(set ^ 1, s + GROUP); // the registers of the step before are free
      }
    }
  }
  mma_wait<0>();
  const u32 c0 = n0 + l % 4 * 2; // of the first eight columns, a lane's two
  float up[MT][2];
  G_UNROLL for (u32 i = 0; i < 2 * MT; i++) up[i / 2][i % 2] = p.scale[g_min(m0 + (first + 4 * (i / 2)) * 16 + l / 4 + 8 * (i % 2), p.rows - 1)];
  G_UNROLL for (u32 j = 0; j < BN / 4; j++) { // column j % 2 of eight
    const u32 c = c0 + j / 2 * 8 + j % 2;
    const float b = p.btype && c < p.n ? narrow(p.bias, p.btype, p.boff + c) : 0.0f;
    G_UNROLL for (u32 i = 0; i < 2 * MT; i++) {
      float &v = acc[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2];
      v = g_fma(v, up[i / 2][i % 2], b);
    }
  }
  G_UNROLL for (u32 i = 0; i < 2 * MT; i++) {
    const u32 m = m0 + (first + 4 * (i / 2)) * 16 + l / 4 + 8 * (i % 2);
    if (m >= p.rows) continue;
    float *y = p.y + p.yoff + (u64)(m / p.yinner) * p.ystride + m % p.yinner * p.cols;
    const float *r = p.r + p.roff + (u64)(m / p.rinner) * p.rstride + m % p.rinner * p.cols;
    if (p.pairs) {
      f2 more[BN / 8]; // asked for before anything is stored: for all that the compiler knows it could be the same
      G_UNROLL for (u32 j = 0; j < BN / 8; j++) {
        more[j] = f2{0, 0};
        if (p.residual && c0 + j * 8 < p.n) more[j] = *(const f2 *)(r + c0 + j * 8);
      }
      G_UNROLL for (u32 j = 0; j < BN / 8; j++) {
        const float *v = &acc[i / 2][j * 4 + i % 2 * 2];
        if (c0 + j * 8 < p.n) *(f2 *)(y + c0 + j * 8) = f2{v[0] + more[j].x, v[1] + more[j].y};
      }
      continue;
    }
    G_UNROLL for (u32 j = 0; j < BN / 4; j++) {
      const u32 c = c0 + j / 2 * 8 + j % 2;
      const float v = acc[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2];
      if (c < p.n) y[c] = p.residual ? v + r[c] : v;
    }
  }
}
