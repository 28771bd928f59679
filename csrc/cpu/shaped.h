// What mat-vecs over panels of elements share: their shape, and pairs of bf16.
#ifndef SHAPED_H
#define SHAPED_H
#include "vec.h"

// even and odd are the columns of pairs of bf16.
INLINE vf even(vi t) { return (vf)shl(t, 16); }
INLINE vf odd(vi t) { return (vf)(t & viset((int)0xffff0000)); }

// SHAPED makes NAME of NAME_panels, with shape = far | panels << 2 as in panel.c.
#define SHAPED(NAME, T)                                                                                \
  void NAME(const T *w, const float *x, float *y, long k, long shape) {                                \
    long far = CAN_FAR ? shape & 3 : FAR_OFF;                                                          \
    if (far == FAR_PAGES)                                                                              \
      NAME##_panels(w, x, y, k, shape >> 2, FAR_PAGES);                                                \
    else if (far == FAR_LINES)                                                                         \
      NAME##_panels(w, x, y, k, shape >> 2, FAR_LINES);                                                \
    else if (CAN_ALL && far == FAR_ALL)                                                                \
      NAME##_panels(w, x, y, k, shape >> 2, FAR_ALL);                                                  \
    else                                                                                               \
      NAME##_panels(w, x, y, k, shape >> 2, FAR_OFF);                                                  \
  }

// Products of FEW rows of x at most, whose sums are registers: what is loaded of a panel meets all of them. Where
// registers allow, each is made of SUMS sums, as that of a row alone is, and the same. Where a processor has to be
// asked for what comes, it is for every line: there is arithmetic enough between them.
#define FEW 4
#define SUMS (VL == 16 ? 4 : 1)
#define SUM(a, j, u) ((a) + ((j) * SUMS + (u) % SUMS) * R)

// meet adds the products of column i, R vectors of rows, and of FEW rows of x to sums number u.
INLINE void meet(vf *a, const int u, const vf *w, const float *const *x, long i) {
  UNROLL for (int j = 0; j < FEW; j++) {
    vf b = vset(x[j][i]);
    UNROLL for (int r = 0; r < R; r++) SUM(a, j, u)[r] = fma(w[r], b, SUM(a, j, u)[r]);
  }
}

// meet_pair does so for pair u of columns of bf16 in bytes, or its first one alone.
INLINE void meet_pair(vf *a, const int u, const void *pair, const float *const *x, long i, const int both) {
  vf e[R], o[R];
  UNROLL for (int r = 0; r < R; r++) {
    vi t = ld_i((const uint8_t *)pair + 4 * VL * r);
    e[r] = even(t), o[r] = odd(t);
  }
  meet(a, 2 * u, e, x, i);
  if (both) meet(a, 2 * u + 1, o, x, i + 1);
}

// add_sums gives the sums of vector r of row j.
INLINE vf add_sums(vf *a, const int j, const int r) {
#if VL == 16
  return (SUM(a, j, 0)[r] + SUM(a, j, 1)[r]) + (SUM(a, j, 2)[r] + SUM(a, j, 3)[r]);
#else
  return SUM(a, j, 0)[r];
#endif
}

// FEW_ROWS makes NAME of NAME_few: y[j·ldy + 16·p + i] = row i of panel p times row j of x, j < n, with
// lds = ldx | ldy << 32 and shape = far | n << 2 | panels << 5.
#define FEW_ROWS(NAME, T)                                                                              \
  void NAME(const T *w, const float *x, float *y, long k, long lds, long shape) {                      \
    const long n = shape >> 2 & 7;                                                                     \
    const float *rows[FEW];                                                                            \
    UNROLL for (int j = 0; j < FEW; j++) rows[j] = x + (j < n ? j : n - 1) * (lds & 0xffffffff);       \
    if (CAN_FAR && (shape & 3) != FAR_OFF)                                                             \
      NAME##_few(w, rows, y, k, lds >> 32, n, shape >> 5, CAN_ALL ? FAR_ALL : FAR_LINES);              \
    else                                                                                               \
      NAME##_few(w, rows, y, k, lds >> 32, n, shape >> 5, FAR_OFF);                                    \
  }
#endif
