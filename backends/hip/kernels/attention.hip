// y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j] over the cache positions up to
// each token's own, online: every group of L lanes takes every GROUPS-th
// position, keeps a maximum, a sum and a weighted sum of values per query, and
// the groups are merged at the end (Milakov and Gimelshein, arXiv 1805.02867;
// Dao et al., arXiv 2205.14135). A block has up to QB queries of one key/value
// head, the query index being token · share + head, and one part of the
// positions; the last block of a group to finish merges the parts.
//
// Compile time: DH, DV elements of a head of keys and values, KT and VT their
// types (0 f32, 1 f16, 2 bf16), VE elements a load, QB, CAP with softcap.
#include "prelude.h"
#define NT 128
#define L 16
#define GROUPS (NT / L)
#define KN ((DH + L * VE - 1) / (L * VE))
#define VN ((DV + L * VE - 1) / (L * VE))

template <int T> struct cache_elem { typedef u16 type; };
template <> struct cache_elem<0> { typedef float type; };
template <int T> struct alignas(VE * sizeof(typename cache_elem<T>::type)) cache_line {
  typename cache_elem<T>::type c[VE];
};
G_FN float cache_float(float c, int) { return c; }
G_FN float cache_float(u16 c, int type) { return type == 1 ? h2f(c) : b2f(c); }
template <int T> G_FN void cache_load(float *out, const void *p, u64 at_e) {
  cache_line<T> l = *(const cache_line<T> *)((const typename cache_elem<T>::type *)p + at_e);
  G_UNROLL for (int i = 0; i < VE; i++) out[i] = cache_float(l.c[i], T);
}

G_FN float group_sum(float v) {
  G_UNROLL for (u32 o = L / 2; o; o >>= 1) v += shfl_xor(v, o);
  return v;
}

G_KERNEL G_BOUNDS(NT) attention(float *__restrict__ y, const float *__restrict__ q, u32 qstride,
                                const void *__restrict__ kc, u32 kstride, const void *__restrict__ vc, u32 vstride,
                                const int *__restrict__ pos, u32 positions, u32 tokens, u32 heads, u32 groups,
                                float scale, float cap, u32 window, float *scratch, u32 *counters, u32 *status,
                                u32 launch) {
  __shared__ float merge[GROUPS][QB][DV + 2];
  __shared__ float weight[32];
  __shared__ u32 finished;
  const u32 t = tid(), g = bidy(), part = bidz(), parts_max = G_PARTS;
  const u32 share = heads / groups, queries = tokens * share;
  // Later queries see more positions: they come first, so that blocks end evenly.
  const u32 q0 = ((queries + QB - 1) / QB - 1 - bidx()) * QB;
  // The range of positions that some query of the block sees.
  u32 from = ~0u, end = 0, qfrom[QB], qend[QB];
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    u32 s = g_min(q0 + i, queries - 1) / share;
    int p = pos[s];
    if (p < 0 || (u32)p >= positions) {
      if (t == 0) fail(status, launch, s, p);
      p = 0;
    }
    qend[i] = (u32)p + 1;
    qfrom[i] = window && qend[i] > window ? qend[i] - window : 0;
    from = g_min(from, qfrom[i]);
    end = end > qend[i] ? end : qend[i];
  }
  const u32 len = end - from;
  const u32 parts = g_min(parts_max, (len + G_PART - 1) / G_PART);
  if (part >= parts) return;
  const u32 per = (len + parts - 1) / parts;
  const u32 lo = from + part * per, hi = g_min(end, lo + per);

  const u32 gl = t % L, grp = t / L;
  float qv[QB][KN * VE], acc[QB][VN * VE], m[QB], l[QB];
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    u32 qi = g_min(q0 + i, queries - 1);
    const float *src = q + (u64)(qi / share) * qstride + (g * share + qi % share) * DH;
    G_UNROLL for (u32 n = 0; n < KN; n++) {
      u32 e = (n * L + gl) * VE;
      G_UNROLL for (u32 j = 0; j < VE; j++) qv[i][n * VE + j] = e < DH ? src[e + j] * scale : 0.0f;
    }
    G_UNROLL for (u32 n = 0; n < VN * VE; n++) acc[i][n] = 0;
    m[i] = -3.0e38f;
    l[i] = 0;
  }
  // All lanes of a wave go round together, for their shuffles: a position
  // beyond the end counts for nothing.
  for (u32 j0 = lo; j0 < hi; j0 += GROUPS) {
    const u32 j = g_min(j0 + grp, hi - 1);
    const bool real = j0 + grp < hi;
    float kv[KN * VE], vv[VN * VE];
    G_UNROLL for (u32 n = 0; n < KN; n++) {
      u32 e = (n * L + gl) * VE;
      if (e < DH) cache_load<KT>(kv + n * VE, kc, (u64)j * kstride + g * DH + e);
      else {
        G_UNROLL for (u32 i = 0; i < VE; i++) kv[n * VE + i] = 0;
      }
    }
    G_UNROLL for (u32 n = 0; n < VN; n++) {
      u32 e = (n * L + gl) * VE;
      if (e < DV) cache_load<VT>(vv + n * VE, vc, (u64)j * vstride + g * DV + e);
      else {
        G_UNROLL for (u32 i = 0; i < VE; i++) vv[n * VE + i] = 0;
      }
    }
    G_UNROLL for (u32 i = 0; i < QB; i++) {
      float s = 0;
      G_UNROLL for (u32 n = 0; n < KN * VE; n++) s = g_fma(qv[i][n], kv[n], s);
      s = group_sum(s);
      if (CAP) s = cap * g_tanh(s / cap);
      if (!real || j < qfrom[i] || j >= qend[i]) continue;
      if (s > m[i]) {
        float c = g_exp(m[i] - s);
        l[i] *= c;
        G_UNROLL for (u32 n = 0; n < VN * VE; n++) acc[i][n] *= c;
        m[i] = s;
      }
      float p = g_exp(s - m[i]);
      l[i] += p;
      G_UNROLL for (u32 n = 0; n < VN * VE; n++) acc[i][n] = g_fma(p, vv[n], acc[i][n]);
    }
  }
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    G_UNROLL for (u32 n = 0; n < VN; n++) {
      u32 e = (n * L + gl) * VE;
      if (e >= DV) continue;
      G_UNROLL for (u32 j = 0; j < VE; j++) merge[grp][i][e + j] = acc[i][n * VE + j];
    }
    if (gl == 0) {
      merge[grp][i][DV] = m[i];
      merge[grp][i][DV + 1] = l[i];
    }
  }
  bar();
  for (u32 i = 0; i < QB; i++) {
    if (q0 + i >= queries) break;
    const u32 qi = q0 + i;
    float *dst = y + ((u64)(qi / share) * heads + g * share + qi % share) * DV;
    float *mine = scratch + (((u64)g * queries + qi) * parts_max + part) * (DV + 2);
    float top = -3.0e38f, sum = 0;
    G_UNROLL for (u32 n = 0; n < GROUPS; n++) top = g_max(top, merge[n][i][DV]);
    float c[GROUPS];
    G_UNROLL for (u32 n = 0; n < GROUPS; n++) {
      c[n] = g_exp(merge[n][i][DV] - top);
      sum += c[n] * merge[n][i][DV + 1];
    }
    for (u32 e = t; e < DV; e += NT) {
      float v = 0;
      G_UNROLL for (u32 n = 0; n < GROUPS; n++) v = g_fma(c[n], merge[n][i][e], v);
      if (parts == 1) dst[e] = v / sum;
      else mine[e] = v;
    }
    if (parts > 1 && t == 0) {
      mine[DV] = top;
      mine[DV + 1] = sum;
    }
  }
  if (parts == 1) return;
  fence_device();
  bar();
  u32 *counter = counters + g * ((queries + QB - 1) / QB) + bidx();
  if (t == 0) finished = count_up(counter);
  bar();
  if (finished != parts - 1) return;
  fence_device();
  if (t == 0) *counter = 0; // for the next replay
  for (u32 i = 0; i < QB; i++) {
    if (q0 + i >= queries) break;
    const u32 qi = q0 + i;
    float *dst = y + ((u64)(qi / share) * heads + g * share + qi % share) * DV;
    const float *all = scratch + ((u64)g * queries + qi) * parts_max * (DV + 2);
    // Each thread weighs a part; parts are at most 32.
    bar();
    if (t < 32) {
      float m_n = t < parts ? all[t * (DV + 2) + DV] : -3.0e38f, top = m_n;
      float l_n = t < parts ? all[t * (DV + 2) + DV + 1] : 0.0f;
      G_UNROLL for (u32 o = 16; o; o >>= 1) top = g_max(top, shfl_xor(top, o));
      float c_n = t < parts ? g_exp(m_n - top) : 0.0f, sum = c_n * l_n;
      G_UNROLL for (u32 o = 16; o; o >>= 1) sum += shfl_xor(sum, o);
      weight[t] = c_n / sum;
    }
    bar();
    for (u32 e = t; e < DV; e += NT) {
      float v = 0;
      G_UNROLL for (u32 n = 0; n < G_PARTS; n++)
        if (n < parts) v = g_fma(weight[n], all[n * (DV + 2) + e], v);
      dst[e] = v;
    }
  }
}
