// Normalizers and pre-tokenizers of tokenizer.json.

package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hfPart is any component of the file: the fields of all types together.
type hfPart struct {
	Type          string          `json:"type"`
	Normalizers   []*hfPart       `json:"normalizers"`
	PreTokenizers []*hfPart       `json:"pretokenizers"`
	Decoders      []*hfPart       `json:"decoders"`
	Processors    []*hfPart       `json:"processors"`
	Pattern       *hfPattern      `json:"pattern"`
	Content       json.RawMessage `json:"content"`
	Behavior      string          `json:"behavior"`
	Invert        bool            `json:"invert"`
	Prepend       string          `json:"prepend"`
	StripLeft     bool            `json:"strip_left"`
	StripRight    bool            `json:"strip_right"`
	CharsMap      []byte          `json:"precompiled_charsmap"` // base64
	Replacement   string          `json:"replacement"`
	PrependScheme string          `json:"prepend_scheme"`
	PrefixSpace   *bool           `json:"add_prefix_space"`
	SplitSpaces   *bool           `json:"split"`
	UseRegex      *bool           `json:"use_regex"`
	Individual    bool            `json:"individual_digits"`
	Delimiter     string          `json:"delimiter"`
	CleanText     *bool           `json:"clean_text"`
	ChineseChars  *bool           `json:"handle_chinese_chars"`
	StripAccents  *bool           `json:"strip_accents"`
	Lowercase     *bool           `json:"lowercase"`
	Start         int             `json:"start"`
	Stop          int             `json:"stop"`
	Cleanup       *bool           `json:"cleanup"`
	Prefix        string          `json:"prefix"`
	Suffix        *string         `json:"suffix"`

	Single []hfTemplateItem `json:"single"`
	Pair   []hfTemplateItem `json:"pair"`

	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	CLS json.RawMessage `json:"cls"`
	SEP json.RawMessage `json:"sep"`
}

type hfPattern struct {
	String *string
	Regex  *string
}

// flatten lists the parts of a Sequence, or the part itself; nil has none.
func (p *hfPart) flatten(list string) []*hfPart {
	if p == nil {
		return nil
	}
	if p.Type != "Sequence" {
		return []*hfPart{p}
	}
	parts := map[string][]*hfPart{"normalizers": p.Normalizers, "pretokenizers": p.PreTokenizers, "decoders": p.Decoders,
		"processors": p.Processors}[list]
	var flat []*hfPart
	for _, q := range parts {
		flat = append(flat, q.flatten(list)...)
	}
	return flat
}

// text is what Replace puts in, or Strip takes off.
func (p *hfPart) text() string {
	var s string
	if json.Unmarshal(p.Content, &s) != nil {
		return ""
	}
	return s
}

func (p *hfPart) literal() (string, bool) {
	if p.Pattern == nil || p.Pattern.String == nil {
		return "", false
	}
	return *p.Pattern.String, true
}

// regex gives the pattern as a regular expression.
func (p *hfPart) regex() (string, error) {
	switch {
	case p.Pattern == nil:
		return "", errors.New(p.Type + ": pattern is missing")
	case p.Pattern.Regex != nil:
		return *p.Pattern.Regex, nil
	case p.Pattern.String != nil:
		return literalPattern(*p.Pattern.String), nil
	}
	return "", errors.New(p.Type + ": pattern is neither String nor Regex")
}

func (p *hfPart) replacement() string {
	if p.Replacement == "" {
		return space
	}
	return p.Replacement
}

// scheme says where Metaspace puts its prefix; older files have a flag for it.
func (p *hfPart) scheme() string {
	switch {
	case p.PrependScheme != "":
		return p.PrependScheme
	case p.PrefixSpace != nil && !*p.PrefixSpace:
		return "never"
	}
	return "always"
}

// literalPattern is a pattern that matches s alone.
func literalPattern(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && r > ' ' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

var unicodeEscape = regexp.MustCompile(`\\u[0-9A-Fa-f]{4}`)

// canonical writes patterns that mean the same alike, so that those with a
// scanner or a name in GGUF are found.
func canonical(pattern string) string {
	p := strings.NewReplacer("\r", `\r`, "\n", `\n`, "(?i:'s|'t|'re|'ve|'m|'ll|'d)", contractions).Replace(pattern)
	return unicodeEscape.ReplaceAllStringFunc(p, func(e string) string {
		r, err := strconv.ParseUint(e[2:], 16, 32)
		if err != nil || r < 0x80 || r >= 0xD800 && r < 0xE000 {
			return e
		}
		return string(rune(r))
	})
}

// pipeline is what tokenizer.json describes: text is normalized, cut into
// words, and each word encoded.
type pipeline struct {
	normal    []hfNormal
	steps     []hfStep
	bpe       *bpe
	unigram   *viterbi[float64]
	words     *wordPiece
	whole     *wholeWords
	byteLevel bool
	mapped    bool // words arrive in the byte alphabet, since steps follow ByteLevel

	// What GGUF can say of it.
	patterns     []string
	unnamed      string // a step that GGUF has no word for
	prefix       bool
	escapesSpace bool
	collapses    bool
	charsMap     []byte
}

// maxGrowth is how many times longer a normalizer may make a text, and how many
// bytes it may put in at a time: real ones stay below both by far.
const maxGrowth = 64

// hfNormal is a normalizer. lead, where there is one, says how many of the bytes that s becomes go back to its first z.
type hfNormal struct {
	apply func(s string) (string, error)
	lead  func(s string, z int) (int, error)
}

// hfStep cuts s; lead says how many bytes of s, or of the part, go back to the text's first character.
type hfStep func(s string, lead int, emit func(part string, lead int) error) error

// addStep adds a step that leaves nothing out.
func (p *pipeline) addStep(f splitFunc) {
	p.steps = append(p.steps, func(s string, lead int, emit func(string, int) error) error {
		return f(s, func(part string) error {
			err := emit(part, lead)
			lead -= len(part)
			return err
		})
	})
}

// addWhole adds a step that writes a text otherwise, by characters.
func (p *pipeline) addWhole(f func(s string) string) {
	p.steps = append(p.steps, func(s string, lead int, emit func(string, int) error) error {
		return emit(f(s), len(f(s[:min(max(0, lead), len(s))])))
	})
}

// normalize also says how many bytes of its result go back to the text's first character: where none do, what follows
// begins the text no more.
func (p *pipeline) normalize(text string, first bool) (string, int, error) {
	limit := maxGrowth * (len(text) + 1)
	lead := 0
	if first {
		_, lead = utf8.DecodeRuneInString(text)
	}
	for _, n := range p.normal {
		before := text
		var err error
		if text, err = n.apply(before); err != nil {
			return "", 0, err
		}
		if lead > 0 {
			if lead, err = n.leads(before, text, lead); err != nil {
				return "", 0, err
			}
		}
		if len(text) > limit {
			return "", 0, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
	}
	return text, lead, nil
}

// leads is lead for any normalizer: what it makes of the first z bytes alone, in characters, since what follows may
// have been composed with the last of them.
func (n *hfNormal) leads(before, after string, z int) (int, error) {
	if n.lead != nil {
		z, err := n.lead(before, z)
		return min(z, len(after)), err
	}
	head, err := n.apply(before[:z])
	if err != nil || strings.HasPrefix(after, head) {
		return len(head), err
	}
	size := 0
	for range utf8.RuneCountInString(head) {
		_, one := utf8.DecodeRuneInString(after[size:])
		size += one
	}
	return size, nil
}

func (p *pipeline) encode(dst []int32, text string, lead int, special bool) ([]int32, error) {
	var cache wordCache
	err := p.cut(p.steps, text, lead, func(word string) (err error) {
		switch {
		case p.byteLevel && !p.mapped && (p.bpe == nil || !p.bpe.byteLevel): // whose pieces are not bytes
			word = toByteAlphabet(word)
		}
		switch {
		case p.bpe != nil:
			dst = p.bpe.encodeWord(dst, word, &cache, special)
			err = cache.err
		case p.words != nil:
			dst = p.words.encodeWord(dst, word)
		case p.whole != nil:
			dst, err = p.whole.encodeWord(dst, word, special)
		default:
			dst, err = p.unigram.segment(dst, word, special)
		}
		return err
	})
	return dst, err
}

func (p *pipeline) cut(steps []hfStep, s string, lead int, emit func(string) error) error {
	if s == "" {
		return nil
	}
	if len(steps) == 0 {
		return emit(s)
	}
	return steps[0](s, lead, func(part string, lead int) error {
		return p.cut(steps[1:], part, lead, emit)
	})
}

// punctuation is what Punctuation cuts by, as files say it: the library has the category of an older Unicode.
const punctuation = "[\\p{P}!-/:-@\\[-`{-~]"

// readPreTokenizer reads the pre_tokenizer of tokenizer.json: in one piece, a case a kind.
func (p *pipeline) readPreTokenizer(root *hfPart) error {
	add := p.addStep
	parts := root.flatten("pretokenizers")
	for i, part := range parts {
		switch part.Type {
		case "ByteLevel":
			if p.byteLevel {
				return errors.New("two ByteLevel steps")
			}
			p.byteLevel = true
			if part.PrefixSpace == nil || *part.PrefixSpace {
				p.unnamed = "ByteLevel with add_prefix_space"
				p.steps = append(p.steps, func(s string, lead int, emit func(string, int) error) error {
					return emit(prefixed(s, lead, " "))
				})
			}
			if part.UseRegex == nil || *part.UseRegex {
				p.patterns = append(p.patterns, patternGPT2)
				add(scanGPT2)
			}
			if i < len(parts)-1 {
				p.mapped = true
				p.addWhole(toByteAlphabet)
			}
		case "Split":
			pattern, err := part.regex()
			if err != nil {
				return err
			}
			if err := p.addSplit(pattern, part.Behavior, part.Invert); err != nil {
				return err
			}
		case "Digits":
			p.addStep(scanDigits(part.Individual))
			if part.Individual {
				p.patterns = append(p.patterns, `\p{N}`)
			} else {
				p.patterns = append(p.patterns, `\p{N}+`)
			}
		case "Punctuation":
			behavior := part.Behavior
			if behavior == "" {
				behavior = "Isolated"
			}
			if err := p.addSplitAs(setBERTPunctuation().text(), punctuation, behavior, false); err != nil {
				return err
			}
		case "CharDelimiterSplit":
			if utf8.RuneCountInString(part.Delimiter) != 1 {
				return fmt.Errorf("CharDelimiterSplit: delimiter %q: expected one character", part.Delimiter)
			}
			if err := p.addSplit(literalPattern(part.Delimiter), "Removed", false); err != nil {
				return err
			}
		case "BertPreTokenizer":
			p.steps = append(p.steps, bertStep)
		case "WhitespaceSplit":
			p.collapses = true
			if err := p.addSplit(`\s+`, "Removed", false); err != nil {
				return err
			}
		case "Whitespace":
			if err := p.addSplit(`[\w\u200C\u200D]+|[^\w\s\u200C\u200D]+`, "Removed", true); err != nil {
				return err
			}
		case "Metaspace":
			if mark := part.replacement(); mark == " " || utf8.RuneCountInString(mark) != 1 {
				return fmt.Errorf("Metaspace: replacement %q: expected one character that is no space", mark)
			}
			p.prefix, p.escapesSpace = part.scheme() != "never", true
			p.steps = append(p.steps, metaspace(part))
		default:
			return fmt.Errorf("type %q is not supported", part.Type)
		}
	}
	return nil
}

// addSplit cuts by a pattern. How the matches are dealt with has HF's names.
func (p *pipeline) addSplit(pattern, behavior string, invert bool) error {
	return p.addSplitAs(pattern, pattern, behavior, invert)
}

// addSplitAs is addSplit by a pattern that files write otherwise.
func (p *pipeline) addSplitAs(pattern, written, behavior string, invert bool) error {
	if behavior == "Isolated" {
		f, err := isolateOnig(pattern)
		if err != nil {
			return err
		}
		p.addStep(f)
	} else {
		f, err := splitSpans(pattern, behavior, invert)
		if err != nil {
			return err
		}
		p.steps = append(p.steps, func(s string, lead int, emit func(string, int) error) error {
			return f(s, func(part string, at int) error { return emit(part, lead-at) })
		})
	}
	written = canonical(written)
	switch {
	case behavior == "Isolated" && !invert, behavior == "Removed" && invert:
		p.patterns = append(p.patterns, written) // matches cover the text in both
	default:
		p.patterns = append(p.patterns, behavior+" "+written)
	}
	return nil
}

func splitBehavior(pattern, behavior string, invert bool) (splitFunc, error) {
	if behavior == "Isolated" { // matches and the rest are parts, inverted or not
		return isolateOnig(pattern)
	}
	f, err := splitSpans(pattern, behavior, invert)
	if err != nil {
		return nil, err
	}
	return func(s string, emit func(string) error) error {
		return f(s, func(part string, _ int) error { return emit(part) })
	}, nil
}

// splitSpans is splitBehavior that also tells where in s each part begins.
func splitSpans(pattern, behavior string, invert bool) (func(s string, emit func(part string, at int) error) error,
	error) {
	if !slices.Contains([]string{"Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, behavior) {
		return nil, fmt.Errorf("behavior %q is not supported", behavior)
	}
	re, err := compileOnig(pattern)
	if err != nil {
		return nil, err
	}
	return func(s string, emit func(string, int) error) error {
		type span struct {
			from, to int
			match    bool
		}
		var spans []span
		last := 0
		if err := eachMatch(re, s, func(from, to int) error {
			if last < from {
				spans = append(spans, span{last, from, invert})
			}
			spans = append(spans, span{from, to, !invert})
			last = to
			return nil
		}); err != nil {
			return err
		}
		if last < len(s) {
			spans = append(spans, span{last, len(s), invert})
		}
		var joined []span
		for i, sp := range spans {
			afterMatch := i > 0 && spans[i-1].match
			join := false
			switch behavior {
			case "Removed":
				if sp.match {
					continue
				}
			case "Contiguous":
				join = i > 0 && afterMatch == sp.match
			case "MergedWithPrevious":
				join = i > 0 && sp.match && !afterMatch
			case "MergedWithNext":
				join = !sp.match && afterMatch
			}
			if join {
				joined[len(joined)-1].to = sp.to
				continue
			}
			joined = append(joined, sp)
		}
		for _, sp := range joined {
			if sp.from == sp.to {
				continue
			}
			if err := emit(s[sp.from:sp.to], sp.from); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// metaspace writes spaces as ▁ and cuts before each.
func metaspace(part *hfPart) hfStep {
	mark, scheme := part.replacement(), part.scheme()
	split := part.SplitSpaces == nil || *part.SplitSpaces
	return func(s string, lead int, emit func(string, int) error) error {
		lead = len(strings.ReplaceAll(s[:min(max(0, lead), len(s))], " ", mark))
		s = strings.ReplaceAll(s, " ", mark)
		if scheme == "always" || scheme == "first" && lead > 0 {
			s, lead = prefixed(s, lead, mark)
		}
		for split {
			skip := 0
			if strings.HasPrefix(s, mark) {
				skip = len(mark)
			}
			i := strings.Index(s[skip:], mark)
			if i < 0 {
				break
			}
			if err := emit(s[:skip+i], lead); err != nil {
				return err
			}
			s, lead = s[skip+i:], lead-skip-i
		}
		return emit(s, lead)
	}
}

// prefixed puts the prefix before s where it is not there.
func prefixed(s string, lead int, prefix string) (string, int) {
	switch {
	case strings.HasPrefix(s, prefix):
		return s, lead
	case lead > 0:
		lead += len(prefix)
	}
	return prefix + s, lead
}

// exportBPE finds what GGUF calls the pipeline.
func (p *pipeline) exportBPE(merges [][2]string) export {
	if p.unnamed != "" {
		return export{why: p.unnamed}
	}
	if !p.byteLevel {
		if !p.escapesSpace || !p.bpe.spell.fallback {
			return export{why: "BPE that is neither byte-level nor SentencePiece's"}
		}
		return export{model: "llama", pre: "default", merges: merges, scoreByMerge: true, addSpacePrefix: p.prefix}
	}
	falcon := []string{"Contiguous [\\p{P}!-/:-@\\[-`{-~]", patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}
	if slices.Equal(p.patterns, falcon) {
		return export{model: "gpt2", pre: "falcon", merges: merges}
	}
	for i := range preTokenizers {
		pre := &preTokenizers[i]
		same := slices.EqualFunc(p.patterns, pre.steps, func(a, b string) bool { return a == canonical(b) })
		if same && pre.ignoreMerges == p.bpe.ignoreMerges {
			return export{model: "gpt2", pre: pre.names[0], merges: merges}
		}
	}
	return export{why: fmt.Sprintf("no pre-tokenizer of GGUF splits by %q", p.patterns)}
}

func (p *pipeline) exportUnigram() export {
	if p.unnamed != "" {
		return export{why: p.unnamed}
	}
	return export{model: "t5", pre: "default", charsMap: p.charsMap, addSpacePrefix: p.prefix, removeExtra: p.collapses}
}
