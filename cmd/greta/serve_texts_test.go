package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// servedError is the error object of OpenAI's protocol.
type servedError struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// servedVectors answers /v1/embeddings.
type servedVectors struct {
	Data []struct {
		Index     int
		Embedding []float64
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// TestServeVectors: a client gets the vectors that transformers computed, in floats and in
// base64, of texts and of tokens, some of their values, and errors in the protocol's form.
// It is in one piece: one client against one server.
func TestServeVectors(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "bert")
	e := readExpected(t, dir).served()
	addr := served(t, dir, "--task", "embed")
	texts, err := json.Marshal(e.Texts)
	if err != nil {
		t.Fatal(err)
	}
	var got servedVectors
	if status := postJSON(t, addr+"/v1/embeddings", fmt.Sprintf(`{"model": "bert", "input": %s}`, texts),
		&got); status != 200 {
		t.Fatal(status)
	}
	for i, d := range got.Data {
		if d.Index != i || !(distance(d.Embedding, e.Vectors[i]) < 1e-5) {
			t.Errorf("text %d: index %d, relative L2 %g", i, d.Index, distance(d.Embedding, e.Vectors[i]))
		}
	}
	lines := embedLines(t, greta(t, "embed", dir, textFile(t, "t.txt", e.Texts)))
	tokens := 0
	for _, l := range lines {
		tokens += l.Tokens
	}
	if len(got.Data) != len(e.Texts) || got.Usage.Prompt != tokens || got.Usage.Total != tokens {
		t.Errorf("%d vectors, usage %+v, want %d", len(got.Data), got.Usage, tokens)
	}
	var ids struct{ Tokens []int64 }
	postJSON(t, addr+"/tokenize", `{"prompt": "a"}`, &ids)
	var same servedVectors
	body := fmt.Sprintf(`{"model": "bert", "dimensions": 4, "input": [[2, %d, 3], [2, 3]]}`, ids.Tokens[1])
	if status := postJSON(t, addr+"/v1/embeddings", body, &same); status != 200 || len(same.Data) != 2 ||
		len(same.Data[0].Embedding) != 4 {
		t.Fatal(status, same)
	}
	want := e.Vectors[2][:4] // of "a"
	for i, n := 0, norm(want); i < 4; i++ {
		if math.Abs(same.Data[0].Embedding[i]-want[i]/n) > 1e-5 {
			t.Errorf("dimensions: %v, want %v", same.Data[0].Embedding, want)
			break
		}
	}
	var coded struct{ Data []struct{ Embedding string } }
	postJSON(t, addr+"/v1/embeddings", `{"input": "a", "encoding_format": "base64"}`, &coded)
	raw, err := base64.StdEncoding.DecodeString(coded.Data[0].Embedding)
	if err != nil || len(raw) != 64 ||
		math.Abs(float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))-e.Vectors[2][0]) > 1e-5 {
		t.Errorf("base64: %d bytes, %v", len(raw), err)
	}
	long := strings.Repeat("fox ", 100)
	for _, bad := range []struct{ path, body, param, code, want string }{
		{"/v1/embeddings", `{}`, "input", "", "missing"},
		{"/v1/embeddings", `{"input": []}`, "input", "", "empty"},
		{"/v1/embeddings", `{"input": ""}`, "input", "", "empty"},
		{"/v1/embeddings", `{"input": ["a", ""]}`, "input[1]", "", "empty"},
		{"/v1/embeddings", `{"input": [[]]}`, "input[0]", "", "expected"},
		{"/v1/embeddings", `{"input": {"a": 1}}`, "input", "", "array"},
		{"/v1/embeddings", `{"input": ["a", null]}`, "input[1]", "", "expected"},
		{"/v1/embeddings", `{"input": [1, 100000]}`, "input[0]", "", "no token"},
		{"/v1/embeddings", `{"input": "a", "encoding_format": "hex"}`, "encoding_format", "", "base64"},
		{"/v1/embeddings", `{"input": "a", "dimensions": 17}`, "dimensions", "", "between 1 and 16"},
		{"/v1/embeddings", `{"input": "a", "truncate_prompt_tokens": 0}`, "truncate_prompt_tokens", "", "-1"},
		{"/v1/embeddings", fmt.Sprintf(`{"input": ["a", %q]}`, long), "input", "context_length_exceeded", "at most 40"},
		{"/v1/embeddings", `{"model": "none", "input": "a"}`, "model", "model_not_found", "does not exist"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}]}`, "model", "unsupported_model",
			"does not support conversations"},
		{"/v1/completions", `{"prompt": "a"}`, "model", "unsupported_model", "`bert` does"},
		{"/v1/embeddings", `{"input": [null]}`, "input[0]", "", "expected"},
		{"/v1/embeddings", `{"input": [[1, null]]}`, "input[0]", "", "expected"},
		{"/rerank", `{"query": "a", "documents": [5]}`, "documents", "", "each is a string"},
		{"/rerank", `{"query": "a", "documents": ["a", null]}`, "documents[1]", "", "is null"},
		{"/rerank", `{"query": "a", "documents": [{"txt": "a"}]}`, "documents", "", "each is a string"},
	} {
		var x servedError
		if status := postJSON(t, addr+bad.path, bad.body, &x); status/100 != 4 ||
			!strings.Contains(x.Error.Message, bad.want) || bad.param != "" &&
			(x.Error.Param == nil || *x.Error.Param != bad.param) ||
			bad.code != "" && (x.Error.Code == nil || *x.Error.Code != bad.code) {
			t.Errorf("%s %.60s: %d %+v", bad.path, bad.body, status, x.Error)
		}
	}
	var cut struct {
		Usage struct {
			Tokens int `json:"total_tokens"`
		}
	}
	postJSON(t, addr+"/v1/embeddings", fmt.Sprintf(`{"input": %q, "truncate_prompt_tokens": -1}`, long), &cut)
	if cut.Usage.Tokens != 40 {
		t.Errorf("a text that is cut has %d tokens", cut.Usage.Tokens)
	}
	// Vectors score by the cosine.
	var ranks struct {
		Results []struct {
			Index int
			Score float64 `json:"relevance_score"`
		}
	}
	postJSON(t, addr+"/rerank", `{"query": "the fox", "documents": ["cafe", "the fox"]}`, &ranks)
	if len(ranks.Results) != 2 || ranks.Results[0].Index != 1 || math.Abs(ranks.Results[0].Score-1) > 1e-5 {
		t.Errorf("%+v", ranks)
	}
}

// TestServeScores: /rerank and /score give the scores that transformers computed.
func TestServeScores(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "xlmr_rerank")
	e := readExpected(t, dir)
	addr := served(t, dir)
	var ranks struct {
		ID, Model string
		Usage     struct {
			Tokens int `json:"total_tokens"`
		}
		Results []struct {
			Index    int
			Document *struct{ Text string }
			Score    float64 `json:"relevance_score"`
		}
	}
	documents := `[` + fmt.Sprintf("%q, {\"text\": %q}, %q, %q", e.Texts[0], e.Texts[1], e.Texts[2], e.Texts[3]) + `]`
	for _, path := range []string{"/rerank", "/v1/rerank", "/v2/rerank"} {
		status := postJSON(t, addr+path, fmt.Sprintf(`{"query": %q, "documents": %s, "top_n": 3}`, e.Query, documents),
			&ranks)
		if status != 200 || len(ranks.Results) != 3 || ranks.Model != "xlmr_rerank" || ranks.Usage.Tokens == 0 {
			t.Fatalf("%s: %d %+v", path, status, ranks)
		}
		for i, r := range ranks.Results {
			if math.Abs(r.Score-e.Scores[r.Index]) > 1e-6 || r.Document == nil || r.Document.Text != e.Texts[r.Index] ||
				i > 0 && r.Score > ranks.Results[i-1].Score {
				t.Errorf("%s: %+v", path, ranks.Results)
			}
		}
	}
	ranks.Results = nil
	postJSON(t, addr+"/rerank", fmt.Sprintf(`{"query": %q, "documents": %s, "return_documents": false}`, e.Query,
		documents),
		&ranks)
	if len(ranks.Results) != 4 || ranks.Results[0].Document != nil {
		t.Errorf("%+v", ranks.Results)
	}
	var scores struct {
		Object string
		Data   []struct {
			Index  int
			Object string
			Score  float64
		}
	}
	for _, first := range []string{fmt.Sprintf("%q", e.Query), fmt.Sprintf("[%q, %q]", e.Query, e.Query)} {
		status := postJSON(t, addr+"/score", fmt.Sprintf(`{"text_1": %s, "text_2": [%q, %q]}`, first, e.Texts[0], e.Texts[1]),
			&scores)
		if status != 200 || len(scores.Data) != 2 || math.Abs(scores.Data[1].Score-e.Scores[1]) > 1e-6 ||
			scores.Data[0].Object != "score" {
			t.Errorf("%d %+v", status, scores)
		}
	}
	for _, bad := range []struct{ path, body, param string }{
		{"/rerank", `{"documents": ["a"]}`, "query"},
		{"/rerank", `{"query": "a", "documents": []}`, "documents"},
		{"/rerank", `{"query": "a", "documents": ["a"], "top_n": -1}`, "top_n"},
		{"/score", `{"text_2": "a"}`, "text_1"},
		{"/score", `{"text_1": "a"}`, "text_2"},
		{"/score", `{"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}`, "text_1"},
		{"/v1/embeddings", `{"input": "a"}`, "model"},
	} {
		var x servedError
		if status := postJSON(t, addr+bad.path, bad.body, &x); status != 400 || x.Error.Param == nil ||
			*x.Error.Param != bad.param {
			t.Errorf("%s %s: %d %+v", bad.path, bad.body, status, x.Error)
		}
	}
}

// TestServeTasks: a file of models says what one is served for, and what cannot be is refused.
func TestServeTasks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "models.yaml")
	text := fmt.Sprintf("models:\n  - {name: head, path: %q, task: score}\n  - {name: body, path: %q, task: embed}\n",
		testfiles.Repo(t, "testdata", "encoders", "bert_rerank"), testfiles.Repo(t, "testdata", "encoders", "bert_rerank"))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	addr := served(t, "--models", path)
	var x struct {
		Data []struct{ Embedding []float64 }
	}
	if status := postJSON(t, addr+"/v1/embeddings", `{"model": "body", "input": "a"}`, &x); status != 200 ||
		len(x.Data) != 1 || math.Abs(norm(x.Data[0].Embedding)-1) > 1e-5 {
		t.Errorf("%d %+v", status, x)
	}
	var y servedError
	if status := postJSON(t, addr+"/v1/embeddings", `{"model": "head", "input": "a"}`, &y); status != 400 {
		t.Errorf("%d %+v", status, y)
	}
	if r := greta(t, "serve", testfiles.Repo(t, "testdata", "encoders", "bert"), "--task", "sing"); r.code != exitUsage ||
		!strings.Contains(r.err, "generate, embed and score") {
		t.Errorf("%d %s", r.code, r.err)
	}
}
