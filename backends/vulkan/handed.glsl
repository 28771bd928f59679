// Results of stages that run while the next one already waits for them (overlap.go): a word that nobody has
// written yet in this step is NOT_YET, so that each says by itself whether it may be read. HAND is the number of the
// binding; needs status.glsl.

const uint NOT_YET = 0x80808080u;  // no four codes, no scale, no sum of squares; of other numbers see said
const uint PATIENCE = 1u << 21;    // looks at a word: seconds
layout(binding = HAND, std430) coherent volatile buffer Hand { uint vain; }; // NOT_YET, until somebody has waited in vain

bool there(uint v) { return v != NOT_YET; }
bool there(uvec4 v) { return all(notEqual(v, uvec4(NOT_YET))); }

// said is v, or its neighbour if that is what says that nothing was written.
float said(float v) { return there(floatBitsToUint(v)) ? v : uintBitsToFloat(NOT_YET + 1u); }

// tooLong ends the wait of a launch, and of all that begin to wait afterwards, if it has looked too often.
void tooLong(uint launch, uint looks) {
  if (looks < PATIENCE) return;
  refuse(launch, 0, 0, 0);
  atomicExchange(vain, 0u);
}
