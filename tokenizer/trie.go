// Two ways to find vocabulary entries in text: a trie for every prefix at a
// position, and the splitter that cuts special tokens out.

package tokenizer

import (
	"slices"
	"sort"
)

// trie holds strings with ids. A node's children lie side by side, ascending
// by label, so that a step is a search among at most 256 bytes.
type trie struct {
	labels []byte
	nodes  []trieNode // nodes[i] is reached by labels[i]; node 0 is the root
}

type trieNode struct {
	child    int32 // index of the first child
	children int32
	id       int32 // of the string that ends here, or None
}

type trieKey struct {
	text string
	id   int32
}

// newTrie takes keys in any order; of equal strings the first listed counts.
func newTrie(keys []trieKey) *trie {
	keys = slices.Clone(keys)
	sort.SliceStable(keys, func(i, j int) bool { return keys[i].text < keys[j].text })
	t := &trie{labels: []byte{0}, nodes: []trieNode{{id: None}}}
	// Breadth first, so that siblings are neighbours.
	type span struct{ node, lo, hi, depth int }
	queue := []span{{0, 0, len(keys), 0}}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		lo := s.lo
		for ; lo < s.hi && len(keys[lo].text) == s.depth; lo++ {
			if t.nodes[s.node].id == None && s.depth > 0 {
				t.nodes[s.node].id = keys[lo].id
			}
		}
		t.nodes[s.node].child = int32(len(t.nodes))
		for lo < s.hi {
			c := keys[lo].text[s.depth]
			hi := lo
			for hi < s.hi && keys[hi].text[s.depth] == c {
				hi++
			}
			queue = append(queue, span{len(t.nodes), lo, hi, s.depth + 1})
			t.labels = append(t.labels, c)
			t.nodes = append(t.nodes, trieNode{id: None})
			t.nodes[s.node].children++
			lo = hi
		}
	}
	return t
}

// step follows one byte from node; -1 where nothing continues.
func (t *trie) step(node int, c byte) int {
	n := &t.nodes[node]
	lo, hi := int(n.child), int(n.child+n.children)
	for lo < hi {
		mid := (lo + hi) / 2
		switch l := t.labels[mid]; {
		case l == c:
			return mid
		case l < c:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return -1
}

// longest finds the longest string of the trie that text starts with.
func (t *trie) longest(text string) (length int, id int32) {
	id = None
	node := 0
	for i := 0; i < len(text); i++ {
		if node = t.step(node, text[i]); node < 0 {
			break
		}
		if t.nodes[node].id != None {
			length, id = i+1, t.nodes[node].id
		}
	}
	return length, id
}
