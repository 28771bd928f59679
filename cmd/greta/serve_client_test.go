//go:build clients

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/greta-project/greta/internal/testfiles"
)

// TestOpenAIGoVectors: OpenAI's client in Go gets the vectors that transformers computed, of texts and of tokens, some
// of their values, and an error where vectors are all that is served.
func TestOpenAIGoVectors(t *testing.T) {
	dir := testfiles.Repo(t, "testdata", "encoders", "bert")
	e := readExpected(t, dir).served()
	c := openai.NewClient(option.WithBaseURL(served(t, dir, "--task", "embed")+"/v1"), option.WithAPIKey("x"),
		option.WithMaxRetries(0))
	ctx := context.Background()
	got, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "bert",
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: e.Texts}})
	if err != nil || len(got.Data) != len(e.Texts) || got.Usage.PromptTokens == 0 {
		t.Fatal(got, err)
	}
	for i, d := range got.Data {
		if d := distance(d.Embedding, e.Vectors[i]); !(d < 1e-5) {
			t.Errorf("text %d: relative L2 %g", i, d)
		}
	}
	some, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "bert", Dimensions: openai.Int(4),
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfTokenArrays: [][]int64{{2, 3}}}})
	if err != nil || len(some.Data) != 1 || len(some.Data[0].Embedding) != 4 {
		t.Error(some, err)
	}
	var failed *openai.Error
	_, err = c.Completions.New(ctx, openai.CompletionNewParams{Model: "bert",
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("a")}})
	if !errors.As(err, &failed) || failed.StatusCode != 400 || failed.Code != "unsupported_model" {
		t.Errorf("a completion: %v", err)
	}
}
