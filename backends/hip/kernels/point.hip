// Functions of single elements, and of two: a thread an element. Operands are
// rows with a stride in dimension 0, results are dense.
#include "prelude.h"
#include "pair.h"

// where dense element i of a tensor lies: row is the elements of an index of dimension 0
G_FN u64 spread(u32 i, u32 row, u32 stride) { return row == stride ? i : (u64)(i / row) * stride + i % row; }

#define UNARY(NAME, VALUE)                                                                     \
  G_KERNEL G_BOUNDS(256) NAME(float *__restrict__ y, const float *x, u32 n, u32 row, u32 stride, float p) { \
    begin_next();                                                                              \
    wait_previous();                                                                           \
    u32 i = bidx() * 256 + tid();                                                              \
    if (i >= n) return;                                                                        \
    float v = x[spread(i, row, stride)];                                                       \
    (void)p;                                                                                   \
    y[i] = VALUE;                                                                              \
  }
UNARY(scale, v * p)
UNARY(sigmoid, g_sigmoid(v))
UNARY(silu, v * g_sigmoid(v))
UNARY(gelu_e, gelu_erf(v))
UNARY(gelu_t, gelu_tanh(v))
UNARY(softcap, p *g_tanh(v / p))

// b is of x's shape, or a row of it that is repeated: then every is its length.
#define BINARY(NAME, VALUE)                                                                         \
  G_KERNEL G_BOUNDS(256) NAME(float *__restrict__ y, const float *a, u32 n, u32 arow, u32 astride, const void *b, \
                              u32 brow, u32 bstride, u32 btype, u32 every) {                        \
    begin_next();                                                                                   \
    wait_previous();                                                                                \
    u32 i = bidx() * 256 + tid();                                                                   \
    if (i >= n) return;                                                                             \
    float v = a[spread(i, arow, astride)];                                                          \
    float u = load_float(b, btype, every ? i % every : spread(i, brow, bstride));                   \
    y[i] = VALUE;                                                                                   \
  }
BINARY(add, v + u)
BINARY(mul, v *u)
BINARY(swiglu, of_swiglu(v, u))
BINARY(geglu_e, of_geglu_e(v, u))
BINARY(geglu_t, of_geglu_t(v, u))
