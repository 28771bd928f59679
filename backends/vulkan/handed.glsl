// Stages that begin while the one before still runs (handed.go). HAND is the number of the
// binding; needs status.glsl.

layout(binding = HAND, std430) coherent volatile buffer Hand { uint ended[]; }; // workgroups of each stage
const uint IN_VAIN = 4095;         // the counter of waits that had no end: behind one nobody waits
const uint PATIENCE = 1u << 21;    // looks at a counter: seconds

// follow waits until as many workgroups of a stage have ended as it has; all invocations call it. What they
// wrote is then seen through buffers that are coherent and volatile.
void follow(uint launch, uint stage, uint whole) {
  if (gl_LocalInvocationIndex == 0 && whole > 0 && ended[IN_VAIN] == 0) {
    uint looks = 0;
    while (ended[stage] < whole && looks < PATIENCE) looks++;
    if (looks == PATIENCE) {
      refuse(launch, 0, 0, 0);
      atomicAdd(ended[IN_VAIN], 1u);
    }
  }
  barrier();
}

// hand says that a workgroup of a stage has ended, which all its invocations say.
void hand(uint stage) {
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex == 0) atomicAdd(ended[stage], 1u);
}
