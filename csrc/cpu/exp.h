// e^x of vectors, for elementwise kernels and recurrences.
#ifndef EXP_H
#define EXP_H
#include "vec.h"

// vexp: x = n·ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial to
// degree 7 (error below 2^-27 relative), then times 2^n in two steps so that
// subnormal results are rounded once. Overflow gives inf, NaN stays.
INLINE vf vexp(vf x) {
  x = where_lt(x, vset(-104.f), vset(-104.f), x);
  x = where_lt(vset(89.f), x, vset(89.f), x);
  vi n = round_i(x * vset(1.44269504f));
  vf nf = from_i(n);
  vf r = fnma(nf, vset(0x1.62e4p-1f), x);           // ln 2, high part: exact product
  r = fnma(nf, vset(0x1.7f7d1cp-20f), r);           // ln 2, the rest
  vf p = fma(r, vset(1.f / 5040), vset(1.f / 720));
  p = fma(p, r, vset(1.f / 120));
  p = fma(p, r, vset(1.f / 24));
  p = fma(p, r, vset(1.f / 6));
  p = fma(p, r, vset(0.5f));
  p = fma(p * r, r, r);
  p += vset(1.f);
  vi half = sar(n, 1);
  vf a = (vf)shl(addi(half, viset(127)), 23), b = (vf)shl(addi(subi(n, half), viset(127)), 23);
  return p * a * b;
}
#endif
