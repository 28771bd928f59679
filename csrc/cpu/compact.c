// Products over compact panels of one row of activations, and their expansion.
#include "compact.h"
#include "shaped.h"

// rare stores the sums of the products of a panel's exceptions. They come first: what is read at the
// end of a panel would have to be waited for.
INLINE void rare(const uint8_t *w, const float *x, float *y, long k) {
  const uint32_t *e = (const uint32_t *)(w + HEAD);
  UNROLL for (int r = 0; r < R; r++) st(y + VL * r, vset(0));
  ROLLED for (int s = 0; s < SEGMENTS; s++)
    ROLLED for (const uint32_t *end = end_of(w, s, k); e < end; e++) {
      union { uint32_t u; float f; } v = {*e & 0xffff0000};
      const long c = 4096l * s + (*e >> 4 & 4095);
      if (c < k) y[*e & 15] += v.f * x[c];
    }
}

INLINE void pc_bf16_panels(const uint8_t *w, const float *x, float *y, long k, long panels, const int FAR) {
  ROLLED for (; panels > 0; panels--, y += 16) {
    vf a[4 * R];
    UNROLL for (int i = 0; i < 4 * R; i++) a[i] = vset(0);
    const vi table = four(w);
    rare(w, x, y, k);
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

// px_bf16: blocks of 8 columns of a panel, from w on, as a plain panel has them. Exceptions are zeros.
void px_bf16(const uint8_t *table, const uint8_t *w, uint8_t *dst, long blocks) {
  const vi t = four(table);
  ROLLED for (; blocks > 0; blocks--, w += BLOCK, dst += 256) {
    vi p[4 * R];
    UNROLL for (int r = 0; r < R; r++) block(w, t, r, p + r);
    UNROLL for (int i = 0; i < 4 * R; i++) st_i(dst + 4 * VL * i, p[i]);
  }
}
