// y = x·wᵀ·scale (+ b) (+ r) for many rows with weights of 8-bit floats, on Hopper's
// tensor cores: the instruction takes one of its operands from registers, so weights
// are decoded where they are multiplied and cross shared memory as bytes.
//
// w lies as [K/16, N, 16]: 16 elements of a row together, rows one after another, k
// padded with zeros to whole steps of 128. x comes from f8_rows as [K/64, M, 64] halves,
// each row with the factor that undoes its scaling, in the order and with the swizzle
// that shared memory wants: a step of a tile is one range of bytes, and one of each
// 16 elements of w, which one thread asks for (bulk copies).
//
// With FP8 x is rounded to e4m3 too, as [K/128, M, 128] bytes, and fp8 instructions multiply what lies in
// shared memory: nothing is decoded.
//
// A block gives BM rows of x by BN of w, as rows of w by columns of x: a group of four
// waves multiplies 64 rows of w at a time, REPEAT_N times; one wave more asks for copies, in a group that
// leaves its registers to the others. Blocks take tile after tile: the first stages of one are copied while
// the sums of the one before are stored. With PAIRED half of a tile's rows are of w, the others the same ones of
// w2, and what is stored is a function of both products. With SPLITS blocks share a tile's steps; the last one to finish adds
// the parts, in their order.
#include "prelude.h"
#include "norm.h"
#if ROWS
#include "scale.h"
#define NT NORM_NT
#define TOP (FP8 ? 7 : 13) // exponent of a row's largest element

#if FP8
#include "cvt8.h"
// puts elements i … i+3 of row r, i a multiple of 4
G_FN void put4(void *out, u64 rows, u32 r, u32 i, f4 v, float up) {
  char *const line = (char *)out + ((u64)(i / 128) * rows + r) * 128;
  *(u32 *)(line + (i % 128 ^ (r & 7) << 4)) = four_e4m3(v.x * up, v.y * up, v.z * up, v.w * up);
}
#else
struct alignas(4) two16 { u16 c[2]; };
// puts elements i … i+3 of row r, i a multiple of 4. Of 64 elements line q of 16 goes to
// lanes q of a quad, which multiply four of them at a time.
G_FN void put4(void *out, u64 rows, u32 r, u32 i, f4 v, float up) {
  const u32 q = i / 16 % 4, p = 32 * (i / 4 % 4) + 4 * q; // bytes
  char *const line = (char *)out + ((u64)(i / 64) * rows + r) * 128;
  *(two16 *)(line + (p ^ (r & 7) << 4)) = two16{{f2h(v.x * up), f2h(v.y * up)}};
  *(two16 *)(line + ((p + 16) ^ (r & 7) << 4)) = two16{{f2h(v.z * up), f2h(v.w * up)}};
}
#endif

G_FN bool finite(float v) { return (f2u(v) & 0x7f800000) != 0x7f800000; }

#if X_F16
typedef u16 x_elem;
G_FN float x_float(u16 h) { return h2f(h); }
#else
typedef float x_elem;
G_FN float x_float(float v) { return v; }
#endif

// Rounds rows of x: a block a row, of all that there are places for. Where an element is no finite number,
// e4m3 would make it one: the row's factor is NaN then.
// With NORM they are rmsnorm(x, nw), which goes to h too where that is not null, with the bits that norm.hip gives.
G_KERNEL G_BOUNDS(NT) f8_rows(void *out, float *factor, const x_elem *x, Rows xr, u32 rows, u32 places, u32 kp,
                              const void *nw, u32 ntype, float eps, float *h) {
  __shared__ float red[NT / G_WAVE];
  begin_next();
  wait_previous();
  const u32 r = bidx(), k = r < rows ? xr.cols : 0;
  const x_elem *a = x + (r < rows ? at(xr, r) : 0);
  f4 keep[KEEP];
  float top = 0;
#if NORM
  const float by = r < rows ? norm_factor<NT>(a, nullptr, k, eps, red) : 0.0f;
  if (h) h += (u64)r * k;
#endif
  auto load = [&](u32 i) {
    f4 v = f4{0, 0, 0, 0};
#if X_SCALAR
    v.x = i < k ? x_float(a[i]) : 0.0f;
    v.y = i + 1 < k ? x_float(a[i + 1]) : 0.0f;
    v.z = i + 2 < k ? x_float(a[i + 2]) : 0.0f;
    v.w = i + 3 < k ? x_float(a[i + 3]) : 0.0f;
#elif X_F16
    if (i < k) {
      const u2 h = *(const u2 *)(a + i);
      v = f4{h2f((u16)h.x), h2f((u16)(h.x >> 16)), h2f((u16)h.y), h2f((u16)(h.y >> 16))};
    }
#else
    if (i < k) v = *(const f4 *)(a + i);
#if NORM
    if (i < k) v = norm_by(v, norm_weights(nw, ntype, i), by);
#endif
#endif
    return v;
  };
  auto largest = [&](f4 v) {
    top = g_max(top, g_max(g_max(g_abs(v.x), g_abs(v.y)), g_max(g_abs(v.z), g_abs(v.w))));
    if (FP8 && !(finite(v.x) && finite(v.y) && finite(v.z) && finite(v.w))) top = u2f(0x7f800000);
  };
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    keep[j] = load(i);
    largest(keep[j]);
    if (NORM && h && i < k) *(f4 *)(h + i) = keep[j];
  }
  for (u32 i = 4 * (tid() + KEEP * NT); i < k; i += 4 * NT) {
    const f4 v = load(i);
    largest(v);
    if (NORM && h) *(f4 *)(h + i) = v;
  }
  top = block_max<NT>(top, red);
  const float up = scale_for<TOP>(top);
  if (tid() == 0) factor[r] = FP8 && f2u(top) == 0x7f800000 ? u2f(0x7fc00000) : 1.0f / up;
  G_UNROLL for (u32 j = 0; j < KEEP; j++) {
    const u32 i = 4 * (tid() + j * NT);
    if (i < kp) put4(out, places, r, i, keep[j], up);
  }
  for (u32 i = 4 * (tid() + KEEP * NT); i < kp; i += 4 * NT) put4(out, places, r, i, load(i), up);
}

#else
#include "weights.h"
#include "wgmma.h"
#if FP8
#define F8_DOWN 0
#include "f8mma.h"
#else
#include "f8.h"
#include "f8wgmma.h"
#endif
#include "tensormap.h"
#include "pair.h"
#define GROUPS (WARPS_N / 4)
#define NT (WARPS_N * 32) // threads that multiply
#if GROUPS < 2 || GROUPS > 4
#error "WARPS_N is 8, 12 or 16"
#endif
#define COPYING 128              // threads of the group of the wave that asks for copies
// Registers of either: together no more than threads are launched with, 168, 128 or 96.
#define FEWER (GROUPS == 2 ? 40 : 32)
#define MORE (GROUPS == 2 ? 232 : GROUPS == 3 ? 160 : 112)
#define BM (16 * REPEAT_M)
#define BN (16 * WARPS_N * REPEAT_N)
#if PAIRED && REPEAT_N != 2
#error "a pair is two times the rows of all waves"
#endif
#define COLUMNS (BN / (PAIRED ? 2 : 1)) // of y
#define BAND (FP8 ? 16 : 8) // rows of tiles
#define LINES (FP8 ? 8 : 4)      // of 16 elements of w in a slot, by x's elements in 128 bytes
#define HALVES (UNROLL_K / LINES) // slots in a stage, 1 or 2
#define SLOTS (STAGES * HALVES)
#define TURN (FP8 ? 1 : 2)       // slots by which the loop goes on
#define X_SLOT (BM * 128)        // bytes of x in a slot
#define W_LINE (BN * 16 + (FP8 ? 0 : 32)) // of 16 elements of w; where lanes read them, four begin at different banks
#define SLOT_BYTES (BN * 16 * LINES + X_SLOT)

// The barriers of stages by number: a wave says that it was there, or waits for all the others.
G_FN void barrier_arrive(u32 number) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(NT + G_WAVE) : "memory"); }
G_FN void barrier_wait(u32 number) { asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(NT + G_WAVE) : "memory"); }
// bar() of the threads that multiply, and one that says whether it was so for any of them
G_FN void bar_nt() { asm volatile("bar.sync 0, %0;" ::"n"(NT) : "memory"); }
G_FN bool bar_any(bool so) {
  u32 r;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 0, %2, p; selp.u32 %0, 1, 0, q; }" : "=r"(r) : "r"((u32)so), "n"(NT) : "memory");
  return r;
}
#if !FP8
G_FN u4 load_shared(u32 at) {
  u4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
  return v;
}

// the weights of 64 rows by 64 elements: a lane has 16 of two rows
struct Frags { u32 r[4][4]; };
G_FN void decode(Frags &f, u32 at) {
  const u4 a = load_shared(at), b = load_shared(at + 8 * 16);
  const u32 lo[4] = {a.x, a.y, a.z, a.w}, hi[4] = {b.x, b.y, b.z, b.w};
  G_UNROLL for (int j = 0; j < 4; j++) {
    f.r[j][0] = f8_halves(lo[j], 0);
    f.r[j][1] = f8_halves(hi[j], 0);
    f.r[j][2] = f8_halves(lo[j], 1);
    f.r[j][3] = f8_halves(hi[j], 1);
  }
}
#endif

// where a block's slots of a tile begin in global memory
struct Source {
  const u8 *w, *w2;
  const u16 *x;
};

// a product that no addition behind it is fused with, so that launches that are joined give the bits of single ones
G_FN float multiplied(float a, float b) {
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// the ring of stages in shared memory: that of x first, in lines of 1024 bytes
struct Ring {
  u32 x, w, full;          // where they begin; of a stage's barriers: it is there
  u64 line_w, step_x;      // bytes from 16 elements of w to the next, and elements of x from slot to slot
  u32 again;               // stages that are still filled again
  u32 freed;               // the stage that is given free next

  G_FN_IN u32 x_at(u32 slot) const { return x + slot * X_SLOT; }
  G_FN_IN u32 w_at(u32 slot) const { return w + slot * (LINES * W_LINE); }
  // ask for the weights of stage s of a source, for its x
  G_FN_IN void ask_w(const Source &from, u32 s, u32 stage) const {
    G_UNROLL for (u32 i = 0; i < LINES * HALVES; i++) {
      const u32 to = w_at(stage * HALVES + i / LINES) + i % LINES * W_LINE;
      const u64 at = (s * (LINES * HALVES) + i) * line_w;
      bulk_copy(to, from.w + at, COLUMNS * 16, full + 8 * stage);
      if (PAIRED) bulk_copy(to + COLUMNS * 16, from.w2 + at, COLUMNS * 16, full + 8 * stage);
    }
  }
  G_FN_IN void ask_x(const Source &from, u32 s, u32 stage) const {
    G_UNROLL for (u32 h = 0; h < HALVES; h++)
      bulk_copy(x_at(stage * HALVES + h), from.x + (s * HALVES + h) * step_x, X_SLOT, full + 8 * stage);
    arrival_expect(full + 8 * stage, HALVES * SLOT_BYTES); // behind the copies: the phase cannot end before
  }
  // Behind a stage: its shared memory is given free, if it is filled again. Barrier 1 + i is that of
  // stage i. What waves read is ordered by barriers of theirs, not of one lane, for racecheck to see it.
  G_FN_IN void release() {
    if (again) {
      barrier_arrive(1 + freed);
      again--;
    }
    if (++freed == STAGES) freed = 0;
  }
};

typedef float Sums[REPEAT_N][BM / 2];
#if !FP8
typedef Frags Weights64[REPEAT_N];
G_FN void load(Weights64 &f, u32 at) {
  G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) decode(f[i], at + i * (GROUPS * 64 * 16));
}
G_FN void multiply(Sums &acc, const Weights64 &f, u32 at) {
  const u64 d = tile_descriptor(at);
  mma_begin();
  G_UNROLL for (u32 j = 0; j < 4; j++) {
    G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) wgmma_rs(acc[i], f[i].r[j], d + 2 * j);
  }
  mma_commit();
}
#endif

G_KERNEL G_BOUNDS2(NT + COPYING, RESIDENT)
    f8_gemm(const u16 *x, const float *xfactor, u32 places, u32 rows, const u8 *w, u32 wrows, u32 n, u32 slots, const float *scale,
            u32 scales, const void *bias, const float *res, Rows rr, void *y, u32 rowtiles, u32 coltiles, float *parts, u32 *counters,
            const u8 *w2, const float *scale2, const void *bias2) {
  extern __shared__ u4 shared_memory[];
  __shared__ u64 arrivals[STAGES];
  begin_next();
  const u32 t = tid(), l = lane(), group = t / 128, wave = t % 128 / 32, tiles = rowtiles * coltiles;
  // this block's share of the slots
  const u32 first = (u32)((u64)(slots / TURN) * bidy() / SPLITS) * TURN, count = (u32)((u64)(slots / TURN) * (bidy() + 1) / SPLITS) * TURN - first;
  const u32 stages = count / HALVES, filled = stages * ((tiles - bidx() + gdimx() - 1) / gdimx());
  Ring ring;
  ring.x = tiles_at(shared_memory);
  ring.w = ring.x + SLOTS * X_SLOT;
  ring.full = shared_at(arrivals);
  ring.line_w = (u64)wrows * 16;
  ring.step_x = (u64)places * 64;
  ring.again = filled < STAGES ? 0 : filled - STAGES;
  ring.freed = 0;
  // Some rows of tiles at a time, so that the blocks that run have few rows of either.
  auto place = [&](u32 number, u32 &m0, u32 &n0) {
    const u32 per = BAND * coltiles, band = number / per, high = g_min(BAND, rowtiles - band * BAND);
    m0 = (band * BAND + number % per % high) * BM;
    n0 = number % per / high * COLUMNS;
  };
  if (t == 0) {
    G_UNROLL for (u32 i = 0; i < STAGES; i++) arrival_init(ring.full + 8 * i);
    arrival_fence();
  }
  bar();
  if (t >= NT) {
    registers_less<FEWER>();
    if (t >= NT + G_WAVE) return;
    // weights of the first tile are there before x
    const u32 early = g_min(STAGES, stages);
    u32 asked = 0, stage = 0;
    for (u32 number = bidx(); number < tiles; number += gdimx()) {
      u32 m0, n0;
      place(number, m0, n0);
      const u64 at = first * LINES * ring.line_w + n0 * 16;
      const Source from = {w + at, w2 + at, x + first * ring.step_x + (u64)m0 * 64};
      if (asked == 0) {
        if (l == 0) {
          for (u32 s = 0; s < early; s++) ring.ask_w(from, s, s);
        }
        wait_previous();
      }
      for (u32 s = 0; s < stages; s++, asked++) {
        if (asked >= STAGES) barrier_wait(1 + stage);
        if (l == 0) {
          if (asked >= early) ring.ask_w(from, s, stage);
          ring.ask_x(from, s, stage);
        }
        wave_sync();
        if (++stage == STAGES) stage = 0;
      }
    }
    return;
  }
  registers_more<MORE>();
  wait_previous();
  u32 slot = 0, phase = 0; // which is multiplied
#if FP8
  float part[BM / 2] = {}; // of a slot
#else
  const u32 mine = l % 4 * W_LINE + (group * 64 + wave * 16 + l / 4) * 16; // a lane's weights in a slot
#endif
  for (u32 number = bidx(); number < tiles; number += gdimx()) {
    Sums acc;
    G_UNROLL for (int i = 0; i < REPEAT_N; i++) {
      G_UNROLL for (int j = 0; j < BM / 2; j++) acc[i][j] = 0;
    }
#if FP8
    for (u32 s = 0; s < count; s++) {
      arrival_wait(ring.full + 8 * slot, phase);
      const u64 b = tile_descriptor(ring.x_at(slot));
      // One group's sums are added while another one's instructions run.
      G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) {
        const u64 a = lines_descriptor(ring.w_at(slot) + (i * GROUPS + group) * (64 * 16), W_LINE);
        mma_begin();
        G_UNROLL for (u32 j = 0; j < 4; j++) wgmma_f8(part, a + j * (2 * W_LINE >> 4), b + 2 * j, j);
        mma_commit();
        mma_wait<0>();
        G_UNROLL for (u32 j = 0; j < BM / 2; j++) acc[i][j] += part[j];
      }
      ring.release();
      if (++slot == SLOTS) {
        slot = 0;
        phase ^= 1;
      }
    }
#else
    // One slot is multiplied while the next one is decoded.
    Weights64 even, odd;
    if (count) {
      arrival_wait(ring.full + 8 * (slot / HALVES), phase);
      load(even, ring.w_at(slot) + mine);
    }
    for (u32 s = 0; s < count; s += 2) {
      multiply(acc, even, ring.x_at(slot));
      if (s > 0) {
        mma_wait<1>();
        ring.release();
      }
      if (++slot == SLOTS) {
        slot = 0;
        phase ^= 1;
      }
      if (HALVES == 1) arrival_wait(ring.full + 8 * slot, phase);
      load(odd, ring.w_at(slot) + mine);
      multiply(acc, odd, ring.x_at(slot));
      mma_wait<1>();
      if (HALVES == 1) ring.release();
      if (++slot == SLOTS) {
        slot = 0;
        phase ^= 1;
      }
      if (s + 2 < count) {
        arrival_wait(ring.full + 8 * (slot / HALVES), phase);
        load(even, ring.w_at(slot) + mine);
      }
    }
    mma_wait<0>();
    ring.release();
#endif
#if SPLITS > 1
    // Parts lie as threads hold them. Whoever comes last adds all of a tile's.
    float *const part = parts + (u64)number * SPLITS * (BM * BN) + t;
    G_UNROLL for (int i = 0; i < REPEAT_N; i++) {
      G_UNROLL for (int j = 0; j < BM / 2; j++) part[(u64)bidy() * (BM * BN) + (i * (BM / 2) + j) * NT] = acc[i][j];
    }
    fence_device();
    bar_nt();
    const bool last = t == 0 && count_up(counters + number) == SPLITS - 1;
    if (last) counters[number] = 0;
    if (!bar_any(last)) continue;
    fence_device();
    G_UNROLL for (int i = 0; i < REPEAT_N; i++) {
      G_UNROLL for (int j = 0; j < BM / 2; j++) {
        float v = 0;
        for (u32 s = 0; s < SPLITS; s++) v += part[(u64)s * (BM * BN) + (i * (BM / 2) + j) * NT];
        acc[i][j] = v;
      }
    }
#endif
    u32 m0, n0;
    place(number, m0, n0);
    const u32 c0 = n0 + group * 64 + wave * 16 + l / 4, apart = PAIRED ? 0 : GROUPS * 64;
    float by[REPEAT_N][2], plus[REPEAT_N][2];
    G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) {
      G_UNROLL for (u32 h = 0; h < 2; h++) {
        const u32 c = c0 + i * apart + 8 * h;
        by[i][h] = u2f((127 + F8_DOWN) << 23) * (scales && c < n ? (PAIRED && i ? scale2 : scale)[c] : 1.0f);
        plus[i][h] = BIAS && c < n ? load_float(PAIRED && i ? bias2 : bias, BIAS - 1, c) : 0.0f;
      }
    }
    G_UNROLL for (u32 j = 0; j < BM / 8; j++) {
      G_UNROLL for (u32 e = 0; e < 2; e++) {
        const u32 m = m0 + 8 * j + l % 4 * 2 + e;
        if (m >= rows) continue;
        const float factor = xfactor[m];
        auto value = [&](u32 i, u32 h) {
          const float v = multiplied(acc[i][j * 4 + h * 2 + e] * factor, by[i][h]);
          return BIAS ? v + plus[i][h] : v;
        };
#if PAIRED
        G_UNROLL for (u32 h = 0; h < 2; h++) {
          if (c0 + 8 * h < n) store_float(y, OUT, (u64)m * n + c0 + 8 * h, PAIRED_OF(value(0, h), value(1, h)));
        }
#else
        float more[REPEAT_N][2];
        G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) {
          G_UNROLL for (u32 h = 0; h < 2; h++) {
            const u32 c = c0 + i * apart + 8 * h;
            more[i][h] = res && c < n ? res[at(rr, m) + c] : 0.0f;
          }
        }
        G_UNROLL for (u32 i = 0; i < REPEAT_N; i++) {
          G_UNROLL for (u32 h = 0; h < 2; h++) {
            const u32 c = c0 + i * apart + 8 * h;
            float v = value(i, h);
            if (res) v += more[i][h];
            if (c < n) store_float(y, OUT, (u64)m * n + c, v);
          }
        }
#endif
      }
    }
  }
}
#endif
