// y[s,h] = Σj softmax(scale·q[s,h]·k[j])·v[j] over the cache positions up to
// each token's own, online: every group of L lanes takes every GROUPS-th
// position, keeps a maximum, a sum and a weighted sum of values per query, and
// the groups are merged at the end (Milakov and Gimelshein, arXiv 1805.02867;
// Dao et al., arXiv 2205.14135). A block has up to QB queries of one key/value
// head, the query index being token · share + head, and one part of the
// positions; the last block of a group to finish merges the parts.
//
// Compile time: DH, DV elements of a head of keys and values, KT and VT their
// types (0 f32, 1 f16, 2 bf16, 3 e4m3, 7 q8_0), VE elements a load, QB, CAP with softcap; MORE with sinks,
// chunks, slopes on distances and tables of them (COUNT: how many distances they tell apart, APART), queries that
// see behind their own position, and texts side by side (ops.AttentionAttr, ops.Attention).
#include "prelude.h"
#include "cache.h"
#define NT 128
#define L 16
// positions of a group at once, as many as registers hold
#define NP ((KN + VN) * VE > 64 ? 1 : QB == 1 ? ((KN + VN) * VE > 32 ? 2 : 4) : QB == 2 ? 2 : 1)
#define UNSEEN -3.0e38f
#define GROUPS (NT / L)
#define KN ((DH + L * VE - 1) / (L * VE))
#define VN ((DV + L * VE - 1) / (L * VE))

G_FN float group_sum(float v) {
  G_UNROLL for (u32 o = L / 2; o; o >>= 1) v += shfl_xor(v, o);
  return v;
}

#ifdef MORE
#include "distance.h"
#endif

G_KERNEL G_BOUNDS(NT) attention(float *__restrict__ y, const float *q, u32 qstride,
                                const void *kc, u32 kstride, const void *vc, u32 vstride,
                                const int *pos, u32 positions, u32 tokens, u32 heads, u32 groups,
                                float scale, float cap, u32 window, float *scratch, u32 *counters, u32 *status,
                                u32 launch
#ifdef MORE
                                , const void *sinks, u32 sink_type, u32 chunk, u32 both, float alibi, float slope,
                                const int *span, const void *bias, u32 bias_type, const void *far_k, u32 far_k_type,
                                const void *far_q, u32 far_q_type, u32 far_heads, float reach
#endif
) {
  begin_next();
  wait_previous();
  __shared__ float merge[GROUPS][QB][DV + 2];
  __shared__ float weight[32];
  __shared__ u32 finished;
  const u32 t = tid(), g = bidy(), part = bidz(), parts_max = G_PARTS;
  const u32 share = heads / groups, queries = tokens * share;
  // Later queries see more positions: they come first, so that blocks end evenly.
  const u32 q0 = ((queries + QB - 1) / QB - 1 - bidx()) * QB;
  // The range of positions that some query of the block sees.
  u32 from = ~0u, end = 0, qfrom[QB], qend[QB];
#ifdef MORE
  float qpos[QB], fall[QB]; // a query's row of k, and what each position of distance takes off a score
#endif
  G_UNROLL for (u32 i = 0; i < QB; i++) {
    u32 s = g_min(q0 + i, queries - 1) / share;
#ifdef MORE
    u32 first = 0, rows = positions; // of the query's text, whose rows alone it sees
    int p;
    if (span) {
      int begin = span[2 * s], behind = span[2 * s + 1];
      if (begin < 0 || (u32)begin > s || behind <= (int)s || (u32)behind > positions) {
        if (t == 0) fail(status, launch, s, begin < 0 || (u32)begin > s ? begin : behind);
        begin = (int)s;
        behind = (int)s + 1;
      }
      first = (u32)begin;
      rows = (u32)(behind - begin);
      p = (int)s - begin;
    } else {
      p = pos[s];
    }
#else
    int p = pos[s];
#endif
    if (p < 0 || (u32)p >= positions) {
      if (t == 0) fail(status, launch, s, p);
      p = 0;
    }
    qend[i] = (u32)p + 1;
    qfrom[i] = window && qend[i] > window ? qend[i] - window : 0;
#ifdef MORE
    qpos[i] = (float)(first + (u32)p);
    const u32 head = g * share + g_min(q0 + i, queries - 1) % share;
    fall[i] = alibi > 0.0f ? slope * slope_of(alibi, head, heads) : 0.0f;
    if (chunk && qfrom[i] < (u32)p / chunk * chunk) qfrom[i] = (u32)p / chunk * chunk;
    if (both) qend[i] = window ? g_min((u32)p + window, rows) : rows;
    qfrom[i] += first;
    qend[i] += first;
#endif
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
    m[i] = UNSEEN;
    l[i] = 0;
#ifdef MORE
    if (sinks && part == 0 && grp == 0) { // one more score, whose value is zero
      m[i] = load_float(sinks, sink_type, g * share + qi % share);
      l[i] = 1.0f;
    }
#endif
  }
  // All lanes of a wave go round together, for their shuffles: a position
  // beyond the end counts for nothing. The loads of NP positions are under way at once.
  for (u32 j0 = lo; j0 < hi; j0 += GROUPS * NP) {
    Line<KT> kl[NP][KN];
    Line<VT> vl[NP][VN];
    G_UNROLL for (u32 p = 0; p < NP; p++) {
      const u32 j = g_min(j0 + p * GROUPS + grp, hi - 1);
      G_UNROLL for (u32 n = 0; n < KN; n++) {
        const u32 e = (n * L + gl) * VE;
        kl[p][n] = line_load<KT>(kc, (u64)j * kstride, g, DH, e);
      }
      G_UNROLL for (u32 n = 0; n < VN; n++) {
        const u32 e = (n * L + gl) * VE;
        vl[p][n] = line_load<VT>(vc, (u64)j * vstride, g, DV, e);
      }
    }
    float s[NP][QB];
    G_UNROLL for (u32 p = 0; p < NP; p++) {
      G_UNROLL for (u32 i = 0; i < QB; i++) s[p][i] = 0;
      G_UNROLL for (u32 n = 0; n < KN; n++) {
        G_UNROLL for (u32 x = 0; x < VE; x++) {
          const float kv = kl[p][n].at(x);
          G_UNROLL for (u32 i = 0; i < QB; i++) s[p][i] = g_fma(qv[i][n * VE + x], kv, s[p][i]);
        }
      }
    }
#if defined(MORE) && COUNT > 0
    if (far_k || far_q) {
      G_UNROLL for (u32 p = 0; p < NP; p++) {
        const u32 j = g_min(j0 + p * GROUPS + grp, hi - 1);
        G_UNROLL for (u32 i = 0; i < QB; i++) {
          const u32 head = g * share + g_min(q0 + i, queries - 1) % share;
          const u64 at = ((u64)distance((int)qpos[i] - (int)j, reach) * far_heads + head % far_heads) * DH;
          G_UNROLL for (u32 n = 0; n < KN; n++) {
            const u32 e = (n * L + gl) * VE;
            if (e >= DH) continue;
            G_UNROLL for (u32 x = 0; x < VE; x++) {
              if (far_k) s[p][i] = g_fma(qv[i][n * VE + x], load_float(far_k, far_k_type, at + e + x), s[p][i]);
              if (far_q) s[p][i] = g_fma(scale * load_float(far_q, far_q_type, at + e + x), kl[p][n].at(x), s[p][i]);
            }
          }
        }
      }
    }
#endif
    G_UNROLL for (u32 p = 0; p < NP; p++) {
      G_UNROLL for (u32 i = 0; i < QB; i++) s[p][i] = group_sum(s[p][i]);
    }
    G_UNROLL for (u32 i = 0; i < QB; i++) {
      float top = m[i];
      G_UNROLL for (u32 p = 0; p < NP; p++) {
        const u32 j = j0 + p * GROUPS + grp;
        if (CAP) s[p][i] = cap * g_tanh(s[p][i] / cap);
#ifdef MORE
        s[p][i] -= fall[i] * g_abs(qpos[i] - (float)j);
#if COUNT > 0
        if (bias && j < hi)
          s[p][i] += load_float(bias, bias_type, (u64)distance((int)qpos[i] - (int)j, reach) * heads + g * share +
                                                     g_min(q0 + i, queries - 1) % share);
#endif
#endif
        if (j >= hi || j < qfrom[i] || j >= qend[i]) s[p][i] = UNSEEN;
        top = g_max(top, s[p][i]);
      }
      if (top > m[i]) {
        const float c = g_exp(m[i] - top);
        l[i] *= c;
        G_UNROLL for (u32 n = 0; n < VN * VE; n++) acc[i][n] *= c;
        m[i] = top;
      }
      G_UNROLL for (u32 p = 0; p < NP; p++) {
        s[p][i] = s[p][i] == UNSEEN ? 0.0f : g_exp(s[p][i] - top);
        l[i] += s[p][i];
      }
    }
    G_UNROLL for (u32 p = 0; p < NP; p++) {
      G_UNROLL for (u32 n = 0; n < VN; n++) {
        G_UNROLL for (u32 x = 0; x < VE; x++) {
          const float v = vl[p][n].at(x);
          G_UNROLL for (u32 i = 0; i < QB; i++) acc[i][n * VE + x] = g_fma(s[p][i], v, acc[i][n * VE + x]);
        }
      }
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
  fence_block();
  bar();
  u32 *counter = counters + g * ((queries + QB - 1) / QB) + bidx();
  if (t == 0) finished = count_up(counter);
  bar();
  if (finished != parts - 1) return;
  fence_block();
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
