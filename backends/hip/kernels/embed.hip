// y[s] = w[ids[s]], widened: a block a row.
#include "prelude.h"
#include "weights.h"

G_KERNEL G_BOUNDS(128) embed(float *y, const int *ids, Weights w, u32 rows, u32 *status, u32 launch) {
  begin_next();
  wait_previous();
  const u32 s = bidx();
  int id = ids[s];
  if (id < 0 || (u32)id >= rows) {
    if (tid() == 0) fail(status, launch, s, id);
    id = 0;
  }
  const Row row = w_row(w, (u64)id);
  for (u32 e = 4 * tid(); e < w.k; e += 4 * 128) {
    Quad q = w_quad(row, e);
    w_apply(q);
    G_UNROLL for (u32 i = 0; i < 4; i++) {
      if (e + i < w.k) y[(u64)s * w.k + e + i] = q.v[i];
    }
  }
}
