// What memory gives at most: LOADS pieces of 16 bytes a thread, all of them under
// way at once. n counts pieces and is a multiple of BLOCK * LOADS.
#define HIDDEN 0xdeadbeefu
#ifndef LOADS
#define LOADS 1
#endif
typedef const u4 *__restrict__ In;
G_FN u32 first() { return bidx() * (BLOCK * LOADS) + tid(); }
G_KERNEL G_BOUNDS(BLOCK) read(u4 *__restrict__ a, In b, u32 *hits, u32 n) {
  u32 i = first();
  u4 v[LOADS];
  G_UNROLL for (u32 u = 0; u < LOADS; u++) v[u] = b[i + u * BLOCK];
  u32 found = 0;
  G_UNROLL for (u32 u = 0; u < LOADS; u++)
    found += (v[u].x == HIDDEN) + (v[u].y == HIDDEN) + (v[u].z == HIDDEN) + (v[u].w == HIDDEN);
  for (; found; found--) count_up(hits);
}
G_KERNEL G_BOUNDS(BLOCK) copy(u4 *__restrict__ a, In b, u32 *hits, u32 n) {
  u32 i = first();
  u4 v[LOADS];
  G_UNROLL for (u32 u = 0; u < LOADS; u++) v[u] = b[i + u * BLOCK];
  G_UNROLL for (u32 u = 0; u < LOADS; u++) a[i + u * BLOCK] = v[u];
}
G_KERNEL G_BOUNDS(BLOCK) write(u4 *__restrict__ a, In b, u32 *hits, u32 n) {
  u32 i = first();
  u4 v = {n, n, n, n};
  G_UNROLL for (u32 u = 0; u < LOADS; u++) a[i + u * BLOCK] = v;
}
// hide puts the number that read looks for at each STEP-th word of a.
G_KERNEL G_BOUNDS(BLOCK) hide(u32 *a, u32 n, u32 step) {
  u32 i = thread();
  if ((u64)i * step < n) a[(u64)i * step] = HIDDEN;
}
// constant counts the words that are not x.
G_KERNEL G_BOUNDS(BLOCK) constant(const u32 *a, u32 n, u32 x, u32 *wrong) {
  u32 i = thread();
  if (i < n && a[i] != x) count_up(wrong);
}
