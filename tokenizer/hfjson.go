// Hugging Face's tokenizer.json: vocabulary, model, decoder, template. Its
// normalizers and pre-tokenizers are in hfsteps.go.

package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
)

type hfFile struct {
	AddedTokens   []hfAdded `json:"added_tokens"`
	Normalizer    *hfPart   `json:"normalizer"`
	PreTokenizer  *hfPart   `json:"pre_tokenizer"`
	PostProcessor *hfPart   `json:"post_processor"`
	Decoder       *hfPart   `json:"decoder"`
	Model         *hfModel  `json:"model"`

	Config json.RawMessage `json:"config"` // of a tekken.json
}

// convertedBy says where a tokenizer.json comes from, where only another form is there.
const convertedBy = "transformers' AutoTokenizer.from_pretrained reads that form, and its save_pretrained writes one"

// hfAdded is an added token. Without a word on it, it is matched in normalized
// text where it is not special.
type hfAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"`
	Special    bool   `json:"special"`

	counts counting
}

// counting is what an entry of the files beside a tokenizer.json says of a token that this has among its added ones.
type counting uint8

const (
	nothingCounts counting = iota
	flagsCount             // its flags are the token's
	specialCounts          // that it is special
	inList                 // nothing: it is in a list of more special tokens
)

// beside takes an entry of the files beside.
func (a *hfAdded) beside(b hfAdded) {
	switch special := a.Special || b.Special; b.counts {
	case flagsCount:
		if a.Special && !b.Special && b.Normalized == nil {
			b.Normalized = new(true)
		}
		b.ID = a.ID
		*a = b
		a.Special = special
	case specialCounts:
		if a.Normalized == nil {
			a.Normalized = new(!a.Special)
		}
		a.Special = special
	}
}

func (a *hfAdded) piece() piece {
	p := piece{text: a.Content, kind: UserDefined, addedFlags: addedFlags{added: true, lstrip: a.LStrip, rstrip: a.RStrip,
		single: a.SingleWord, normalized: !a.Special}}
	if a.Special {
		p.kind = Control
	}
	if a.Normalized != nil {
		p.normalized = *a.Normalized
	}
	return p
}

type hfModel struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	UnkToken     *string         `json:"unk_token"`
	UnkID        *int32          `json:"unk_id"`
	Dropout      float64         `json:"dropout"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       string          `json:"end_of_word_suffix"`
	LongestWord  *int            `json:"max_input_chars_per_word"`

	phantom bool // pieces are spelt as GGUF has WordPiece's
}

func (m *hfModel) unknown() error {
	return fmt.Errorf("model type %q is not supported; supported are BPE, Unigram, WordPiece and WordLevel", m.Type)
}

// FromTokenizerJSON reads a tokenizer.json of type BPE, Unigram, WordPiece or WordLevel.
func FromTokenizerJSON(data []byte) (*Tokenizer, error) { return fromTokenizerJSON(data, nil) }

// fromTokenizerJSON also takes the added tokens of the files beside it.
func fromTokenizerJSON(data []byte, beside []hfAdded) (*Tokenizer, error) {
	t, err := readTokenizerJSON(data, beside)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func readTokenizerJSON(data []byte, beside []hfAdded) (*Tokenizer, error) {
	var file hfFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	m := file.Model
	if m == nil && file.Config != nil {
		return nil, errors.New("a tekken.json, which is not read: expected a tokenizer.json; " + convertedBy)
	}
	if m == nil || m.Vocab == nil {
		return nil, errors.New("model.vocab is missing")
	}
	if m.Type == "" && m.Merges != nil { // files from before the key was made
		m.Type = "BPE"
	}
	if !slices.Contains([]string{"BPE", "Unigram", "WordPiece", "WordLevel"}, m.Type) {
		return nil, m.unknown()
	}
	added := slices.Clone(file.AddedTokens)
	for _, a := range beside {
		if i := slices.IndexFunc(added, a.same); i >= 0 {
			added[i].beside(a)
		} else if !slices.ContainsFunc(file.AddedTokens, func(b hfAdded) bool { return a.ID == b.ID }) {
			added = append(added, a)
		}
	}
	t := &Tokenizer{bos: None, eos: None, eot: None, unk: None, pad: None}
	var scores []float64
	var merges [][2]string
	var err error
	switch m.Type {
	case "BPE":
		if err = t.hfVocab(m.Vocab, added); err == nil {
			merges, err = hfMerges(m.Merges)
		}
	case "WordPiece", "WordLevel":
		err = t.hfVocab(m.Vocab, added)
	case "Unigram":
		scores, err = t.hfScored(m.Vocab, added)
	}
	if err != nil {
		return nil, err
	}
	if err := t.hfKinds(m, added); err != nil {
		return nil, err
	}
	if err := t.hfSteps(&file, merges, scores); err != nil {
		return nil, err
	}
	if t.origin.steps, err = stepsOf(data); err != nil {
		return nil, err
	}
	if err := t.hfTemplate(file.PostProcessor); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	t.finish()
	return t, nil
}

// hfSteps builds the model and all that lies around it, once the pieces are known.
func (t *Tokenizer) hfSteps(file *hfFile, merges [][2]string, scores []float64) (err error) {
	m := file.Model
	if m.Dropout > 0 {
		return fmt.Errorf("model: dropout of %g, by which merges are left out by chance, is not supported", m.Dropout)
	}
	p, form := &pipeline{}, wordForm{}
	if err := p.readNormalizer(file.Normalizer); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	if err := p.readPreTokenizer(file.PreTokenizer); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	switch m.Type {
	case "BPE":
		marks := affixes{suffix: m.Suffix}
		if m.Prefix != nil {
			marks.prefix = *m.Prefix
		}
		bytes := p.byteLevel && !p.mapped && marks == affixes{} && !m.ByteFallback && spellsBytes(t.pieces)
		if p.bpe, err = newBPE(t.pieces, merges, bytes, t.unk, marks); err != nil {
			return err
		}
		p.bpe.ignoreMerges, p.bpe.fuseUnk = m.IgnoreMerges, m.FuseUnk
		if p.bpe.spell = hfSpeller(t.pieces, t.unk, m.ByteFallback); m.UnkToken != nil && t.unk == None {
			p.bpe.noUnk = *m.UnkToken
		}
		t.origin = p.exportBPE(merges)
	case "WordPiece":
		if form, err = t.hfWords(m, p); err != nil {
			return err
		}
	case "WordLevel":
		p.whole = newWholeWords(t.pieces, t.unk, m)
		t.origin = export{why: "WordLevel"}
	case "Unigram":
		p.unigram = hfViterbi(t.pieces, scores, t.unk, m.ByteFallback)
		t.origin = p.exportUnigram()
	default:
		return m.unknown()
	}
	t.model = p
	if err := t.hfDecoder(file.Decoder, p.byteLevel && p.bpe != nil, form); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	if err := t.checkNormalized(); err != nil {
		return err
	}
	none := func(piece) bool { return false }
	t.setSplitters(none, none)
	return nil
}

// hfViterbi knows nothing of kinds: added tokens of its vocabulary, bytes and the unknown token are pieces like others,
// and score as they do. A control token of several characters is spelt only where such may be.
func hfViterbi(pieces []piece, scores []float64, unk int32, bytes bool) *viterbi[float64] {
	plain := slices.Clone(pieces)
	low := math.Inf(1)
	for i := range plain {
		p := &plain[i]
		if p.outside || p.kind == Unused {
			continue
		}
		low = min(low, scores[i])
		if _, one := onlyRune(p.text); p.kind != Control || one {
			p.kind = Normal
		}
	}
	v := newViterbi(plain, scores, unk, func(p piece) bool { return p.kind == Normal || p.kind == Control })
	v.spell, v.unkAt, v.joins = hfSpeller(pieces, unk, bytes), low-unkPenalty, true
	v.spell.partly = true
	return v
}

// grow makes room for ids up to top, where count entries of the file justify it.
func (t *Tokenizer) grow(top int64, count int) error {
	if limit := 2*int64(count) + 1<<16; top < 0 || top >= limit {
		return fmt.Errorf("token id %d in a vocabulary of %d entries", top, count)
	}
	t.pieces = make([]piece, top+1)
	for i := range t.pieces {
		t.pieces[i].kind = Unused // until an entry says otherwise
	}
	return nil
}

func (t *Tokenizer) hfVocab(raw json.RawMessage, added []hfAdded) error {
	var vocab map[string]int32
	if err := json.Unmarshal(raw, &vocab); err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	top := int64(-1)
	for text, id := range vocab {
		if id < 0 {
			return fmt.Errorf("model.vocab: token %q has id %d", text, id)
		}
		top = max(top, int64(id))
	}
	for _, a := range added {
		top = max(top, int64(a.ID))
	}
	if err := t.grow(top, len(vocab)+len(added)); err != nil {
		return err
	}
	for text, id := range vocab {
		p := &t.pieces[id]
		if p.kind == Normal {
			return fmt.Errorf("model.vocab: tokens %q and %q share id %d", min(p.text, text), max(p.text, text), id)
		}
		p.text, p.kind = text, Normal
	}
	return nil
}

func (t *Tokenizer) hfScored(raw json.RawMessage, added []hfAdded) ([]float64, error) {
	var vocab []hfScore
	if err := json.Unmarshal(raw, &vocab); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	top := int64(len(vocab)) - 1
	for _, a := range added {
		top = max(top, int64(a.ID))
	}
	if err := t.grow(top, len(vocab)+len(added)); err != nil {
		return nil, err
	}
	scores := make([]float64, top+1)
	for id, v := range vocab {
		t.pieces[id] = piece{text: v.text, score: float32(v.score), kind: Normal}
		scores[id] = v.score
	}
	return scores, nil
}

// hfScore is ["▁the", -3.2].
type hfScore struct {
	text  string
	score float64
}

func (s *hfScore) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("expected a token and its score, found %d values", len(pair))
	}
	if err := json.Unmarshal(pair[0], &s.text); err != nil {
		return err
	}
	var number json.Number
	if err := json.Unmarshal(pair[1], &number); err != nil {
		return err
	}
	s.score = rustFloat(string(number))
	return nil
}

// rustFloat reads a number as the library's reader of JSON does, which rounds twice: digits as a whole number, and that
// by a power of ten. Unigram's ties fall by the last bit.
func rustFloat(s string) float64 {
	digits, negative := strings.CutPrefix(s, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(digits), "e")
	power, err := strconv.Atoi(cmp.Or(exponent, "0"))
	whole, fraction, _ := strings.Cut(mantissa, ".")
	var n uint64
	full := false
	for i, c := range []byte(whole + fraction) {
		if d := uint64(c - '0'); !full && n <= (math.MaxUint64-d)/10 {
			n = 10*n + d
			if i >= len(whole) {
				power--
			}
			continue
		}
		if full = true; i < len(whole) {
			power++
		}
	}
	f := float64(n)
	switch {
	case err != nil || power > 308 || power < -308:
		exact, _ := strconv.ParseFloat(s, 64)
		return exact
	case power < 0:
		f /= pow10(-power)
	default:
		f *= pow10(power)
	}
	if negative {
		f = -f
	}
	return f
}

// pow10 is the float64 next to 10^n.
func pow10(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64)
	return f
}

// hfKinds marks added, unknown and byte tokens.
func (t *Tokenizer) hfKinds(m *hfModel, added []hfAdded) error {
	if m.ByteFallback {
		for i, p := range t.pieces {
			if _, ok := byteToken(p.text); ok {
				t.pieces[i].kind = Byte
			}
		}
	}
	ids := make(map[string]int32, len(t.pieces))
	for id, p := range t.pieces {
		if p.kind != Unused {
			ids[p.text] = int32(id)
		}
	}
	for _, a := range added {
		id, known := ids[a.Content]
		if known { // the vocabulary's own id counts, whatever the entry says
			a.ID = id
		}
		if a.ID < 0 || int(a.ID) >= len(t.pieces) {
			return fmt.Errorf("added_tokens: %q has id %d", a.Content, a.ID)
		}
		if old := t.pieces[a.ID]; !known && (old.kind == Normal || old.kind == Byte) && old.text != "" {
			return fmt.Errorf("added_tokens: %q has id %d, which is %q of the vocabulary", a.Content, a.ID, old.text)
		}
		old := t.pieces[a.ID]
		t.pieces[a.ID] = a.piece()
		t.pieces[a.ID].score, t.pieces[a.ID].outside = old.score, !known
		if old.kind == Unknown || old.added && old.kind == Control && old.text == a.Content { // special once is special
			t.pieces[a.ID].kind = old.kind
		}
	}
	switch {
	case m.UnkID != nil:
		t.unk = *m.UnkID
	case m.UnkToken != nil:
		t.unk = int32(slices.IndexFunc(t.pieces, func(p piece) bool { return p.text == *m.UnkToken && !p.outside }))
	}
	if t.unk >= int32(len(t.pieces)) || t.unk < None {
		return fmt.Errorf("model.unk_id %d in a vocabulary of %d", t.unk, len(t.pieces))
	}
	if t.unk != None {
		if p := &t.pieces[t.unk]; p.kind == Normal {
			p.kind = Unknown
		}
	}
	return nil
}

// hfMerges reads "a b" or ["a", "b"].
func hfMerges(raw json.RawMessage) ([][2]string, error) {
	if raw == nil {
		return nil, nil
	}
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		merges, err := splitMerges(lines)
		if err != nil {
			return nil, fmt.Errorf("model.merges: %w", err)
		}
		return merges, nil
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	merges := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("model.merges: merge %d: expected two symbols, found %d", i, len(p))
		}
		merges[i] = [2]string{p[0], p[1]}
	}
	return merges, nil
}

// hfTemplate finds the begin and end tokens in the post-processor.
func (t *Tokenizer) hfTemplate(p *hfPart) error {
	ends := "" // the processor before that puts tokens around a text
	for _, part := range p.flatten("processors") {
		if part.Type == "ByteLevel" { // moves offsets only
			continue
		}
		if ends != "" {
			return fmt.Errorf("%s behind %s is not supported", part.Type, ends)
		}
		ends = part.Type
		switch part.Type {
		case "TemplateProcessing":
			before, after, err := part.template()
			if err != nil {
				return err
			}
			if t.pairs, err = part.pairOf(); err != nil {
				return err
			}
			if err := t.setEnds(before, after); err != nil {
				return err
			}
		case "RobertaProcessing", "BertProcessing":
			cls, err1 := part.idOf("cls")
			sep, err2 := part.idOf("sep")
			if err := errlist.Join(err1, err2); err != nil {
				return err
			}
			if err := t.setEnds([]int32{cls}, []int32{sep}); err != nil {
				return err
			}
			if t.pairs = bertPair(cls, sep); part.Type == "RobertaProcessing" {
				t.pairs = robertaPair(cls, sep)
			}
		default:
			return fmt.Errorf("type %q is not supported", part.Type)
		}
	}
	return nil
}

func (t *Tokenizer) setEnds(before, after []int32) error {
	if len(before) > 1 || len(after) > 2 {
		return fmt.Errorf("%d tokens before the text and %d after it: at most one and two are supported", len(before),
			len(after))
	}
	for _, id := range slices.Concat(before, after) {
		if id < 0 || int(id) >= len(t.pieces) {
			return fmt.Errorf("token id %d in a vocabulary of %d", id, len(t.pieces))
		}
	}
	t.around = &[2]int32{None, None}
	if len(before) == 1 {
		t.bos, t.around[0], t.addBOS = before[0], before[0], true
	}
	if len(after) > 0 {
		t.eos, t.around[1], t.addEOS, t.behind = after[0], after[0], true, after[1:]
	}
	return nil
}

// template reads {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": …}]}.
func (p *hfPart) template() (before, after []int32, err error) {
	seen := false
	for _, item := range p.Single {
		if item.Sequence != nil {
			if seen || item.Sequence.ID != "A" {
				return nil, nil, errors.New("TemplateProcessing: a single that is not one sequence A is not supported")
			}
			seen = true
			continue
		}
		if item.SpecialToken == nil {
			continue
		}
		name := item.SpecialToken.ID
		special, ok := p.SpecialTokens[name]
		if !ok || len(special.IDs) == 0 {
			return nil, nil, fmt.Errorf("special token %q has no ids", name)
		}
		if seen {
			after = append(after, special.IDs...)
		} else {
			before = append(before, special.IDs...)
		}
	}
	if !seen {
		return nil, nil, errors.New("TemplateProcessing: a single without the sequence A is not supported")
	}
	return before, after, nil
}

// idOf reads ["</s>", 2].
func (p *hfPart) idOf(key string) (int32, error) {
	raw := p.CLS
	if key == "sep" {
		raw = p.SEP
	}
	var pair []json.RawMessage
	var id int64
	if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 || json.Unmarshal(pair[1], &id) != nil || id < 0 ||
		id > math.MaxInt32 {
		return 0, fmt.Errorf("%s: expected a token and its id", key)
	}
	return int32(id), nil
}
