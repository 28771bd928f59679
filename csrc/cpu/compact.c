// Products over compact panels of one row of activations, and their expansion.
#include "compact.h"
#include "shaped.h"

INLINE void pc_bf16_panels(const uint8_t *w, const float *x, float *y, long k, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    vf a[4 * R];
    UNROLL for (int i = 0; i < 4 * R; i++) a[i] = vset(0);
    const vi table = four(w);
    if (FAR) ask(FAR, w, w + HEAD + room(k)); // lines as far ahead of the head would be missed
    rare_sums((const uint32_t *)(w + ENDS), x, y, k, 0);
    w += HEAD + room(k);
    ROLLED for (long i = 0; i < k; i += 8, w += BLOCK) {
      if (FAR) ask_step(FAR, w);
      vi p[4 * R];
      UNROLL for (int r = 0; r < R; r++) block(w, table, r, p + r);
      UNROLL for (int u = 0; u < 4; u++)
        UNROLL for (int r = 0; r < R; r++) {
          vf *e = a + u % 2 * 2 * R + r, *o = e + R;
          *e = fma(even(p[R * u + r]), vset(x[i + 2 * u]), *e);
          *o = fma(odd(p[R * u + r]), vset(x[i + 2 * u + 1]), *o);
        }
    }
    UNROLL for (int r = 0; r < R; r++) st(y + VL * r, ld_f32(y + VL * r) + ((a[r] + a[R + r]) + (a[2 * R + r] + a[3 * R + r])));
  }
}
SHAPED(pc_bf16, uint8_t)

INLINE void pcn_bf16_few(const uint8_t *w, const float *const *x, float *y, long k, long ldy, long n, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    vf a[FEW * SUMS * R];
    UNROLL for (int i = 0; i < FEW * SUMS * R; i++) a[i] = vset(0);
    const vi table = four(w);
    if (FAR) ask(FAR, w, w + HEAD + room(k));
    ROLLED for (long j = 0; j < n; j++) rare_sums((const uint32_t *)(w + ENDS), x[j], y + j * ldy, k, 0);
    w += HEAD + room(k);
    ROLLED for (long i = 0; i < k; i += 8, w += BLOCK) {
      if (FAR) ask_step(FAR, w);
      vi p[4 * R];
      UNROLL for (int r = 0; r < R; r++) block(w, table, r, p + r);
      UNROLL for (int u = 0; u < 4; u++) {
        vf e[R], o[R];
        UNROLL for (int r = 0; r < R; r++) e[r] = even(p[R * u + r]), o[r] = odd(p[R * u + r]);
        meet(a, 2 * u, e, x, i + 2 * u);
        meet(a, 2 * u + 1, o, x, i + 2 * u + 1);
      }
    }
    UNROLL for (int j = 0; j < FEW; j++)
      if (j < n) UNROLL for (int r = 0; r < R; r++) st(y + j * ldy + VL * r, ld_f32(y + j * ldy + VL * r) + add_sums(a, j, r));
  }
}
FEW_ROWS(pcn_bf16, uint8_t)

// px_bf16: blocks of 8 columns of a panel, from w on, as a plain panel has them. Exceptions are zeros.
void px_bf16(const uint8_t *table, const uint8_t *w, uint8_t *dst, long blocks) {
  const vi t = four(table);
  ROLLED for (; blocks > 0; blocks--, w += BLOCK, dst += 256) {
    vi p[4 * R];
    UNROLL for (int r = 0; r < R; r++) block(w, t, r, p + r);
    UNROLL for (int i = 0; i < 4 * R; i++) st_i(dst + 4 * VL * i, p[i]);
  }
}
