#version 450
#extension GL_GOOGLE_include_directive : require
#define STATUS 4
#include "status.glsl"
// Plans a recurrence's step: for each row from which slot of the state it goes on and which slot its sequence writes,
// and marks the slots with the positions that they will hold. One workgroup.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool SLOTS = false; // rows have slots of their own; else all are of one sequence
layout(binding = 0, std430) buffer BState { float state[]; };
layout(binding = 1, std430) readonly buffer BPos { int pos[]; };
layout(binding = 2, std430) readonly buffer BSlot { int slot[]; };
layout(binding = 3, std430) writeonly buffer BPlan { int plan[]; };
layout(push_constant) uniform Push { uint tokens, slots, width, stateoff, posoff, slotoff, planoff, launch; };

const int FRESH = -1, ON = -2, PAD = -3;
shared int from, to;

uint mark(int i) { return stateoff + (uint(i) + 1) * width - 1; }

bool begins(uint s) {
  return s == 0 || slot[slotoff + s] != slot[slotoff + s - 1] || pos[posoff + s] != pos[posoff + s - 1] + 1;
}

void put(uint s, int source, int target) {
  plan[planoff + 2 * s] = source;
  plan[planoff + 2 * s + 1] = target;
}

void main() {
  const uint t = gl_LocalInvocationID.x, T = gl_WorkGroupSize.x;
  if (!SLOTS) {
    int first = pos[posoff];
    if (t == 0) {
      from = FRESH;
      to = 0;
      if (first > 0) {
        for (int i = 0; i < int(slots); i++)
          if (state[mark(i)] == float(first)) from = i;
        if (from < 0) {
          refuse(launch, 0, first, 0);
          from = PAD;
        }
        to = -1;
        for (int i = 0; i < int(slots); i++) { // what lies ahead is void, else the oldest goes
          if (i == from) continue;
          bool ahead = state[mark(i)] > float(first), was = to >= 0 && state[mark(to)] > float(first);
          if (to < 0 || ahead && !was || ahead == was && state[mark(i)] < state[mark(to)]) to = i;
        }
      } else {
        for (int i = 0; i < int(slots); i++) state[mark(i)] = 0.0;
      }
      if (from != PAD) state[mark(to)] = float(first + int(tokens));
    }
    barrier();
    for (uint s = t; s < tokens; s += T) {
      if (pos[posoff + s] != first + int(s) || first < 0) refuse(launch, s, pos[posoff + s], 0);
      put(s, from == PAD || s == 0 ? from : ON, to);
    }
    return;
  }
  for (uint s = t; s < tokens; s += T) {
    int at = slot[slotoff + s], p = pos[posoff + s];
    bool wrong = at < -1 || at >= int(slots) || p < 0;
    if (!wrong && at >= 0 && begins(s) && p > 0) wrong = state[mark(at)] != float(p);
    if (wrong) refuse(launch, s, at < -1 || at >= int(slots) ? at : p, slots);
    put(s, wrong || at < 0 ? PAD : !begins(s) ? ON : p == 0 ? FRESH : at, max(at, 0));
  }
  barrier(); // marks are read above
  for (uint s = t; s < tokens; s += T) {
    int at = slot[slotoff + s];
    if (at >= 0 && at < int(slots) && (s + 1 == tokens || begins(s + 1))) state[mark(at)] = float(pos[posoff + s] + 1);
  }
}
