// Attention of one token by clusters of CLUSTER blocks, on Hopper: as attention.hip,
// but the blocks of a cluster divide the positions, and their parts meet in the
// shared memory of the first one.
//
// With FOLD the token's keys and values are not in the caches yet, and q is not rotated:
// a block rotates its queries; those of a cluster that have the token's position rotate
// its key, and the first of a key/value head stores both. Positions before are read
// while the launch before still runs, as no launch of a program for one token writes
// them; EARLY says that none writes pos either.
//
// Compile time: DH elements of a head, KT the caches' type, VE elements a load (16 bytes),
// QB queries of a key/value head a block, CAP with softcap.
#include "prelude.h"
#include "turn.h"
#define NT 256
#define L (DH / VE) // lanes of a position
#define GROUPS (NT / L)
#define WAVES (NT / 32)
#define NP (QB == 1 ? 4 : QB == 2 ? 2 : 1) // positions of a group at once
#define ROUND (GROUPS * NP)
#define AHEAD 3 // rounds behind the first that are asked for
#define UNSEEN -3.0e38f

#if KT == 0
typedef float elem;
#else
typedef u16 elem;
#endif
struct alignas(16) Line { elem c[VE]; };
G_FN float cache_float(elem c) {
#if KT == 0
  return c;
#else
  return KT == 1 ? h2f(c) : b2f(c);
#endif
}

G_FN u32 shared_at(const void *p) {
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}
// All threads of a cluster arrive, then wait; what was stored before is seen behind.
G_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
G_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// stores to where `at` is in the cluster's first block
G_FN void store_first(u32 at, float v) {
  asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, 0; st.shared::cluster.f32 [r], %1; }" ::"r"(at), "f"(v) : "memory");
}

// parts of a sum that are put together: c the weights of N of them
template <int N> struct Meeting {
  float top, sum, c[N];
  G_FN_IN Meeting(const float (*all)[QB][DH + 2], u32 i) {
    top = UNSEEN;
    sum = 0;
    G_UNROLL for (u32 n = 0; n < N; n++) top = g_max(top, all[n][i][DH]);
    G_UNROLL for (u32 n = 0; n < N; n++) {
      c[n] = g_exp(all[n][i][DH] - top);
      sum = g_fma(c[n], all[n][i][DH + 1], sum);
    }
  }
  G_FN_IN float of(const float (*all)[QB][DH + 2], u32 i, u32 e) const {
    float v = 0;
    G_UNROLL for (u32 n = 0; n < N; n++) v = g_fma(c[n], all[n][i][e], v);
    return v;
  }
};

G_KERNEL G_BOUNDS2(NT, QB == 1 ? 4 : 2) attend(float *y, const float *q, elem *kc, u32 kstride, elem *vc, u32 vstride, const int *pos,
                            u32 positions, u32 heads, u32 groups, float scale, float cap, u32 window, const float *knew,
                            const float *vnew, const double *freq, const void *factors, u32 ftype, u32 half, u32 pair,
                            float m, u32 *status, u32 launch) {
  __shared__ float merge[WAVES][QB][DH + 2], parts[CLUSTER][QB][DH + 2];
  __shared__ f4 qs[QB][DH / 4];
#if FOLD
  __shared__ Turn turns[DH / 2];
  __shared__ Line fresh[2][L];
#endif
  begin_next();
  cluster_arrive();
  if (!(FOLD && EARLY)) wait_previous();
  const u32 t = tid(), g = bidy(), part = bidx() % CLUSTER, share = heads / groups, q0 = bidx() / CLUSTER * QB;
  const u32 gl = t % L, grp = t / L;
  int p = pos[0];
  const bool bad = p < 0 || (u32)p >= positions;
  if (bad) {
    if (t == 0 && part == 0) fail(status, launch, 0, p);
    p = 0;
  }
  const u32 end = (u32)p + 1, from = window && end > window ? end - window : 0;
  const u32 per = (end - from + CLUSTER - 1) / CLUSTER, lo = g_min(end, from + part * per), hi = g_min(end, lo + per);

  const elem *const kp = kc + g * DH + gl * VE, *const vp = vc + g * DH + gl * VE;
  Line kl[NP], vl[NP];
  const auto load = [&](u32 j0) {
    G_UNROLL for (u32 n = 0; n < NP; n++) {
      const u32 j = g_min(j0 + n * GROUPS + grp, hi - 1);
      kl[n] = *(const Line *)(kp + (u64)j * kstride);
      vl[n] = *(const Line *)(vp + (u64)j * vstride);
    }
  };
  load(lo);
  for (u32 j = lo + ROUND + grp; j < g_min(hi, lo + (1 + AHEAD) * ROUND); j += GROUPS) {
    if (gl % 8) continue;
    ask_line(kp + (u64)j * kstride);
    ask_line(vp + (u64)j * vstride);
  }
#if FOLD
  const bool owner = lo <= (u32)p && (u32)p < hi;
  for (u32 i = t; i < half; i += NT) turns[i] = turn_of(freq, factors, ftype, m, p, i);
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
        v = first ? turn_first(v, w, turns[n]) : turn_second(w, v, turns[n]);
      }
#endif
      ((float *)qs)[what * DH + e] = v * scale;
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
        v = first ? turn_first(v, w, turns[n]) : turn_second(w, v, turns[n]);
      }
      elem *const to = (elem *)fresh[what - QB];
      store_float(to, KT, e, v);
      if (q0 == 0 && !bad) store_float((key ? kc + (u64)p * kstride : vc + (u64)p * vstride) + g * DH, KT, e, v);
    }
#endif
  }
  bar();
  float qv[QB][VE], acc[QB][VE], top[QB], l[QB];
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    G_UNROLL for (u32 x = 0; x < VE; x += 4) {
      const f4 v = qs[i][(gl * VE + x) / 4];
      qv[i][x] = v.x;
      qv[i][x + 1] = v.y;
      qv[i][x + 2] = v.z;
      qv[i][x + 3] = v.w;
    }
    G_UNROLL for (u32 x = 0; x < VE; x++) acc[i][x] = 0;
    top[i] = UNSEEN;
    l[i] = 0;
  }
  for (u32 j0 = lo; j0 < hi; j0 += ROUND) {
    if (j0 != lo) load(j0);
    float s[NP][QB];
    G_UNROLL for (u32 n = 0; n < NP; n++) {
#if FOLD
      if (owner && g_min(j0 + n * GROUPS + grp, hi - 1) == (u32)p) { // what lies in the caches there is no number yet
        kl[n] = fresh[0][gl];
        vl[n] = fresh[1][gl];
      }
#endif
      G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] = 0;
      G_UNROLL for (u32 x = 0; x < VE; x++) {
        const float k = cache_float(kl[n].c[x]);
        G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] = g_fma(qv[i][x], k, s[n][i]);
      }
    }
    G_UNROLL for (u32 o = L / 2; o; o >>= 1) {
      G_UNROLL for (u32 n = 0; n < NP; n++) {
        G_UNROLL for (u32 i = 0; i < QB; i++) s[n][i] += shfl_xor(s[n][i], o);
      }
    }
    G_UNROLL for (u32 i = 0; i < QB; i++) {
      float high = top[i];
      G_UNROLL for (u32 n = 0; n < NP; n++) {
        if (CAP) s[n][i] = cap * g_tanh(s[n][i] / cap);
        if (j0 + n * GROUPS + grp >= hi) s[n][i] = UNSEEN;
        high = g_max(high, s[n][i]);
      }
      const float c = g_exp(top[i] - high);
      top[i] = high;
      l[i] *= c;
      G_UNROLL for (u32 x = 0; x < VE; x++) acc[i][x] *= c;
      G_UNROLL for (u32 n = 0; n < NP; n++) {
        s[n][i] = s[n][i] == UNSEEN ? 0.0f : g_exp(s[n][i] - high);
        l[i] += s[n][i];
      }
    }
    G_UNROLL for (u32 n = 0; n < NP; n++) {
      G_UNROLL for (u32 x = 0; x < VE; x++) {
        const float v = cache_float(vl[n].c[x]);
        G_UNROLL for (u32 i = 0; i < QB; i++) acc[i][x] = g_fma(s[n][i], v, acc[i][x]);
      }
    }
  }
  // the groups of a wave, its block's waves, its cluster's blocks
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    G_UNROLL for (u32 o = L; o < 32; o <<= 1) {
      const float other = shfl_xor(top[i], o), high = g_max(top[i], other);
      const float c = g_exp(top[i] - high), d = g_exp(other - high);
      l[i] = g_fma(shfl_xor(l[i], o), d, l[i] * c);
      G_UNROLL for (u32 x = 0; x < VE; x++) acc[i][x] = g_fma(shfl_xor(acc[i][x], o), d, acc[i][x] * c);
      top[i] = high;
    }
    if (t % 32 >= L) continue;
    float *const mine = merge[t / 32][i];
    G_UNROLL for (u32 x = 0; x < VE; x++) mine[gl * VE + x] = acc[i][x];
    if (gl == 0) {
      mine[DH] = top[i];
      mine[DH + 1] = l[i];
    }
  }
  bar();
  cluster_wait(); // all blocks have begun
  G_UNROLL for (u32 i0 = 0; i0 < QB * DH; i0 += NT) {
    const u32 i = (i0 + t) / DH, e = (i0 + t) % DH;
    if (i >= QB) break;
    const Meeting<WAVES> all(merge, i);
    const u32 to = shared_at(parts[part][i]);
    store_first(to + 4 * e, all.of(merge, i, e));
    if (e == 0) {
      store_first(to + 4 * DH, all.top);
      store_first(to + 4 * DH + 4, all.sum);
    }
  }
  cluster_arrive();
  cluster_wait();
  if (part) return;
  G_UNROLL for (u32 i0 = 0; i0 < QB * DH; i0 += NT) {
    const u32 i = (i0 + t) / DH, e = (i0 + t) % DH;
    if (i >= QB || q0 + i >= share) break;
    const Meeting<CLUSTER> all(parts, i);
    y[(g * share + q0 + i) * DH + e] = all.of(parts, i, e) / all.sum;
  }
}
