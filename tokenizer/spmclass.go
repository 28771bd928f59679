// A folder's tokenizer.model beside a tokenizer_config.json: read as the class that this names does,
// which is the tokenizer.json that transformers makes of the two.

package tokenizer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/sorting"
)

// spClass is what a class makes of a SentencePiece model, whatever this says of itself.
type spClass struct {
	prefix string            // where Metaspace puts its mark: first, always with the key legacy
	strip  bool              // a space before the text is taken off, whether a mark was put or not
	unk    bool              // characters that no piece spells are the unknown token, not left out
	bos    bool              // the begin token is put, where no key says so
	names  map[string]string // of special tokens, where no key says so
}

// spNames are those that most classes know.
var spNames = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

var spClasses = map[string]spClass{
	"LlamaTokenizer": {prefix: "legacy", names: spNames},
	"CodeLlamaTokenizer": {prefix: "first", strip: true, unk: true, bos: true, names: map[string]string{
		"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "prefix_token": "▁<PRE>", "middle_token": "▁<MID>",
		"suffix_token": "▁<SUF>", "eot_token": "▁<EOT>"}},
	"GemmaTokenizer": {unk: true, names: map[string]string{"bos_token": "<bos>", "eos_token": "<eos>",
		"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}},
}

// spPlain are the types of models for which transformers passes over the class that a folder names, and does as the
// SentencePiece model says.
var spPlain = strings.Fields(`arctic aria chatlm ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe
	glm4_moe_lite granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2
	internlm3 iquestcoder jamba kimi_k25 kimi_linear llava llava_next mimo_v2_flash minicpm3 minicpmv minimax_m2 ministral
	ministral3 mistral mistral3 mixtral molmo molmo2 nemotron nvfp4 olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl
	persimmon phi3 phi3_v phimoe pixtral stablelm step3_vl umt5 vipllava voxtral`)

// flag reads a key that is true, false or null, which counts as false.
func (c *tokenizerConfig) flag(key string, missing bool) bool {
	raw, ok := c.raw[key]
	return !ok && missing || string(raw) == "true"
}

// nameTokens gives special tokens the names that they have where no key says so.
func (c *tokenizerConfig) nameTokens(names map[string]string) error {
	for key, name := range names {
		if _, ok := c.raw[key]; !ok && name != "" {
			c.raw[key] = json.RawMessage(strconv.Quote(name))
		}
	}
	for key, into := range map[string]**tokenName{"bos_token": &c.BOS, "eos_token": &c.EOS, "unk_token": &c.UNK,
		"pad_token": &c.PAD} {
		if *into == nil && len(c.raw[key]) > 0 {
			if err := json.Unmarshal(c.raw[key], into); err != nil {
				return fmt.Errorf("tokenizer_config.json: %s: %w", key, err)
			}
		}
	}
	return nil
}

// asConfigured reads a tokenizer.model as transformers does in a folder with this configuration.
func asConfigured(dir string, config *tokenizerConfig) (func([]byte, []hfAdded) (*Tokenizer, error), error) {
	var model struct {
		Type string `json:"model_type"`
	}
	if err := readJSON(dir, "config.json", &model); err != nil {
		return nil, err
	}
	return func(data []byte, added []hfAdded) (*Tokenizer, error) {
		s, err := readSentencePiece(data)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.model: %w", err)
		}
		class, known := spClasses[strings.TrimSuffix(config.Class, "Fast")]
		if slices.Contains(spPlain, model.Type) {
			known = false
		}
		names := class.names
		if !known {
			names = map[string]string{"bos_token": s.spec.bos, "eos_token": s.spec.eos, "unk_token": s.spec.unk}
		}
		if err := config.nameTokens(names); err != nil {
			return nil, err
		}
		if config.AddBOS == nil {
			config.AddBOS = new(known && class.bos)
		}
		var t *Tokenizer
		if known {
			t, err = s.ofClass(&class, config, added)
		} else {
			t, err = s.plain(config, added)
		}
		if err != nil {
			return nil, fmt.Errorf("tokenizer.model: %w", err)
		}
		return t, nil
	}, nil
}

// quoted is a text as JSON has it.
func quoted(text string) string {
	data, _ := json.Marshal(text) // of a text it cannot fail
	return string(data)
}

// replaced is a step that puts content where the pattern is, a String or a Regex.
func replaced(kind, pattern, content string) string {
	return `{"type":"Replace","pattern":{"` + kind + `":` + quoted(pattern) + `},"content":` + quoted(content) + `}`
}

func metaspaced(scheme string) string {
	return `{"type":"Metaspace","replacement":"▁","prepend_scheme":"` + scheme + `","split":false}`
}

const (
	fusedSteps = `{"type":"Fuse"}`
	byteSteps  = `{"type":"ByteFallback"}`
	stripSteps = `{"type":"Strip","content":" ","start":1,"stop":0}`
)

// stepsText is a tokenizer.json without its vocabulary; steps are joined by their order.
func stepsText(model string, normal, pre, decode []string) string {
	return `{"model":{` + model + `},"normalizer":{"type":"Sequence","normalizers":[` + strings.Join(normal, ",") +
		`]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[` + strings.Join(pre, ",") +
		`]},"decoder":{"type":"Sequence","decoders":[` + strings.Join(decode, ",") + `]}}`
}

// ofClass is BPE by all pairs of pieces that make one, in the order of the pieces.
func (s *spFile) ofClass(class *spClass, config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	model := `"type":"BPE","fuse_unk":true,"byte_fallback":true`
	if class.unk && config.UNK != nil {
		model += `,"unk_token":` + quoted(string(*config.UNK))
	}
	var normal, pre []string
	decode := []string{replaced("String", space, " "), byteSteps, fusedSteps}
	scheme := class.prefix
	switch prefix := config.PrefixSpace == nil || *config.PrefixSpace; {
	case scheme == "":
		normal = []string{replaced("String", " ", space)}
	case !prefix:
		scheme = "never"
	case scheme == "legacy" && config.flag("legacy", false):
		scheme = "always"
	default:
		scheme = "first"
	}
	if scheme != "" {
		pre = []string{metaspaced(scheme)}
	}
	if class.strip || scheme != "" && scheme != "never" {
		decode = append(decode, stripSteps)
	}
	return s.made(stepsText(model, normal, pre, decode), s.merges(false), s.listed(config, true), added)
}

// plain does as the SentencePiece library by the steps of a tokenizer.json, but that without legacy the dummy prefix
// goes to the beginning of a text only.
func (s *spFile) plain(config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	s.rename(added)
	legacy := config.flag("legacy", true)
	var user []string
	for _, p := range s.pieces {
		if p.kind == UserDefined {
			user = append(user, p.text)
		}
	}
	model := fmt.Sprintf(`"byte_fallback":%t,`, s.spec.bytes)
	var merges [][2]string
	if s.spec.modelType == spBPE {
		merges = s.merges(true)
		model += fmt.Sprintf(`"type":"BPE","unk_token":%s,"fuse_unk":true,"ignore_merges":%t`, quoted(s.spec.unk),
			len(user) > 0)
	} else {
		model += fmt.Sprintf(`"type":"Unigram","unk_id":%d`, s.unknown())
	}
	var normal, pre []string
	if s.norm.chars != nil {
		normal = append(normal, `{"type":"Precompiled","precompiled_charsmap":"`+
			base64.StdEncoding.EncodeToString(s.norm.chars.blob)+`"}`)
	}
	if s.norm.removeExtra {
		normal = append(normal, replaced("Regex", `\A +| +\z`, ""), replaced("Regex", " {2,}", " "))
	}
	if s.norm.escape {
		normal = append(normal, replaced("String", " ", space))
	}
	dummy := s.norm.prefix != prefixNever
	switch {
	case dummy && legacy: // Metaspace puts none before a mark that is written
		normal = append(normal, replaced("Regex", `\A`+space, space+space))
		pre = append(pre, metaspaced("always"))
	case dummy:
		pre = append(pre, metaspaced("first"))
	}
	if dummy {
		for i := range added {
			added[i].Normalized = new(false)
		}
	}
	if len(user) > 0 {
		sorting.Sort(user, func(a, b string) int { return utf8.RuneCountInString(b) - utf8.RuneCountInString(a) })
		for i, u := range user {
			user[i] = regexp.QuoteMeta(u)
		}
		pre = append(pre, `{"type":"Split","pattern":{"Regex":`+quoted(strings.Join(user, "|"))+
			`},"behavior":"Isolated"}`)
	}
	decode := []string{replaced("String", space, " ")}
	if s.spec.bytes {
		decode = append(decode, byteSteps)
	}
	if dummy || s.spec.bytes {
		decode = append(decode, fusedSteps)
	}
	if dummy {
		decode = append(decode, stripSteps)
	}
	return s.made(stepsText(model, normal, pre, decode), merges, s.listed(config, false), added)
}

// listed are the pieces that are added tokens: control ones and, of most classes, user-defined ones, unless the
// configuration has a list of its own.
func (s *spFile) listed(config *tokenizerConfig, users bool) (added []hfAdded) {
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens"} {
		if list := config.raw[key]; len(list) > 2 && list[0] == '[' {
			return nil
		}
	}
	for id, p := range s.pieces {
		if special := p.kind == Control; special || users && p.kind == UserDefined {
			added = append(added, hfAdded{ID: int32(id), Content: p.text, Special: special, Normalized: new(false)})
		}
	}
	return added
}

// merges are the pairs of pieces that make a piece: in the order of the pieces, or of their scores and of normal ones
// alone.
func (s *spFile) merges(scored bool) [][2]string {
	ids := make(map[string]int, len(s.pieces))
	var order []int
	for id, p := range s.pieces {
		if !scored || p.kind == Normal {
			if _, twice := ids[p.text]; !twice {
				order = append(order, id)
			}
			ids[p.text] = id
		}
	}
	if scored {
		sorting.Sort(order, func(a, b int) int { return cmp.Compare(s.pieces[b].score, s.pieces[a].score) })
	}
	var merges [][2]string
	for _, id := range order {
		text := s.pieces[id].text
		for i := range text {
			_, left := ids[text[:i]]
			if _, right := ids[text[i:]]; i > 0 && left && right {
				merges = append(merges, [2]string{text[:i], text[i:]})
			}
		}
	}
	return merges
}

// made is the tokenizer of these steps. Files beside count for more than the pieces that are listed.
func (s *spFile) made(steps string, merges [][2]string, listed, beside []hfAdded) (*Tokenizer, error) {
	added := slices.Clone(beside)
	for _, a := range listed {
		if !slices.ContainsFunc(beside, a.same) {
			added = append(added, a)
		}
	}
	t := &Tokenizer{pieces: slices.Clone(s.pieces), bos: None, eos: None, eot: None, unk: None, pad: None}
	scores := make([]float64, len(s.pieces))
	for id, p := range s.pieces {
		t.pieces[id].kind, scores[id] = Normal, float64(p.score)
	}
	if err := t.makeRoom(beside); err != nil {
		return nil, err
	}
	scores = append(scores, make([]float64, len(t.pieces)-len(scores))...)
	if err := t.fromSteps(steps, merges, scores, added); err != nil {
		return nil, err
	}
	t.finish()
	kept := t.origin.steps
	t.origin = export{model: "llama", pre: "default", addSpacePrefix: s.norm.prefix != prefixNever,
		removeExtra: s.norm.removeExtra, merges: merges, steps: kept}
	if s.spec.modelType == spUnigram {
		t.origin.model = "t5"
	}
	if s.norm.chars != nil {
		t.origin.charsMap = s.norm.chars.blob
	}
	return t, nil
}

// rename gives pieces the texts that the files beside have for their ids, where no other piece has it.
func (s *spFile) rename(added []hfAdded) {
	names, kept := map[int]string{}, map[string]bool{}
	for _, a := range added {
		names[int(a.ID)] = a.Content
	}
	for id, p := range s.pieces {
		if _, named := names[id]; !named {
			kept[p.text] = true
		}
	}
	for id := range s.pieces {
		if name, named := names[id]; named && !kept[name] {
			s.pieces[id].text = name
		}
	}
}

// fromSteps builds the tokenizer that a tokenizer.json with these steps is, once the pieces are there.
func (t *Tokenizer) fromSteps(steps string, merges [][2]string, scores []float64, added []hfAdded) error {
	var file hfFile
	if err := json.Unmarshal([]byte(steps), &file); err != nil {
		return err
	}
	if err := t.hfKinds(file.Model, added); err != nil {
		return err
	}
	err := t.hfSteps(&file, merges, scores)
	t.origin.steps = steps
	return err
}
