package models

import (
	"slices"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// Matrices gives the tensors that only products and embeddings of the model read, as they are
// stored, and what GGUF files call each, "" where the model file does not say. Matrices that choose
// experts are left out: mixes of types keep them in full precision.
func (f *File) Matrices(w Weights) (map[string]string, error) {
	called := map[string]string{}
	g, err := f.Build(Options{Weights: w, C: 16, Seen: func(l *graph.Load, gguf string) {
		for _, t := range l.Tensors {
			called[t] = gguf
		}
	}})
	if err != nil {
		return nil, err
	}
	users := map[*graph.Value][]*graph.Node{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil {
				users[v] = append(users[v], n)
			}
		}
	}
	all := map[string]string{}
	for _, v := range g.Weights {
		fit := len(v.Shape) > 1 && len(users[v]) > 0 && !v.Load.Transpose && v.Load.Add == 0
		for _, n := range users[v] {
			product := ops.IsProduct(n.Op) && n.In[1] == v && !chooses(users, n, 6)
			fit = fit && (product || n.Op == ops.Embed && n.In[1] == v)
		}
		if !fit {
			continue
		}
		for _, t := range v.Load.Tensors {
			all[t] = called[t]
			for _, n := range users[v] {
				if ops.IsProduct(n.Op) && leads(users, n, g.Outputs, 6) {
					all[t] = "output.weight"
				}
			}
		}
	}
	return all, nil
}

// chooses says whether a product's result is what experts are chosen by.
func chooses(users map[*graph.Value][]*graph.Node, n *graph.Node, steps int) bool {
	for _, v := range n.Out {
		for _, u := range users[v] {
			if u.Op == ops.TopK || steps > 0 && !ops.IsProduct(u.Op) && chooses(users, u, steps-1) {
				return true
			}
		}
	}
	return false
}

// leads says whether a product's result is the model's, but for what is done to each element.
func leads(users map[*graph.Value][]*graph.Node, n *graph.Node, outputs []*graph.Value, steps int) bool {
	for _, v := range n.Out {
		if slices.Contains(outputs, v) {
			return true
		}
		for _, u := range users[v] {
			if steps > 0 && !ops.IsProduct(u.Op) && leads(users, u, outputs, steps-1) {
				return true
			}
		}
	}
	return false
}
