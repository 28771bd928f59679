// Attention of one token by clusters of CLUSTER blocks, on Hopper: as attention.hip,
// but the blocks of a cluster divide the positions, and then the elements of the
// result, of which each gets all parts in its shared memory.
//
// With FOLD the token's keys and values are not in the caches yet, and q is not rotated:
// a block rotates its queries; those of a cluster that have the token's position rotate
// its key, and the first of a key/value head stores both. A block's first positions are
// read while the launch before still runs, as no launch of a program for one token writes
// them; EARLY says that none writes pos either. Where there are few positions a cluster's
// first block takes them all, and the others end at once: to put parts together takes
// longer than some rounds.
//
// Compile time: DH elements of a head, KT the caches' type, VE elements a load (16 bytes),
// QB queries of a key/value head a block, CAP with softcap, SINKS with one more score a head, whose value is zero.
#include "prelude.h"
#include "turn.h"
#define NT 256
#define L (DH / VE) // lanes of a position
#define GROUPS (NT / L)
#define WAVES (NT / 32)
#define NP (QB == 1 ? 4 : QB == 2 ? 2 : 1) // positions of a group at once
#define ROUND (GROUPS * NP)
#define LONE 2  // rounds that one block takes alone
#define UNSEEN -3.0e38f

#if KT == 0
typedef float elem;
#else
typedef u16 elem;
#endif
G_FN void halves_of(u32 w, float &low, float &high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(low), "=f"(high) : "r"(w));
}
// VE elements as they lie in memory, in words: a conversion reads either half of a
// register, where elements apart would be moved to registers of their own first.
struct alignas(16) Line {
  u32 w[4];
  G_FN_IN void floats(float (&v)[VE]) const {
    G_UNROLL for (u32 i = 0; i < 4; i++) {
#if KT == 0
      v[i] = u2f(w[i]);
#elif KT == 1
      halves_of(w[i], v[2 * i], v[2 * i + 1]);
#else
      v[2 * i] = u2f(w[i] << 16);
      v[2 * i + 1] = u2f(w[i] & 0xffff0000u);
#endif
    }
  }
};

G_FN u32 shared_at(const void *p) {
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}
// All threads of a cluster arrive, then wait; what was stored before is seen behind.
G_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
G_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// stores to where `at` is in block `rank` of the cluster
G_FN void store_at(u32 at, u32 rank, float v) {
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.f32 [r], %2; }" ::"r"(at), "r"(rank), "f"(v) : "memory");
}

// keys and values of N positions of a thread's group, its lane's part of each
template <u32 N> struct Lines {
  Line k[N], v[N];
  // positions j0, j0 + GROUPS …, but none from hi on
  G_FN_IN void load(const elem *kp, u32 kstride, const elem *vp, u32 vstride, u32 j0, u32 hi) {
    G_UNROLL for (u32 n = 0; n < N; n++) {
      const u32 j = g_min(j0 + n * GROUPS, hi - 1);
      k[n] = *(const Line *)(kp + (u64)j * kstride);
      v[n] = *(const Line *)(vp + (u64)j * vstride);
    }
  }
};

// What a group has of its queries' sums: values weighted by exp(score - top), and l the
// sum of those weights. q and acc are a lane's elements.
struct Sums {
  float q[QB][VE], acc[QB][VE], top[QB], l[QB];
  G_FN_IN void begin(const f4 (*queries)[DH / 4], u32 gl) {
    G_UNROLL for (u32 i = 0; i < QB; i++) {
      G_UNROLL for (u32 x = 0; x < VE; x += 4) {
        const f4 v = queries[i][(gl * VE + x) / 4];
        q[i][x] = v.x;
        q[i][x + 1] = v.y;
        q[i][x + 2] = v.z;
        q[i][x + 3] = v.w;
      }
      G_UNROLL for (u32 x = 0; x < VE; x++) acc[i][x] = 0;
      top[i] = UNSEEN;
      l[i] = 0;
    }
  }
  // adds positions j0, j0 + GROUPS …, but none from hi on
  template <u32 N> G_FN_IN void add(const Lines<N> &at, u32 j0, u32 hi, float cap) {
    float s[N][QB];
    G_UNROLL for (u32 n = 0; n < N; n++) {
      G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] = 0;
      float k[VE];
      at.k[n].floats(k);
      G_UNROLL for (u32 x = 0; x < VE; x++) {
        G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] = g_fma(q[i][x], k[x], s[n][i]);
      }
    }
    G_UNROLL for (u32 o = L / 2; o; o >>= 1) {
      G_UNROLL for (u32 n = 0; n < N; n++) {
        G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] += shfl_xor(s[n][i], o);
      }
    }
    G_UNROLL for (u32 i = 0; i < QB; i++) {
      float high = top[i];
      G_UNROLL for (u32 n = 0; n < N; n++) {
        if (CAP) s[n][i] = cap * g_tanh(s[n][i] / cap);
        if (j0 + n * GROUPS >= hi) s[n][i] = UNSEEN;
        high = g_max(high, s[n][i]);
      }
      const float c = g_exp(top[i] - high);
      top[i] = high;
      l[i] *= c;
      G_UNROLL for (u32 x = 0; x < VE; x++) acc[i][x] *= c;
      G_UNROLL for (u32 n = 0; n < N; n++) {
        s[n][i] = s[n][i] == UNSEEN ? 0.0f : g_exp(s[n][i] - high);
        l[i] += s[n][i];
      }
    }
    G_UNROLL for (u32 n = 0; n < N; n++) {
      float v[VE];
      at.v[n].floats(v);
      G_UNROLL for (u32 x = 0; x < VE; x++) {
        G_UNROLL for (u32 i = 0; i < QB; i++) acc[i][x] = g_fma(s[n][i], v[x], acc[i][x]);
      }
    }
  }
};

#if FOLD
// puts the token's own key and value where its position is among lines
template <u32 N> G_FN void own_line(Lines<N> &at, bool owner, const Line (*fresh)[L], u32 gl, u32 j0, u32 hi, u32 p) {
  if (!owner) return;
  G_UNROLL for (u32 n = 0; n < N; n++) {
    if (g_min(j0 + n * GROUPS, hi - 1) != p) continue; // what lies in the caches there is no number yet
    at.k[n] = fresh[0][gl];
    at.v[n] = fresh[1][gl];
  }
}
#endif

// What a block has of the cluster's sums: OWN elements of each query, their largest score
// and the sum of their weights, from every block.
#define OWN (DH / CLUSTER)
typedef float Parts[CLUSTER][QB][OWN + 2];

#if SINKS
// adds a sink to sums that are scaled to the score high
G_FN void with_sink(float sink, float high, float &sum, float &v) {
  const float c = g_exp(high - g_max(high, sink));
  v *= c;
  sum = g_fma(sum, c, g_exp(sink - g_max(high, sink)));
}
#endif

// What a block reads before it adds up, and behind that its waves' sums.
union Room {
  struct {
    f4 q[QB][DH / 4];
#if FOLD
    Turn turns[DH / 2];
    Line fresh[2][L]; // the token's own key and value
#endif
  } in;
  float merge[WAVES][QB][DH + 2];
};

G_KERNEL G_BOUNDS2(NT, QB == 1 ? 4 : 2) attend(float *y, const float *q, elem *kc, u32 kstride, elem *vc, u32 vstride, const int *pos,
                            u32 positions, u32 heads, u32 groups, float scale, float cap, u32 window, const float *knew,
                            const float *vnew, const double *freq, const void *factors, u32 ftype, u32 half, u32 pair,
                            float m, u32 *status, u32 launch
#if SINKS
                            , const void *sinks, u32 sink_type
#endif
                            ) {
  __shared__ Room room;
  __shared__ Parts parts;
  __shared__ f4 tops[QB][GROUPS / 4];
  begin_next();
  cluster_arrive();
  if (!(FOLD && EARLY)) wait_previous();
#if FOLD
  const double rate = tid() < half ? turn_rate(freq, factors, ftype, tid()) : 0; // on its way while pos is
#endif
  const u32 t = tid(), g = bidy(), part = bidx() % CLUSTER, share = heads / groups, q0 = bidx() / CLUSTER * QB;
  const u32 gl = t % L, grp = t / L;
  int p = pos[0];
  const bool bad = p < 0 || (u32)p >= positions;
  if (bad) {
    if (t == 0 && part == 0) fail(status, launch, 0, p);
    p = 0;
  }
  const u32 end = (u32)p + 1, from = window && end > window ? end - window : 0;
  const bool lone = end - from <= LONE * ROUND;
  if (lone && part) return;
  const u32 per = lone ? end - from : (end - from + CLUSTER - 1) / CLUSTER, lo = g_min(end, from + part * per), hi = g_min(end, lo + per);

  const elem *const kp = kc + g * DH + gl * VE, *const vp = vc + g * DH + gl * VE;
  Lines<NP> lines;
  lines.load(kp, kstride, vp, vstride, lo + grp, hi);
#if FOLD
  const bool owner = lo <= (u32)p && (u32)p < hi;
  if (t < half) room.in.turns[t] = turn_by(rate, m, p);
  bar();
#endif
  if (FOLD && EARLY) wait_previous();

  // queries, and with FOLD the token's key and value
  G_UNROLL for (u32 i0 = 0; i0 < (FOLD ? QB + 2 : QB) * DH; i0 += NT) {
    const u32 i = i0 + t, what = i / DH, e = i % DH;
    if (what < QB) {
      const float *src = q + (g * share + g_min(q0 + what, share - 1)) * DH;
      float v = src[e];
#if FOLD
      if (e < 2 * half) {
        const bool first = pair ? e % 2 == 0 : e < half;
        const u32 n = pair ? e / 2 : first ? e : e - half;
        const float w = src[pair ? e ^ 1 : first ? e + half : e - half];
        v = first ? turn_first(v, w, room.in.turns[n]) : turn_second(w, v, room.in.turns[n]);
      }
#endif
      ((float *)room.in.q)[what * DH + e] = v * scale;
    }
#if FOLD
    else if (what < QB + 2 && owner) {
      const bool key = what == QB;
      const float *src = (key ? knew : vnew) + g * DH;
      float v = src[e];
      if (key && e < 2 * half) {
        const bool first = pair ? e % 2 == 0 : e < half;
        const u32 n = pair ? e / 2 : first ? e : e - half;
        const float w = src[pair ? e ^ 1 : first ? e + half : e - half];
        v = first ? turn_first(v, w, room.in.turns[n]) : turn_second(w, v, room.in.turns[n]);
      }
      elem *const to = (elem *)room.in.fresh[what - QB];
      store_float(to, KT, e, v);
      if (q0 == 0 && !bad) store_float((key ? kc + (u64)p * kstride : vc + (u64)p * vstride) + g * DH, KT, e, v);
    }
#endif
  }
  bar();
  Sums own;
  own.begin(room.in.q, gl);
  u32 j = lo + grp;
  if (lo < hi) {
    while (true) {
#if FOLD
      own_line(lines, owner, room.in.fresh, gl, j, hi, (u32)p);
#endif
      own.add(lines, j, hi, cap);
      j += ROUND;
      if (j - grp + GROUPS >= hi) break;
      lines.load(kp, kstride, vp, vstride, j, hi);
    }
    if (j - grp < hi) { // one more position a group at most
      Lines<1> last;
      last.load(kp, kstride, vp, vstride, j, hi);
#if FOLD
      own_line(last, owner, room.in.fresh, gl, j, hi, (u32)p);
#endif
      own.add(last, j, hi, cap);
    }
  }
  // A block's sums are scaled to its largest score and added: lanes, groups of a wave, waves.
  if (gl == 0) {
    G_UNROLL for (u32 i = 0; i < QB; i++) ((float *)tops[i])[grp] = own.top[i];
  }
  bar();
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    float high = UNSEEN;
    G_UNROLL for (u32 n = 0; n < GROUPS / 4; n++) {
      const f4 v = tops[i][n];
      high = g_max(high, g_max(g_max(v.x, v.y), g_max(v.z, v.w)));
    }
    const float c = g_exp(own.top[i] - high);
    float l = own.l[i] * c;
    G_UNROLL for (u32 o = L; o < 32; o <<= 1) l += shfl_xor(l, o);
    float *const mine = room.merge[t / 32][i];
    G_UNROLL for (u32 x = 0; x < VE; x++) {
      float v = own.acc[i][x] * c;
      G_UNROLL for (u32 o = L; o < 32; o <<= 1) v += shfl_xor(v, o);
      if (t % 32 < L) mine[gl * VE + x] = v;
    }
    if (t % 32 == 0) {
      mine[DH] = high;
      mine[DH + 1] = l;
    }
  }
  bar();
  if (lone) {
    for (u32 n = t; n < QB * DH; n += NT) {
      const u32 i = n / DH, e = n % DH;
      if (q0 + i >= share) break;
      float sum = 0, v = 0;
      G_UNROLL for (u32 w = 0; w < WAVES; w++) {
        sum += room.merge[w][i][DH + 1];
        v += room.merge[w][i][e];
      }
#if SINKS
      with_sink(load_float(sinks, sink_type, g * share + q0 + i), room.merge[0][i][DH], sum, v);
#endif
      y[(g * share + q0 + i) * DH + e] = v / sum;
    }
    return;
  }
  cluster_wait(); // all blocks have begun
  // Each block of the cluster puts OWN elements together; all need the scores and weights.
  for (u32 n = t; n < QB * (DH + 2 * CLUSTER); n += NT) {
    const bool element = n < QB * DH;
    const u32 m = element ? n : n - QB * DH, i = element ? m / DH : m / (2 * CLUSTER);
    const u32 e = element ? m % DH : DH + (m & 1), to = element ? e / OWN : m % (2 * CLUSTER) / 2;
    float v = room.merge[0][i][e];
    if (e != DH) {
      G_UNROLL for (u32 w = 1; w < WAVES; w++) v += room.merge[w][i][e];
    }
    store_at(shared_at(&parts[part][i][element ? e % OWN : OWN + (m & 1)]), to, v);
  }
  cluster_arrive();
  cluster_wait();
  for (u32 n = t; n < QB * OWN; n += NT) {
    const u32 i = n / OWN, e = n % OWN;
    if (q0 + i >= share) break;
    float high = UNSEEN, sum = 0, v = 0;
    G_UNROLL for (u32 b = 0; b < CLUSTER; b++) high = g_max(high, parts[b][i][OWN]);
    G_UNROLL for (u32 b = 0; b < CLUSTER; b++) {
      const float c = g_exp(parts[b][i][OWN] - high);
      sum = g_fma(c, parts[b][i][OWN + 1], sum);
      v = g_fma(c, parts[b][i][e], v);
    }
#if SINKS
    with_sink(load_float(sinks, sink_type, g * share + q0 + i), high, sum, v);
#endif
    y[(g * share + q0 + i) * DH + part * OWN + e] = v / sum;
  }
}
