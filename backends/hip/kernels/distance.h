// What the distance from a query to a key gives to their score: slopes and, where COUNT distances have rows of their
// own, tables.
#ifndef COUNT
#define COUNT 0
#endif
#if COUNT > 0
#include "log.h"
#endif

// ops.AttentionAttr.SlopeOf
G_FN float slope_of(float alibi, u32 head, u32 heads) {
  u32 n = 1;
  while (2 * n <= heads) n *= 2;
  const float e = head < n ? (float)(head + 1) / (float)n : (float)(2 * (head - n) + 1) / (float)(2 * n);
  return g_exp(-alibi * e * 0.693147181f);
}

#if COUNT > 0
// ops.AttentionAttr.Distance
G_FN u32 distance(int back, float reach) {
  const int middle = COUNT / 2, quarter = COUNT / 4;
  int far = back < 0 ? -back : back;
  if (APART == 1) {
    const int exact = middle / 2;
    if (far >= exact) {
      const float more = g_log((float)far / (float)exact) / g_log(reach / (float)exact) * (float)(middle - exact);
      far = exact + (int)(more + 5e-5f);
      if (far > middle - 1) far = middle - 1;
    }
    return (u32)(back < 0 ? middle + far : far);
  }
  if (APART == 2 && far > quarter) {
    const float more = g_log((float)far / (float)quarter) / g_log((reach - 1.0f) / (float)quarter) * (float)(quarter - 1);
    const int whole = (int)(more - 5e-5f);
    far = quarter + whole + ((float)whole < more - 5e-5f ? 1 : 0);
  }
  const int d = middle + (back < 0 ? -far : far);
  return (u32)(d < 0 ? 0 : d > COUNT - 1 ? COUNT - 1 : d);
}
#endif
