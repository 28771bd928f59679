// The stream kernels, one element a thread, and their checks. The buffers hold
// value(i, 1), value(i, 2), value(i, 3).
#define P double *__restrict__ a, const double *__restrict__ b, const double *__restrict__ c, const double *__restrict__ d, u32 *hits, u32 n
G_KERNEL G_BOUNDS(BLOCK) init(P) {
  u32 i = thread();
  if (i < n) a[i] = 1.5;
}
// read looks for a number that was hidden in b at known places.
G_KERNEL G_BOUNDS(BLOCK) read(P) {
  u32 i = thread();
  if (i < n && b[i] == -0.25) count_up(hits);
}
G_KERNEL G_BOUNDS(BLOCK) scale(P) {
  u32 i = thread();
  if (i < n) a[i] = 0.5 * b[i];
}
G_KERNEL G_BOUNDS(BLOCK) triad(P) {
  u32 i = thread();
  if (i < n) a[i] = b[i] * d[i] + c[i];
}
G_KERNEL G_BOUNDS(BLOCK) stencil3(P) {
  u32 i = thread();
  if (i > 0 && i + 1 < n) a[i] = 0.25 * (b[i - 1] + b[i + 1]) + 0.5 * b[i];
}
G_KERNEL G_BOUNDS(BLOCK) stencil5(P) {
  u32 i = thread();
  if (i > 1 && i + 2 < n) a[i] = 0.125 * (b[i - 2] + b[i + 2]) + 0.25 * (b[i - 1] + b[i + 1]) + 0.5 * b[i];
}

// check counts the elements of a that are not what kernel KIND gives.
G_KERNEL G_BOUNDS(BLOCK) check(const double *a, u32 n, u32 kind, u32 *wrong) {
  u32 i = thread();
  if (i >= n) return;
  double b = value(i, 1), want = 0;
  switch (kind) {
  case 0: want = 1.5; break;
  case 2: want = 0.5 * b; break;
  case 3: want = b * (double)value(i, 3) + (double)value(i, 2); break;
  case 4:
    if (i < 1 || i + 1 >= n) return;
    want = 0.25 * value(i - 1, 1) + 0.25 * value(i + 1, 1) + 0.5 * b;
    break;
  case 5:
    if (i < 2 || i + 2 >= n) return;
    want = 0.125 * value(i - 2, 1) + 0.125 * value(i + 2, 1) + 0.25 * value(i - 1, 1) + 0.25 * value(i + 1, 1) + 0.5 * b;
    break;
  }
  if (a[i] != want) count_up(wrong);
}
// hide puts the number that read looks for at each step-th element.
G_KERNEL G_BOUNDS(BLOCK) hide(double *b, u32 n, u32 step) {
  u32 i = thread();
  if ((u64)i * step < n) b[(u64)i * step] = -0.25;
}
