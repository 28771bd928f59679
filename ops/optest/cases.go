package optest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// Limits by what an operator does in f32. An exact operator only moves data.
// filter is the equation of its cases.
const filter = "y: filter(x, most, shares, allowed)"

const (
	pointRel, pointAbs = 1e-6, 1e-5 // functions of single elements, f32 ones a few ulp wide
	sumRel, sumAbs     = 5e-6, 5e-5 // sums of some hundred products of size one
	bigAbs             = 2e-4       // where values go to some hundreds
	f8Rel, f8Abs       = 4e-2, 0.26 // results stored as e4m3: half an ulp of 2^-4, values below 4
	q8Rel, q8Abs       = 1e-2, 2e-2 // results stored as q8_0: half of a 127th of a block's largest
	halfRel, halfAbs   = 4e-4, 4e-3 // results stored as f16: half an ulp of 2^-11, values up to 8
)

// Cases is the table: every operator, odd sizes, one token and several.
func Cases() []Case { return slices.Clone(cases()) }

var cases = sync.OnceValue(func() []Case {
	all := append(append([]Case(nil), table...), generalTable...)
	for _, n := range []int{24, 67, 130} {
		all = append(all, LongRecurrences(n, "-0.3")...)
	}
	all = append(all, LongRecurrences(66, "-2 %5")...)
	for _, t := range tensor.Types() {
		if quant.Supported(t) {
			all = append(all, typeCases(t)...)
		}
	}
	return all
})

// typeCases are what every type of weight is tried on: rows of an odd number
// of elements, or of two blocks at least.
func typeCases(t tensor.Type) []Case {
	k := 37
	if block, _ := t.Block(); block > 1 {
		k = max(3*block, 2*256)
	}
	var all []Case
	add := func(op, size, eq, args string, rel, abs float64) {
		all = append(all, Case{fmt.Sprintf("%s/%s/%s", op, t, size), eq, args, rel, abs})
	}
	add("embed", fmt.Sprintf("5x%d", k), "y: embed(ids, w)", fmt.Sprintf("ids i32[5] <11; w %s[11, %d]", t, k), 1e-7, 1e-6)
	for _, s := range []int{1, 2, 5, 19, 67} {
		add("linear", fmt.Sprintf("%dx%dx19", s, k), "y: linear(x, w)",
			fmt.Sprintf("x float[%d, %d]; w %s[19, %d]", s, k, t, k), sumRel, sumAbs)
	}
	add("linear", fmt.Sprintf("3x%dx130 bias", k), "y: linear(x, w, b)",
		fmt.Sprintf("x float[3, %d] +7; w %s[130, %d]; b f32[130]", k, t, k), sumRel, sumAbs)
	for _, s := range []int{1, 6} {
		add("linear_id", fmt.Sprintf("%dx1x%dx19", s, k), "y: linear_id(x, w, e)",
			fmt.Sprintf("x float[%d, 1, %d]; w %s[5, 19, %d]; e i32[%d, 2] <5", s, k, t, k, s), sumRel, sumAbs)
		add("linear_id", fmt.Sprintf("%dx2x%dx19 bias", s, k), "y: linear_id(x, w, e, b)",
			fmt.Sprintf("x float[%d, 2, %d]; w %s[5, 19, %d]; e i32[%d, 2] <5; b f32[5, 19]", s, k, t, k, s), sumRel, sumAbs)
	}
	return all
}

// The table of all that does not go through the types of weights. Sizes are
// odd wherever an operator lets them be, so that tails are met.
var table = []Case{
	{"linear/3d", "y: linear(x, w)", "x float[3, 5, 33]; w f32[17, 33]", sumRel, sumAbs},
	{"linear/1d", "y: linear(x, w)", "x float[33]; w f32[17, 33]", sumRel, sumAbs},
	{"linear/wide", "y: linear(x, w)", "x float[1, 1031]; w f16[513, 1031]", sumRel, sumAbs},
	{"linear/long", "y: linear(x, w)", "x float[131, 129]; w bf16[67, 129]", sumRel, sumAbs},
	{"linear/thin", "y: linear(x, w, b)", "x float[3, 1]; w f32[1, 1]; b f32[1]", sumRel, sumAbs},
	{"linear/tiles f32", "y: linear(x, w)", "x float[70, 300]; w f32[301, 300]", sumRel, sumAbs},
	{"linear/tiles f16", "y: linear(x, w)", "x float[70, 300] +20; w f16[301, 300]", sumRel, sumAbs},
	{"linear/tiles bf16", "y: linear(x, w)", "x float[70, 304] +20; w bf16[301, 304]", sumRel, sumAbs},
	{"linear/tiles q8_0", "y: linear(x, w)", "x float[33, 512]; w q8_0[301, 512]", sumRel, sumAbs},
	{"linear/tiles q4_0", "y: linear(x, w)", "x float[130, 96]; w q4_0[301, 96]", sumRel, sumAbs},
	{"linear/tiles q4_K", "y: linear(x, w)", "x float[70, 512]; w q4_K[301, 512]", sumRel, sumAbs},
	{"linear/tiles q6_K", "y: linear(x, w)", "x float[70, 512]; w q6_K[301, 512]", sumRel, sumAbs},
	// Many rows of each expert, and experts without any.
	{"linear_id/groups f32", "y: linear_id(x, w, e, b)",
		"x float[70, 1, 37]; w f32[7, 67, 37]; e i32[70, 3] <5; b f32[7, 67]", sumRel, sumAbs},
	{"linear_id/groups f16", "y: linear_id(x, w, e, b)",
		"x float[70, 3, 72] +9; w f16[7, 131, 72]; e i32[70, 3] <4; b f16[7, 131]", sumRel, sumAbs},
	{"linear_id/groups bf16", "y: linear_id(x, w, e)", "x float[70, 1, 136] +24; w bf16[7, 68, 136]; e i32[70, 3] <5",
		sumRel, sumAbs},
	{"linear_id/groups q4_K", "y: linear_id(x, w, e)", "x float[70, 3, 512]; w q4_K[7, 67, 512]; e i32[70, 3] <5",
		sumRel, sumAbs},
	{"linear_id/groups q8_0", "y: linear_id(x, w, e)", "x float[70, 1, 96]; w q8_0[20, 68, 96]; e i32[70, 3] <17",
		sumRel, sumAbs},
	{"linear_id/groups mxfp4", "y: linear_id(x, w, e, b)",
		"x float[70, 1, 160]; w mxfp4[7, 67, 160]; e i32[70, 3] <5; b bf16[7, 67]", sumRel, sumAbs},
	{"linear/bias f16", "y: linear(x, w, b)", "x float[2, 64]; w f16[7, 64]; b f16[7]", sumRel, sumAbs},

	{"rmsnorm/1", "y: rmsnorm(x, w)", "x float[1, 4096]; w f32[4096]", pointRel, pointAbs},
	{"rmsnorm/odd", "y: rmsnorm(x, w, eps=1e-5)", "x float[5, 67]; w f32[67]", pointRel, pointAbs},
	{"rmsnorm/heads", "y: rmsnorm(x, w)", "x float[3, 5, 24]; w bf16[24]", pointRel, pointAbs},
	{"rmsnorm/plain", "y: rmsnorm(x)", "x float[3, 33]", pointRel, pointAbs},
	{"rmsnorm/stride", "y: rmsnorm(x, w)", "x float[7, 31] +9; w f16[31]", pointRel, pointAbs},
	{"rmsnorm/large", "y: rmsnorm(x, w)", "x float[2, 259] *3000; w f32[259]", pointRel, pointAbs},
	{"rmsnorm/small", "y: rmsnorm(x, w)", "x float[2, 259] *0.0001; w f32[259]", pointRel, pointAbs},
	{"rmsnorm/eps", "y: rmsnorm(x, w, eps=10)", "x float[2, 9]; w f32[9]", pointRel, pointAbs},

	{"layernorm/1", "y: layernorm(x, w, b)", "x float[1, 768]; w f32[768]; b f32[768]", sumRel, pointAbs},
	{"layernorm/odd", "y: layernorm(x, w, b, eps=1e-3)", "x float[5, 67]; w f16[67]; b f16[67]", sumRel, pointAbs},
	{"layernorm/no bias", "y: layernorm(x, w)", "x float[3, 4, 31] +13; w f32[31]", sumRel, pointAbs},
	{"layernorm/plain", "y: layernorm(x)", "x float[3, 33]", sumRel, pointAbs},

	{"rope/half", "y: rope(x, pos)", "x float[3, 5, 16]; pos i32[3] =0,1,2", pointRel, pointAbs},
	{"rope/pair", "y: rope(x, pos, layout=pair)", "x float[3, 5, 16]; pos i32[3] =7,8,9", pointRel, pointAbs},
	{"rope/far", "y: rope(x, pos, base=500000)", "x float[2, 3, 128]; pos i32[2] =4093,100003", pointRel, pointAbs},
	{"rope/one", "y: rope(x, pos, base=1000000)", "x float[1, 7, 64]; pos i32[1] =33", pointRel, pointAbs},
	{"rope/many", "y: rope(x, pos)", "x float[11, 5, 96] +96; pos i32[11] =70..", pointRel, pointAbs},
	{"rope/partial half", "y: rope(x, pos, dims=6)", "x float[4, 3, 16]; pos i32[4] =3,4,5,6", pointRel, pointAbs},
	{"rope/partial pair", "y: rope(x, pos, dims=10, layout=pair)", "x float[4, 3, 17]; pos i32[4] =3,4,5,6", pointRel,
		pointAbs},
	{"rope/factors", "y: rope(x, pos, factors)", "x float[2, 3, 20]; pos i32[2] =11,12; factors f32[10]", pointRel,
		pointAbs},
	{"rope/factors partial", "y: rope(x, pos, factors, dims=8, layout=pair)",
		"x float[2, 3, 20]; pos i32[2] =11,12; factors f32[4]", pointRel, pointAbs},
	{"rope/linear", "y: rope(x, pos, scaling=linear, factor=4)", "x float[2, 3, 16]; pos i32[2] =101,102", pointRel,
		pointAbs},
	{"rope/llama3", "y: rope(x, pos, base=500000, scaling=llama3, factor=8, original=8192)",
		"x float[2, 3, 128]; pos i32[2] =5,9001", pointRel, pointAbs},
	{"rope/yarn", "y: rope(x, pos, scaling=yarn, factor=4, original=4096)", "x float[2, 3, 64]; pos i32[2] =5,9001",
		pointRel, pointAbs},
	{"rope/yarn mscale", "y: rope(x, pos, layout=pair, scaling=yarn, factor=40, original=4096, mscale=0.7, " +
		"mscale_all_dim=1, truncate=false)", "x float[2, 3, 64]; pos i32[2] =5,9001", pointRel, pointAbs},
	{"rope/stride", "y: rope(x, pos)", "x float[5, 2, 12] +24; pos i32[5] =9,1,4,4,0", pointRel, pointAbs},

	{"push/float", "y: push(cache, x, pos)", "cache float[7, 3, 5]; x float[2, 3, 5]; pos i32[2] =4,5", 1e-7, 1e-6},
	{"push/f32", "y: push(cache, x, pos)", "cache f32[9, 2, 8]; x float[3, 2, 8] +5; pos i32[3] =8,0,3", 1e-7, 1e-6},
	{"push/f16", "y: push(cache, x, pos)", "cache f16[9, 3, 7]; x float[1, 3, 7]; pos i32[1] =8", halfRel, halfAbs},
	{"push/many", "y: push(cache, x, pos)", "cache f16[40, 3, 64]; x float[12, 3, 64]; pos i32[12] =20..", halfRel,
		halfAbs},
	{"push/bf16", "y: push(cache, x, pos)", "cache bf16[9, 3, 7]; x float[4, 3, 7]; pos i32[4] =2,3,4,5", 8 * halfRel,
		8 * halfAbs},

	{"paged_push/f32", "y: paged_push(cache, x, slot)", "cache f32[5, 4, 2, 8]; x float[3, 2, 8] +5; slot i32[3] =18,-1,3",
		1e-7, 1e-6},
	{"paged_push/f16", "y: paged_push(cache, x, slot)", "cache f16[3, 3, 3, 7]; x float[1, 3, 7]; slot i32[1] =8", halfRel,
		halfAbs},
	{"paged_push/many", "y: paged_push(cache, x, slot)", "cache f16[4, 16, 3, 64]; x float[12, 3, 64]; slot i32[12] =20..",
		halfRel, halfAbs},
	{"paged_push/bf16", "y: paged_push(cache, x, slot)",
		"cache bf16[2, 5, 3, 7]; x float[4, 3, 7]; slot i32[4] =2,9,-1,-1", 8 * halfRel, 8 * halfAbs},

	{"paged_attention/one", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[1, 4, 16]; k f32[3, 4, 2, 16]; v f32[3, 4, 2, 16]; pos i32[1] =6; seq i32[1] =0; table i32[1, 2] =2,0",
		sumRel, sumAbs},
	{"paged_attention/several", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[4, 6, 24]; k f16[9, 16, 2, 24]; v f16[9, 16, 2, 24]; pos i32[4] =40,0,17,63; seq i32[4] =2,-1,0,1; table " +
			"i32[3, 4] =4,7,-1,-1,8,3,0,1,6,2,5,-1", sumRel, sumAbs},
	{"paged_attention/odd", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[3, 3, 7] +4; k float[5, 5, 1, 7]; v float[5, 5, 1, 5]; pos i32[3] =16,3,9; seq i32[3] =1,0,1; table " +
			"i32[2, 4] =4,-1,-1,-1,3,0,2,1", sumRel, sumAbs},
	{"paged_attention/listed", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[3, 4, 24]; k f32[9, 1, 1, 24]; v f32[9, 1, 1, 24]; pos i32[3] =2,4,0; seq i32[3] =0,1,2; " +
			"table i32[3, 5] =7,0,8,0,0,1,8,3,2,5,6,0,0,0,0", sumRel, sumAbs},
	{"paged_attention/chunk", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[9, 4, 64]; k f16[12, 16, 2, 64]; v f16[12, 16, 2, 64]; pos i32[9] =30,31,32,33,34,35,36,90,2; seq i32[9] " +
			"=0,0,0,0,0,0,0,1,-1; table i32[2, 6] =11,4,9,-1,-1,-1,1,0,5,6,7,2", sumRel, sumAbs},
	{"paged_attention/window", "y: paged_attention(q, k, v, pos, seq, table, window=5)",
		"q float[8, 4, 8]; k f32[10, 4, 2, 8]; v f32[10, 4, 2, 8]; pos i32[8] =2,29,12,13,14,15,16,17; seq i32[8] " +
			"=0,1,2,2,2,2,2,2; table i32[3, 8] =9,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,-1,4,7,-1,-1,6,2,3,-1,-1,-1", sumRel,
		sumAbs},
	{"paged_attention/softcap", "y: paged_attention(q, k, v, pos, seq, table, softcap=3, scale=1)",
		"q float[3, 4, 8]; k f32[4, 8, 2, 8]; v f32[4, 8, 2, 8]; pos i32[3] =9,10,11; seq i32[3] =1,0,1; table i32[2, 2] " +
			"=1,0,3,2", sumRel, sumAbs},
	{"paged_attention/long", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[2, 8, 64]; k f16[66, 32, 2, 64]; v f16[66, 32, 2, 64]; pos i32[2] =2047,5; seq i32[2] =0,1; table i32[2, " +
			"64] <66", sumRel, sumAbs},
	{"paged_attention/prefill", "y: paged_attention(q, k, v, pos, seq, table, window=100, softcap=20)",
		"q float[70, 4, 128]; k f16[40, 16, 2, 128]; v f16[40, 16, 2, 128]; pos i32[70] =150..; seq i32[70] <1; table " +
			"i32[1, 14] <40", sumRel, sumAbs},
	{"paged_attention/sinks", "y: paged_attention(q, k, v, pos, seq, table, sinks, window=40)",
		"q float[9, 4, 64]; k f16[12, 16, 2, 64]; v f16[12, 16, 2, 64]; pos i32[9] =30,31,32,33,34,35,36,90,2; seq i32[9] " +
			"=0,0,0,0,0,0,0,1,-1; table i32[2, 6] =11,4,9,-1,-1,-1,1,0,5,6,7,2; sinks f32[4]", sumRel, sumAbs},
	{"paged_attention/sinks q8_0", "y: paged_attention(q, k, v, pos, seq, table, sinks)",
		"q float[2, 2, 64]; k q8_0[66, 32, 1, 64]; v q8_0[66, 32, 1, 64]; pos i32[2] =2047,5; seq i32[2] =0,1; table " +
			"i32[2, 64] <66; sinks bf16[2]", sumRel, sumAbs},
	{"paged_attention/alibi", "y: paged_attention(q, k, v, pos, seq, table, alibi=8, slope=0.5)",
		"q float[7, 6, 24]; k f16[9, 16, 2, 24]; v f16[9, 16, 2, 24]; pos i32[7] =40,0,17,18,19,20,63; seq i32[7] " +
			"=2,-1,0,0,0,0,1; table i32[3, 4] =4,7,8,-1,8,3,0,1,6,2,5,-1", sumRel, sumAbs},
	{"paged_attention/chunks", "y: paged_attention(q, k, v, pos, seq, table, chunk=12)",
		"q float[7, 4, 16]; k f32[9, 8, 2, 16]; v f32[9, 8, 2, 16]; pos i32[7] =30,0,21,22,23,24,25; seq i32[7] " +
			"=1,-1,0,0,0,0,0; table i32[2, 4] =4,7,8,3,8,3,0,1", sumRel, sumAbs},
	{"paged_attention/far keys", "y: paged_attention(q, k, v, pos, seq, table, far_k=far, window=20)",
		"q float[7, 4, 16]; k f32[9, 8, 2, 16]; v f32[9, 8, 2, 16]; pos i32[7] =30,0,21,22,23,24,25; seq i32[7] " +
			"=1,-1,0,0,0,0,0; table i32[2, 4] =4,7,8,3,8,3,0,1; far f32[22, 1, 16]", sumRel, sumAbs},
	{"paged_attention/far queries",
		"y: paged_attention(q, k, v, pos, seq, table, bias=bias, far_k=fk, far_q=fq, apart=sides, reach=64)",
		"q float[7, 2, 16]; k f32[9, 8, 2, 16]; v f32[9, 8, 2, 16]; pos i32[7] =30,0,21,22,23,24,25; seq i32[7] " +
			"=1,-1,0,0,0,0,0; table i32[2, 4] =4,7,8,3,8,3,0,1; bias f32[16, 2]; fk f32[16, 2, 16]; fq f32[16, 2, 16]", sumRel,
		sumAbs},
	{"paged_attention/alone heads", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[6, 4, 32]; k bf16[8, 16, 4, 32]; v bf16[8, 16, 4, 32]; pos i32[6] =7,40,41,42,43,44; seq i32[6] " +
			"=1,0,0,0,0,0; table i32[2, 3] =6,1,3,2,-1,-1", sumRel, sumAbs},

	// Caches in eight bits: whole blocks of q8_0 to a head, e4m3 without a scale.
	{"push/f8e4m3", "y: push(cache, x, pos)", "cache f8e4m3[9, 3, 7]; x float[4, 3, 7]; pos i32[4] =2,3,4,5", f8Rel,
		f8Abs},
	{"push/q8_0", "y: push(cache, x, pos)", "cache q8_0[9, 3, 32]; x float[4, 3, 32]; pos i32[4] =2,3,4,5", q8Rel, q8Abs},
	{"paged_push/f8e4m3", "y: paged_push(cache, x, slot)",
		"cache f8e4m3[2, 5, 3, 7]; x float[4, 3, 7] +5; slot i32[4] =2,9,-1,-1", f8Rel, f8Abs},
	{"paged_push/q8_0", "y: paged_push(cache, x, slot)",
		"cache q8_0[2, 5, 3, 64]; x float[4, 3, 64] +5; slot i32[4] =2,9,-1,-1", q8Rel, q8Abs},
	{"rope_push/f8e4m3", "y: rope_push(cache, x, pos)",
		"cache f8e4m3[40, 10, 16]; x float[3, 10, 16]; pos i32[3] =20..", f8Rel, f8Abs},
	{"rope_push/q8_0", "y: rope_push(cache, x, pos)",
		"cache q8_0[40, 3, 64]; x float[3, 3, 64]; pos i32[3] =20..", q8Rel, q8Abs},
	{"attention/f8e4m3", "y: attention(q, k, v, pos)",
		"q float[2, 4, 24]; k f8e4m3[133, 2, 24]; v f8e4m3[133, 2, 24]; pos i32[2] =130,131", sumRel, sumAbs},
	{"attention/q8_0", "y: attention(q, k, v, pos, window=90)",
		"q float[1, 8, 64]; k q8_0[133, 2, 64]; v q8_0[133, 2, 64]; pos i32[1] =130", sumRel, sumAbs},
	{"attention/many, f8e4m3", "y: attention(q, k, v, pos)",
		"q float[37, 2, 64]; k f8e4m3[300, 1, 64]; v f8e4m3[300, 1, 64]; pos i32[37] =200..", sumRel, sumAbs},
	{"attention/many, q8_0", "y: attention(q, k, v, pos, window=100, softcap=20)",
		"q float[70, 4, 128]; k q8_0[300, 2, 128]; v q8_0[300, 2, 128]; pos i32[70] =150..", sumRel, sumAbs},
	{"attention/long q8_0", "y: attention(q, k, v, pos)",
		"q float[1, 2, 64]; k q8_0[2100, 2, 64]; v q8_0[2100, 2, 64]; pos i32[1] =2047", sumRel, sumAbs},
	{"paged_attention/f8e4m3", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[4, 6, 24]; k f8e4m3[9, 16, 2, 24]; v f8e4m3[9, 16, 2, 24]; pos i32[4] =40,0,17,63; seq i32[4] " +
			"=2,-1,0,1; table i32[3, 4] =4,7,-1,-1,8,3,0,1,6,2,5,-1", sumRel, sumAbs},
	{"paged_attention/q8_0", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[2, 2, 64]; k q8_0[66, 32, 2, 64]; v q8_0[66, 32, 2, 64]; pos i32[2] =2047,5; seq i32[2] =0,1; table " +
			"i32[2, 64] <66", sumRel, sumAbs},
	{"paged_attention/chunk q8_0", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[9, 4, 64]; k q8_0[12, 16, 2, 64]; v q8_0[12, 16, 2, 64]; pos i32[9] =30,31,32,33,34,35,36,90,2; seq " +
			"i32[9] =0,0,0,0,0,0,0,1,-1; table i32[2, 6] =11,4,9,-1,-1,-1,1,0,5,6,7,2", sumRel, sumAbs},
	{"paged_attention/chunk f8e4m3", "y: paged_attention(q, k, v, pos, seq, table)",
		"q float[9, 4, 64]; k f8e4m3[12, 16, 2, 64]; v f8e4m3[12, 16, 2, 64]; pos i32[9] =30,31,32,33,34,35,36,90,2; " +
			"seq i32[9] =0,0,0,0,0,0,0,1,-1; table i32[2, 6] =11,4,9,-1,-1,-1,1,0,5,6,7,2", sumRel, sumAbs},

	{"attention/first", "y: attention(q, k, v, pos)",
		"q float[1, 4, 8]; k float[9, 4, 8]; v float[9, 4, 8]; pos i32[1] =0", sumRel, sumAbs},
	{"attention/prefill", "y: attention(q, k, v, pos)", "q float[7, 4, 16]; k f32[13, 4, 16]; v f32[13, 4, 16]; pos " +
		"i32[7] =0,1,2,3,4,5,6", sumRel, sumAbs},
	{"attention/decode", "y: attention(q, k, v, pos)", "q float[1, 6, 64]; k f32[301, 2, 64]; v f32[301, 2, 64]; pos " +
		"i32[1] =299", sumRel, sumAbs},
	{"attention/chunk", "y: attention(q, k, v, pos)", "q float[5, 8, 24]; k f16[150, 2, 24]; v f16[150, 2, 24]; pos " +
		"i32[5] =130,131,132,133,134", sumRel, sumAbs},
	{"attention/odd", "y: attention(q, k, v, pos)", "q float[3, 3, 7] +4; k float[19, 1, 7] +2; v float[19, 1, 5] +6; " +
		"pos i32[3] =16,17,18", sumRel, sumAbs},
	{"attention/scale", "y: attention(q, k, v, pos, scale=0.25)",
		"q float[2, 4, 8]; k f32[9, 2, 8]; v f32[9, 2, 8]; pos i32[2] =5,6", sumRel, sumAbs},
	{"attention/window", "y: attention(q, k, v, pos, window=5)",
		"q float[4, 4, 8]; k f32[40, 2, 8]; v f32[40, 2, 8]; pos i32[4] =2,3,29,30", sumRel, sumAbs},
	{"attention/window 1", "y: attention(q, k, v, pos, window=1)",
		"q float[2, 2, 8]; k f32[9, 2, 8]; v f32[9, 2, 8]; pos i32[2] =7,8", sumRel, sumAbs},
	{"attention/window wide", "y: attention(q, k, v, pos, window=64)",
		"q float[1, 4, 32]; k f16[200, 2, 32]; v f16[200, 2, 32]; pos i32[1] =180", sumRel, sumAbs},
	{"attention/softcap", "y: attention(q, k, v, pos, softcap=3, scale=1)",
		"q float[3, 4, 8]; k f32[12, 2, 8]; v f32[12, 2, 8]; pos i32[3] =9,10,11", sumRel, sumAbs},
	{"attention/all", "y: attention(q, k, v, pos, softcap=50, window=16, scale=0.1)",
		"q float[3, 8, 32]; k f16[70, 4, 32]; v f16[70, 4, 32]; pos i32[3] =40,41,42", sumRel, sumAbs},
	{"attention/wide values", "y: attention(q, k, v, pos)", "q float[2, 2, 4]; k f32[9, 1, 4]; v f32[9, 1, 130]; pos " +
		"i32[2] =6,7", sumRel, sumAbs},
	{"attention/long decode", "y: attention(q, k, v, pos)", "q float[1, 8, 64]; k f16[2100, 2, 64]; v f16[2100, 2, " +
		"64]; pos i32[1] =2047", sumRel, sumAbs},
	{"attention/long prefill", "y: attention(q, k, v, pos)", "q float[67, 4, 64]; k f16[700, 2, 64]; v f16[700, 2, " +
		"64]; pos i32[67] =600..", sumRel, sumAbs},
	{"attention/long window", "y: attention(q, k, v, pos, window=130)",
		"q float[67, 4, 32]; k f32[700, 4, 32]; v f32[700, 4, 32]; pos i32[67] =100..", sumRel, sumAbs},
	{"attention/many, window", "y: attention(q, k, v, pos, window=100, softcap=20)",
		"q float[70, 4, 128]; k f16[300, 2, 128]; v f16[300, 2, 128]; pos i32[70] =150..", sumRel, sumAbs},
	{"attention/many, start", "y: attention(q, k, v, pos)", "q float[37, 2, 96]; k f16[40, 1, 96]; v f16[40, 1, 96]; " +
		"pos i32[37] =0..", sumRel, sumAbs},
	{"attention/many, small heads", "y: attention(q, k, v, pos, window=30)",
		"q float[37, 2, 64]; k f16[90, 1, 64]; v f16[90, 1, 64]; pos i32[37] =20..", sumRel, sumAbs},
	{"attention/sharp", "y: attention(q, k, v, pos)", "q float[3, 2, 16] *30; k f32[150, 2, 16]; v f32[150, 2, 16]; " +
		"pos i32[3] =140..", 4 * sumRel, 4 * sumAbs},
	{"attention/many, window alone", "y: attention(q, k, v, pos, window=128)",
		"q float[70, 4, 128]; k f16[300, 2, 128]; v f16[300, 2, 128]; pos i32[70] =150..", sumRel, sumAbs},
	// The largest score of a token rises by far more than e^8 on the way; queries are whole numbers that f16 holds.
	{"attention/many, sharp", "y: attention(q, k, v, pos)", "q float[70, 2, 128] #4 *16; k f16[300, 1, 128]; v " +
		"f16[300, 1, 128]; pos i32[70] =150..", 4 * sumRel, 4 * sumAbs},
	{"attention/many, sharp window", "y: attention(q, k, v, pos, window=128)",
		"q float[70, 2, 128] #4 *16; k f16[300, 1, 128]; v f16[300, 1, 128]; pos i32[70] =150..", 4 * sumRel, 4 * sumAbs},
	{"attention/many, sharp small heads", "y: attention(q, k, v, pos)",
		"q float[37, 2, 64] #4 *16; k f16[150, 1, 64]; v f16[150, 1, 64]; pos i32[37] =90..", 4 * sumRel, 4 * sumAbs},
	// Values narrower than keys, as DeepSeek's heads have them.
	{"attention/many, narrow values", "y: attention(q, k, v, pos, window=90)",
		"q float[70, 4, 192] +12; k f16[200, 2, 192]; v f16[200, 2, 128]; pos i32[70] =100..", sumRel, sumAbs},
	{"attention/many, narrow values, small heads", "y: attention(q, k, v, pos)",
		"q float[37, 2, 96]; k f16[150, 1, 96] +32; v f16[150, 1, 64]; pos i32[37] =90..", sumRel, sumAbs},
	{"attention/bf16", "y: attention(q, k, v, pos)", "q float[2, 4, 16]; k bf16[33, 2, 16]; v bf16[33, 2, 16]; pos " +
		"i32[2] =30,31", sumRel, sumAbs},

	{"add/same", "z: add(x, y)", "x float[3, 37]; y float[3, 37]", pointRel, pointAbs},
	{"add/stride", "z: add(x, y)", "x float[3, 37] +5; y float[3, 37] +8", pointRel, pointAbs},
	{"add/row", "z: add(x, y)", "x float[3, 5, 37]; y f32[37]", pointRel, pointAbs},
	{"add/row f16", "z: add(x, y)", "x float[4, 19]; y f16[19]", pointRel, pointAbs},
	{"mul/same", "z: mul(x, y)", "x float[3, 5, 7]; y float[3, 5, 7]", pointRel, pointAbs},
	{"mul/stride", "z: mul(x, y)", "x float[3, 37] +37; y float[3, 37]", pointRel, pointAbs},
	{"mul/row", "z: mul(x, y)", "x float[3, 37]; y f32[37]", pointRel, pointAbs},
	{"scale/odd", "y: scale(x, by=0.125)", "x float[3, 37]", pointRel, pointAbs},
	{"scale/negative", "y: scale(x, by=-3.7)", "x float[1, 5, 3]", pointRel, pointAbs},
	{"scale/stride", "y: scale(x, by=2)", "x float[5, 3] +4", pointRel, pointAbs},
	{"silu/large", "y: silu(x)", "x float[3, 37] *100", pointRel, bigAbs},
	{"silu/odd", "y: silu(x)", "x float[3, 1037]", pointRel, pointAbs},
	{"silu/stride", "y: silu(x)", "x float[3, 37] +37", pointRel, pointAbs},
	{"gelu/large", "y: gelu(x)", "x float[3, 37] *100", pointRel, bigAbs},
	{"gelu/large erf", "y: gelu(x, form=erf)", "x float[3, 37] *100", pointRel, bigAbs},
	{"gelu/default", "y: gelu(x)", "x float[3, 1037]", pointRel, pointAbs},
	{"gelu/tanh", "y: gelu(x, form=tanh)", "x float[3, 37] +3", pointRel, pointAbs},
	{"gelu/erf", "y: gelu(x, form=erf)", "x float[3, 1037]", pointRel, pointAbs},
	{"sigmoid/large", "y: sigmoid(x)", "x float[3, 37] *100", pointRel, bigAbs},
	{"sigmoid/odd", "y: sigmoid(x)", "x float[3, 1037] +1", pointRel, pointAbs},
	{"sigmoid/one", "y: sigmoid(x)", "x float[1, 7]", pointRel, pointAbs},
	{"softmax/odd", "y: softmax(x)", "x float[3, 1037]", pointRel, pointAbs},
	{"softmax/stride", "y: softmax(x)", "x float[5, 3, 7] +2", pointRel, pointAbs},
	{"softmax/one", "y: softmax(x)", "x float[4, 1]", pointRel, pointAbs},
	{"softmax/large", "y: softmax(x)", "x float[2, 17] #1000", pointRel, pointAbs},
	{"softcap/large", "y: softcap(x, cap=50)", "x float[3, 37] *10000", pointRel, bigAbs},
	{"softcap/odd", "y: softcap(x, cap=0.7)", "x float[3, 1037]", pointRel, pointAbs},
	{"softcap/stride", "y: softcap(x, cap=30)", "x float[3, 7] +2", pointRel, pointAbs},

	{"rows/last", "y: rows(x, at)", "x float[7, 37]; at i32[1] =6", 0, 0},
	{"rows/any", "y: rows(x, at)", "x float[7, 3, 5] +4; at i32[4] =6,0,3,3", 0, 0},
	{"split/two", "a, b: split(x, sizes=[3, 4])", "x float[5, 7]", 0, 0},
	{"split/three", "a, b, c: split(x, sizes=[1, 5, 2])", "x float[5, 8] +3", 0, 0},
	{"split/heads", "q, k, v: split(x, sizes=[4, 4, 4])", "x float[2, 3, 12]", 0, 0},
	{"view/heads", "y: view(x, shape=[3, 4, 5])", "x float[3, 20] +7", 0, 0},
	{"view/flat", "y: view(x, shape=[30])", "x float[3, 2, 5]", 0, 0},

	{"topk/none", "p, e: topk(x, k=3)", "x float[5, 11]", pointRel, pointAbs},
	{"topk/before", "p, e: topk(x, k=2, softmax=before)", "x float[5, 8]", pointRel, pointAbs},
	{"topk/after", "p, e: topk(x, k=2, softmax=after)", "x float[1, 8]", pointRel, pointAbs},
	{"topk/ties", "p, e: topk(x, k=4, softmax=after)", "x float[9, 13] #3", pointRel, pointAbs},
	{"topk/all", "p, e: topk(x, k=5, softmax=before)", "x float[3, 5] +2", pointRel, pointAbs},
	{"topk/likeliest", "p, e: topk(x, k=1)", "x float[2, 5003]", pointRel, pointAbs},
	{"topk/candidates", "p, e: topk(x, k=40)", "x float[1, 9001] #3", pointRel, pointAbs},
	{"topk/half", "p, e: topk(x, k=150)", "x float[3, 301] #40", pointRel, pointAbs},
	{"topk/many", "p, e: topk(x, k=8, softmax=after)", "x float[2, 128]", pointRel, pointAbs},
	{"draw/odd", "y: draw(x, rate, keys, allowed)",
		"x float[3, 37]; rate float[3]; keys i32[3, 4] <1000000; allowed i32[3, 2] <1000000000", pointRel, pointAbs},
	{"draw/greedy", "y: draw(x, rate, keys, allowed)",
		"x float[2, 64] +3; rate float[2] *0; keys i32[2, 4] <9; allowed i32[2, 2] =-1,-1,-2,2147483647", 0, 0},
	{"draw/vocabulary", "y: draw(x, rate, keys, allowed)",
		"x float[2, 9001]; rate float[2]; keys i32[2, 4] <2000000000; allowed i32[2, 282] <2000000000", pointRel, pointAbs},
	{"adjust/odd", "y: adjust(x, tokens, by, plus)", "x float[3, 37] +3; " +
		"tokens i32[3, 4] =5,-1,36,0,-1,-1,-1,-1,37,9,8,99; by float[3, 4] =1.5,2,.5,1,1,1,1,1,3,1.25,3,4; " +
		"plus float[3, 4] =0,1,-2,3,1,1,1,1,5,-Inf,0,7", pointRel, pointAbs},
	{"adjust/vocabulary", "y: adjust(x, tokens, by, plus)", "x float[2, 9001]; tokens i32[2, 300] =30..; " +
		"by float[2, 300]; plus float[2, 300]", pointRel, 50 * bigAbs},
	{"logprob/odd", "y: logprob(x, tokens)", "x float[3, 37] +3; tokens i32[3, 4] =5,-1,36,0,1,1,37,9,8,99,20,30",
		pointRel, pointAbs},
	{"logprob/one", "y: logprob(x, tokens)", "x float[2, 1]; tokens i32[2, 1] =0..", pointRel, pointAbs},
	{"logprob/far", "y: logprob(x, tokens)", "x float[4, 3000] *300; tokens i32[4, 2] <3000", pointRel, 50 * bigAbs},
	{"logprob/vocabulary", "y: logprob(x, tokens)", "x float[2, 9001] *9; tokens i32[2, 40] <9001", pointRel,
		10 * pointAbs},
	// k, then shares for typical, top-p and min-p
	{"filter/odd", filter, "x float[4, 37] +3; most i32[4] =5,0,0,0; shares float[4, 3] =0,0,0,.8,0,0,0,.8,0,0,0,.1; " +
		"allowed i32[4, 2] <2000000000", 0, 0},
	{"filter/none", filter, "x float[3, 70]; most i32[3] =0,-1,0; shares float[3, 3] =0,0,0,1,1,0,-1,-2,-3; " +
		"allowed i32[3, 3] <2000000000", 0, 0},
	{"filter/ties", filter, "x float[6, 3001] #3; most i32[6] =7,0,0,0,1500,2999; " +
		"shares float[6, 3] =0,0,0,.3,0,0,0,.7,0,0,0,.2,.5,.9,0,.9,.5,.3; allowed i32[6, 94] <2000000000", 0, 0},
	{"filter/equal", filter, "x float[5, 4099] *0; most i32[5] =1,4000,0,0,0; " +
		"shares float[5, 3] =0,0,0,0,0,0,.5,0,0,0,.25,0,0,0,1; allowed i32[5, 129] <2147483647", 0, 0},
	{"filter/numbers", filter, "x float[6, 5] =1,NaN,3,2,0,+Inf,1,2,3,-Inf,-Inf,-Inf,-Inf,-Inf,-Inf,7,-Inf,-Inf,-Inf," +
		"-Inf,-0,0,-0,0,-1,3e38,-3e38,0,1,3e38; most i32[6] =2,2,2,2,3,0; " +
		"shares float[6, 3] =0,.5,0,0,.5,0,0,.5,0,.5,.5,.5,0,0,0,0,.5,0; allowed i32[6, 1] =31,31,31,31,31,31", 0, 0},
	{"filter/one", filter, "x float[4, 1]; most i32[4] =1,0,0,0; shares float[4, 3] =0,0,0,.1,0,0,0,.1,0,0,0,1; " +
		"allowed i32[4, 1] =1,1,1,0", 0, 0},
	{"filter/vocabulary", filter, "x float[8, 9001] *3; most i32[8] =0,0,0,0,400,4000,0,9001; shares float[8, 3] =" +
		".95,0,0,0,.95,0,0,0,.02,0,0,0,0,.99,0,.9,0,.01,.9,.9,0,0,.999,0; allowed i32[8, 282] <2000000000", 0, 0},
	{"filter/flat", filter, "x float[5, 70001] *.01; most i32[5] =0,0,0,50000,3; shares float[5, 3] =" +
		".9,0,0,0,.9,0,0,0,.98,.5,.5,0,0,0,0; allowed i32[5, 2188] <2147483647", 0, 0},
	{"filter/peaked", filter, "x float[4, 9001] *40; most i32[4] =0,0,0,300; shares float[4, 3] =" +
		".95,0,0,0,.95,0,0,0,.001,.5,.99,0; allowed i32[4, 282] <2000000000", 0, 0},
	{"mix/two", "y: mix(x, p)", "x float[5, 2, 37]; p float[5, 2]", pointRel, pointAbs},
	{"mix/one", "y: mix(x, p)", "x float[1, 3, 5]; p float[1, 3]", pointRel, pointAbs},

	{"add_rmsnorm/odd", "sum, y: add_rmsnorm(x, r, w, eps=1e-5)", "x float[5, 67]; r float[5, 67]; w f32[67]", pointRel,
		pointAbs},
	{"add_rmsnorm/1", "sum, y: add_rmsnorm(x, r, w)", "x float[1, 2048]; r float[1, 2048]; w bf16[2048]", pointRel,
		pointAbs},
	{"add_rmsnorm/stride", "sum, y: add_rmsnorm(x, r)", "x float[3, 9] +4; r float[3, 9] +1", pointRel, pointAbs},
	{"swiglu/odd", "y: swiglu(g, u)", "g float[3, 1037]; u float[3, 1037]", pointRel, pointAbs},
	{"swiglu/large", "y: swiglu(g, u)", "g float[3, 37] *100; u float[3, 37]", pointRel, bigAbs},
	{"swiglu/stride", "y: swiglu(g, u)", "g float[3, 2, 37] +74; u float[3, 2, 37] +74", pointRel, pointAbs},
	{"geglu/tanh", "y: geglu(g, u)", "g float[3, 137]; u float[3, 137]", pointRel, pointAbs},
	{"geglu/large", "y: geglu(g, u)", "g float[3, 37] *100; u float[3, 37]", pointRel, bigAbs},
	{"geglu/erf", "y: geglu(g, u, form=erf)", "g float[1, 137] +3; u float[1, 137]", pointRel, pointAbs},
	{"rope_push/half", "y: rope_push(cache, x, pos)", "cache f32[9, 2, 16]; x float[3, 2, 16]; pos i32[3] =3,4,5",
		pointRel, pointAbs},
	{"rope_push/many", "y: rope_push(cache, x, pos)", "cache f16[40, 10, 128]; x float[12, 10, 128]; pos i32[12] =20..",
		halfRel, halfAbs},
	{"rope_push/many bf16", "y: rope_push(cache, x, pos)", "cache bf16[40, 3, 8]; x float[12, 3, 8] +2; pos i32[12] =20..",
		8 * halfRel, 8 * halfAbs},
	{"rope_push/pair f16", "y: rope_push(cache, x, pos, layout=pair, base=500000)",
		"cache f16[40, 3, 8]; x float[1, 3, 8] +8; pos i32[1] =37", halfRel, halfAbs},
	{"rope_push/llama3", "y: rope_push(cache, x, pos, factors, dims=8, scaling=llama3, factor=8, original=64)",
		"cache float[9, 2, 12]; x float[2, 2, 12]; pos i32[2] =7,8; factors f32[4]", pointRel, pointAbs},
	{"linear_bias/f32", "y: linear_bias(x, w, b)", "x float[3, 33]; w f32[19, 33]; b f32[19]", sumRel, sumAbs},
	{"linear_scaled/f32", "y: linear_scaled(x, w, s)", "x float[3, 33]; w f32[19, 33]; s f32[19]", sumRel, sumAbs},
	{"linear_scaled/f8e4m3", "y: linear_scaled(x, w, s)", "x float[1, 96]; w f8e4m3[19, 96]; s f32[19]", sumRel, sumAbs},
	{"linear_scaled/f8e5m2", "y: linear_scaled(x, w, s)", "x float[5, 1000]; w f8e5m2[37, 1000]; s f32[37]", sumRel,
		sumAbs},
	{"linear_scaled_bias/f8e4m3", "y: linear_scaled_bias(x, w, s, b)",
		"x float[1, 160]; w f8e4m3[19, 160]; s f32[19]; b f16[19]", sumRel, sumAbs},
	{"linear_scaled_bias/f8e5m2 tiles", "y: linear_scaled_bias(x, w, s, b)",
		"x float[33, 100] +4; w f8e5m2[130, 100]; s f32[130]; b f32[130]", sumRel, sumAbs},
	{"linear_scaled/f8e4m3 tiles", "y: linear_scaled(x, w, s)", "x float[150, 80]; w f8e4m3[77, 80]; s f32[77]", sumRel,
		sumAbs},
	{"linear_scaled/bf16", "y: linear_scaled(x, w, s)", "x float[1, 520]; w bf16[19, 520]; s f32[19]", sumRel, sumAbs},
	{"linear_scaled/f16 tiles", "y: linear_scaled(x, w, s)", "x float[70, 64]; w f16[77, 64]; s f32[77]", sumRel, sumAbs},
	{"linear_scaled_bias/q8_0", "y: linear_scaled_bias(x, w, s, b)",
		"x float[1, 96]; w q8_0[19, 96]; s f32[19]; b f16[19]", sumRel, sumAbs},
	{"linear_scaled_bias/q4_K tiles", "y: linear_scaled_bias(x, w, s, b)",
		"x float[33, 256]; w q4_K[40, 256]; s f32[40]; b f32[40]", sumRel, sumAbs},
	{"linear_scaled_residual/f8e4m3", "y: linear_scaled_residual(x, w, s, r)",
		"x float[1, 96]; w f8e4m3[19, 96]; s f32[19]; r float[1, 19] +3", sumRel, sumAbs},
	{"linear_scaled_residual/f8e5m2 odd", "y: linear_scaled_residual(x, w, s, r)",
		"x float[1, 51]; w f8e5m2[7, 51]; s f32[7]; r float[1, 7]", sumRel, sumAbs},
	{"linear_scaled_residual/f8e5m2 tiles", "y: linear_scaled_residual(x, w, s, r)",
		"x float[33, 100] +4; w f8e5m2[130, 100]; s f32[130]; r float[33, 130] +3", sumRel, sumAbs},
	{"linear_scaled_residual/q4_0", "y: linear_scaled_residual(x, w, s, r)",
		"x float[4, 64]; w q4_0[30, 64]; s f32[30]; r float[4, 30]", sumRel, sumAbs},
	{"linear_bias/q8_0", "y: linear_bias(x, w, b)", "x float[1, 96]; w q8_0[19, 96]; b f16[19]", sumRel, sumAbs},
	{"linear_residual/f16", "y: linear_residual(x, w, r)", "x float[3, 33] +2; w f16[19, 33]; r float[3, 19] +3", sumRel,
		sumAbs},
	{"linear_residual/q4_K", "y: linear_residual(x, w, r)", "x float[1, 512]; w q4_K[19, 512]; r float[1, 19]", sumRel,
		sumAbs},
	{"linear_residual/tiles", "y: linear_residual(x, w, r)", "x float[70, 512]; w q4_0[301, 512]; r float[70, 301]",
		sumRel, sumAbs},
	{"linear_residual/bias", "y: linear_residual(x, w, r, b)", "x float[7, 65]; w bf16[5, 65]; r float[7, 5]; b f32[5]",
		sumRel, sumAbs},
}
