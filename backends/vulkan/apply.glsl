// The functions of elementwise operators, by number.

const uint ADD = 0, MUL = 1, SCALE = 2, SILU = 3, GELU_TANH = 4, GELU_ERF = 5, SIGMOID = 6, SOFTCAP = 7,
           SWIGLU = 8, GEGLU_TANH = 9, GEGLU_ERF = 10, COPY = 11;

bool two(uint op) { return op <= MUL || op >= SWIGLU && op <= GEGLU_ERF; }

float apply(uint op, float a, float b, float by) {
  switch (op) {
    case ADD: return a + b;
    case MUL: return a * b;
    case SCALE: return a * by;
    case SILU: return a * sigmoid_(a);
    case GELU_TANH: return gelu_tanh(a);
    case GELU_ERF: return gelu_erf(a);
    case SIGMOID: return sigmoid_(a);
    case SOFTCAP: return by * tanh_(a / by);
    case SWIGLU: return a * sigmoid_(a) * b;
    case GEGLU_TANH: return gelu_tanh(a) * b;
    case GEGLU_ERF: return gelu_erf(a) * b;
  }
  return a;
}
