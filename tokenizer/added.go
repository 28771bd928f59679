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
	"strings"

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
	names, err := config.names()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "tokenizer_config.json"), err)
	}
	var added []hfAdded
	for key, a := range config.Added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: added_tokens_decoder: %q is no id", filepath.Join(dir, "tokenizer_config.json"), key)
		}
		a.ID, a.counts = int32(id), flagsCount
		a.Special = a.Special || slices.ContainsFunc(names, func(n hfAdded) bool { return a.same(n) && n.counts != inList })
		added = append(added, a)
	}
	if config.Added == nil {
		var ids map[string]int32
		if err := readJSON(dir, "added_tokens.json", &ids); err != nil {
			return nil, err
		}
		for text, id := range ids {
			a := hfAdded{ID: id, Content: text}
			a.Special = slices.ContainsFunc(names, a.same)
			added = append(added, a)
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

// same says that two entries are of one token.
func (a *hfAdded) same(b hfAdded) bool { return a.Content == b.Content }

// standardNames are the tokens that every configuration may name.
var standardNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// names lists the tokens that the configuration names as special: by a key that ends in _token, or in a list of more.
// They come with the flags that the name has, if it has any.
func (c *tokenizerConfig) names() ([]hfAdded, error) {
	var names []hfAdded
	add := func(key string, raw json.RawMessage, counts counting) error {
		a := hfAdded{Normalized: new(bool), counts: counts}
		if err := json.Unmarshal(raw, &a.Content); err != nil {
			if err = json.Unmarshal(raw, &a); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		if a.Special = true; a.Content != "" && !slices.ContainsFunc(names, a.same) {
			names = append(names, a)
		}
		return nil
	}
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(c.raw)), func(key string) bool {
		return !strings.HasSuffix(key, "_token") || slices.Contains(standardNames, key)
	})
	for _, key := range slices.Concat(standardNames, keys) {
		if raw := c.raw[key]; len(raw) > 0 && (raw[0] == '"' || raw[0] == '{') {
			if err := add(key, raw, nothingCounts); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range []string{"extra_special_tokens", "additional_special_tokens"} {
		var list []json.RawMessage
		var named map[string]json.RawMessage
		if raw := c.raw[key]; json.Unmarshal(raw, &list) != nil && json.Unmarshal(raw, &named) != nil {
			continue // other forms that are in use say nothing of text
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if err := add(key, named[name], nothingCounts); err != nil {
				return nil, err
			}
		}
		for _, raw := range list {
			if err := add(key, raw, inList); err != nil {
				return nil, err
			}
		}
		if len(list)+len(named) > 0 { // the one key is the other's new name
			break
		}
	}
	return names, nil
}

// readSpecialsMap takes what special_tokens_map.json says, which is read where tokenizer_config.json has no
// added_tokens_decoder, and counts for more there.
func (c *tokenizerConfig) readSpecialsMap(dir string) error {
	if c.Added != nil {
		return nil
	}
	var more map[string]json.RawMessage
	if err := readJSON(dir, "special_tokens_map.json", &more); err != nil {
		return err
	}
	if c.raw == nil {
		c.raw = map[string]json.RawMessage{}
	}
	for _, key := range []string{"extra_special_tokens", "additional_special_tokens"} {
		if list := c.raw[key]; len(list) > 2 { // a list here is not replaced by the one there
			delete(more, "additional_special_tokens")
		}
	}
	_, c.listsBeside = more["additional_special_tokens"]
	maps.Copy(c.raw, more)
	return readJSON(dir, "special_tokens_map.json", c)
}

// named are the tokens of the vocabulary that are special by name. Those that it has among its added tokens are where
// the files beside it have no list of such, and the name is no list's.
func (c *tokenizerConfig) named(added []hfAdded, in func(string) (int32, bool)) ([]hfAdded, error) {
	names, err := c.names()
	var more []hfAdded
	for _, a := range names {
		if slices.ContainsFunc(added, a.same) {
			continue
		}
		if id, ok := in(a.Content); ok {
			if a.ID = id; a.counts == nothingCounts && c.Added == nil {
				a.counts = specialCounts
			}
			more = append(more, a)
		}
	}
	return more, err
}

// addPieces puts added tokens among the pieces of a SentencePiece model.
func (t *Tokenizer) addPieces(added []hfAdded) error {
	if len(added) == 0 {
		return nil
	}
	if err := t.makeRoom(added); err != nil {
		return err
	}
	return t.hfKinds(&hfModel{}, added)
}

// makeRoom makes pieces for the ids of added tokens.
func (t *Tokenizer) makeRoom(added []hfAdded) error {
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
	return nil
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
