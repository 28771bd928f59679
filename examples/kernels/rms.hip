// y = w x / sqrt(mean(x²) + eps): a block a row.
extern "C" __global__ void rms(const float *x, const float *w, float *y, int k, float eps) {
	__shared__ float sums[BLOCK];
	int t = threadIdx.x;
	x += (long long)blockIdx.x * k;
	y += (long long)blockIdx.x * k;
	float sum = 0;
	for (int i = t; i < k; i += BLOCK) sum += x[i] * x[i];
	sums[t] = sum;
	__syncthreads();
	for (int n = BLOCK / 2; n > 0; n /= 2) {
		if (t < n) sums[t] += sums[t + n];
		__syncthreads();
	}
	float scale = rsqrtf(sums[0] / k + eps);
	for (int i = t; i < k; i += BLOCK) y[i] = w[i] * x[i] * scale;
}
