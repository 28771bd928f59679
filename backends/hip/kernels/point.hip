// Functions of single elements, and of two: a thread an element. Operands are
// rows with a stride in dimension 0, results are dense.
#include "prelude.h"

// where dense element i of a tensor lies: row is the elements of an index of dimension 0
G_FN u64 spread(u32 i, u32 row, u32 stride) { return row == stride ? i : (u64)(i / row) * stride + i % row; }
G_FN float gelu_erf(float v) { return 0.5f * v * (1.0f + g_erf(v * 0.707106781f)); }
G_FN float gelu_tanh(float v) { return 0.5f * v * (1.0f + g_tanh(0.797884561f * (v + 0.044715f * v * v * v))); }

#define UNARY(NAME, VALUE)                                                                     \
  G_KERNEL G_BOUNDS(256) NAME(float *__restrict__ y, const float *__restrict__ x, u32 n, u32 row, u32 stride, float p) { \
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
  G_KERNEL G_BOUNDS(256) NAME(float *__restrict__ y, const float *__restrict__ a, u32 n, u32 arow, u32 astride, const void *__restrict__ b, \
                              u32 brow, u32 bstride, u32 btype, u32 every) {                        \
    u32 i = bidx() * 256 + tid();                                                                   \
    if (i >= n) return;                                                                             \
    float v = a[spread(i, arow, astride)];                                                          \
    float u = load_float(b, btype, every ? i % every : spread(i, brow, bstride));                   \
    y[i] = VALUE;                                                                                   \
  }
BINARY(add, v + u)
BINARY(mul, v *u)
BINARY(swiglu, v *g_sigmoid(v) * u)
BINARY(geglu_e, gelu_erf(v) * u)
BINARY(geglu_t, gelu_tanh(v) * u)
