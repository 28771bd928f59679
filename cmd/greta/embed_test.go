package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/npy"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

// expectedVectors is what testdata/encoders/gen.py wrote: texts, and what transformers makes of them in float64.
type expectedVectors struct {
	Texts   []string
	Pooling string
	Vectors [][]float64
	Query   string
	Scores  []float64
}

func readExpected(t *testing.T, dir string) (e expectedVectors) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// served is what the server's protocol takes of it: no empty text.
func (e expectedVectors) served() expectedVectors {
	var full expectedVectors
	for i, text := range e.Texts {
		if text != "" {
			full.Texts, full.Vectors = append(full.Texts, text), append(full.Vectors, e.Vectors[i])
		}
	}
	return full
}

// embedLine is a line that embed or rerank prints.
type embedLine struct {
	Index     int
	Tokens    int
	Cut       int `json:"tokens_left_out"`
	Embedding []float64
	Score     float64
	Text      string
}

func embedLines(t *testing.T, r result) []embedLine {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	var lines []embedLine
	for text := range strings.SplitSeq(strings.TrimSuffix(r.out, "\n"), "\n") {
		var l embedLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}

// distance is the relative L2 of two vectors.
func distance(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d, w := 0.0, 0.0
	for i := range got {
		d, w = d+(got[i]-want[i])*(got[i]-want[i]), w+want[i]*want[i]
	}
	return math.Sqrt(d / w)
}

func textFile(t *testing.T, name string, texts []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var lines []string
	for _, text := range texts {
		if filepath.Ext(name) == ".jsonl" {
			text = `{"text": ` + strconv.Quote(text) + `}`
		}
		lines = append(lines, text)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEncoders: each kind of encoder and reranker gives what transformers computed in float64, texts together in a
// step and each alone, in f32 also where a processor would take bf16 weights to bf16 products.
func TestEncoders(t *testing.T) {
	folders, err := filepath.Glob(testfiles.Repo(t, "testdata", "encoders", "*", "expected.json"))
	if err != nil || len(folders) < 13 {
		t.Fatalf("%d folders, %v", len(folders), err)
	}
	var lines []string
	for i, path := range folders {
		dir := filepath.Dir(path)
		chunks := []string{"512"}
		if i%3 == 0 || testfiles.Exhaustive() {
			chunks = []string{"512", "1"}
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			e := readExpected(t, dir)
			worst := 0.0
			for _, chunk := range chunks {
				if e.Query != "" {
					got := embedLines(t, greta(t, "rerank", dir, "--query", e.Query, textFile(t, "t.txt", e.Texts), "--chunk", chunk,
						"--exact"))
					if len(got) != len(e.Scores) {
						t.Fatalf("%d scores", len(got))
					}
					for i, l := range got {
						worst = max(worst, math.Abs(l.Score-e.Scores[l.Index])/e.Scores[l.Index])
						if i > 0 && l.Score > got[i-1].Score {
							t.Errorf("%v is not sorted", got)
						}
					}
					continue
				}
				got := embedLines(t, greta(t, "embed", dir, textFile(t, "t.jsonl", e.Texts), "--chunk", chunk, "--exact"))
				if len(got) != len(e.Vectors) {
					t.Fatalf("%d vectors", len(got))
				}
				for i, l := range got {
					worst = max(worst, distance(l.Embedding, e.Vectors[i]))
				}
			}
			if !(worst <= 1e-5) {
				t.Errorf("relative L2 %.2e", worst)
			}
			lines = append(lines, encoderRow(t, dir, e, worst))
		})
	}
	writeEncoders(t, lines)
}

// TestRerankByVectors: a folder that says how rows become a vector ranks by their cosine, also where its class has a
// file that judges by words.
func TestRerankByVectors(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "qwen3_embedding")
	texts := textFile(t, "t.txt", []string{"a dog", "the fox"})
	got := embedLines(t, greta(t, "rerank", dir, "--query", "the fox", texts))
	if len(got) != 2 || got[0].Index != 1 || math.Abs(got[0].Score-1) > 1e-5 {
		t.Errorf("a text and itself: %+v", got)
	}
}

// TestEncodersOnVulkan: texts of different lengths in a step, with windows too, and scores are what transformers gives.
func TestEncodersOnVulkan(t *testing.T) {
	device := lavapipe(t)
	names := []string{"modernbert", "bert_rerank", "bert", "esm", "deberta_first"}
	if !testfiles.Exhaustive() {
		names = names[:2]
	}
	for _, name := range names {
		dir := testfiles.Repo(t, "testdata", "encoders", name)
		e := readExpected(t, dir)
		verb, worst := []string{"embed"}, 0.0
		if e.Query != "" {
			verb = []string{"rerank", "--query", e.Query}
		}
		got := embedLines(t, greta(t, append(verb, dir, textFile(t, "t.jsonl", e.Texts), "--backend", "vulkan", "--device",
			device)...))
		for i, l := range got {
			if e.Query != "" {
				worst = max(worst, math.Abs(l.Score-e.Scores[l.Index])/e.Scores[l.Index])
			} else {
				worst = max(worst, distance(l.Embedding, e.Vectors[i]))
			}
		}
		t.Logf("%s: %.1e", name, worst)
		if len(got) != len(e.Texts) || !(worst <= 1e-5) {
			t.Errorf("%s: %d results, relative error %.2e", name, len(got), worst)
		}
	}
}

const encodersTitle = "## Encoders"

// encodersHead opens the part of docs/families.md that TestEncoders writes where GRETA_WRITE_FAMILIES is set.
const encodersHead = "\n" + encodersTitle + `

Vectors and scores of texts (greta embed, greta rerank) by f32 on the CPU, tokenizer and pooling included: the worst
relative L2 of tiny random models (testdata/encoders, which gen.py there made). TestEncoders writes this part.

| model | architecture | file | against | error |
| --- | --- | --- | --- | --- |
`

func encoderRow(t *testing.T, dir string, e expectedVectors, worst float64) string {
	t.Helper()
	src, err := open.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	task := models.Embed
	if e.Query != "" {
		task = models.Score
	}
	file, err := models.MatchTask(src, task)
	if err != nil {
		t.Fatal(err)
	}
	arch, _ := src.Meta("architectures")
	return fmt.Sprintf("| %s | %s | %s | %s | %.0e |", filepath.Base(dir),
		strings.Trim(fmt.Sprint(arch), "[]"), strings.TrimPrefix(file.Path(), "models/"),
		against(filepath.Join(dir, "expected.json")), worst)
}

func writeEncoders(t *testing.T, lines []string) {
	t.Helper()
	if os.Getenv("GRETA_WRITE_FAMILIES") == "" || t.Failed() {
		return
	}
	decoders, _ := familiesPage(t)
	writeFamilies(t, decoders, encodersHead+strings.Join(lines, "\n")+"\n")
}

func TestEmbedFlags(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "bert")
	e := readExpected(t, dir)
	texts := textFile(t, "t.txt", e.Texts)
	plain := embedLines(t, greta(t, "embed", dir, texts))
	for _, pooling := range []string{"cls", "last"} {
		got := embedLines(t, greta(t, "embed", dir, texts, "--pooling", pooling, "--normalize"))
		if d := distance(got[0].Embedding, plain[0].Embedding); d < 0.01 {
			t.Errorf("--pooling %s changes nothing: %g", pooling, d)
		}
		if d := distance(got[0].Embedding, make([]float64, 16)); !math.IsInf(d, 1) {
			t.Errorf("a vector of zeros: %g", d)
		}
	}
	short := embedLines(t, greta(t, "embed", dir, texts, "--dimensions", "5"))[0].Embedding
	if len(short) != 5 || math.Abs(distance(short, make([]float64, 5))) < 1 {
		t.Errorf("%v", short)
	}
	roberta := testfiles.Repo(t, "testdata", "encoders", "modernbert")
	long, unit := embedLines(t, greta(t, "embed", roberta, texts))[0].Embedding,
		embedLines(t, greta(t, "embed", roberta, texts, "--normalize"))[0].Embedding
	for i := range long {
		long[i] /= norm(long)
	}
	if n := norm(unit); math.Abs(n-1) > 1e-6 || math.Abs(norm(long)-1) < 1e-6 {
		t.Errorf("lengths %g, %g", n, norm(long))
	}
	out := filepath.Join(t.TempDir(), "v.npy")
	if r := greta(t, "embed", dir, texts, "--out", out); r.code != 0 || r.out != "" {
		t.Fatalf("%d %s %s", r.code, r.out, r.err)
	}
	file, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, rows, cols, err := npy.Read(file)
	if err != nil || rows != len(e.Texts) || cols != 16 || math.Abs(float64(data[0])-plain[0].Embedding[0]) > 1e-6 {
		t.Errorf("%d×%d %v %v", rows, cols, data[:3], err)
	}
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// TestEmbedCuts: a text that is too long is cut, which is said, or refused.
func TestEmbedCuts(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "bert")
	texts := textFile(t, "t.txt", []string{"a b", strings.Repeat("fox ", 100)})
	r := greta(t, "embed", dir, texts)
	lines := embedLines(t, r)
	if !strings.Contains(r.err, "text 1 was cut: 62 tokens of 102") || lines[1].Cut != 62 || lines[1].Tokens != 40 ||
		lines[0].Cut != 0 {
		t.Errorf("%+v %s", lines, r.err)
	}
	same := embedLines(t, greta(t, "embed", dir, textFile(t, "u.txt", []string{strings.Repeat("fox ", 38)})))
	if d := distance(lines[1].Embedding, same[0].Embedding); d > 1e-5 {
		t.Errorf("the cut text is another one: %g", d)
	}
	for _, args := range [][]string{{"embed", dir, texts, "--no-truncate"},
		{"rerank", testfiles.Repo(t, "testdata", "encoders", "bert_rerank"), "--query", "a", texts, "--no-truncate"}} {
		if r := greta(t, args...); r.code != exitUsage || !strings.Contains(r.err, "text 1 has 10") ||
			!strings.Contains(r.err, "at most 40") {
			t.Errorf("%d %s", r.code, r.err)
		}
	}
}

func TestRerankFlags(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "bert_rerank")
	e := readExpected(t, dir)
	texts := textFile(t, "t.txt", e.Texts)
	raw := embedLines(t, greta(t, "rerank", dir, "--query", e.Query, texts, "--raw", "--top", "2"))
	if len(raw) != 2 || math.Abs(1/(1+math.Exp(-raw[0].Score))-e.Scores[raw[0].Index]) > 1e-5 ||
		raw[0].Text != e.Texts[raw[0].Index] {
		t.Errorf("%+v", raw)
	}
	// What a judge is told to look for changes what it finds.
	judge := testfiles.Repo(t, "testdata", "encoders", "qwen3_rerank")
	other := embedLines(t, greta(t, "rerank", judge, "--query", e.Query, texts, "--instruction", "find a dog", "--raw"))
	usual := embedLines(t, greta(t, "rerank", judge, "--query", e.Query, texts, "--raw"))
	if len(other) != len(usual) || other[0].Score == usual[0].Score {
		t.Errorf("--instruction changes nothing: %+v", other)
	}
	// A model of vectors scores by the cosine.
	bert := testfiles.Repo(t, "testdata", "encoders", "bert")
	got := embedLines(t, greta(t, "rerank", bert, "--query", "the fox", textFile(t, "u.txt", []string{"cafe", "the fox"})))
	if got[0].Index != 1 || math.Abs(got[0].Score-1) > 1e-5 || !(got[1].Score < 1) {
		t.Errorf("%+v", got)
	}
}

// TestEmbedRefusals: what cannot be done is said, with what to do.
func TestEmbedRefusals(t *testing.T) {
	bert := testfiles.Repo(t, "testdata", "encoders", "bert")
	rerank := testfiles.Repo(t, "testdata", "encoders", "bert_rerank")
	tolstoy := testfiles.Repo(t, "testdata", "tolstoy-2.7m")
	texts := textFile(t, "t.txt", []string{"a"})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"embed", bert, texts, "--pooling", "max"}, "mean, cls, last"},
		{[]string{"embed", bert, texts, "--dimensions", "17"}, "have 16"},
		{[]string{"embed", bert, texts, "--dimensions", "-1"}, "positive"},
		{[]string{"embed", bert, texts, "--prompt", "query"}, "it has none"},
		{[]string{"embed", bert, texts, "--out", "v.bin"}, ".npy"},
		{[]string{"embed", bert, "/nowhere"}, "no such file"},
		{[]string{"embed", bert, textFile(t, "x.jsonl", nil)}, "JSON string"},
		{[]string{"run", bert, "--prompt", "a"}, "greta embed"},
		{[]string{"rerank", bert, texts}, "--query"},
		{[]string{"rerank", rerank, "--query", "a", texts, "--top", "-1"}, "positive"},
		{[]string{"rerank", bert, "--query", "a", texts, "--instruction", "find it"}, "no instruction"},
		{[]string{"embed", tolstoy, texts, "--model", "llama2_7b"}, "no vectors of texts"},
	} {
		if r := greta(t, c.args...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: %d %s", c.args, r.code, r.err)
		}
	}
}
