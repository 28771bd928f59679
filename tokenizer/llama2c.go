// llama2.c's tokenizer.bin: pieces with scores, encoded as its run.c does.

package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Ids that run.c takes for granted.
const (
	llama2cUNK   = 0
	llama2cBOS   = 1
	llama2cEOS   = 2
	llama2cBytes = 3 // the token of byte 0; the others follow
)

// FromLlama2c reads a tokenizer.bin: the length of the longest piece, then for
// each piece its score (float32), length (int32) and bytes, little-endian.
func FromLlama2c(data []byte) (*Tokenizer, error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("tokenizer.bin: expected at least 4 bytes, found %d", len(data))
	}
	t := &Tokenizer{unk: llama2cUNK, bos: llama2cBOS, eos: llama2cEOS, eot: None, pad: None, addBOS: true, lead: dropOne}
	for at := 4; at < len(data); {
		id := len(t.pieces)
		if len(data)-at < 8 {
			return nil, fmt.Errorf("tokenizer.bin: token %d: expected 8 bytes at byte %d, found %d", id, at, len(data)-at)
		}
		score := math.Float32frombits(binary.LittleEndian.Uint32(data[at:]))
		size := int64(int32(binary.LittleEndian.Uint32(data[at+4:])))
		at += 8
		if size < 0 || size > int64(len(data)-at) {
			return nil, fmt.Errorf("tokenizer.bin: token %d: a length of %d bytes at byte %d, where %d are left", id, size, at-4,
				len(data)-at)
		}
		if score != score {
			return nil, fmt.Errorf("tokenizer.bin: token %d: score is not a number", id)
		}
		p := piece{text: string(data[at : at+int(size)]), score: score, kind: Normal}
		at += int(size)
		switch _, isByte := byteToken(p.text); {
		case id == llama2cUNK:
			p.kind = Unknown
		case id == llama2cBOS || id == llama2cEOS:
			p.kind = Control
			p.text = strings.Trim(p.text, "\n") // written as "\n<s>\n"
		case isByte:
			p.kind = Byte
		}
		t.pieces = append(t.pieces, p)
	}
	if len(t.pieces) <= llama2cEOS {
		return nil, errors.New("tokenizer.bin: expected <unk>, <s> and </s> first, found fewer than three tokens")
	}
	t.output = make([]string, len(t.pieces))
	m := &greedy{vocab: make(map[string]int32, len(t.pieces)), size: int32(len(t.pieces))}
	ids := make([]int32, 0, len(t.pieces))
	for id, p := range t.pieces {
		t.output[id] = pieceOutput(p, p.text)
		if p.kind != Normal || p.text == "" {
			continue
		}
		if _, taken := m.vocab[p.text]; !taken {
			m.vocab[p.text] = int32(id)
			m.maxLen = max(m.maxLen, len(p.text))
			ids = append(ids, int32(id))
		}
	}
	m.rank = rankByScore(t.pieces, ids)
	t.model = m
	t.setSplitters(func(piece) bool { return false }, func(p piece) bool { return p.kind == Control })
	t.origin = export{model: "llama", pre: "default", addSpacePrefix: true, spaces: true}
	t.finish()
	return t, nil
}

// greedy is run.c's BPE. Unlike SentencePiece it normalizes nothing, and what
// has fallen back to bytes takes no part in merges.
type greedy struct {
	vocab  map[string]int32
	rank   []int32
	maxLen int
	size   int32
}

func (g *greedy) pair(text string, left, right *symbol) (rank, id int32, ok bool) {
	if left.id < 0 || right.id < 0 || int(right.end-left.start) > g.maxLen {
		return 0, 0, false
	}
	id, ok = g.vocab[text[left.start:right.end]]
	if !ok {
		return 0, 0, false
	}
	return g.rank[id], id, true
}

func (g *greedy) normalize(text string, _ bool) (string, int, error) { return text, 0, nil }

func (g *greedy) encode(dst []int32, text string, _ int, _ bool) ([]int32, error) {
	m := &merger{symbols: make([]symbol, 0, len(text)+1)}
	text = " " + text
	for i := 0; i < len(text); {
		// A character is a byte and up to three continuation bytes.
		n := 1
		for n < 4 && i+n < len(text) && text[i+n]&0xC0 == 0x80 {
			n++
		}
		if id, ok := g.vocab[text[i:i+n]]; ok {
			m.add(id, i+n)
		} else if i > 0 { // without a token for the space there is no prefix
			for j := range n {
				m.add(None, i+j+1)
			}
		} else {
			m.add(frozenSymbol, 1)
		}
		i += n
	}
	m.run(text, g)
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		s := m.symbols[i]
		if s.id >= 0 {
			dst = append(dst, s.id)
		} else if id := llama2cBytes + int32(text[s.start]); s.id == None && id < g.size {
			dst = append(dst, id)
		}
	}
	return dst, nil
}
