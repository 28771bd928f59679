// A recurrence's state in slots (ops.StateSlots, ops.SlotRuns), and what slots.comp planned for each row: from which
// slot its sequence goes on, and which it writes.
layout(binding = 0, std430) buffer BState { float state[]; };
layout(binding = 1, std430) readonly buffer BPlan { int plan[]; };

const int FRESH = -1, ON = -2, PAD = -3; // from nothing, from the row before, no row at all

int source(uint planoff, uint s) { return plan[planoff + 2 * s]; }
int target(uint planoff, uint s) { return plan[planoff + 2 * s + 1]; }
