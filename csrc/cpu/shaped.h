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
#endif
