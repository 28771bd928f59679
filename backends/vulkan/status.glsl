// Where kernels report an index out of range: the launch that found the first
// one wins. STATUS is the number of the binding.

layout(binding = STATUS, std430) buffer Status { uint status[]; };

void refuse(uint launch, uint index, int value, uint limit) {
  if (atomicCompSwap(status[0], 0u, launch + 1u) == 0u) {
    status[1] = index;
    status[2] = uint(value);
    status[3] = limit;
  }
}
