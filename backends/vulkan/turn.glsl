// Rotations. Angles are exact: frequencies come as fractions of a turn in 64 bits, position
// times frequency is computed modulo 2^64, and its upper 32 bits are the turn.

// The cosine and sine of turn / 2^32 of a full turn: the nearest quarter, and Taylor
// polynomials within an eighth, whose errors are below 2e-9.
vec2 circle(uint turn) {
  uint quarter = (turn + 0x20000000u) >> 30;
  float a = float(int(turn - (quarter << 30))) * 1.46291807926715968e-9; // 2 pi / 2^32
  float s = a * a;
  float p = 1.0 / 362880.0;
  p = fma(p, s, -1.0 / 5040.0);
  p = fma(p, s, 1.0 / 120.0);
  p = fma(p, s, -1.0 / 6.0);
  float si = fma(p * s, a, a);
  float q = -1.0 / 3628800.0;
  q = fma(q, s, 1.0 / 40320.0);
  q = fma(q, s, -1.0 / 720.0);
  q = fma(q, s, 1.0 / 24.0);
  q = fma(q, s, -0.5);
  float co = fma(q, s, 1.0);
  vec2 r = (quarter & 1u) == 0 ? vec2(co, si) : vec2(-si, co);
  return (quarter & 2u) == 0 ? r : -r;
}

// rotation gives cosine and sine of a frequency at a position.
vec2 rotation(uvec2 f, uint position) {
  uint hi, lo;
  umulExtended(position, f.x, hi, lo);
  return circle(position * f.y + hi);
}
