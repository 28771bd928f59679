// Attention of few rows, each with its own positions, by matrix instructions (mma.sync, from
// sm_80 on), caches in f16 or bf16, one sequence's or in pages:
// y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j], online over the positions that row s sees.
//
// The work is counted in units of UNIT positions of one row and key/value head, and all units
// of all rows are divided evenly among the blocks, whatever the rows' lengths: a block has a
// range of units, which begins and ends anywhere. Where a row's positions lie in several
// blocks, each keeps its sums, and the last of them to finish puts them together.
//
// All queries of a key/value head, up to MOST, share what is read: they are the rows 0 to 7 of
// a matrix instruction's 16, and as queries and weights are divided in two parts of f16,
// which hold 22 bits, the low parts are the rows 8 to 15. With bf16 there is a third part, for 24
// bits, which are the rows 0 to 7 of a second instruction. A wave has its own ring of tiles of 16
// positions in shared memory, which it fills by asynchronous copies: no wave waits for another.
//
// Compile time: DH elements of a head, a multiple of 16; BF16 caches of bf16, else of f16; PAGE positions of a
// page, a multiple of 16, 0 for one cache; STAGES tiles of a ring; CAP with softcap.
#include "prelude.h"
#include "ldmatrix.h"
#define WAVES 4
#define NT (32 * WAVES)
#define TILE 16
#define UNIT (WAVES * TILE)
#define MOST 8
#define ROWS 512        // rows of a launch at most
#define LINES (DH / 8)  // of 16 bytes in a row
#define KS (DH / 16)    // steps over a key
#define SWAPS (LINES % 8 == 0) // lines change places, else rows have one more where their number is even
#define ROW_BYTES ((SWAPS ? LINES : LINES | 1) * 16)
#define K_BYTES (TILE * ROW_BYTES)
#define PARTS (BF16 ? 3 : 2)
#define SHARED_Q (DH > 128) // queries lie in shared memory, not in registers
#define STAGE (2 * K_BYTES)
#define RING (STAGES * STAGE)
#define ASKED (TILE * LINES / 32) // lines of a tile that a lane copies
#define PART (DH + 4)   // sums of a query, its largest score and the sum of its weights
#define ONCE 8          // parts that a thread reads at once
#define LOG2_E 1.44269504f
#define UNSEEN -3.0e38f // a score beside LEAST, a row's largest at first, weighs nothing
#define LEAST -1.0e30f

G_FN void wave_bar() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
G_FN bool some_lane(bool v) {
  u32 r;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"((u32)v));
  return r;
}
// the parts of a pair of numbers, the highest first
G_FN void divide(float a, float b, u32 (&parts)[PARTS]) {
#if BF16
  G_UNROLL for (u32 i = 0; i < PARTS; i++) {
    parts[i] = pack_bfloats(a, b);
    a -= b2f((u16)parts[i]);
    b -= b2f((u16)(parts[i] >> 16));
  }
#else
  parts[0] = pack_halves(a, b);
  parts[1] = pack_halves(a - h2f((u16)parts[0]), b - h2f((u16)(parts[0] >> 16)));
#endif
}
// Numbers of eight queries, in the order of a matrix instruction's operand, parts of the first two pairs of a lane's
// elements, then of the last two.
struct Eight {
  u32 r[2 * PARTS];
  G_FN_IN void set(float a, float b, float c, float d) {
    u32 first[PARTS], last[PARTS];
    divide(a, b, first);
    divide(c, d, last);
    G_UNROLL for (u32 i = 0; i < PARTS; i++) {
      r[i / 2 * 4 + i % 2] = first[i];
      r[i / 2 * 4 + (i < 2 ? 2 : 1) + i % 2] = last[i];
    }
  }
  // d += a product with 16 by 8 numbers
  G_FN_IN void times(float *d, u32 b0, u32 b1) const {
    const u32 a[4] = {r[0], r[1], r[2], r[3]};
#if BF16
    const u32 low[4] = {r[4], 0, r[5], 0};
    mma16b(d, low, b0, b1);
    mma16b(d, a, b0, b1);
#else
    mma16(d, a, b0, b1);
#endif
  }
};
// where a line of a tile's row lies, so that eight rows' lines are on different banks
G_FN u32 line_at(u32 row, u32 c) { return row * ROW_BYTES + (SWAPS ? c ^ row % 8 : c) * 16; }

// The positions that a row sees, from a multiple of TILE on.
struct Seen { u32 from, low, end, units; };
G_FN Seen seen(int last, u32 window) {
  Seen s;
  s.end = (u32)last + 1;
  s.from = window && s.end > window ? s.end - window : 0;
  s.low = s.from / TILE * TILE;
  s.units = (s.end - s.low + UNIT - 1) / UNIT;
  return s;
}

// How units are divided: block b has those from first(b) on, and of(u) is who has unit u.
struct Division {
  u32 total, blocks;
  G_FN_IN u32 first(u32 b) const { return (u32)((u64)b * total / blocks); }
  G_FN_IN u32 of(u32 u) const { return (u32)(((u64)(u + 1) * blocks - 1) / total); }
};

// the keys and values of a key/value head
struct Cache {
  const u16 *k, *v;
  u32 kstride, vstride, end;
  const int *table; // of the row, with PAGE
  u32 pages;
  // the row where position j, a multiple of TILE, lies
  G_FN_IN u32 row(u32 j) const {
#if PAGE
    return j < end ? g_min((u32)table[j / PAGE], pages - 1) * PAGE + j % PAGE : 0;
#else
    return j;
#endif
  }
  // asks for the tile of positions j to j + 15, which lies from a row on; zeros from end on
  G_FN_IN void ask(u32 to, u32 j, u32 row) const {
    const u32 left = j < end ? end - j : 0;
    G_UNROLL for (u32 i = 0; i < ASKED; i++) {
      const u32 at = i * 32 + lane(), n = at / LINES, c = at % LINES, size = n < left ? 16 : 0;
      const u64 r = n < left ? row + n : 0;
      const u16 *const key = k + r * kstride + c * 8, *const value = v + r * vstride + c * 8;
      if (DH % 64) {
        copy16_alone(to + line_at(n, c), key, size);
        copy16_alone(to + K_BYTES + line_at(n, c), value, size);
      } else {
        copy16(to + line_at(n, c), key, size);
        copy16(to + K_BYTES + line_at(n, c), value, size);
      }
    }
  }
};

// A block's queries: in registers, or as a tile of their parts' rows in shared memory.
struct Queries {
#if SHARED_Q
  u32 tile;
  G_FN_IN Eight at(u32 k) const {
    const u32 w = lane();
    u32 a[4];
    ldmatrix(a, tile + line_at(w % 16, k * 2 + w / 16));
    Eight e;
    G_UNROLL for (u32 i = 0; i < 4; i++) e.r[i] = a[i];
#if BF16
    u32 low[2];
    ldmatrix_two(low, tile + line_at(16 + w % 8, k * 2 + w / 8 % 2));
    e.r[4] = low[0];
    e.r[5] = low[1];
#endif
    return e;
  }
#else
  Eight e[KS];
  G_FN_IN const Eight &at(u32 k) const { return e[k]; }
#endif
};

// What a wave has of its queries' sums. A lane has query lane/4: of each eight elements the two
// from lane%4·2 on, of the high parts of weights and, behind them, of the low ones.
struct Sums {
  float acc[DH / 8][4], top, l;
  G_FN_IN void begin() {
    G_UNROLL for (u32 n = 0; n < DH / 8; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
    top = LEAST;
    l = 0;
  }
  // adds a tile of positions from j on, of which those in [from, end) are seen
  G_FN_IN void add(const Queries &q, u32 tile, u32 j, u32 from, u32 end, float cap) {
    const u32 w = lane();
    float d[2][4];
    G_UNROLL for (u32 i = 0; i < 4; i++) d[0][i] = d[1][i] = 0;
    G_UNROLL for (u32 k = 0; k < KS; k++) {
      u32 b[4];
      ldmatrix(b, tile + line_at(w / 16 * 8 + w % 8, k * 2 + w / 8 % 2));
      const Eight a = q.at(k);
      a.times(d[0], b[0], b[1]);
      a.times(d[1], b[2], b[3]);
    }
    float s[4], high = top;
    G_UNROLL for (u32 i = 0; i < 4; i++) {
      s[i] = d[i / 2][i % 2] + d[i / 2][i % 2 + 2];
      if (CAP) s[i] = cap * g_tanh(s[i] / cap) * LOG2_E;
      const u32 at = j + i / 2 * 8 + w % 4 * 2 + i % 2;
      if (at < from || at >= end) s[i] = UNSEEN;
      high = g_max(high, s[i]);
    }
    high = g_max(high, shfl_xor(high, 1));
    high = g_max(high, shfl_xor(high, 2));
    if (some_lane(high > top)) {
      const float c = approx_exp2(top - high);
      l *= c;
      G_UNROLL for (u32 n = 0; n < DH / 8; n++) {
        G_UNROLL for (u32 i = 0; i < 4; i++) acc[n][i] *= c;
      }
      top = high;
    }
    G_UNROLL for (u32 i = 0; i < 4; i++) {
      s[i] = approx_exp2(s[i] - top);
      l += s[i];
    }
    Eight p;
    p.set(s[0], s[1], s[2], s[3]);
    G_UNROLL for (u32 n = 0; n < DH / 8; n += 2) {
      u32 b[4];
      ldmatrix_turned(b, tile + K_BYTES + line_at(w / 8 % 2 * 8 + w % 8, n + w / 16));
      p.times(acc[n], b[0], b[1]);
      p.times(acc[n + 1], b[2], b[3]);
    }
  }
};

// where a head's sums of its part p lie: a block's first ones, but in the block where the head begins
G_FN const float *kept_of(const float *all, u32 p) { return all + (p ? 2 * p : 1) * (MOST * PART); }

G_KERNEL G_BOUNDS2(NT, 2) attention_split(float *y, const float *q, u32 qstride, const u16 *kc, u32 kstride, const u16 *vc,
                                          u32 vstride, const int *pos, u32 positions, u32 rows, u32 heads, u32 groups,
                                          float scale, float cap, u32 window, const int *seq, const int *table, u32 lines,
                                          u32 width, u32 pages, float *scratch, u32 *counters, u32 *status, u32 launch) {
  extern __shared__ f4 ring[];
#if SHARED_Q
  __shared__ f4 queried[8 * PARTS * ROW_BYTES / 16];
#endif
  __shared__ u32 begins[ROWS + 1]; // of each row's units of one head, and the end
  __shared__ float tops[WAVES][MOST], weights[WAVES][MOST];
  __shared__ u32 finished;
  begin_next();
  wait_previous();
  const u32 t = tid(), w = t % 32, wave = t / 32, block = bidx();
  const u32 share = heads / groups, cuts = (share + MOST - 1) / MOST, each = groups * cuts;

  for (u32 r = t; r <= rows; r += NT) {
    u32 units = 0;
    if (r) {
      const int last = pos[r - 1];
#if PAGE
      const int line = seq[r - 1];
      const bool real = line >= 0, good = (u32)line < lines && last >= 0 && (u32)last < width * PAGE;
#else
      const bool real = true, good = last >= 0 && (u32)last < positions;
#endif
      if (real && good) units = seen(last, window).units;
      if (real && !good && block == 0) fail(status, launch, r - 1, last);
    }
    begins[r] = units;
  }
  bar();
  for (u32 o = 1; o <= rows; o *= 2) {
    u32 v[(ROWS + NT) / NT];
    G_UNROLL for (u32 i = 0; i < (ROWS + NT) / NT; i++) {
      const u32 r = t + i * NT;
      v[i] = r <= rows && r >= o ? begins[r - o] : 0;
    }
    bar();
    G_UNROLL for (u32 i = 0; i < (ROWS + NT) / NT; i++) {
      const u32 r = t + i * NT;
      if (r <= rows) begins[r] += v[i];
    }
    bar();
  }
#if PAGE
  for (u32 r = block; r < rows; r += gdimx()) { // of padding
    if (seq[r] >= 0) continue;
    for (u32 e = t; e < heads * DH; e += NT) y[(u64)r * heads * DH + e] = 0;
  }
#endif
  Division division;
  division.total = begins[rows] * each;
  division.blocks = g_min(gdimx(), division.total);
  if (block >= division.blocks) return;

  const u32 own = shared_at(ring) + wave * RING;
  const u32 stop = division.first(block + 1);
  for (u32 u = division.first(block); u < stop;) {
    u32 row = 0, beyond = rows;
    while (beyond - row > 1) {
      const u32 mid = (row + beyond) / 2;
      if (begins[mid] * each <= u) row = mid;
      else beyond = mid;
    }
    const u32 count = begins[row + 1] - begins[row], local = u - begins[row] * each, what = local / count;
    const u32 first = local % count, n = g_min(stop - u, count - first);
    const u32 g = what / cuts, q0 = what % cuts * MOST, queries = g_min(MOST, share - q0);
    const u32 begin = u - first; // the first unit of this row and head
    const Seen at = seen(pos[row], window);
    Cache cache;
    cache.k = kc + g * DH;
    cache.v = vc + g * DH;
    cache.kstride = kstride;
    cache.vstride = vstride;
    cache.end = at.end;
    cache.pages = pages;
#if PAGE
    cache.table = table + (u64)seq[row] * width;
    if (wave == 0) {
      for (u32 p = (at.low + first * UNIT) / PAGE + w; p * PAGE < g_min(at.end, at.low + (first + n) * UNIT); p += 32) {
        if ((u32)cache.table[p] >= pages) fail(status, launch, p, cache.table[p]);
      }
    }
#else
    cache.table = 0;
#endif
    const u32 j0 = at.low + first * UNIT + wave * TILE;
    u32 next = cache.row(j0);
    G_UNROLL for (u32 asked = 0; asked < STAGES - 1; asked++) {
      if (asked < n) {
        const u32 here = next;
        next = cache.row(j0 + (asked + 1) * UNIT);
        cache.ask(own + asked * STAGE, j0 + asked * UNIT, here);
      }
      copies_commit();
    }
    Queries qs;
    const float *const src = q + (u64)row * qstride + (g * share + q0) * DH;
    const float by = CAP ? scale : scale * LOG2_E;
#if SHARED_Q
    qs.tile = shared_at(queried);
    for (u32 x = t; x < MOST * DH / 2; x += NT) {
      const u32 i = x / (DH / 2), e = x % (DH / 2) * 2;
      const f2 a = *(const f2 *)(src + g_min(i, queries - 1) * DH + e);
      u32 parts[PARTS];
      divide(a.x * by, a.y * by, parts);
      G_UNROLL for (u32 p = 0; p < PARTS; p++) ((u32 *)queried)[(line_at(p * 8 + i, e / 8) + e % 8 * 2) / 4] = parts[p];
    }
    bar();
#else
    G_UNROLL for (u32 k = 0; k < KS; k++) {
      const float *const at = src + g_min(w / 4, queries - 1) * DH + k * 16 + w % 4 * 2;
      const f2 a = *(const f2 *)at, b = *(const f2 *)(at + 8);
      qs.e[k].set(a.x * by, a.y * by, b.x * by, b.y * by);
    }
#endif
    Sums sums;
    sums.begin();
    u32 stage = 0, free = STAGES - 1;
    for (u32 i = 0; i < n; i++) {
      copies_wait<STAGES - 2>();
      wave_bar();
      if (i + STAGES - 1 < n) {
        const u32 here = next;
        next = cache.row(j0 + (i + STAGES) * UNIT);
        cache.ask(own + free * STAGE, j0 + (i + STAGES - 1) * UNIT, here);
      }
      copies_commit();
      sums.add(qs, own + stage * STAGE, j0 + i * UNIT, at.from, at.end, cap);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      free = free + 1 == STAGES ? 0 : free + 1;
    }

    // The waves' sums, in their rings.
    wave_bar();
    float l = sums.l;
    l += shfl_xor(l, 1);
    l += shfl_xor(l, 2);
    if (w % 4 == 0) {
      tops[wave][w / 4] = sums.top;
      weights[wave][w / 4] = l;
    }
    float *const mine = (float *)ring + wave * (RING / 4) + w / 4 * PART + w % 4 * 2;
    G_UNROLL for (u32 e = 0; e < DH / 8; e++) {
      f2 v;
      v.x = sums.acc[e][0] + sums.acc[e][2];
      v.y = sums.acc[e][1] + sums.acc[e][3];
      *(f2 *)(mine + e * 8) = v;
    }
    bar();
    const bool whole = n == count;
    float *const kept = scratch + (u64)(2 * block + (first == 0)) * (MOST * PART);
    float *const out = y + ((u64)row * heads + g * share + q0) * DH;
    for (u32 x = t; x < queries * DH; x += NT) {
      const u32 i = x / DH, e = x % DH;
      float high = LEAST, sum = 0, v = 0;
      G_UNROLL for (u32 m = 0; m < WAVES; m++) high = g_max(high, tops[m][i]);
      G_UNROLL for (u32 m = 0; m < WAVES; m++) {
        const float c = approx_exp2(tops[m][i] - high);
        sum = g_fma(c, weights[m][i], sum);
        v = g_fma(c, ((const float *)ring)[m * (RING / 4) + i * PART + e], v);
      }
      if (whole) out[x] = v / sum;
      else {
        kept[i * PART + e] = v;
        if (e == 0) {
          kept[i * PART + DH] = high;
          kept[i * PART + DH + 1] = sum;
        }
      }
    }
    if (!whole) {
      const u32 from = division.of(begin), parts = division.of(begin + count - 1) - from + 1;
      u32 *const counter = counters + row * each + what;
      fence_block();
      bar();
      if (t == 0) finished = count_up(counter);
      bar();
      if (finished == parts - 1) {
        fence_block();
        if (t == 0) *counter = 0; // for the next replay
        const float *const all = scratch + (u64)(2 * from) * (MOST * PART);
        float *const share_of = (float *)ring; // of each query, of each part
        for (u32 i = wave; i < queries; i += WAVES) {
          float high = LEAST, sum = 0;
          for (u32 p = w; p < parts; p += 32) high = g_max(high, kept_of(all, p)[i * PART + DH]);
          high = wave_max(high);
          for (u32 p = w; p < parts; p += 32) {
            const float c = approx_exp2(kept_of(all, p)[i * PART + DH] - high);
            share_of[i * parts + p] = c;
            sum = g_fma(c, kept_of(all, p)[i * PART + DH + 1], sum);
          }
          sum = wave_sum(sum);
          if (w == 0) tops[0][i] = sum;
        }
        bar();
        for (u32 x = t; x < queries * (DH / 4); x += NT) {
          const u32 i = x / (DH / 4), e = x % (DH / 4) * 4;
          f4 v = {0, 0, 0, 0};
          for (u32 p0 = 0; p0 < parts; p0 += ONCE) {
            f4 k[ONCE];
            G_UNROLL for (u32 n = 0; n < ONCE; n++) k[n] = *(const f4 *)(kept_of(all, g_min(p0 + n, parts - 1)) + i * PART + e);
            G_UNROLL for (u32 n = 0; n < ONCE; n++) {
              const float c = p0 + n < parts ? share_of[i * parts + p0 + n] : 0.0f;
              v.x = g_fma(c, k[n].x, v.x);
              v.y = g_fma(c, k[n].y, v.y);
              v.z = g_fma(c, k[n].z, v.z);
              v.w = g_fma(c, k[n].w, v.w);
            }
          }
          const float by = 1.0f / tops[0][i];
          v.x *= by;
          v.y *= by;
          v.z *= by;
          v.w *= by;
          *(f4 *)(out + i * DH + e) = v;
        }
      }
    }
    bar(); // before the rings are filled again
    u += n;
  }
}
