// Reductions over a workgroup of any number of subgroups of any size. All
// invocations must call them; all get the result.

shared float reduced[256];

// oneEach says whether a subgroup has an invocation for each of them. gl_SubgroupSize may be more than it has.
#define oneEach (gl_NumSubgroups * gl_NumSubgroups <= gl_WorkGroupSize.x)

float wgSum(float v) {
  v = subgroupAdd(v);
  if (gl_NumSubgroups == 1) return v;
  if (subgroupElect()) reduced[gl_SubgroupID] = v;
  barrier();
  float s = 0;
  if (oneEach) s = subgroupAdd(gl_SubgroupInvocationID < gl_NumSubgroups ? reduced[gl_SubgroupInvocationID] : 0.0);
  else for (uint i = 0; i < gl_NumSubgroups; i++) s += reduced[i];
  barrier();
  return s;
}

float wgMax(float v) {
  v = subgroupMax(v);
  if (gl_NumSubgroups == 1) return v;
  if (subgroupElect()) reduced[gl_SubgroupID] = v;
  barrier();
  float s = reduced[0];
  if (oneEach) s = subgroupMax(gl_SubgroupInvocationID < gl_NumSubgroups ? reduced[gl_SubgroupInvocationID] : s);
  else for (uint i = 1; i < gl_NumSubgroups; i++) s = max(s, reduced[i]);
  barrier();
  return s;
}
