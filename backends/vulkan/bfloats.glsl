// packBFloats rounds four numbers to bf16.
uvec2 packBFloats(vec4 v) { return uvec2(f2bf(v.x) | f2bf(v.y) << 16, f2bf(v.z) | f2bf(v.w) << 16); }
