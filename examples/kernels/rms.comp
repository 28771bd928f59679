#version 450
// y = w x / sqrt(mean(x²) + eps): a workgroup a row.
layout(local_size_x = BLOCK) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer W { float w[]; };
layout(set = 0, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Numbers { int k; float eps; };
shared float sums[BLOCK];

void main() {
	uint row = gl_WorkGroupID.x * k, t = gl_LocalInvocationID.x;
	float sum = 0;
	for (uint i = t; i < k; i += BLOCK) sum += x[row + i] * x[row + i];
	sums[t] = sum;
	barrier();
	for (uint n = BLOCK / 2; n > 0; n /= 2) {
		if (t < n) sums[t] += sums[t + n];
		barrier();
	}
	float scale = inversesqrt(sums[0] / k + eps);
	for (uint i = t; i < k; i += BLOCK) y[row + i] = w[i] * x[row + i] * scale;
}
