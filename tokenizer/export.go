// Export: a loaded tokenizer as GGUF metadata.

package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// KV is one entry of GGUF metadata. Values are string, bool, uint32, []string,
// []int8, []int32 or []float32, which are to be written as just these types.
type KV struct {
	Key   string
	Value any
}

// export is what a tokenizer's source leaves behind for GGUFMetadata.
type export struct {
	model, pre     string // GGUF's names; no model: why says what GGUF lacks
	why            string
	merges         [][2]string
	charsMap       []byte
	addSpacePrefix bool
	removeExtra    bool
	spaces         bool     // pieces spell a space as itself (llama2.c)
	scoreByMerge   bool     // pieces have no scores; their merges are in order
	form           wordForm // of WordPiece's pieces
	steps          string   // JSON: a tokenizer.json without its vocabulary
}

// GGUFMetadata gives the tokenizer.ggml.* entries that describe the tokenizer,
// in the order in which files have them. A tokenizer.json with steps that GGUF
// has no name for is an error.
func (t *Tokenizer) GGUFMetadata() ([]KV, error) {
	o := &t.origin
	if o.model == "" {
		return nil, errors.New("tokenizer: GGUF cannot describe this tokenizer: " + o.why)
	}
	n := len(t.pieces)
	tokens, kinds, scores := make([]string, n), make([]int32, n), make([]float32, n)
	for id, p := range t.pieces {
		tokens[id], kinds[id], scores[id] = p.text, int32(p.kind), p.score
		if o.spaces && p.kind == Normal {
			tokens[id] = strings.ReplaceAll(p.text, " ", space)
		}
		if o.model == "bert" {
			tokens[id] = o.form.phantomSpelling(p)
		}
	}
	if o.scoreByMerge {
		t.mergeScores(scores)
	}
	kvs := []KV{{ggml + "model", o.model}, {ggml + "pre", o.pre}, {ggml + "tokens", tokens}}
	add := func(key string, value any) { kvs = append(kvs, KV{ggml + key, value}) }
	if o.model != "gpt2" {
		add("scores", scores)
	}
	add("token_type", kinds)
	if o.model == "gpt2" || o.steps != "" && len(o.merges) > 0 {
		merges := make([]string, len(o.merges))
		for i, m := range o.merges {
			merges[i] = m[0] + " " + m[1]
		}
		add("merges", merges)
	}
	bos, err := t.exportedBOS()
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		key string
		id  int32
	}{{"bos_token_id", bos}, {"eos_token_id", t.eos}, {"eot_token_id", t.eot}, {"unknown_token_id", t.unk},
		{"padding_token_id", t.pad}} {
		if s.id != None {
			add(s.key, uint32(s.id))
		}
	}
	add("add_bos_token", t.AddBOS())
	add("add_eos_token", t.AddEOS())
	if o.model != "gpt2" {
		add("add_space_prefix", o.addSpacePrefix)
		add("remove_extra_whitespaces", o.removeExtra)
		if len(o.charsMap) > 0 {
			chars := make([]int8, len(o.charsMap))
			for i, c := range o.charsMap {
				chars[i] = int8(c)
			}
			add("precompiled_charsmap", chars)
		}
	}
	flags, err := t.addedFlagsJSON()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: added tokens: %w", err)
	}
	if flags != "" {
		kvs = append(kvs, KV{addedKey, flags})
	}
	exact, err := t.exactScoresJSON()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: scores: %w", err)
	}
	if exact != "" {
		kvs = append(kvs, KV{scoreKey, exact})
	}
	if o.steps != "" {
		kvs = append(kvs, KV{stepsKey, o.steps})
	}
	return kvs, nil
}

// exportedBOS is what is put before texts. GGUF has one word for what is put behind them and what ends them.
func (t *Tokenizer) exportedBOS() (int32, error) {
	if t.AddEOS() && len(t.behind) > 0 {
		return None, fmt.Errorf("tokenizer: GGUF cannot describe this tokenizer: %q comes behind %q", t.Token(t.behind[0]),
			t.Token(t.after()))
	}
	if t.AddEOS() && t.after() != t.eos {
		return None, fmt.Errorf("tokenizer: GGUF cannot describe this tokenizer: %q is put behind texts, and %q ends them",
			t.Token(t.after()), t.Token(t.eos))
	}
	if t.AddBOS() {
		return t.before(), nil
	}
	return t.bos, nil
}

// mergeScores scores a piece by the first merge that makes it, so that merging
// by score does what merging by rank did.
func (t *Tokenizer) mergeScores(scores []float32) {
	for i := range scores {
		scores[i] = -math.MaxFloat32
		if k := t.pieces[i].kind; k != Normal && k != UserDefined {
			scores[i] = 0
		}
	}
	for rank := len(t.origin.merges) - 1; rank >= 0; rank-- {
		m := t.origin.merges[rank]
		if id, ok := t.ids[m[0]+m[1]]; ok {
			scores[id] = -float32(rank)
		}
	}
	for i := range scores {
		if scores[i] == -math.MaxFloat32 {
			scores[i] = -float32(len(t.origin.merges))
		}
	}
}
