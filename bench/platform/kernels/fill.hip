// Random data, and counting the elements of a buffer that are not what they should be.
#ifndef ELEM
#define ELEM float
#endif
G_KERNEL G_BOUNDS(BLOCK) fill(ELEM *a, u32 n, u32 seed) {
  u32 i = thread();
  if (i < n) a[i] = (ELEM)value(i, seed);
}
// 32-bit words of all their bits
G_KERNEL G_BOUNDS(BLOCK) words(u32 *a, u32 n, u32 seed) {
  u32 i = thread();
  if (i < n) a[i] = mix(i ^ seed);
}
G_KERNEL G_BOUNDS(BLOCK) same(const u32 *a, const u32 *b, u32 n, u32 *wrong) {
  u32 i = thread();
  if (i < n && a[i] != b[i]) count_up(wrong);
}
