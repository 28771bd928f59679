// What recurrences share. A state lies in slots of `width` elements, the last of which is the position behind which the
// slot was, plus one (ops.StateSlots, ops.SlotRuns).
#pragma once
#include "prelude.h"
#define NT 64
#define FRESH -1 // from nothing
#define ON -2    // from the row before
#define PAD -3   // no row at all

struct Plan { const int *p; u32 rows, per; }; // of so many rows, a block's turn has `per`
G_FN int source(const Plan &p, u32 s) { return p.p[2 * s]; }
G_FN u32 target(const Plan &p, u32 s) { return (u32)p.p[2 * s + 1]; }
G_FN bool last(const Plan &p, u32 s) { return s + 1 == p.rows || source(p, s + 1) != ON; }

// A block takes the sequences that begin in the rows of its turn, number bidy(), through all their rows: from row `from`
// on, up to the first sequence that begins at `behind` or later. from is behind where none begins.
struct Turn { u32 from, behind; };
G_FN Turn turn(const Plan &p) {
  Turn t = {bidy() * p.per, g_min((bidy() + 1) * p.per, p.rows)};
  while (t.from < t.behind && source(p, t.from) == ON) t.from++;
  return t;
}
