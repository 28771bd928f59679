package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/embedding"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/npy"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
	"github.com/greta-project/greta/models"
)

// embedFlags are those of embed and rerank.
type embedFlags struct {
	modelFlags
	pooling    string
	normalize  bool
	dimensions int
	prompt     string
	out        string
	noTruncate bool

	query, instruction string
	top                int
	raw                bool
}

func (a *app) embedCmds() []*cobra.Command { return []*cobra.Command{a.embedCmd(), a.rerankCmd()} }

func (a *app) embedCmd() *cobra.Command {
	f := &embedFlags{}
	c := &cobra.Command{
		Use:   "embed MODEL FILE|-",
		Short: "Turn texts into vectors",
		Long: `MODEL is a Hugging Face folder, a GGUF or a name that pull takes: an encoder
(BERT, RoBERTa, ModernBERT, nomic, gte, e5, bge), or a decoder that was trained for
vectors (Qwen3-Embedding, Gemma embedding). FILE has a text a line; - is standard
input. A file that ends in .jsonl has a JSON string a line, or an object with
"text". A line of JSON is printed for each text, or --out FILE.npy is written.

Which rows of the network become the vector is what the model's files say
(1_Pooling/config.json, GGUF's pooling_type), or --pooling. A text that is too
long is cut, which is said.`,
		Example: `  greta embed all-MiniLM-L6-v2 texts.txt
  echo "What is a monad?" | greta embed FOLDER - --normalize
  greta embed bge-small-en-v1.5.gguf texts.txt --pooling cls --out vectors.npy`,
		Args: exactly(2, "a model, and a file of texts or -"),
		RunE: func(c *cobra.Command, args []string) error { return a.embed(c.Context(), f, args[0], args[1]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.pooling, "pooling", "", "what becomes the vector: mean, cls (the first row) or last (default: as the "+
		"model's files say)")
	s.BoolVar(&f.normalize, "normalize", false, "vectors of length 1 (also where the model's files ask for it)")
	s.IntVar(&f.dimensions, "dimensions", 0, "keep the first so many values; 0: all")
	s.StringVar(&f.prompt, "prompt", "", "name of a text that the model's files put before each, such as query")
	s.StringVar(&f.out, "out", "", "write the vectors to this .npy file, a row each, instead of JSON lines")
	s.BoolVar(&f.noTruncate, "no-truncate", false, "a text that is too long is an error")
	f.register(s)
	s.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer of the model (default: what lies with the weights)")
	return c
}

func (a *app) rerankCmd() *cobra.Command {
	f := &embedFlags{}
	c := &cobra.Command{
		Use:   "rerank MODEL --query TEXT FILE|-",
		Short: "Score texts by how well they answer a query, the best first",
		Long: `MODEL reads a query and a text as one and gives a score: an encoder with a head
for it (BertForSequenceClassification, bge-reranker, ModernBERT), or a decoder that
was trained for it (Qwen3-Reranker). A model of vectors serves too: its score is the
cosine. FILE has a text a line; - is standard input. A line of JSON is printed for
each text.`,
		Example: `  greta rerank bge-reranker-v2-m3 --query "what is a panda?" texts.txt --top 3`,
		Args:    exactly(2, "a model, and a file of texts or -"),
		RunE:    func(c *cobra.Command, args []string) error { return a.rerank(c.Context(), f, args[0], args[1]) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.query, "query", "", "what the texts may answer")
	s.StringVar(&f.instruction, "instruction", "", "what texts are to be found for, for models trained with it")
	s.IntVar(&f.top, "top", 0, "print the best so many; 0: all")
	s.BoolVar(&f.raw, "raw", false, "scores as the network gives them, not between 0 and 1")
	s.BoolVar(&f.noTruncate, "no-truncate", false, "a text that is too long is an error")
	f.register(s)
	s.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer of the model (default: what lies with the weights)")
	return c
}

// openEmbedding opens a model of one of the tasks, the first that has a file for the weights.
func (a *app) openEmbedding(ctx context.Context, f *modelFlags, arg, pooling string, tasks ...string) (*embedding.Model,
	func() error, error) {
	var b *bundle
	var err error
	for i, task := range tasks {
		m := *f
		m.task = task
		var failed error
		if b, failed = m.open(ctx, a.err, arg); failed == nil {
			if i == len(tasks)-1 || task != models.Score || !embedding.Pools(b.source.Path()) {
				break
			}
			// A folder that says how rows become a vector is one for vectors, whatever its class could judge.
			failed, b = b.close(), nil
		}
		err = cmp.Or(err, failed)
	}
	if b == nil {
		return nil, nil, err
	}
	m, close, err := a.loadEmbedding(ctx, b, f.tokenizer, pooling)
	if err != nil {
		return nil, nil, errlist.Join(err, b.close())
	}
	return m, func() error { return errlist.Join(close(), b.close()) }, nil
}

// loadEmbedding loads what a bundle has; close leaves the bundle open.
func (a *app) loadEmbedding(ctx context.Context, b *bundle, named, pooling string) (_ *embedding.Model,
	close func() error, err error) {
	if b.file.Task() == "" {
		return nil, nil, usagef("%s gives the logits of a next token, no vectors of texts", b.file.Path())
	}
	t, err := servedTokenizer(b, named)
	if err != nil {
		return nil, nil, usage(err)
	}
	facts, err := b.file.TextFacts(models.Options{Weights: b.source, Set: b.opt.Set})
	if err != nil {
		return nil, nil, usage(err)
	}
	longest := b.opt.Context
	if longest == 0 {
		b.opt.Context = max(facts.Longest, 1)
	}
	e, err := a.load(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	folder := b.source.Path()
	if st, err := os.Stat(folder); err != nil || !st.IsDir() {
		folder = ""
	}
	m, err := embedding.New(embedding.Config{Engine: e, Tokenizer: t, Facts: facts, Folder: folder, Pooling: pooling,
		Longest: longest})
	if err != nil {
		return nil, nil, errlist.Join(usage(err), e.Close())
	}
	return m, func() error { return errlist.Join(m.Close(), e.Close()) }, nil
}

// embedBatch is how many texts are read and computed at a time.
const embedBatch = 256

func (a *app) embed(ctx context.Context, f *embedFlags, arg, path string) (err error) {
	if f.pooling != "" && !slices.Contains(models.Poolings, f.pooling) {
		return usagef("--pooling %s: there are %s", f.pooling, strings.Join(models.Poolings, ", "))
	}
	if f.dimensions < 0 {
		return usagef("--dimensions %d: it must be positive", f.dimensions)
	}
	if f.out != "" && filepath.Ext(f.out) != ".npy" {
		return usagef("--out %s: a file that ends in .npy is written", f.out)
	}
	texts, err := a.texts(path)
	if err != nil {
		return usage(err)
	}
	m, close, err := a.openEmbedding(ctx, &f.modelFlags, arg, f.pooling, models.Embed)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, close()) }()
	if f.dimensions > m.Width() {
		return usagef("--dimensions %d: the model's vectors have %d", f.dimensions, m.Width())
	}
	o := embedding.Options{Normalize: f.normalize || m.Normalizes(), Dimensions: f.dimensions, Prompt: f.prompt,
		Truncate: -1}
	if f.noTruncate {
		o.Truncate = 0
	}
	w, err := a.vectorWriter(f.out, len(texts), cmp.Or(f.dimensions, m.Width()))
	if err != nil {
		return usage(err)
	}
	defer func() { err = errlist.Join(err, w.close()) }()
	for first := 0; first < len(texts); first += embedBatch {
		batch := texts[first:min(first+embedBatch, len(texts))]
		inputs := make([]embedding.Input, len(batch))
		for i, text := range batch {
			inputs[i].Text = text
		}
		vectors, err := m.Embed(ctx, inputs, o)
		if err != nil {
			return textError(err)
		}
		for i, v := range vectors {
			a.sayCut(first+i, v.Cut, v.Tokens)
			if err := w.row(first+i, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// textError marks what is wrong with a text as the user's.
func textError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return usage(err)
}

// sayCut says that a text was not read to its end.
func (a *app) sayCut(index, cut, kept int) {
	if cut > 0 {
		fmt.Fprintf(a.err, "greta: text %d was cut: %d tokens of %d were left out\n", index, cut, kept+cut)
	}
}

// vectorWriter writes vectors, as lines of JSON or to a file.
type vectorWriter struct {
	lines  *bufio.Writer
	file   *os.File
	buffer *bufio.Writer
	matrix *npy.Writer
}

func (a *app) vectorWriter(path string, rows, width int) (*vectorWriter, error) {
	if path == "" {
		return &vectorWriter{lines: bufio.NewWriter(a.out)}, nil
	}
	file, err := plainfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &vectorWriter{file: file, buffer: bufio.NewWriter(file)}
	if w.matrix, err = npy.NewWriter(seekable{w.buffer, file}, rows, width); err != nil {
		return nil, errlist.Join(err, file.Close())
	}
	return w, nil
}

func (w *vectorWriter) row(index int, v embedding.Vector) error {
	if w.matrix != nil {
		return w.matrix.Row(v.Values)
	}
	return json.NewEncoder(w.lines).Encode(struct {
		Index  int       `json:"index"`
		Tokens int       `json:"tokens"`
		Cut    int       `json:"tokens_left_out,omitempty"`
		Vector []float32 `json:"embedding"`
	}{index, v.Tokens, v.Cut, v.Values})
}

func (w *vectorWriter) close() error {
	if w.matrix == nil {
		return w.lines.Flush()
	}
	return errlist.Join(w.matrix.Close(), w.buffer.Flush(), w.file.Close())
}

// texts reads a file of texts: a line each.
func (a *app) texts(path string) ([]string, error) {
	in := a.in
	if path != "-" {
		file, err := plainfile.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, mostText+1))
	if err != nil {
		return nil, err
	}
	if len(data) > mostText {
		return nil, fmt.Errorf("%s: more than %d MB of texts", path, mostText>>20)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: no texts", path)
	}
	var texts []string
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if filepath.Ext(path) == ".jsonl" {
			if line, err = jsonText(line); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
		}
		texts = append(texts, line)
	}
	return texts, nil
}

// jsonText reads "…" or {"text": "…"}.
func jsonText(line string) (string, error) {
	var text string
	if bytes.HasPrefix([]byte(strings.TrimSpace(line)), []byte("{")) {
		var object struct{ Text *string }
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			return "", err
		}
		if object.Text == nil {
			return "", errors.New(`an object with "text" is expected`)
		}
		return *object.Text, nil
	}
	if err := json.Unmarshal([]byte(line), &text); err != nil {
		return "", fmt.Errorf(`a JSON string, or an object with "text", is expected: %w`, err)
	}
	return text, nil
}

func (a *app) rerank(ctx context.Context, f *embedFlags, arg, path string) (err error) {
	if f.query == "" {
		return usagef("rerank takes --query TEXT; see greta rerank --help")
	}
	if f.top < 0 {
		return usagef("--top %d: it must be positive", f.top)
	}
	texts, err := a.texts(path)
	if err != nil {
		return usage(err)
	}
	m, close, err := a.openEmbedding(ctx, &f.modelFlags, arg, "", models.Score, models.Embed)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, close()) }()
	o := embedding.ScoreOptions{Raw: f.raw, Instruction: f.instruction, Truncate: -1}
	if f.noTruncate {
		o.Truncate = 0
	}
	scores, err := m.Rank(ctx, f.query, texts, o)
	if err != nil {
		return textError(err)
	}
	type line struct {
		Index  int     `json:"index"`
		Score  float64 `json:"score"`
		Tokens int     `json:"tokens"`
		Text   string  `json:"text"`
	}
	lines := make([]line, len(scores))
	for i, s := range scores {
		a.sayCut(i, s.Cut, s.Tokens)
		lines[i] = line{i, s.Value, s.Tokens, texts[i]}
	}
	sorting.Sort(lines, func(x, y line) int { return cmp.Compare(y.Score, x.Score) })
	if f.top > 0 && f.top < len(lines) {
		lines = lines[:f.top]
	}
	w := bufio.NewWriter(a.out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return w.Flush()
}
