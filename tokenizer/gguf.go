// Vocabularies in GGUF metadata (tokenizer.ggml.*).

package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Metadata is what FromGGUF reads: values are string, bool, int64, float64,
// or slices of these.
type Metadata interface {
	Meta(key string) (any, bool)
}

const ggml = "tokenizer.ggml."

// FromGGUF builds the tokenizer that a GGUF file's metadata describes.
func FromGGUF(meta Metadata) (*Tokenizer, error) {
	t, err := fromGGUF(ggufKeys{meta})
	if err != nil {
		return nil, fmt.Errorf("GGUF tokenizer: %w", err)
	}
	return t, nil
}

// ggufKeys reads keys with their types checked; an absent key is no error.
type ggufKeys struct{ meta Metadata }

func ggufGet[T any](k ggufKeys, key string) (T, bool, error) {
	var zero T
	v, ok := k.meta.Meta(ggml + key)
	if !ok {
		return zero, false, nil
	}
	x, ok := v.(T)
	if !ok {
		return zero, false, fmt.Errorf("%s%s: expected %T, found %T", ggml, key, zero, v)
	}
	return x, true, nil
}

func (k ggufKeys) id(key string, fallback int32) (int32, error) {
	v, ok, err := ggufGet[int64](k, key)
	if err != nil || !ok {
		return fallback, err
	}
	if v < 0 || v > math.MaxInt32 {
		return None, nil // writers put 2^32-1 for "none"
	}
	return int32(v), nil
}

func (k ggufKeys) bool(key string, fallback bool) (bool, error) {
	v, ok, err := ggufGet[bool](k, key)
	if err != nil || !ok {
		return fallback, err
	}
	return v, nil
}

func fromGGUF(k ggufKeys) (*Tokenizer, error) {
	name, ok, err := ggufGet[string](k, "model")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("tokenizer.ggml.model is missing: the file holds no tokenizer")
	}
	t := &Tokenizer{}
	if err := t.readPieces(k); err != nil {
		return nil, err
	}
	defaults := map[string][3]int32{"llama": {1, 2, 0}, "t5": {None, 1, 2}, "gpt2": {11, 11, None}}[name]
	t.addBOS, t.addEOS = name == "llama", name == "t5"
	for i, r := range []struct {
		key string
		id  *int32
	}{{"bos_token_id", &t.bos}, {"eos_token_id", &t.eos}, {"unknown_token_id", &t.unk}, {"eot_token_id", &t.eot},
		{"padding_token_id", &t.pad}} {
		fallback := None
		if i < len(defaults) {
			fallback = defaults[i]
		}
		if *r.id, err = k.id(r.key, fallback); err != nil {
			return nil, err
		}
	}
	kept, err := t.ggufSteps(k)
	switch {
	case kept || err != nil:
	case name == "llama", name == "t5":
		err = t.ggufSentencePiece(k, name)
	case name == "gpt2":
		err = t.ggufBPE(k)
	case name == "bert":
		err = t.ggufBERT(k)
	default:
		err = fmt.Errorf("tokenizer.ggml.model %q is not known; known are llama, t5, gpt2 and bert", name)
	}
	if err != nil {
		return nil, err
	}
	if t.addBOS, err = k.bool("add_bos_token", t.addBOS); err != nil {
		return nil, err
	}
	if t.addEOS, err = k.bool("add_eos_token", t.addEOS); err != nil {
		return nil, err
	}
	if name == "t5" && t.addBOS && t.addEOS && t.bos != None && t.eos != None { // XLM-R's
		t.pairs = robertaPair(t.bos, t.eos)
	}
	if eom, err := k.id("eom_token_id", None); err != nil {
		return nil, err
	} else if eom != None {
		t.addEnd(eom)
	}
	return t, nil
}

func (t *Tokenizer) readPieces(k ggufKeys) error {
	tokens, ok, err := ggufGet[[]string](k, "tokens")
	if err != nil {
		return err
	}
	if !ok || len(tokens) == 0 {
		return errors.New("tokenizer.ggml.tokens is missing: the file holds no vocabulary")
	}
	scores, hasScores, err := ggufGet[[]float64](k, "scores")
	if err != nil {
		return err
	}
	kinds, hasKinds, err := ggufGet[[]int64](k, "token_type")
	if err != nil {
		return err
	}
	if hasScores && len(scores) < len(tokens) || hasKinds && len(kinds) < len(tokens) {
		return fmt.Errorf("%d tokens, but %d scores and %d token types", len(tokens), len(scores), len(kinds))
	}
	t.pieces = make([]piece, len(tokens))
	for id, text := range tokens {
		p := piece{text: text, kind: Normal}
		if hasScores {
			if math.IsNaN(scores[id]) {
				return fmt.Errorf("score of token %d is not a number", id)
			}
			p.score = float32(scores[id])
		}
		if _, ok := byteToken(text); ok && !hasKinds {
			p.kind = Byte
		}
		if hasKinds && kinds[id] >= int64(Normal) && kinds[id] <= int64(Byte) {
			p.kind = Kind(kinds[id])
		}
		t.pieces[id] = p
	}
	known, err := t.readAddedFlags(k)
	if err != nil {
		return err
	}
	if !known {
		t.phi3Strips(k)
	}
	return nil
}

// phi3Strips restores what GGUF cannot say: Phi-3's markers swallow the
// whitespace after them, but for the three that begin or end texts.
func (t *Tokenizer) phi3Strips(k ggufKeys) {
	v, _ := k.meta.Meta("general.name")
	name, _ := v.(string)
	name = strings.ToLower(name)
	if !strings.Contains(name, "phi-3") && !strings.Contains(name, "phi3") {
		return
	}
	for i := range t.pieces {
		p := &t.pieces[i]
		switch p.text {
		case "<unk>", "<s>", "<|endoftext|>":
		default:
			p.rstrip = p.kind == Control || p.kind == UserDefined
		}
	}
}

func (t *Tokenizer) ggufSentencePiece(k ggufKeys, name string) error {
	if _, ok := k.meta.Meta(ggml + "token_type"); !ok { // without kinds the special tokens' ids say them
		for id, kind := range map[int32]Kind{t.unk: Unknown, t.bos: Control, t.eos: Control, t.pad: Control} {
			if id >= 0 && int(id) < len(t.pieces) {
				t.pieces[id].kind = kind
			}
		}
	}
	norm := &spNormalizer{escape: true}
	prefix, err := k.bool("add_space_prefix", name == "llama")
	if err != nil {
		return err
	}
	if prefix {
		norm.prefix = prefixEach
	}
	if norm.removeExtra, err = k.bool("remove_extra_whitespaces", false); err != nil {
		return err
	}
	chars, _, err := ggufGet[[]int64](k, "precompiled_charsmap")
	if err != nil {
		return err
	}
	blob := make([]byte, len(chars))
	for i, c := range chars {
		blob[i] = byte(c)
	}
	if norm.chars, err = newCharsMap(blob); err != nil {
		return fmt.Errorf("precompiled_charsmap: %w", err)
	}
	modelType := int32(spBPE)
	if name == "t5" {
		modelType = spUnigram
	}
	return t.setSentencePiece(modelType, norm, false, " ⁇ ")
}

func (t *Tokenizer) ggufBPE(k ggufKeys) error {
	pre, ok, err := ggufGet[string](k, "pre")
	if err != nil {
		return err
	}
	if !ok {
		pre = "default" // files from before the key was made
	}
	lines, ok, err := ggufGet[[]string](k, "merges")
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("tokenizer.ggml.merges is missing")
	}
	merges, err := splitMerges(lines)
	if err != nil {
		return fmt.Errorf("tokenizer.ggml.merges: %w", err)
	}
	return t.setByteLevel(pre, merges)
}

// splitMerges cuts "Ġ t" in two. A symbol may itself begin with a space.
func splitMerges(lines []string) ([][2]string, error) {
	merges := make([][2]string, len(lines))
	for i, line := range lines {
		cut := -1
		if len(line) > 1 {
			cut = strings.IndexByte(line[1:], ' ')
		}
		if cut < 0 || cut+2 >= len(line) {
			return nil, fmt.Errorf("merge %d: expected two symbols with a space between, found %q", i, line)
		}
		merges[i] = [2]string{line[:cut+1], line[cut+2:]}
	}
	return merges, nil
}

// setByteLevel builds byte-level BPE with one of GGUF's pre-tokenizers.
func (t *Tokenizer) setByteLevel(pre string, merges [][2]string) error {
	p, err := findPre(pre)
	if err != nil {
		return err
	}
	steps, err := splitAll(p.steps)
	if err != nil {
		return err
	}
	b, err := newBPE(t.pieces, merges, true, None, affixes{})
	if err != nil {
		return err
	}
	b.ignoreMerges = p.ignoreMerges
	t.addBOS = t.addBOS || p.addBOS
	t.model = &words{steps: steps, bpe: b}
	t.origin = export{model: "gpt2", pre: pre, merges: merges}
	t.output = make([]string, len(t.pieces))
	for id, p := range t.pieces {
		t.output[id] = byteLevelOutput(p)
	}
	t.setSplitters(wholeUser, wholeSpecial)
	t.finish()
	return nil
}

// wholeKinds are the kinds that GGUF's tokens are matched whole by: without
// special tokens, and with them.
func wholeUser(p piece) bool { return p.kind == UserDefined }
func wholeSpecial(p piece) bool {
	return p.kind == UserDefined || p.kind == Control || p.kind == Unknown
}

// byteLevelOutput is what a token of a byte-level vocabulary adds to decoded
// text. Special tokens are written plainly, all others in the byte alphabet.
func byteLevelOutput(p piece) string {
	switch p.kind {
	case Control:
		return ""
	case UserDefined, Unknown:
		return p.text
	}
	raw, _ := fromByteAlphabet(p.text)
	return raw
}
