// SentencePiece models of classes that write the vocabulary anew: spiece.model, sentencepiece.bpe.model and spm.model,
// read as the tokenizer.json that transformers makes of them.

package tokenizer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rewritten is what a class makes of a SentencePiece model. Tokens are given by their keys in tokenizer_config.json, or
// as texts.
type rewritten struct {
	types       []string          // of models, where no file names a class
	names       map[string]string // of special tokens, where no key says so
	begin       []string          // come before the pieces, with the score 0; a text with ! has -100
	skip        int               // pieces at the beginning that those take the place of; -1: those of their texts
	end         []string          // come behind the pieces
	extras      bool              // so do the tokens <extra_id_…>, the last first
	more        []string          // further special tokens
	unk         int32             // None: that of the name, or of the model
	merges      bool              // BPE by all pairs of pieces that make one; else Unigram
	normal      func(s *spFile, c *tokenizerConfig) []string
	words       bool   // text is cut at white space first
	never       string // where Metaspace puts its mark without add_prefix_space
	single      string // what is put around a text, A, and around two
	pair        string
	language    string // the key that single and pair name, where no key says so
	punctuation bool   // text may be cut around punctuation, where a key says so
	lstripMask  bool
	normalMask  bool
}

// sNames are special tokens' names of most classes.
var (
	sNames = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
		"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
	codes25 = strings.Fields(`ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT
		lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN`)
	fairseq = []string{"bos_token", "pad_token", "eos_token", "unk_token"}
)

const (
	sSingle = "bos_token A eos_token"
	sPair   = "bos_token A eos_token eos_token B eos_token"
)

// rewrittenFiles are the models' names by class.
var rewrittenFiles = map[string]string{
	"T5Tokenizer": "spiece.model", "AlbertTokenizer": "spiece.model", "DebertaV2Tokenizer": "spm.model",
	"XLMRobertaTokenizer": "sentencepiece.bpe.model", "MBartTokenizer": "sentencepiece.bpe.model",
	"NllbTokenizer": "sentencepiece.bpe.model", "CamembertTokenizer": "sentencepiece.bpe.model",
}

var rewrittenClasses = map[string]*rewritten{
	"T5Tokenizer": {types: []string{"t5", "mt5", "switch_transformers"}, names: map[string]string{"eos_token": "</s>",
		"unk_token": "<unk>", "pad_token": "<pad>"}, extras: true, unk: 2, normal: spCharsMap, words: true,
		never: "always", single: "A </s>", pair: "A </s> B </s>"},
	"XLMRobertaTokenizer": {types: []string{"xlm-roberta", "xmod", "gte", "jina_embeddings_v3"}, names: sNames,
		begin: fairseq, skip: 3, end: []string{"mask_token"}, unk: 3, normal: spCharsMap, words: true, never: "never",
		single: sSingle, pair: sPair},
	"CamembertTokenizer": {types: []string{"camembert"}, names: sNames, begin: []string{"<s>NOTUSED", "pad_token",
		"</s>NOTUSED", "unk_token", "!<unk>NOTUSED"}, skip: 1, end: []string{"mask_token"}, unk: None, normal: spCharsMap,
		words: true, never: "never", single: sSingle, pair: sPair, lstripMask: true},
	"MBartTokenizer": {types: []string{"mbart"}, names: sNames, begin: fairseq, skip: 3, end: append(slices.Clone(codes25),
		"mask_token"), more: codes25, unk: 3, words: true, never: "always", single: "A eos_token src_lang",
		pair: "A B eos_token src_lang", language: "en_XX", lstripMask: true},
	"NllbTokenizer": {types: []string{"nllb", "nllb-moe"}, names: sNames, begin: fairseq, skip: -1, unk: None,
		merges: true, normal: spCollapsed, never: "always", single: "src_lang A eos_token", pair: "src_lang A B eos_token",
		language: "eng_Latn", lstripMask: true, normalMask: true},
	"AlbertTokenizer": {types: []string{"albert", "yoso"}, names: map[string]string{"bos_token": "[CLS]",
		"eos_token": "[SEP]", "sep_token": "[SEP]", "cls_token": "[CLS]", "unk_token": "<unk>", "pad_token": "<pad>",
		"mask_token": "[MASK]"}, unk: 1, normal: spLowered, words: true, never: "never", single: "[CLS] A [SEP]",
		pair: "[CLS] A [SEP] B:1 [SEP]:1"},
	"DebertaV2Tokenizer": {types: []string{"deberta-v2"}, names: map[string]string{"bos_token": "[CLS]",
		"eos_token": "[SEP]", "sep_token": "[SEP]", "cls_token": "[CLS]", "unk_token": "[UNK]", "pad_token": "[PAD]",
		"mask_token": "[MASK]"}, unk: None, normal: spTrimmed, punctuation: true, never: "first",
		single: "cls_token A sep_token", pair: "cls_token A sep_token B:1 sep_token:1"},
}

// spCharsMap is the model's own map of characters.
func spCharsMap(s *spFile, _ *tokenizerConfig) []string {
	if s.norm.chars == nil {
		return nil
	}
	return []string{`{"type":"Precompiled","precompiled_charsmap":"` +
		base64.StdEncoding.EncodeToString(s.norm.chars.blob) + `"}`}
}

// spCollapsed makes several spaces one, where the model has a map.
func spCollapsed(s *spFile, c *tokenizerConfig) []string {
	if s.norm.chars == nil {
		return nil
	}
	return append(spCharsMap(s, c), replaced("Regex", " {2,}", " "))
}

// spLowered takes accents and capitals away, unless the configuration keeps them.
func spLowered(s *spFile, c *tokenizerConfig) []string {
	steps := []string{replaced("String", "``", `"`), replaced("String", "''", `"`)}
	if !c.flag("keep_accents", false) {
		steps = append(steps, `{"type":"NFKD"}`, `{"type":"StripAccents"}`)
	}
	if c.flag("do_lower_case", true) {
		steps = append(steps, `{"type":"Lowercase"}`)
	}
	return append(steps, spCharsMap(s, c)...)
}

// spTrimmed does without the model's map.
func spTrimmed(_ *spFile, c *tokenizerConfig) []string {
	var steps []string
	if c.flag("do_lower_case", false) {
		steps = []string{`{"type":"Lowercase"}`}
	}
	return append(steps, replaced("Regex", `\s{2,}|[\n\r\t]`, " "), `{"type":"NFC"}`,
		`{"type":"Strip","strip_left":false,"strip_right":true}`)
}

// pieceFiles are the names that SentencePiece models have beside tokenizer.model.
var pieceFiles = []string{"spiece.model", "sentencepiece.bpe.model", "spm.model", "sentencepiece.model"}

// pieceFile is the name of a folder's SentencePiece model, "" where there is none.
func pieceFile(dir string) string {
	i := slices.IndexFunc(pieceFiles, func(name string) bool { return exists(dir, name) })
	if i < 0 {
		return ""
	}
	return pieceFiles[i]
}

// loadPieces reads a SentencePiece model as the class does that the folder names, or that its type of models has.
func loadPieces(dir, name string, config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	var model struct {
		Type  string `json:"model_type"`
		Class string `json:"tokenizer_class"`
	}
	if err := readJSON(dir, "config.json", &model); err != nil {
		return nil, err
	}
	class := strings.TrimSuffix(cmp.Or(config.Class, model.Class), "Fast")
	path := filepath.Join(dir, name)
	for known, r := range rewrittenClasses {
		if class == "" && slices.Contains(r.types, model.Type) {
			class = known
		}
	}
	r := rewrittenClasses[class]
	switch {
	case slices.Contains(spPlain, model.Type): // for which transformers passes over the class, and over this file
		return nil, fmt.Errorf("%s: how a model of the type %s reads it is not known: expected a tokenizer.json", path,
			model.Type)
	case class == "":
		return nil, fmt.Errorf("%s: whose it is, is in none of the files: expected a tokenizer_config.json with "+
			"tokenizer_class, or a tokenizer.json; %s", path, convertedBy)
	case r == nil || rewrittenFiles[class] != name:
		return nil, fmt.Errorf("%s: how %s reads it is not known: expected a tokenizer.json; %s", path, class, convertedBy)
	}
	return loadBeside(path, config, added, func(data []byte, added []hfAdded) (*Tokenizer, error) {
		s, err := readSentencePiece(data)
		if err != nil {
			return nil, err
		}
		if err := config.nameTokens(r.names); err != nil {
			return nil, err
		}
		return r.tokenizer(s, config, added)
	})
}

// vocabulary is a class's, with the ids of its tokens.
type vocabulary struct {
	pieces []piece
	ids    map[string]int32
}

func (v *vocabulary) add(text string, score float32) {
	if _, ok := v.ids[text]; !ok {
		v.ids[text] = int32(len(v.pieces))
	}
	v.pieces = append(v.pieces, piece{text: text, score: score})
}

// token is a text, or the one that the configuration has for a key.
func (r *rewritten) token(c *tokenizerConfig, key string) string {
	if key == "src_lang" || strings.HasSuffix(key, "_token") {
		var name tokenName
		if raw := c.raw[key]; json.Unmarshal(raw, &name) == nil && name != "" {
			return string(name)
		}
		if key == "src_lang" {
			return r.language
		}
	}
	return key
}

// extraIDs is how many tokens <extra_id_…> there are.
func (r *rewritten) extraIDs(c *tokenizerConfig) (int, error) {
	n := 100
	if raw, ok := c.raw["extra_ids"]; ok && r.extras {
		if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > 1<<16 {
			return 0, fmt.Errorf("tokenizer_config.json: extra_ids is %s: a number from 0 to 65536 is expected", raw)
		}
	}
	if !r.extras {
		n = 0
	}
	return n, nil
}

// vocabulary puts the class's tokens around the pieces.
func (r *rewritten) vocabulary(s *spFile, c *tokenizerConfig, extras int) *vocabulary {
	v := &vocabulary{ids: map[string]int32{}}
	for _, key := range r.begin {
		text, low := strings.CutPrefix(key, "!")
		score := float32(0)
		if low {
			score = -100
		}
		v.add(r.token(c, text), score)
	}
	for i, p := range s.pieces {
		if _, taken := v.ids[p.text]; i < r.skip || r.skip < 0 && taken {
			continue
		}
		v.add(p.text, p.score)
	}
	for _, key := range r.end {
		v.add(r.token(c, key), 0)
	}
	for i := extras - 1; i >= 0; i-- {
		v.add("<extra_id_"+strconv.Itoa(i)+">", 0)
	}
	return v
}

// unknown is the id of the unknown token.
func (r *rewritten) unknown(s *spFile, c *tokenizerConfig, v *vocabulary) int32 {
	if r.unk != None {
		return r.unk
	}
	id, ok := v.ids[r.token(c, "unk_token")]
	switch {
	case ok && (len(r.begin) > 0 || v.pieces[id].score == 0):
		return id
	case len(r.begin) > 0:
		return 0
	}
	return s.unknown()
}

// added are the tokens that are special by name, those of the model that are, and what further ones the class and the
// configuration have. Those that are not in the vocabulary come behind it.
func (r *rewritten) added(s *spFile, c *tokenizerConfig, v *vocabulary, extras int,
	beside []hfAdded) ([]hfAdded, error) {
	var all []hfAdded
	free := int32(len(v.pieces))
	for _, a := range beside {
		free = max(free, a.ID+1)
	}
	add := func(a hfAdded) {
		if slices.ContainsFunc(all, a.same) || slices.ContainsFunc(beside, a.same) {
			return
		}
		id, ok := v.ids[a.Content]
		if a.ID = id; !ok {
			a.ID = free
			free++
		}
		all = append(all, a)
	}
	names, err := c.names()
	if err != nil {
		return nil, err
	}
	for _, a := range names {
		if raw := c.raw["mask_token"]; len(raw) > 0 && raw[0] == '"' && a.Content == r.token(c, "mask_token") {
			a.LStrip, a.Normalized = r.lstripMask, new(r.normalMask)
		}
		if a.counts == inList && c.listsBeside {
			continue
		}
		add(a)
	}
	for _, p := range s.pieces {
		if p.kind == Control || p.kind == UserDefined {
			add(hfAdded{Content: p.text, Special: p.kind == Control, Normalized: new(false)})
		}
	}
	for i := range extras {
		add(hfAdded{Content: "<extra_id_" + strconv.Itoa(i) + ">", Special: true, Normalized: new(false)})
	}
	for _, text := range r.more {
		add(hfAdded{Content: text, Special: true, Normalized: new(false)})
	}
	return all, nil
}

// template is what is put around a text, or around two.
func (r *rewritten) template(form string, c *tokenizerConfig, ids map[string]int32) string {
	var parts []string
	for item := range strings.FieldsSeq(form) {
		item, kind, _ := strings.Cut(item, ":")
		kind = cmp.Or(kind, "0")
		if item == "A" || item == "B" {
			parts = append(parts, `{"Sequence":{"id":"`+item+`","type_id":`+kind+`}}`)
			continue
		}
		name := r.token(c, item)
		if _, ok := ids[name]; !ok { // a language that the vocabulary has not is the unknown token there
			ids[name] = ids[r.token(c, "unk_token")]
		}
		parts = append(parts, `{"SpecialToken":{"id":`+quoted(name)+`,"type_id":`+kind+`}}`)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// processor is the post_processor.
func (r *rewritten) processor(c *tokenizerConfig, ids map[string]int32) string {
	single, pair := r.template(r.single, c, ids), r.template(r.pair, c, ids)
	var tokens []string
	for item := range strings.FieldsSeq(r.single) {
		if item != "A" {
			name := r.token(c, item)
			tokens = append(tokens, fmt.Sprintf(`%s:{"ids":[%d]}`, quoted(name), ids[name]))
		}
	}
	return `{"type":"TemplateProcessing","single":` + single + `,"pair":` + pair + `,"special_tokens":{` +
		strings.Join(tokens, ",") + `}}`
}

// tokenizer reads the tokenizer.json that the class is.
func (r *rewritten) tokenizer(s *spFile, c *tokenizerConfig, beside []hfAdded) (*Tokenizer, error) {
	extras, err := r.extraIDs(c)
	if err != nil {
		return nil, err
	}
	v := r.vocabulary(s, c, extras)
	unk := r.unknown(s, c, v)
	if int(unk) >= len(v.pieces) {
		return nil, errors.New("no token is the unknown one")
	}
	added, err := r.added(s, c, v, extras, beside)
	if err != nil {
		return nil, err
	}
	for _, a := range slices.Concat(beside, added) {
		if _, ok := v.ids[a.Content]; !ok {
			v.ids[a.Content] = a.ID
		}
	}
	scheme := "always"
	if !c.flag("add_prefix_space", true) {
		scheme = r.never
	}
	space := `{"type":"Metaspace","replacement":"▁","prepend_scheme":"` + scheme + `","split":true}`
	before := space
	if r.words {
		before = `{"type":"WhitespaceSplit"},` + space
	}
	if r.punctuation && c.flag("split_by_punct", false) {
		before = `{"type":"Punctuation","behavior":"Isolated"},` + before
	}
	normal := "null"
	if r.normal != nil {
		normal = `{"type":"Sequence","normalizers":[` + strings.Join(r.normal(s, c), ",") + `]}`
	}
	tokens, err := json.Marshal(added)
	if err != nil {
		return nil, err
	}
	model, err := r.model(s, v, unk)
	if err != nil {
		return nil, err
	}
	return fromTokenizerJSON(fmt.Appendf(nil, `{"added_tokens":%s,"normalizer":%s,"pre_tokenizer":{"type":"Sequence",
		"pretokenizers":[%s]},"post_processor":%s,"decoder":%s,"model":%s}`, tokens, normal, before,
		r.processor(c, v.ids), space, model), beside)
}

// model is Unigram by the pieces' scores, or BPE by all pairs of the model's pieces that make one.
func (r *rewritten) model(s *spFile, v *vocabulary, unk int32) ([]byte, error) {
	if r.merges {
		vocab := make(map[string]int, len(v.pieces))
		for i, p := range v.pieces {
			vocab[p.text] = i
		}
		return json.Marshal(map[string]any{"type": "BPE", "unk_token": v.pieces[unk].text, "fuse_unk": true, "vocab": vocab,
			"merges": s.merges(false)})
	}
	vocab := make([][2]any, len(v.pieces))
	for i, p := range v.pieces {
		vocab[i] = [2]any{p.text, float64(p.score)}
	}
	return json.Marshal(map[string]any{"type": "Unigram", "unk_id": unk, "vocab": vocab})
}
