// An empty kernel: with go it counts, which shows that every launch ran.
G_KERNEL G_BOUNDS(BLOCK) empty(u32 *count, u32 go) {
  if (go && tid() == 0) count_up(count);
}
