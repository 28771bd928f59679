package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// familyName is how texts of Go would name a family of models.
var familyName = regexp.MustCompile(
	`(?i)(^|[^a-z])(llama|qwen|gemma|mi[sx]tral|phi-?\d|phimoe|gpt-?(2|j|neox|oss|bigcode)|falcon|deepseek|` +
		`granite|bloom|cohere|command-r|mamba|rwkv|olmo|ernie|chatglm|glm\d|jamba|bamba|lfm2|nemotron|starcoder|stablelm|` +
		`exaone|hunyuan|minicpm|internlm|apertus|bitnet|dbrx|jetmoe|recurrent_?gemma|seed_oss|arcee|smollm)`)

// otherMeanings are texts that name something else: programs, formats, ways of scaling and tokenizers.
var otherMeanings = regexp.MustCompile(
	`(?i)o?llama[.-]?(cpp|bench|quantize|perplexity|server)|ollama|llama-?2\.?c|llama3|llama_batched_bench`)

// familiesAllowed are folders and files whose texts name families for a reason.
var familiesAllowed = map[string]string{
	"tokenizer/":             "GGUF names pre-tokenizers after the families that had them first",
	"bench/format/models.go": "sizes of well-known models for the benchmark of formats",
	"weights/llama2c/":       "llama2.c's files are presented with GGUF's keys of its one architecture",
	"models/":                "messages and documents give an example",
	"cmd/greta/":             "examples in help name model files",
	"internal/testkit/":      "tests' own models",
}

// TestNoFamilyInGo: a family is data, a model file or a row of weights/convert/families.yaml; no
// text of Go asks for one.
func TestNoFamilyInGo(t *testing.T) {
	seen := map[string]bool{}
	walk(t, func(path, name string) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || !familyName.MatchString(otherMeanings.ReplaceAllString(lit.Value, "")) {
				return true
			}
			for prefix := range familiesAllowed {
				if strings.HasPrefix(name, prefix) {
					seen[prefix] = true
					return true
				}
			}
			t.Errorf("%s: the text %.60s names a family of models: it belongs into a data file", name, lit.Value)
			return true
		})
	})
	for prefix, why := range familiesAllowed {
		if !seen[prefix] {
			t.Errorf("%s (%s) names no family any more: take it off the list", prefix, why)
		}
	}
}
