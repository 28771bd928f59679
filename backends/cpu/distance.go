package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// distances are an attention's tables of parts that scores have for the distance from query to key; see ops.Attention.
type distances struct {
	rows       []int32 // of tables, for a key so many positions before the query, capacity-1 being 0
	heads      int     // of farK and farQ
	bias       []float32
	farK, farQ []float32
}

// newDistances are those of an attention over so many positions.
func newDistances(d *Device, l *backends.Launch, capacity int) (*distances, error) {
	a := graph.Attr[ops.AttentionAttr](l.Node)
	count, heads := ops.Distances(l.Node)
	t := &distances{heads: heads, rows: make([]int32, 2*capacity)}
	for i := range t.rows {
		t.rows[i] = int32(a.Distance(i-capacity+1, count))
	}
	first := ops.Place(l.Node, "bias")
	for i, to := range []*[]float32{&t.bias, &t.farK, &t.farQ} {
		if first+i >= len(l.In) || l.In[first+i].Buffer == nil {
			continue
		}
		var err error
		if *to, err = values(d, &l.In[first+i]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// space adds what the tables have to scores of positions p, p+1, …, which lie stride apart, as far as a token sees.
func (t *attention) space(head, token, p int, s []float32, stride int) {
	d, k, g := t.spaced, t.d.k, head/t.share
	from, end := t.sees(token)
	first, behind := max(p, from), min(p+(len(s)+stride-1)/stride, end)
	query, keys := t.q.row(token*t.heads+head), &t.k[g]
	at := t.row(token) + t.capacity - 1
	for j := first; j < behind; j++ {
		row := int(d.rows[at-j])
		far := (row*d.heads + head%d.heads) * t.dh
		sum := float32(0)
		if d.farK != nil {
			sum += k.Dot(query, d.farK[far:far+t.dh])
		}
		if d.farQ != nil {
			at := j
			if t.pages != nil {
				at, _ = t.pages.piece(int(t.pages.seq[token]), j, j+1)
			}
			sum += k.Dot(tensor.View[float32](keys.Data[at*keys.Stride:][:4*t.dh]), d.farQ[far:far+t.dh])
		}
		sum *= t.scale
		if d.bias != nil {
			sum += d.bias[row*t.heads+head]
		}
		s[(j-p)*stride] += sum
	}
}
