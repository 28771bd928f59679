// Added tokens: from the files beside a vocabulary, and in GGUF's metadata.

package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/greta-project/greta/internal/sorting"
)

// GGUF has no word for how added tokens are matched, nor for most steps of a
// tokenizer.json. These keys keep both; other readers pass over them.
const (
	addedKey = "greta.tokenizer.added_tokens" // JSON: the flags of added tokens
	stepsKey = "greta.tokenizer.steps"        // JSON: tokenizer.json without its vocabulary
	scoreKey = "greta.tokenizer.scores"       // JSON: the pieces' scores, where GGUF's float32 does not hold them
)

// readAdded collects the added tokens of the files beside a vocabulary, by id:
// added_tokens_decoder of tokenizer_config.json, or else added_tokens.json,
// whose tokens are special where they are named as such.
func readAdded(dir string, config *tokenizerConfig) ([]hfAdded, error) {
	var added []hfAdded
	for key, a := range config.Added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder: %q is no id", filepath.Join(dir, "tokenizer_config.json"), key)
		}
		a.ID = int32(id)
		added = append(added, a)
	}
	if len(added) == 0 {
		var ids map[string]int32
		if err := readJSON(dir, "added_tokens.json", &ids); err != nil {
			return nil, err
		}
		special := config.specials()
		for text, id := range ids {
			added = append(added, hfAdded{ID: id, Content: text, Special: slices.Contains(special, text)})
		}
	}
	sorting.Sort(added, func(a, b hfAdded) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content))
	})
	for i, a := range added {
		if i > 0 && added[i-1].ID == a.ID {
			return nil, fmt.Errorf("%s: added tokens %q and %q share id %d", dir, added[i-1].Content, a.Content, a.ID)
		}
	}
	return added, nil
}

// specials lists the tokens that the configuration names as special.
func (c *tokenizerConfig) specials() []string {
	var names []string
	for _, n := range []*tokenName{c.BOS, c.EOS, c.UNK, c.PAD} {
		if n != nil && *n != "" {
			names = append(names, string(*n))
		}
	}
	for _, n := range c.Additional {
		names = append(names, string(n))
	}
	return names
}

// readSpecialsMap takes what special_tokens_map.json says and
// tokenizer_config.json does not.
func (c *tokenizerConfig) readSpecialsMap(dir string) error {
	var other tokenizerConfig
	if err := readJSON(dir, "special_tokens_map.json", &other); err != nil {
		return err
	}
	c.BOS, c.EOS = cmp.Or(c.BOS, other.BOS), cmp.Or(c.EOS, other.EOS)
	c.UNK, c.PAD = cmp.Or(c.UNK, other.UNK), cmp.Or(c.PAD, other.PAD)
	if c.Additional == nil {
		c.Additional = other.Additional
	}
	return nil
}

// named are the tokens of the vocabulary that are special by name alone:
// begin, end and additional ones that no list of added tokens has.
func (c *tokenizerConfig) named(added []hfAdded, id func(string) (int32, bool)) []hfAdded {
	names := slices.Clone(c.Additional)
	for _, n := range []*tokenName{c.BOS, c.EOS} {
		if n != nil {
			names = append(names, *n)
		}
	}
	var more []hfAdded
	for _, n := range names {
		text := string(n)
		same := func(a hfAdded) bool { return a.Content == text }
		if slices.ContainsFunc(added, same) || slices.ContainsFunc(more, same) {
			continue
		}
		if id, ok := id(text); ok {
			more = append(more, hfAdded{ID: id, Content: text, Special: true})
		}
	}
	return more
}

// addPieces puts added tokens among the pieces of a SentencePiece model.
func (t *Tokenizer) addPieces(added []hfAdded) error {
	if len(added) == 0 {
		return nil
	}
	top, count := int64(0), len(t.pieces)
	for _, a := range added {
		top = max(top, int64(a.ID))
	}
	if limit := 2*int64(count+len(added)) + 1<<16; top >= limit {
		return fmt.Errorf("token id %d in a vocabulary of %d entries", top, count)
	}
	for int64(len(t.pieces)) <= top {
		t.pieces = append(t.pieces, piece{kind: Unused})
	}
	return t.hfKinds(&hfModel{}, added)
}

// hfFlags are the flags of one added token in GGUF's metadata.
type hfFlags struct {
	ID         int32 `json:"id"`
	LStrip     bool  `json:"lstrip,omitempty"`
	RStrip     bool  `json:"rstrip,omitempty"`
	SingleWord bool  `json:"single_word,omitempty"`
	Normalized bool  `json:"normalized,omitempty"`
	Outside    bool  `json:"outside,omitempty"`
}

// addedFlagsJSON gives the flags of all added tokens; empty where there are none.
func (t *Tokenizer) addedFlagsJSON() (string, error) {
	var list []hfFlags
	for id, p := range t.pieces {
		if p.added {
			list = append(list, hfFlags{int32(id), p.lstrip, p.rstrip, p.single, p.normalized, p.outside})
		}
	}
	if list == nil {
		return "", nil
	}
	data, err := json.Marshal(list)
	return string(data), err
}

// exactScoresJSON gives Unigram's scores where some are no float32; empty otherwise.
func (t *Tokenizer) exactScoresJSON() (string, error) {
	p, ok := t.model.(*pipeline)
	if !ok || p.unigram == nil || !slices.ContainsFunc(p.unigram.score, func(s float64) bool {
		return float64(float32(s)) != s
	}) {
		return "", nil
	}
	data, err := json.Marshal(p.unigram.score)
	return string(data), err
}

// readAddedFlags undoes addedFlagsJSON; false where the file has no such key.
func (t *Tokenizer) readAddedFlags(k ggufKeys) (bool, error) {
	var list []hfFlags
	ok, err := k.json(addedKey, &list)
	if err != nil || !ok {
		return ok, err
	}
	for _, f := range list {
		if f.ID < 0 || int(f.ID) >= len(t.pieces) {
			return true, fmt.Errorf("%s: id %d in a vocabulary of %d", addedKey, f.ID, len(t.pieces))
		}
		t.pieces[f.ID].addedFlags = addedFlags{true, f.LStrip, f.RStrip, f.SingleWord, f.Normalized, f.Outside}
	}
	return true, nil
}

// json reads a key of ours.
func (k ggufKeys) json(key string, into any) (bool, error) {
	v, ok := k.meta.Meta(key)
	if !ok {
		return false, nil
	}
	text, ok := v.(string)
	if !ok {
		return true, fmt.Errorf("%s: expected a string, found %T", key, v)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return true, fmt.Errorf("%s: %w", key, err)
	}
	return true, nil
}

// stepsOf is a tokenizer.json without its vocabulary and its tokens.
func stepsOf(data []byte) (string, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return "", err
	}
	var model map[string]json.RawMessage
	if err := json.Unmarshal(all["model"], &model); err != nil {
		return "", err
	}
	maps.DeleteFunc(model, func(key string, _ json.RawMessage) bool { return key == "vocab" || key == "merges" })
	steps := map[string]any{"model": model}
	for _, key := range []string{"normalizer", "pre_tokenizer", "decoder"} {
		if raw, ok := all[key]; ok {
			steps[key] = raw
		}
	}
	out, err := json.Marshal(steps)
	return string(out), err
}

// ggufSteps builds the tokenizer from the steps that an export kept; false
// where the file has none.
func (t *Tokenizer) ggufSteps(k ggufKeys) (bool, error) {
	var file hfFile
	ok, err := k.json(stepsKey, &file)
	if err != nil || !ok {
		return ok, err
	}
	m := file.Model
	if m == nil {
		return true, errors.New(stepsKey + ": model is missing")
	}
	if m.Type == "" {
		m.Type = "BPE"
	}
	if m.UnkID == nil && m.UnkToken == nil {
		t.unk = None
	}
	m.phantom = k.named("bert")
	lines, _, err := ggufGet[[]string](k, "merges")
	if err != nil {
		return true, err
	}
	merges, err := splitMerges(lines)
	if err != nil {
		return true, fmt.Errorf("tokenizer.ggml.merges: %w", err)
	}
	scores := make([]float64, len(t.pieces))
	for i, p := range t.pieces {
		scores[i] = float64(p.score)
	}
	if _, err := k.json(scoreKey, &scores); err != nil {
		return true, err
	}
	if len(scores) != len(t.pieces) {
		return true, fmt.Errorf("%s: %d for %d pieces", scoreKey, len(scores), len(t.pieces))
	}
	if err := t.hfSteps(&file, merges, scores); err != nil {
		return true, fmt.Errorf("%s: %w", stepsKey, err)
	}
	out, err := json.Marshal(json.RawMessage(k.text(stepsKey)))
	t.origin.steps = string(out)
	t.finish()
	return true, err
}

// named says whether the file's tokenizer is of that kind.
func (k ggufKeys) named(model string) bool { return k.text(ggml+"model") == model }

func (k ggufKeys) text(key string) string {
	v, _ := k.meta.Meta(key)
	s, _ := v.(string)
	return s
}
