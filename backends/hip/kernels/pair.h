// Functions of single elements, and of a pair of products: the same wherever they
// are applied, so that results are equal bit for bit.
#pragma once
G_FN float gelu_erf(float v) { return 0.5f * v * (1.0f + g_erf(v * 0.707106781f)); }
G_FN float gelu_tanh(float v) { return 0.5f * v * (1.0f + g_tanh(0.797884561f * (v + 0.044715f * v * v * v))); }
G_FN float of_swiglu(float v, float u) { return v * g_sigmoid(v) * u; }
G_FN float of_geglu_e(float v, float u) { return gelu_erf(v) * u; }
G_FN float of_geglu_t(float v, float u) { return gelu_tanh(v) * u; }
