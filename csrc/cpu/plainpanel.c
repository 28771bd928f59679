// Panels of the plain types: sixteen rows, column by column. Those of bf16
// hold pairs of columns: row by row two elements, so that one register gives
// both; an odd last column is paired with zeros.
#include "shaped.h"

// FETCH asks for BYTES of weights before their turn, where FAR says so.
#define FETCH(FAR, p, BYTES) \
  if (FAR) UNROLL for (int o_ = 0; o_ < BYTES; o_ += STEP) ask_step(FAR, (const uint8_t *)(p) + o_)

// NAME: y[16·p + i] = row i of panel p times x, for p < panels, with
// shape = far | panels << 2 as in panel.c.
#define PANEL_F(NAME, T, LD)                                                                           \
  INLINE void NAME##_panels(const T *w, const float *x, float *y, long k, long panels, const int FAR) { \
    ROLLED for (; panels > 0; panels--, y += 16) {                                                     \
      vf a[4 * R];                                                                                     \
      UNROLL for (int i = 0; i < 4 * R; i++) a[i] = vset(0);                                           \
      long i = 0;                                                                                      \
      ROLLED for (; i + 8 <= k; i += 8, w += 128) {                                                    \
        FETCH(FAR, w, 128 * (int)sizeof(T));                                                           \
        UNROLL for (int u = 0; u < 8; u++)                                                             \
          UNROLL for (int r = 0; r < R; r++)                                                           \
            a[u % 4 * R + r] = fma(LD(w + 16 * u + VL * r), vset(x[i + u]), a[u % 4 * R + r]);         \
      }                                                                                                \
      ROLLED for (; i < k; i++, w += 16)                                                               \
        UNROLL for (int r = 0; r < R; r++) a[r] = fma(LD(w + VL * r), vset(x[i]), a[r]);               \
      UNROLL for (int r = 0; r < R; r++) st(y + VL * r, (a[r] + a[R + r]) + (a[2 * R + r] + a[3 * R + r])); \
    }                                                                                                  \
  }                                                                                                    \
  SHAPED(NAME, T)
PANEL_F(pf_f32, float, ld_f32)
PANEL_F(pf_f16, uint16_t, ld_f16)

INLINE void pf_bf16_panels(const uint16_t *w, const float *x, float *y, long k, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    vf a[4 * R];
    UNROLL for (int i = 0; i < 4 * R; i++) a[i] = vset(0);
    long i = 0;
    ROLLED for (; i + 8 <= k; i += 8, w += 128) {
      FETCH(FAR, w, 256);
      UNROLL for (int u = 0; u < 4; u++)
        UNROLL for (int r = 0; r < R; r++) {
          vi t = ld_i(w + 32 * u + 2 * VL * r);
          vf *e = a + u % 2 * 2 * R + r, *o = e + R;
          *e = fma(even(t), vset(x[i + 2 * u]), *e);
          *o = fma(odd(t), vset(x[i + 2 * u + 1]), *o);
        }
    }
    ROLLED for (; i < k; i += 2, w += 32)
      UNROLL for (int r = 0; r < R; r++) {
        vi t = ld_i(w + 2 * VL * r);
        a[r] = fma(even(t), vset(x[i]), a[r]);
        if (i + 1 < k) a[R + r] = fma(odd(t), vset(x[i + 1]), a[R + r]);
      }
    UNROLL for (int r = 0; r < R; r++) st(y + VL * r, (a[r] + a[R + r]) + (a[2 * R + r] + a[3 * R + r]));
  }
}
SHAPED(pf_bf16, uint16_t)

#define FEW_STEP (VL == 16 ? 8 : 4) // columns at a time: eight as above, where a row's sums are those of a row alone
#define PANEL_FEW(NAME, T, LD)                                                                         \
  INLINE void NAME##_few(const T *w, const float *const *x, float *y, long k, long ldy, long n, long panels, const int FAR) { \
    ROLLED for (; panels > 0; panels--, y += 16) {                                                     \
      vf a[FEW * SUMS * R];                                                                            \
      UNROLL for (int i = 0; i < FEW * SUMS * R; i++) a[i] = vset(0);                                  \
      long i = 0;                                                                                      \
      ROLLED for (; i + FEW_STEP <= k; i += FEW_STEP, w += 16 * FEW_STEP) {                            \
        FETCH(FAR, w, 16 * FEW_STEP * (int)sizeof(T));                                                 \
        UNROLL for (int u = 0; u < FEW_STEP; u++) {                                                    \
          vf v[R];                                                                                     \
          UNROLL for (int r = 0; r < R; r++) v[r] = LD(w + 16 * u + VL * r);                           \
          meet(a, u, v, x, i + u);                                                                     \
        }                                                                                              \
      }                                                                                                \
      ROLLED for (; i < k; i++, w += 16) {                                                             \
        vf v[R];                                                                                       \
        UNROLL for (int r = 0; r < R; r++) v[r] = LD(w + VL * r);                                      \
        meet(a, 0, v, x, i);                                                                           \
      }                                                                                                \
      UNROLL for (int j = 0; j < FEW; j++)                                                             \
        if (j < n) UNROLL for (int r = 0; r < R; r++) st(y + j * ldy + VL * r, add_sums(a, j, r));     \
    }                                                                                                  \
  }                                                                                                    \
  FEW_ROWS(NAME, T)
PANEL_FEW(pn_f32, float, ld_f32)
PANEL_FEW(pn_f16, uint16_t, ld_f16)

INLINE void pn_bf16_few(const uint16_t *w, const float *const *x, float *y, long k, long ldy, long n, long panels,
                        const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    vf a[FEW * SUMS * R];
    UNROLL for (int i = 0; i < FEW * SUMS * R; i++) a[i] = vset(0);
    long i = 0;
    ROLLED for (; i + FEW_STEP <= k; i += FEW_STEP, w += 16 * FEW_STEP) {
      FETCH(FAR, w, 32 * FEW_STEP);
      UNROLL for (int u = 0; u < FEW_STEP / 2; u++) meet_pair(a, u, (const uint8_t *)(w + 32 * u), x, i + 2 * u, 1);
    }
    ROLLED for (; i < k; i += 2, w += 32) meet_pair(a, 0, (const uint8_t *)w, x, i, i + 1 < k);
    UNROLL for (int j = 0; j < FEW; j++)
      if (j < n) UNROLL for (int r = 0; r < R; r++) st(y + j * ldy + VL * r, add_sums(a, j, r));
  }
}
FEW_ROWS(pn_bf16, uint16_t)

// The panel as the micro-kernel of gemm.c wants it, in f32: tiles of MR rows,
// column by column. A panel is one tile, two, or half of one.
#define AT(i, r) dst[(VL * (r) / MICRO_MR * k + (i)) * MICRO_MR + VL * (r) % MICRO_MR]
#define PANEL_W(NAME, T, LD)                                                                           \
  void NAME(const T *w, float *dst, long k) {                                                          \
    ROLLED for (long i = 0; i < k; i++, w += 16)                                                       \
      UNROLL for (int r = 0; r < R; r++) st(&AT(i, r), LD(w + VL * r));                                \
  }
PANEL_W(pw_f32, float, ld_f32)
PANEL_W(pw_f16, uint16_t, ld_f16)
void pw_bf16(const uint16_t *w, float *dst, long k) {
  ROLLED for (long i = 0; i < k; i += 2, w += 32)
    UNROLL for (int r = 0; r < R; r++) {
      vi t = ld_i(w + 2 * VL * r);
      st(&AT(i, r), even(t));
      if (i + 1 < k) st(&AT(i + 1, r), odd(t));
    }
}
