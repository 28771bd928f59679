#version 450
// y = x wᵀ for e4m3 weights in tiles of 32 rows by 16 columns: fp8.hip for Vulkan, which says the contract.
layout(local_size_x = 32 * WAVES) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer W { uvec4 w[]; };
layout(set = 0, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Numbers { uint n, k; };
shared float parts[WAVES][32];

// Multiplied in two steps, as devices may take denormal numbers for zero: exponent 0 is computed by itself.
float e4m3(uint b) {
	float v = (b & 0x78u) == 0 ? float(b & 7u) * 0.001953125 : uintBitsToFloat(((b & 0x7fu) << 20) + (120u << 23));
	return (b & 0x80u) != 0 ? -v : v;
}

void main() {
	uint lane = gl_LocalInvocationID.x % 32, wave = gl_LocalInvocationID.x / 32, tiles = k / 16;
	uint col = gl_WorkGroupID.x * 32 + lane;
	float sum = 0;
	for (uint t = wave; t < tiles; t += WAVES) {
		uvec4 q = w[(gl_WorkGroupID.x * tiles + t) * 32 + lane];
		for (uint i = 0; i < 16; i++)
			sum += x[gl_WorkGroupID.y * k + 16 * t + i] * e4m3(q[i / 4] >> (8 * (i % 4)) & 255u);
	}
	parts[wave][lane] = sum;
	barrier();
	if (wave > 0 || col >= n) return;
	for (uint i = 1; i < WAVES; i++) sum += parts[i][lane];
	y[gl_WorkGroupID.y * n + col] = sum;
}
