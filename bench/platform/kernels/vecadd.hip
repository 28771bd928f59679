// c = a + b, four floats a thread.
G_KERNEL G_BOUNDS(BLOCK) add(f4 *__restrict__ c, const f4 *__restrict__ a, const f4 *__restrict__ b, u32 n) {
  u32 i = thread();
  if (i >= n) return;
  f4 x = a[i], y = b[i];
  c[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
}
G_KERNEL G_BOUNDS(BLOCK) check(const float *c, u32 n, u32 *wrong) {
  u32 i = thread();
  if (i < n && c[i] != (float)(value(i, 1) + value(i, 2))) count_up(wrong);
}
