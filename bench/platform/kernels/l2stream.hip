// The stream kernels over chunks of BLOCK elements, of which there are fewer than
// blocks: block b works on chunk b mod chunks.
#define P double *__restrict__ a, const double *__restrict__ b, const double *__restrict__ c, const double *__restrict__ d, u32 *hits, u32 chunks
G_FN u32 place(u32 chunks) { return bidx() % chunks * BLOCK + tid(); }
G_KERNEL G_BOUNDS(BLOCK) init(P) { a[place(chunks)] = 1.5; }
G_KERNEL G_BOUNDS(BLOCK) read(P) {
  if (b[place(chunks)] == -0.25) count_up(hits);
}
G_KERNEL G_BOUNDS(BLOCK) scale(P) {
  u32 i = place(chunks);
  a[i] = 0.5 * b[i];
}
G_KERNEL G_BOUNDS(BLOCK) triad(P) {
  u32 i = place(chunks);
  a[i] = b[i] * d[i] + c[i];
}
