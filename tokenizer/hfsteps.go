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

	"github.com/dlclark/regexp2/v2"
	"golang.org/x/text/unicode/norm"
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
	Start         int             `json:"start"`
	Stop          int             `json:"stop"`
	Single        []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct{}
	} `json:"single"`
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
	parts := map[string][]*hfPart{"normalizers": p.Normalizers, "pretokenizers": p.PreTokenizers, "decoders": p.Decoders, "processors": p.Processors}[list]
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
		return canonical(*p.Pattern.Regex), nil
	case p.Pattern.String != nil:
		return regexp2.Escape(*p.Pattern.String), nil
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

var unicodeEscape = regexp.MustCompile(`\\u[0-9A-Fa-f]{4}`)

// canonical writes patterns that mean the same alike, so that those with a
// scanner or a name in GGUF are found.
func canonical(pattern string) string {
	p := strings.NewReplacer("\r", `\r`, "\n", `\n`, "(?i:'s|'t|'re|'ve|'m|'ll|'d)", contractions, "(?i:'s|'t|'re|'ve|'m|'ll|'d|)", contractions).Replace(pattern)
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
	normal    []func(string) (string, error)
	steps     []hfStep
	bpe       *bpe
	unigram   *viterbi[float64]
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

// hfStep cuts s; first says that s begins the text.
type hfStep func(s string, first bool, emit func(string) error) error

func (p *pipeline) encode(dst []int32, text string, first bool) ([]int32, error) {
	var err error
	limit := maxGrowth * (len(text) + 1)
	for _, f := range p.normal {
		if text, err = f(text); err != nil {
			return dst, err
		}
		if len(text) > limit {
			return dst, fmt.Errorf("the normalizer makes the text more than %d times as long", maxGrowth)
		}
	}
	var cache wordCache
	err = p.cut(p.steps, text, first, func(word string) error {
		if p.mapped {
			word, _ = fromByteAlphabet(word)
		}
		if p.bpe != nil {
			dst = p.bpe.encodeWord(dst, word, &cache)
		} else {
			dst = p.unigram.segment(dst, word)
		}
		return nil
	})
	return dst, err
}

func (p *pipeline) cut(steps []hfStep, s string, first bool, emit func(string) error) error {
	if s == "" {
		return nil
	}
	if len(steps) == 0 {
		return emit(s)
	}
	return steps[0](s, first, func(part string) error {
		err := p.cut(steps[1:], part, first, emit)
		first = false
		return err
	})
}

func (p *pipeline) readNormalizer(root *hfPart) error {
	always := func(f func(string) string) {
		p.normal = append(p.normal, func(s string) (string, error) { return f(s), nil })
	}
	for _, part := range root.flatten("normalizers") {
		switch part.Type {
		case "NFC":
			always(norm.NFC.String)
		case "NFD":
			always(norm.NFD.String)
		case "NFKC":
			always(norm.NFKC.String)
		case "NFKD":
			always(norm.NFKD.String)
		case "Lowercase":
			always(strings.ToLower)
		case "StripAccents":
			always(func(s string) string {
				return strings.Map(func(r rune) rune {
					if unicode.Is(unicode.Mn, r) {
						return -1
					}
					return r
				}, s)
			})
		case "Strip":
			always(func(s string) string {
				if part.StripLeft {
					s = strings.TrimLeftFunc(s, unicode.IsSpace)
				}
				if part.StripRight {
					s = strings.TrimRightFunc(s, unicode.IsSpace)
				}
				return s
			})
		case "Prepend":
			if len(part.Prepend) > maxGrowth {
				return fmt.Errorf("Prepend of %d bytes", len(part.Prepend))
			}
			p.prefix = p.prefix || part.Prepend == space
			always(func(s string) string {
				if s == "" {
					return s
				}
				return part.Prepend + s
			})
		case "Replace":
			content := part.text()
			if len(content) > maxGrowth {
				return fmt.Errorf("Replace by %d bytes", len(content))
			}
			if old, ok := part.literal(); ok {
				if old == "" {
					return errors.New("Replace of an empty string")
				}
				p.escapesSpace = p.escapesSpace || old == " " && content == space
				always(func(s string) string { return strings.ReplaceAll(s, old, content) })
				continue
			}
			pattern, err := part.regex()
			if err != nil {
				return err
			}
			re, err := compile(pattern)
			if err != nil {
				return err
			}
			p.collapses = p.collapses || pattern == " {2,}"
			p.normal = append(p.normal, replaceBy(re, content))
		case "Precompiled":
			chars, err := newCharsMap(part.CharsMap)
			if err != nil {
				return err
			}
			p.charsMap = part.CharsMap
			always(func(s string) string { return (&spNormalizer{chars: chars}).normalize(s, false) })
		default:
			return fmt.Errorf("type %q is not supported", part.Type)
		}
		switch part.Type {
		case "Prepend", "Replace", "Precompiled", "Strip":
		case "NFC": // llama.cpp leaves it out as well, and most text is in NFC
		default:
			p.unnamed = "normalizer " + part.Type
		}
	}
	return nil
}

func replaceBy(re *regexp2.Regexp, content string) func(string) (string, error) {
	return func(s string) (string, error) {
		var b strings.Builder
		last := 0
		err := eachMatch(re, s, func(from, to int) error {
			b.WriteString(s[last:from])
			b.WriteString(content)
			last = to
			return nil
		})
		b.WriteString(s[last:])
		return b.String(), err
	}
}

func (p *pipeline) readPreTokenizer(root *hfPart) error {
	add := func(f splitFunc) {
		p.steps = append(p.steps, func(s string, _ bool, emit func(string) error) error { return f(s, emit) })
	}
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
				add(func(s string, emit func(string) error) error {
					if s[0] != ' ' {
						s = " " + s
					}
					return emit(s)
				})
			}
			if part.UseRegex == nil || *part.UseRegex {
				p.patterns = append(p.patterns, patternGPT2)
				add(scanGPT2)
			}
			if i < len(parts)-1 {
				p.mapped = true
				add(func(s string, emit func(string) error) error { return emit(toByteAlphabet(s)) })
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
			pattern := `\p{N}+`
			if part.Individual {
				pattern = `\p{N}`
			}
			if err := p.addSplit(pattern, "Isolated", false); err != nil {
				return err
			}
		case "Punctuation":
			behavior := part.Behavior
			if behavior == "" {
				behavior = "Isolated"
			}
			if err := p.addSplit("[\\p{P}!-/:-@\\[-`{-~]", behavior, false); err != nil {
				return err
			}
		case "WhitespaceSplit":
			p.collapses = true
			if err := p.addSplit(`\s+`, "Removed", false); err != nil {
				return err
			}
		case "Whitespace":
			if err := p.addSplit(`\w+|[^\w\s]+`, "Removed", true); err != nil {
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
	f, err := splitBehavior(pattern, behavior, invert)
	if err != nil {
		return err
	}
	p.steps = append(p.steps, func(s string, _ bool, emit func(string) error) error { return f(s, emit) })
	switch {
	case behavior == "Isolated" && !invert, behavior == "Removed" && invert:
		p.patterns = append(p.patterns, pattern) // matches cover the text in both
	default:
		p.patterns = append(p.patterns, behavior+" "+pattern)
	}
	return nil
}

func splitBehavior(pattern, behavior string, invert bool) (splitFunc, error) {
	if behavior == "Isolated" { // matches and the rest are parts, inverted or not
		return splitBy(pattern)
	}
	if !slices.Contains([]string{"Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, behavior) {
		return nil, fmt.Errorf("behavior %q is not supported", behavior)
	}
	re, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	return func(s string, emit func(string) error) error {
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
			if err := emit(s[sp.from:sp.to]); err != nil {
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
	return func(s string, first bool, emit func(string) error) error {
		s = strings.ReplaceAll(s, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(s, mark) {
			s = mark + s
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
			if err := emit(s[:skip+i]); err != nil {
				return err
			}
			s = s[skip+i:]
		}
		return emit(s)
	}
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
