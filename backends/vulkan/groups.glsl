// The rows of x of a workgroup's tile. With the macro GROUPS and the constant GROUPED they are those of one expert: groups has two
// words for each tile, the expert above how many pairs of a token and a place the tile has, and which of the ordered pairs is
// its first; behind them lie the pairs by expert (experts.comp). A pair's row of y is its number, that of x its share-th part.
#ifdef GROUPS
layout(constant_id = 7) const bool GROUPED = false;
layout(binding = 6, std430) readonly buffer BG { uint groups[]; };
uint m0, end, wat, bat; // the tile's first row, the one behind its last, where its matrix and bias begin

// group finds tile i of so many; false: it has nothing to do here.
bool group(uint i, uint tiles) {
  m0 = i * BM;
  end = count;
  wat = woff;
  bat = boff + first;
  if (!GROUPED) return true;
  uint n = groups[2 * i] & 0xffffu, e = groups[2 * i] >> 16;
  m0 = 2 * tiles + groups[2 * i + 1];
  end = m0 + n;
  wat += (e - efirst) * rows * wstride;
  bat = boff + e * rows;
  return n > 0 && e >= efirst && e - efirst < ecount;
}

#define GROUP(i, tiles) if (!group(i, tiles)) return;
#define M0(i) m0
#define XROW(s) (GROUPED ? groups[min(s, end - 1)] / share : min(s, end - 1))
#define YROW(s) (GROUPED ? groups[min(s, end - 1)] : s)
#else
#define GROUP(i, tiles) const uint m0 = (i) * BM;
#define M0(i) ((i) * BM)
#define end count
#define wat woff
#define bat (boff + first)
#define XROW(s) min(s, count - 1)
#define YROW(s) (s)
#endif
