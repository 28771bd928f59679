// WordPiece: a word is spelt by the longest piece that begins it, then by the longest that continues it, and so on
// (Wu et al. 2016, https://arxiv.org/abs/1609.08144; Devlin et al. 2018, https://arxiv.org/abs/1810.04805).

package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/errlist"
)

const (
	// wordPrefix marks pieces that continue a word, in Hugging Face's files and in vocab.txt. GGUF marks those that
	// begin one instead, by a ▁.
	wordPrefix = "##"
	// longestWord is how many characters a word has at most that is spelt; a longer one is unknown.
	longestWord = 100
)

// wordPiece spells words.
type wordPiece struct {
	begin, behind *trie
	unk           int32
	longest       int
}

// wordForm says how pieces tell beginnings of words from what stands behind.
type wordForm struct {
	prefix  string // of pieces that continue a word
	phantom bool   // those that begin one have a ▁ instead
}

// cut gives a piece's letters and whether it begins a word.
func (f wordForm) cut(text string) (letters string, begins bool) {
	if f.phantom {
		if rest, behind := strings.CutPrefix(text, f.prefix); behind && f.kept(rest) {
			return rest, false
		}
		return strings.CutPrefix(text, space)
	}
	rest, behind := strings.CutPrefix(text, f.prefix)
	return rest, !behind
}

// kept says that what continues a word by these letters keeps its mark in GGUF, since they alone read otherwise.
func (f wordForm) kept(letters string) bool {
	return letters == "" || strings.HasPrefix(letters, space) || strings.HasPrefix(letters, f.prefix)
}

func newWordPiece(pieces []piece, form wordForm, unk int32, longest int) (*wordPiece, error) {
	if unk == None {
		return nil, errors.New("WordPiece: the vocabulary has no unknown token")
	}
	var begin, behind []trieKey
	for id, p := range pieces {
		if p.outside || p.kind == Unused || p.text == "" {
			continue
		}
		letters, begins := form.cut(p.text)
		if p.kind != Normal && form.phantom { // these have no mark in GGUF
			letters, begins = wordForm{prefix: form.prefix}.cut(p.text)
		}
		if begins {
			begin = append(begin, trieKey{letters, int32(id)})
			continue
		}
		begin = append(begin, trieKey{form.prefix + letters, int32(id)}) // a text may have the mark too
		if letters != "" {
			behind = append(behind, trieKey{letters, int32(id)})
		}
	}
	return &wordPiece{begin: newTrie(begin), behind: newTrie(behind), unk: unk, longest: longest}, nil
}

// encodeWord appends the ids of a word, or the unknown one where it cannot be spelt.
func (w *wordPiece) encodeWord(dst []int32, word string) []int32 {
	if utf8.RuneCountInString(word) > w.longest {
		return append(dst, w.unk)
	}
	start, from := len(dst), w.begin
	for word != "" {
		n, id := from.longest(word)
		if id == None {
			return append(dst[:start], w.unk)
		}
		dst, word, from = append(dst, id), word[n:], w.behind
	}
	return dst
}

// wholeWords is WordLevel: a word is a piece, or unknown.
type wholeWords struct {
	ids  map[string]int32
	unk  int32
	name string // of the unknown token

	control map[int32]bool // words only where special tokens are read
}

func newWholeWords(pieces []piece, unk int32, m *hfModel) *wholeWords {
	w := &wholeWords{ids: make(map[string]int32, len(pieces)), unk: unk, control: map[int32]bool{}}
	for id, p := range pieces {
		if !p.outside && p.kind != Unused {
			w.ids[p.text], w.control[int32(id)] = int32(id), p.kind == Control
		}
	}
	if m.UnkToken != nil {
		w.name = *m.UnkToken
	}
	return w
}

func (w *wholeWords) encodeWord(dst []int32, word string, special bool) ([]int32, error) {
	id, ok := w.ids[word]
	if !ok || w.control[id] && !special {
		id = w.unk
	}
	if id == None {
		return dst, fmt.Errorf("the vocabulary has neither the word %q nor the unknown token %q", word, w.name)
	}
	return append(dst, id), nil
}

// outputs gives what each piece adds to decoded text, cleaned where the decoder says so.
func (f wordForm) outputs(pieces []piece, clean bool) []string {
	out := make([]string, len(pieces))
	for id, p := range pieces {
		letters, begins := f.cut(p.text)
		if p.kind == Unknown || p.kind == UserDefined {
			letters, begins = p.text, true
		}
		if p.kind == Control {
			continue
		}
		if out[id] = letters; begins {
			out[id] = " " + letters
		}
		if clean {
			out[id] = cleaned(out[id])
		}
	}
	return out
}

// bertPipeline is BERT's own: what BertNormalizer and BertPreTokenizer do.
func bertPipeline(normalizer *hfPart) (*pipeline, error) {
	p := &pipeline{}
	normalizer.Type = "BertNormalizer"
	return p, errlist.Join(p.readNormalizer(normalizer), p.readPreTokenizer(&hfPart{Type: "BertPreTokenizer"}))
}

// setBERT builds BERT's tokenizer around pieces that are known.
func (t *Tokenizer) setBERT(form wordForm, normalizer *hfPart) error {
	p, err := bertPipeline(normalizer)
	if err != nil {
		return err
	}
	if p.words, err = newWordPiece(t.pieces, form, t.unk, longestWord); err != nil {
		return err
	}
	t.model, t.lead = p, dropOne
	t.output = form.outputs(t.pieces, true)
	t.origin = export{model: "bert", pre: "default", form: form}
	special := func(p piece) bool { return p.kind == Control || p.kind == Unknown }
	t.setSplitters(func(piece) bool { return false }, special)
	t.pairs = bertPair(t.bos, t.eos)
	t.addBOS, t.addEOS = true, true
	t.finish()
	return nil
}

// ggufBERT builds the tokenizer of GGUF's model "bert". The format does not say whether letters are lowered: a
// vocabulary without capitals wants it.
func (t *Tokenizer) ggufBERT(k ggufKeys) error {
	for _, s := range []struct {
		keys [2]string
		id   *int32
		is   int32
	}{{[2]string{"cls_token_id", "bos_token_id"}, &t.bos, 101},
		{[2]string{"seperator_token_id", "eos_token_id"}, &t.eos, 102},
		{[2]string{"unknown_token_id"}, &t.unk, 100}} {
		var err error
		*s.id = None
		for _, key := range s.keys {
			if key != "" && *s.id == None && err == nil {
				*s.id, err = k.id(key, None)
			}
		}
		if err != nil {
			return err
		}
		if *s.id == None {
			*s.id = s.is
		}
		if int(*s.id) >= len(t.pieces) {
			return fmt.Errorf("%s%s is %d in a vocabulary of %d", ggml, s.keys[0], *s.id, len(t.pieces))
		}
	}
	for _, id := range []int32{t.bos, t.eos} {
		t.pieces[id].kind = Control
	}
	t.pieces[t.unk].kind = Unknown
	cased := false
	for _, p := range t.pieces {
		if p.kind == Normal && strings.HasPrefix(p.text, space) && strings.ContainsAny(p.text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			cased = true
			break
		}
	}
	lower := !cased
	return t.setBERT(wordForm{prefix: wordPrefix, phantom: true}, &hfPart{Lowercase: &lower})
}

// bertVocabulary reads a vocab.txt: a piece a line, the number of the line its id.
func bertVocabulary(data []byte, config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	t := &Tokenizer{bos: None, eos: None, eot: None, unk: None, pad: None}
	text := strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	special := map[string]*int32{"[UNK]": &t.unk, "[CLS]": &t.bos, "[SEP]": &t.eos, "[PAD]": &t.pad, "[MASK]": nil}
	for name, at := range map[*tokenName]*int32{config.UNK: &t.unk, config.CLS: &t.bos, config.SEP: &t.eos,
		config.PAD: &t.pad, config.Mask: nil} {
		if name != nil {
			special[string(*name)] = at
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		p := piece{text: line, kind: Normal}
		if line == "" {
			p.kind = Unused
		}
		if id, ok := special[line]; ok {
			p.kind = Control
			if id != nil {
				*id = int32(len(t.pieces))
			}
		}
		t.pieces = append(t.pieces, p)
	}
	if t.unk == None || t.bos == None || t.eos == None {
		return nil, errors.New("vocab.txt: expected a line a token, [UNK], [CLS] and [SEP] among them")
	}
	t.pieces[t.unk].kind = Unknown
	if err := t.addPieces(added); err != nil {
		return nil, fmt.Errorf("vocab.txt: %w", err)
	}
	normalizer := &hfPart{Lowercase: config.Lower, StripAccents: config.Accents, ChineseChars: config.Chinese}
	return t, t.setBERT(wordForm{prefix: wordPrefix}, normalizer)
}

// pairItem is a part of the form in which two texts are read as one: a special token, or one of the texts.
type pairItem struct {
	id   int32 // of the token; None: a text
	text int   // 0 or 1
	kind int32 // the type that the model's token types have for it
}

// bertPair is [CLS] A [SEP] B [SEP].
func bertPair(cls, sep int32) []pairItem {
	return []pairItem{{cls, 0, 0}, {None, 0, 0}, {sep, 0, 0}, {None, 1, 1}, {sep, 0, 1}}
}

// robertaPair is <s> A </s></s> B </s>.
func robertaPair(cls, sep int32) []pairItem {
	return []pairItem{{cls, 0, 0}, {None, 0, 0}, {sep, 0, 0}, {sep, 0, 0}, {None, 1, 0}, {sep, 0, 0}}
}

// Pairs reports whether the vocabulary has a form for two texts that are read as one (see EncodePair).
func (t *Tokenizer) Pairs() bool { return len(t.pairs) > 0 }

// EncodePair gives the ids of two texts in the form that the model was trained with ([CLS] a [SEP] b [SEP]) and the
// type of each. Where they are more than limit (0: no limit) tokens are left out at the end of the longer text until
// they fit; cut is how many. Special tokens that are written in a text are read as such, as other programs do.
func (t *Tokenizer) EncodePair(a, b string, limit int) (ids, types []int32, cut int, err error) {
	if !t.Pairs() {
		return nil, nil, 0, errors.New("tokenizer: the vocabulary has no form for two texts")
	}
	var texts [2][]int32
	for i, text := range [2]string{a, b} {
		if texts[i], err = t.Encode(text, Options{ParseSpecial: true}); err != nil {
			return nil, nil, 0, err
		}
	}
	around := 0
	for _, item := range t.pairs {
		if item.id != None {
			around++
		}
	}
	for limit > 0 && len(texts[0])+len(texts[1])+around > limit {
		i := 0
		if len(texts[1]) >= len(texts[0]) {
			i = 1
		}
		if len(texts[i]) == 0 {
			return nil, nil, 0, fmt.Errorf("tokenizer: a limit of %d tokens leaves no room for text", limit)
		}
		texts[i] = texts[i][:len(texts[i])-1]
		cut++
	}
	for _, item := range t.pairs {
		part := texts[item.text]
		if item.id != None {
			part = []int32{item.id}
		}
		for _, id := range part {
			ids, types = append(ids, id), append(types, item.kind)
		}
	}
	return ids, types, cut, nil
}

// pairOf reads {"pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, …]}.
func (p *hfPart) pairOf() ([]pairItem, error) {
	var items []pairItem
	for _, item := range p.Pair {
		switch {
		case item.Sequence != nil:
			text := 0
			if item.Sequence.ID == "B" {
				text = 1
			}
			items = append(items, pairItem{None, text, item.Sequence.TypeID})
		case item.SpecialToken != nil:
			special := p.SpecialTokens[item.SpecialToken.ID]
			if len(special.IDs) == 0 {
				return nil, fmt.Errorf("special token %q has no ids", item.SpecialToken.ID)
			}
			for _, id := range special.IDs {
				items = append(items, pairItem{id, 0, item.SpecialToken.TypeID})
			}
		}
	}
	if len(items) < 3 { // two texts without a token between them: no form to read them apart
		return nil, nil
	}
	return items, nil
}

// hfTemplateItem is a part of a TemplateProcessing.
type hfTemplateItem struct {
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	}
}

// hfWords builds WordPiece from tokenizer.json.
func (t *Tokenizer) hfWords(m *hfModel, p *pipeline) (form wordForm, err error) {
	form = wordForm{prefix: wordPrefix, phantom: m.phantom}
	if m.Prefix != nil {
		form.prefix = *m.Prefix
	}
	longest := longestWord
	if m.LongestWord != nil {
		longest = *m.LongestWord
	}
	p.words, err = newWordPiece(t.pieces, form, t.unk, longest)
	t.origin = export{model: "bert", pre: "default", form: form}
	return form, err
}

// phantomSpelling is how GGUF spells a piece.
func (f wordForm) phantomSpelling(p piece) string {
	if f.phantom || p.kind != Normal {
		return p.text
	}
	letters, begins := f.cut(p.text)
	switch {
	case begins:
		return space + p.text
	case f.kept(letters):
		return p.text
	}
	return letters
}
