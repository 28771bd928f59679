// Unigram: the segmentation of the highest total score, by Viterbi's algorithm
// over a trie of pieces (Kudo 2018, https://arxiv.org/abs/1804.10959).

package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unkPenalty is how far below the worst piece an unknown character scores.
const unkPenalty = 10

// viterbi segments normalized text. F is the type that scores are summed in:
// float32 as in SentencePiece or float64 as in Hugging Face, since ties and
// near-ties fall by it.
type viterbi[F float32 | float64] struct {
	trie  *trie
	score []F
	kind  []Kind
	unkAt F // score of an unknown character
	max   F
	spell speller
	joins bool // what is unknown is one with its neighbours that are, the unknown token's own spelling among them
}

// newViterbi makes the trie of what the vocabulary's format has among its pieces.
func newViterbi[F float32 | float64](pieces []piece, score []F, unk int32, spelt func(piece) bool) *viterbi[F] {
	v := &viterbi[F]{score: score, kind: make([]Kind, len(pieces)), spell: newSpeller(pieces, unk)}
	var keys []trieKey
	low, high := F(math.MaxFloat32), F(0x1p-126) // as SentencePiece begins: the least normal float32
	for id, p := range pieces {
		v.kind[id] = p.kind
		if p.kind == Normal {
			low, high = min(low, score[id]), max(high, score[id])
		}
		if p.text != "" && !p.outside && spelt(p) {
			keys = append(keys, trieKey{p.text, int32(id)})
		}
	}
	if low == math.MaxFloat32 {
		low = 0
	}
	v.unkAt, v.max, v.trie = low-unkPenalty, high, newTrie(keys)
	return v
}

// segment appends the ids of text. Control tokens are spelt where special says so.
func (v *viterbi[F]) segment(dst []int32, text string, special bool) ([]int32, error) {
	type node struct {
		score F
		from  int32 // where the piece that ends here begins; -1: not reached
		id    int32
	}
	best := make([]node, len(text)+1)
	for i := range best {
		best[i].from = -1
	}
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRuneInString(text[at:])
		base := best[at].score
		single := false
		for n, i := 0, at; i < len(text); i++ {
			if n = v.trie.step(n, text[i]); n < 0 {
				break
			}
			id := v.trie.nodes[n].id
			if id == None || v.kind[id] == Control && !special {
				continue
			}
			score := v.score[id]
			if v.kind[id] == UserDefined { // always worth taking whole
				score = F(i+1-at)*v.max - 0.1
			}
			end := &best[i+1]
			if end.from < 0 || base+score > end.score {
				*end = node{base + score, int32(at), id}
			}
			single = single || i+1-at == size
		}
		if end := &best[at+size]; !single && (end.from < 0 || base+v.unkAt > end.score) {
			*end = node{base + v.unkAt, int32(at), None}
		}
		at += size
	}
	var path []int32 // ends of pieces, last first
	for end := int32(len(text)); end > 0; end = best[end].from {
		path = append(path, end)
	}
	prevUnk, run := false, -1 // where a run of what is unknown began
	for i := len(path) - 1; i >= 0; i-- {
		n, end := best[path[i]], int(path[i])
		switch unknown := n.id == None || v.joins && n.id == v.spell.unk; {
		case unknown && v.joins:
			if run < 0 {
				run = int(n.from)
			}
			if i > 0 {
				if next := best[path[i-1]].id; next == None || next == v.spell.unk {
					continue
				}
			}
			var err error
			if dst, err = v.unknown(dst, text[run:end]); err != nil {
				return dst, err
			}
			run = -1
		case unknown:
			dst, prevUnk = v.spell.append(dst, text[n.from:end], prevUnk)
		default:
			dst, prevUnk = append(dst, n.id), false
		}
	}
	return dst, nil
}

// unknown appends what stands for a run without pieces, unless it is one as a whole.
func (v *viterbi[F]) unknown(dst []int32, text string) ([]int32, error) {
	if n, id := v.trie.longest(text); n == len(text) {
		return append(dst, id), nil
	}
	before := len(dst)
	if dst, _ = v.spell.append(dst, text, false); len(dst) == before {
		return dst, fmt.Errorf("no pieces spell %q, and model.unk_id names no unknown token", text)
	}
	return dst, nil
}

// unigram is SentencePiece's Unigram model behind its normalizer.
type unigram struct {
	norm *spNormalizer
	*viterbi[float32]
}

func newUnigram(pieces []piece, norm *spNormalizer, unk int32) *unigram {
	score := make([]float32, len(pieces))
	for i, p := range pieces {
		score[i] = p.score
	}
	spelt := func(p piece) bool { return p.kind == Normal || p.kind == UserDefined }
	return &unigram{norm, newViterbi(pieces, score, unk, spelt)}
}

func (u *unigram) normalize(text string, first bool) (string, int, error) {
	return u.norm.normalize(text, first), 0, nil
}

func (u *unigram) encode(dst []int32, text string, _ int, special bool) ([]int32, error) {
	return u.segment(dst, text, special)
}
