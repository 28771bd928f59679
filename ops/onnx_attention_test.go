package ops_test

import (
	"fmt"
	"math"
)

// hidden is what a mask adds to a score that must not count: e^hidden is zero.
const hidden = -1e9

// onnxAttention puts ONNX's attention in greta's words, one batch entry after the other:
//
//   - past and new keys and values are one cache, the new ones pushed behind the past;
//   - without is_causal every query stands at the last position, with it at its own;
//   - a mask, which greta has as positions only, goes into the product: the query gets
//     its row of the mask as more elements, key j the j-th unit vector. This is exact.
//
// The scores before softmax, where a case wants them, are a linear of queries with
// keys, softcap and softmax.
func onnxAttention(c *onnxCase) ([]array, error) {
	q, k, v := byToken(c, 0, "q_num_heads"), byToken(c, 1, "kv_num_heads"), byToken(c, 2, "kv_num_heads")
	batch, s, h, dh := q.shape[0], q.shape[1], q.shape[2], q.shape[3]
	past := 0
	if c.has(4) {
		past = c.in(4).shape[2]
	}
	total, g, dv := past+k.shape[1], k.shape[2], v.shape[3]
	scale := c.number("scale", 1/math.Sqrt(float64(dh)))
	y, keys, values := newArray(batch, s, h, dv), newArray(batch, g, total, dh), newArray(batch, g, total, dv)
	scores := newArray(batch, h, s, total)
	for b := range batch {
		kc, err := pushed(c, 4, b, k.at(b), total, past)
		if err != nil {
			return nil, err
		}
		vc, err := pushed(c, 5, b, v.at(b), total, past)
		if err != nil {
			return nil, err
		}
		copy(keys.at(b).v, kc.transpose(1, 0, 2).v)
		copy(values.at(b).v, vc.transpose(1, 0, 2).v)
		pos := newArray(s)
		for i := range pos.v {
			pos.v[i] = float64(total - 1)
			if c.has(6) { // how many keys of this entry are no padding
				pos.v[i] = c.in(6).v[b] - 1
			}
			if c.number("is_causal", 0) == 1 {
				pos.v[i] = float64(past + i)
			}
		}
		qb := q.at(b)
		qm, km := qb, kc
		if c.has(3) {
			qm, km = masked(c, b, qb, kc, scale)
		}
		z, err := eval(fmt.Sprintf("attention(q, k, v, pos, scale=%.17g, softcap=%.17g)", scale, c.number("softcap", 0)),
			args("q", qm, "k", km, "v", vc, "pos", pos))
		if err != nil {
			return nil, err
		}
		copy(y.at(b).v, z.v)
		if len(c.outputs) > 3 {
			if err := rawScores(c, scores.at(b), qb, kc, qm, km, pos, scale); err != nil {
				return nil, err
			}
		}
	}
	if len(c.in(0).shape) == 4 {
		y = y.transpose(0, 2, 1, 3)
	}
	return []array{y, keys, values, scores}, nil
}

// byToken gives an operand as [batch, tokens, heads, size].
func byToken(c *onnxCase, i int, heads string) array {
	x := c.in(i)
	if len(x.shape) == 4 {
		return x.transpose(0, 2, 1, 3)
	}
	n := int(c.number(heads, 1))
	return x.as(x.shape[0], x.shape[1], n, x.shape[2]/n)
}

// pushed gives the cache [total, heads, size] of one batch entry.
func pushed(c *onnxCase, i, b int, news array, total, past int) (array, error) {
	cache := newArray(total, news.shape[1], news.shape[2])
	if c.has(i) {
		copy(cache.v, c.in(i).at(b).transpose(1, 0, 2).v)
	}
	pos := newArray(news.shape[0])
	for j := range pos.v {
		pos.v[j] = float64(past + j)
	}
	return eval("push(cache, x, pos)", args("cache", cache, "x", news, "pos", pos))
}

// masked lengthens queries by their rows of the mask and keys by unit vectors.
func masked(c *onnxCase, b int, q, k array, scale float64) (array, array) {
	s, h, dh := q.shape[0], q.shape[1], q.shape[2]
	total, g := k.shape[0], k.shape[1]
	longQ, longK := newArray(s, h, dh+total), newArray(total, g, dh+total)
	mask := c.in(3)
	for len(mask.shape) < 4 {
		mask = mask.as(append([]int{1}, mask.shape...)...)
	}
	mask = mask.at(b % mask.shape[0])
	for i := range s {
		for head := range h {
			row := longQ.at(i).at(head).v
			copy(row, q.at(i).at(head).v)
			add := mask.at(head % mask.shape[0]).at(i).v
			for j := range total {
				v := hidden // a mask shorter than the keys hides the rest
				if j < len(add) {
					v = math.Max(add[j], hidden)
					if c.bools[c.inputs[3]] {
						v = hidden * (1 - add[j])
					}
				}
				row[dh+j] = v / scale
			}
		}
	}
	for j := range total {
		for head := range g {
			row := longK.at(j).at(head).v
			copy(row, k.at(j).at(head).v)
			row[dh+j] = 1
		}
	}
	return longQ, longK
}

// rawScores computes qk_matmul_output: the scaled products (mode 0), with the
// mask (1), capped (2), or after softmax (3).
func rawScores(c *onnxCase, out, q, k, qm, km, pos array, scale float64) error {
	mode := int(c.number("qk_matmul_output_mode", 0))
	if mode > 0 {
		q, k = qm, km
	}
	eq := fmt.Sprintf("linear(x, w) * %.17g", scale)
	if limit := c.number("softcap", 0); limit > 0 && mode >= 2 {
		eq = fmt.Sprintf("softcap(%s, cap=%.17g)", eq, limit)
	}
	if mode == 3 {
		eq = "softmax(" + eq + ")"
	}
	h, g := q.shape[1], k.shape[1]
	for head := range h {
		z, err := eval(eq, args("x", q.transpose(1, 0, 2).at(head), "w", k.transpose(1, 0, 2).at(head/(h/g))))
		if err != nil {
			return err
		}
		copy(out.at(head).v, z.v)
		if mode > 0 { // what lies behind a query's position is hidden too
			for i, p := range pos.v {
				row := out.at(head).at(i).v
				for j := int(p) + 1; j < len(row); j++ {
					row[j] = hidden
				}
			}
		}
	}
	return nil
}
