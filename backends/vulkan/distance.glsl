// What the distance from a query to a key gives to their score: tables (ops.Attention) and slopes.
// distance is ops.AttentionAttr.Distance.
uint distance(int back) {
  const int half_ = int(COUNT / 2), quarter = int(COUNT / 4);
  int far = abs(back);
  if (APART == 1) {
    const int exact = half_ / 2;
    if (far >= exact)
      far = min(exact + int(log(float(far) / float(exact)) / log(REACH / float(exact)) * float(half_ - exact) + 5e-5), half_ - 1);
    return uint(back < 0 ? half_ + far : far);
  }
  if (APART == 2 && far > quarter)
    far = quarter + int(ceil(log(float(far) / float(quarter)) / log((REACH - 1) / float(quarter)) * float(quarter - 1) - 5e-5));
  return uint(clamp(half_ + (back < 0 ? -far : far), 0, int(COUNT) - 1));
}

// spaced is what tables of distances add to the score of head h and a key whose elements lie from row on.
float spaced(int back, uint h, uint row) {
  const uint d = distance(back), at = (d * FARHEADS + h % FARHEADS) * dh;
  float sum = 0;
  if (FARK != 0)
    for (uint i = 0; i < dh; i++) sum = fma(sq[i], NARROW(fark, FARK, farkoff + at + i), sum);
#ifndef CODED
  if (FARQ != 0)
    for (uint i = 0; i < dh; i++) sum = fma(NARROW(farq, FARQ, farqoff + at + i), NARROW(k, K, row + i), sum);
#endif
  sum *= scale;
  if (BIAS != 0) sum += NARROW(bias, BIAS, biasoff + d * heads + h);
  return sum;
}

// fallOf is what each position of distance takes off the scores of head h.
float fallOf(uint h) {
  if (!(alibi > 0)) return 0;
  uint m = 1;
  while (2 * m <= heads) m *= 2;
  float e = h < m ? float(h + 1) / float(m) : float(2 * (h - m) + 1) / float(2 * m);
  return slope * exp_(-alibi * e * 0.69314718);
}
