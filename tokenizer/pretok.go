// Pre-tokenizers: how text is cut into the words that BPE merges within.

package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// splitFunc cuts s into parts, in order, and stops at emit's first error.
type splitFunc func(s string, emit func(string) error) error

// chain applies the steps to each part that the step before made.
func chain(steps []splitFunc, s string, emit func(string) error) error {
	if s == "" {
		return nil
	}
	if len(steps) == 0 {
		return emit(s)
	}
	return steps[0](s, func(part string) error { return chain(steps[1:], part, emit) })
}

// patternTimeout bounds one search: a model file's pattern may backtrack forever.
const patternTimeout = 10 * time.Second

// compile reads a pattern in the dialect that vocabularies share (Oniguruma's
// and PCRE's common ground).
func compile(pattern string) (*regexp2.Regexp, error) {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	re.MatchTimeout = patternTimeout
	return re, nil
}

// eachMatch gives the byte ranges of the matches in s. A match of nothing counts,
// unless it is where the last match ended. Bytes that are not UTF-8 match as
// U+FFFD, one each.
func eachMatch(re *regexp2.Regexp, s string, visit func(from, to int) error) error {
	runes := make([]rune, 0, len(s))
	var at []int32 // byte offsets of runes; nil where they are the same
	if i := strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
		at = make([]int32, 0, len(s)+1)
	}
	for i, r := range s {
		runes = append(runes, r)
		if at != nil {
			at = append(at, int32(i))
		}
	}
	if at != nil {
		at = append(at, int32(len(s)))
	}
	var failed error
	last := -1
	err := re.FindRunesMatches(runes, -1, func(m regexp2.MatchView) bool {
		from, n, _ := m.GroupRange(0)
		to := from + n
		if n == 0 && from == last {
			return true
		}
		last = to
		if at != nil {
			from, to = int(at[from]), int(at[to])
		}
		failed = visit(from, to)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// isolate splits by a pattern: matches and what lies between them are parts.
func isolate(re *regexp2.Regexp) splitFunc {
	return func(s string, emit func(string) error) error {
		last := 0
		err := eachMatch(re, s, func(from, to int) error {
			if last < from {
				if err := emit(s[last:from]); err != nil {
					return err
				}
			}
			if last = to; from == to {
				return nil
			}
			return emit(s[from:to])
		})
		if err == nil && last < len(s) {
			err = emit(s[last:])
		}
		return err
	}
}

const (
	contractions  = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	tailLlama3    = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	wordLlama3    = `[^\r\n\p{L}\p{N}]?\p{L}+`
	patternLlama3 = contractions + `|` + wordLlama3 + `|\p{N}{1,3}` + tailLlama3
	patternQwen2  = contractions + `|` + wordLlama3 + `|\p{N}` + tailLlama3
	patternUfak   = wordLlama3 + `|\p{N}` + tailLlama3

	patternQwen35 = contractions +
		`|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	upper        = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower        = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	casedTail    = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT4o = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + contractions + `?|[^\r\n\p{L}\p{N}]?` + upper +
		`+` + lower + `*` + contractions + `?|\p{N}{1,3}` + casedTail
	patternTekken = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*|\p{N}` +
		casedTail

	hanKana          = `[一-龥\u3040-ゟ゠-ヿ]+`
	patternDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" +
		`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	eastAsian = `[一-龥\u0800-一가-\uD7FF]+`
	// cased letters as of the vocabulary's making, which \p{Lu}\p{Ll}\p{Lt} of today exceeds
	deepSeekLetters = `\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ` +
		`\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4` +
		`\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC` +
		`ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`
	deepSeekPunct = `\s?[!-/:-~！-／：-～‘-‟\u3000-。]+`
	poroWord      = ` ?[^(\s|.,!?…。，、।۔،)]+`
	falconPunct   = "[\\p{P}\\$\\+<=>\\^~\\|`]+"
	defaultPunct  = `[\p{P}\$\+<=>\^~\|]+`
)

// preTokenizer is one of GGUF's, by its name in tokenizer.ggml.pre.
type preTokenizer struct {
	names        []string
	steps        []string // patterns, applied in turn
	ignoreMerges bool     // a word that is a token is not merged
	addBOS       bool     // where the file does not say
}

// preTokenizers are those that llama.cpp names; files in circulation name no others.
var preTokenizers = []preTokenizer{
	{names: []string{"default"}, steps: []string{defaultPunct, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{names: []string{"gpt-2", "mpt", "olmo", "phi-2", "jais", "trillion", "granite-docling", "jina-es", "jina-de",
		"gigachat", "jina-v2-es",
		"jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "exaone4", "jina-v1-en", "jina-v2-code", "roberta-bpe"},
		steps: []string{patternGPT2}},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
		"jina-v5-nano"},
		steps: []string{patternLlama3}, ignoreMerges: true, addBOS: true},
	{names: []string{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, steps: []string{patternLlama3}},
	{names: []string{"qwen2", "stablelm2", "hunyuan", "megrez", "deepseek-r1-qwen", "kormo", "f2llmv2", "solar-open",
		"grok-2"}, steps: []string{patternQwen2}},
	{names: []string{"qwen35"}, steps: []string{patternQwen35}},
	{names: []string{"ufakzeka"}, steps: []string{patternUfak}},
	{names: []string{"laguna"}, steps: []string{`[^\n]+|[\n]+`, patternQwen2}},
	{names: []string{"minicpm5"}, steps: []string{`\p{N}{1,3}`, contractions + `|` + wordLlama3 + `|\p{N}+` + tailLlama3},
		ignoreMerges: true},
	{names: []string{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
		steps: []string{`\p{N}`, patternGPT2}},
	{names: []string{"falcon"}, steps: []string{falconPunct, patternGPT2, `[0-9][0-9][0-9]`}},
	{names: []string{"deepseek-llm"}, steps: []string{`[\r\n]`, deepSeekLetters, deepSeekPunct, `\s+$`, eastAsian,
		`\p{N}+`}},
	{names: []string{"deepseek-coder"}, steps: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, eastAsian, `\p{N}`}},
	{names: []string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
		steps: []string{`\p{N}{1,3}`, hanKana, patternDeepSeek3}},
	{names: []string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, steps: []string{patternGPT4o}},
	{names: []string{"tekken"}, steps: []string{patternTekken}, ignoreMerges: true, addBOS: true},
	{names: []string{"tiny_aya", "cohere2moe"}, steps: []string{`\d{1,3}(?=(?:\d{3})*\b)`, patternGPT4o}},
	{names: []string{"poro-chat", "bloom", "gpt3-finnish"}, steps: []string{poroWord}},
	{names: []string{"viking"}, steps: []string{poroWord, `\p{N}`}},
	{names: []string{"bailingmoe", "bailingmoe2", "llada-moe"},
		steps: []string{`'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|` + wordLlama3 +
			`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`}},
	{names: []string{"seed-coder"}, steps: []string{contractions + `|` + wordLlama3 +
		`|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`}},
	{names: []string{"exaone-moe"}, steps: []string{contractions +
		`|[^\r\n\p{L}\p{N}]?\p{L}[\p{L}\p{M}]*(?: \p{L}[\p{L}\p{M}]*)*|\p{N}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`}},
}

// scanners replace the patterns that have one.
var scanners = map[string]splitFunc{
	patternGPT2:   scanGPT2,
	patternLlama3: scanLlama3(3, shortContractions),
	patternQwen2:  scanLlama3(1, shortContractions),
	patternUfak:   scanLlama3(1, noContractions),
	`\p{N}`:       scanNumbers,
}

// longScanners are those whose contractions are written (?i:…).
var longScanners = map[string]splitFunc{
	patternLlama3: scanLlama3(3, longContractions),
	patternQwen2:  scanLlama3(1, longContractions),
}

// isolateOnig is splitBy for the patterns of tokenizer.json, which may ask for
// contractions without case: there 'ſ is one too.
func isolateOnig(pattern string) (splitFunc, error) {
	known := canonical(pattern)
	if scan, ok := longScanners[known]; ok && strings.Contains(pattern, "(?i:") {
		return scan, nil
	}
	if scan, ok := scanners[known]; ok && !strings.Contains(pattern, "(?i:") {
		return scan, nil
	}
	re, err := compileOnig(pattern)
	if err != nil {
		return nil, err
	}
	return isolate(re), nil
}

// splitBy gives the step that a pattern stands for.
func splitBy(pattern string) (splitFunc, error) {
	if scan, ok := scanners[pattern]; ok {
		return scan, nil
	}
	re, err := compile(pattern)
	if err != nil {
		return nil, err
	}
	return isolate(re), nil
}

func splitAll(patterns []string) ([]splitFunc, error) {
	var steps []splitFunc
	for _, p := range patterns {
		step, err := splitBy(p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// findPre finds a pre-tokenizer by GGUF's name for it.
func findPre(name string) (*preTokenizer, error) {
	for i := range preTokenizers {
		if slices.Contains(preTokenizers[i].names, name) {
			return &preTokenizers[i], nil
		}
	}
	var known []string
	for _, p := range preTokenizers {
		known = append(known, p.names...)
	}
	slices.Sort(known)
	return nil, fmt.Errorf("pre-tokenizer %q is not known; known are %s", name, strings.Join(known, ", "))
}

// words is BPE behind a pre-tokenizer.
type words struct {
	steps []splitFunc
	bpe   *bpe
}

func (w *words) normalize(text string, _ bool) (string, int, error) { return text, 0, nil }

func (w *words) encode(dst []int32, text string, _ int, _ bool) ([]int32, error) {
	var cache wordCache
	err := chain(w.steps, text, func(word string) error {
		dst = w.bpe.encodeWord(dst, word, &cache, false)
		return nil
	})
	return dst, err
}
