// Package embedding turns texts into vectors and pairs of texts into scores: it cuts texts into tokens as a model was
// trained, says which rows become the vector, and does what stands behind the network (Dense modules, unit length).
package embedding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tokenizer"
)

// Config is what a Model is made of.
type Config struct {
	Engine    *engine.Engine
	Tokenizer *tokenizer.Tokenizer
	Facts     *models.TextFacts // of the model file
	Folder    string            // where files in the form of sentence-transformers may lie; empty: nowhere
	Pooling   string            // instead of what the files say; empty: as they say
	Longest   int               // a smaller bound of a text's tokens than the files say; 0: theirs
}

// Model gives vectors or scores. Its methods may be called from several goroutines at once.
type Model struct {
	task    string
	enc     *engine.Encoder
	tok     *tokenizer.Tokenizer
	facts   *models.TextFacts
	set     *settings
	pooling string
	longest int
	answers [2]int32      // the tokens no and yes, where scores compare them
	turn    chan struct{} // holds one: whoever computes takes it
}

// New makes a model of an engine whose file has a task.
func New(c Config) (*Model, error) {
	set, err := readSettings(c.Folder)
	if err != nil {
		return nil, err
	}
	m := &Model{task: c.Engine.Options().Model.Task(), tok: c.Tokenizer, facts: c.Facts, set: set,
		turn: make(chan struct{}, 1)}
	for _, name := range []string{"mean", c.Facts.Pooling, set.pooling, c.Pooling} {
		if name != "" {
			m.pooling = name
		}
	}
	if m.task == models.Score { // a head was trained behind one way alone
		m.pooling = c.Facts.Pooling
	}
	if !slices.Contains(models.Poolings, m.pooling) {
		return nil, fmt.Errorf("pooling %q: there are %s", m.pooling, strings.Join(models.Poolings, ", "))
	}
	m.longest = c.Engine.Options().Context
	for _, n := range []int{c.Facts.Longest, set.longest, c.Longest} {
		if n > 0 {
			m.longest = min(m.longest, n)
		}
	}
	if c.Facts.Yes != "" {
		for i, text := range []string{c.Facts.No, c.Facts.Yes} {
			id, ok := c.Tokenizer.ID(text)
			if !ok && text != "" {
				return nil, fmt.Errorf("the tokenizer has no token %q, which scores are taken of", text)
			}
			m.answers[i] = id
		}
	}
	if m.enc, err = c.Engine.Encoder(); err != nil {
		return nil, err
	}
	width := m.enc.Width()
	for i, d := range set.dense {
		if d.in != width {
			return nil, errlist.Join(fmt.Errorf("%s: Dense module %d takes %d values, there are %d", c.Folder, i, d.in, width),
				m.enc.Close())
		}
		width = d.out
	}
	return m, nil
}

// Close frees the encoder's memory; the engine lives on.
func (m *Model) Close() error { return m.enc.Close() }

// Task is models.Embed or models.Score.
func (m *Model) Task() string { return m.task }

// Pooling says which rows become a text's vector.
func (m *Model) Pooling() string { return m.pooling }

// Longest is how many tokens a text has at most.
func (m *Model) Longest() int { return m.longest }

// Normalizes says whether the model's files ask for vectors of unit length.
func (m *Model) Normalizes() bool { return m.set.normalize }

// Width is the number of values of a vector, or of labels of a score.
func (m *Model) Width() int {
	if n := len(m.set.dense); n > 0 {
		return m.set.dense[n-1].out
	}
	return m.enc.Width()
}

// Prompts are the names of the texts that the model's files know to put before others.
func (m *Model) Prompts() []string {
	var names []string
	for name := range m.set.prompts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Input is a text, or its tokens.
type Input struct {
	Text string
	IDs  []int32 // where not nil: taken as they are, no special tokens added
}

// Options say what vectors are wanted.
type Options struct {
	Normalize  bool   // to unit length
	Dimensions int    // the first so many values alone; 0: all
	Prompt     string // the name of a text that the model's files put before each; empty: their default
	Truncate   int    // longer texts are cut to so many tokens: -1: what the model takes; 0: none is, they are an error
}

// Vector is a text's.
type Vector struct {
	Values []float32
	Tokens int // that were computed
	Cut    int // that were left out
}

// TooLong says that a text has more tokens than the model takes.
type TooLong struct{ Index, Tokens, Longest int }

func (t *TooLong) Error() string {
	return fmt.Sprintf("text %d has %d tokens, the model takes at most %d", t.Index, t.Tokens, t.Longest)
}

// Embed gives the vectors of texts, in order.
func (m *Model) Embed(ctx context.Context, inputs []Input, o Options) ([]Vector, error) {
	if m.task != models.Embed {
		return nil, errors.New("the model gives scores, no vectors")
	}
	if o.Dimensions < 0 || o.Dimensions > m.Width() {
		return nil, fmt.Errorf("dimensions %d: the model's vectors have %d", o.Dimensions, m.Width())
	}
	prompt, err := m.prompt(o.Prompt)
	if err != nil {
		return nil, err
	}
	before := 0
	if m.set.noPrompt && prompt != "" {
		ids, err := m.tok.Encode(prompt, tokenizer.Options{AddBOS: m.tok.AddBOS()})
		if err != nil {
			return nil, err
		}
		before = len(ids)
	}
	texts, vectors := make([]engine.Text, len(inputs)), make([]Vector, len(inputs))
	for i, in := range inputs {
		ids, cut := in.IDs, 0
		if ids == nil {
			ids, cut, err = m.encode(prompt+in.Text, o.Truncate)
		} else if limit := m.limit(o.Truncate); len(ids) > limit && o.Truncate != 0 {
			ids, cut = ids[:limit], len(ids)-limit
		}
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", i, err)
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("text %d has no tokens", i)
		}
		if len(ids) > m.longest {
			return nil, &TooLong{i, len(ids), m.longest}
		}
		texts[i] = engine.Text{Tokens: ids}
		texts[i].From, texts[i].To = m.rows(len(ids), before)
		vectors[i].Tokens, vectors[i].Cut = len(ids), cut
	}
	out, err := m.compute(ctx, texts)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		for k := range m.set.dense {
			v = m.set.dense[k].apply(v)
		}
		if o.Dimensions > 0 {
			v = v[:o.Dimensions]
		}
		if o.Normalize {
			Unit(v)
		}
		vectors[i].Values = v
	}
	return vectors, nil
}

// compute runs texts through the network when it is this caller's turn.
func (m *Model) compute(ctx context.Context, texts []engine.Text) ([][]float32, error) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.turn }()
	return m.enc.Encode(ctx, texts)
}

// prompt finds a text by its name.
func (m *Model) prompt(name string) (string, error) {
	if name == "" {
		return m.set.prompts[m.set.prompt], nil
	}
	text, ok := m.set.prompts[name]
	if !ok {
		known := "it has none"
		if len(m.set.prompts) > 0 {
			known = "there are " + strings.Join(m.Prompts(), ", ")
		}
		return "", fmt.Errorf("the model has no prompt %q: %s", name, known)
	}
	return text, nil
}

// limit is the bound that a wish to cut asks for.
func (m *Model) limit(truncate int) int {
	if truncate > 0 {
		return min(truncate, m.longest)
	}
	return m.longest
}

// encode gives the tokens of a text, cut to what is asked for: tokens that end a text stay.
func (m *Model) encode(text string, truncate int) (ids []int32, cut int, err error) {
	if m.set.lower {
		text = strings.ToLower(text)
	}
	o := m.tok.Defaults()
	o.AddEOS = o.AddEOS || m.facts.Ends
	o.ParseSpecial = true // as all who make such vectors do: they could not be compared otherwise
	if ids, err = m.tok.Encode(text, o); err != nil || truncate == 0 {
		return ids, 0, err
	}
	limit := m.limit(truncate)
	if len(ids) <= limit {
		return ids, 0, nil
	}
	cut = len(ids) - limit
	last := ids[len(ids)-1]
	if ids = ids[:limit]; o.AddEOS {
		ids[limit-1] = last
	}
	return ids, cut, nil
}

// rows are those whose mean is the vector of a text of n tokens, the first ones of a prompt.
func (m *Model) rows(n, prompt int) (from, to int) {
	switch m.pooling {
	case "cls":
		return 0, 1
	case "last":
		return n - 1, n
	}
	return min(prompt, n-1), n
}

// Score is one of a pair of texts.
type Score struct {
	Value  float64   // where the model has one label
	Labels []float32 // what the network gives
	Tokens int
	Cut    int
}

// Pair is a question and a text that may answer it.
type Pair struct{ Query, Document string }

// ScoreOptions say what scores are wanted.
type ScoreOptions struct {
	Raw         bool   // what the network gives, not spread to between 0 and 1
	Instruction string // what a document is to be found for, where the model was trained with it; empty: its usual one
	Truncate    int    // as Options has it
}

// usualInstruction is what models that take an instruction were trained with most.
const usualInstruction = "Given a web search query, retrieve relevant passages that answer the query"

// Score gives the scores of pairs, in order.
func (m *Model) Score(ctx context.Context, pairs []Pair, o ScoreOptions) ([]Score, error) {
	if m.task != models.Score {
		return nil, errors.New("the model gives vectors, no scores of pairs")
	}
	texts, scores := make([]engine.Text, len(pairs)), make([]Score, len(pairs))
	for i, p := range pairs {
		ids, types, cut, err := m.encodePair(p, o)
		if err != nil {
			return nil, fmt.Errorf("text %d: %w", i, err)
		}
		if len(ids) > m.longest {
			return nil, &TooLong{i, len(ids), m.longest}
		}
		texts[i] = engine.Text{Tokens: ids, Types: types}
		texts[i].From, texts[i].To = m.rows(len(ids), 0)
		scores[i].Tokens, scores[i].Cut = len(ids), cut
	}
	out, err := m.compute(ctx, texts)
	if err != nil {
		return nil, err
	}
	for i, v := range out {
		if m.facts.Yes != "" {
			yes := v[m.answers[1]]
			if m.facts.No != "" {
				yes -= v[m.answers[0]]
			}
			v = []float32{yes}
		}
		scores[i].Labels, scores[i].Value = v, float64(v[0])
		if len(v) == 1 && m.facts.Spread == "sigmoid" && !o.Raw {
			scores[i].Value = 1 / (1 + math.Exp(-scores[i].Value))
		}
	}
	return scores, nil
}

// Labels is how many values a score has.
func (m *Model) Labels() int {
	if m.facts.Yes != "" {
		return 1
	}
	return m.enc.Width()
}

// encodePair gives the tokens of a pair in the form that the model was trained with.
func (m *Model) encodePair(p Pair, o ScoreOptions) (ids, types []int32, cut int, err error) {
	limit := 0
	if o.Truncate != 0 {
		limit = m.limit(o.Truncate)
	}
	if len(m.facts.Pair) == 0 {
		return m.tok.EncodePair(p.Query, p.Document, limit)
	}
	form := m.facts.Pair
	instruction := o.Instruction
	switch says := strings.Contains(strings.Join(form, ""), "{instruction}"); {
	case instruction != "" && !says:
		return nil, nil, 0, errors.New("the model takes no instruction")
	case instruction == "":
		instruction = usualInstruction
	}
	filled := func(document string) (ids []int32, end int, err error) {
		for _, part := range form {
			more, e := m.part(part, map[string]string{"{query}": p.Query, "{document}": document, "{instruction}": instruction})
			if e != nil {
				return nil, 0, e
			}
			if ids = append(ids, more...); strings.Contains(part, "{document}") {
				end = len(ids)
			}
		}
		return ids, end, nil
	}
	ids, end, err := filled(p.Document)
	over := len(ids) - limit
	if err != nil || limit == 0 || over <= 0 {
		return ids, nil, 0, err
	}
	// Of the document tokens are left out, so that the question and the form stay.
	short := fmt.Errorf("the query leaves no room for a document in %d tokens", limit)
	least, _, err := filled("")
	if err != nil || over >= len(ids)-len(least) {
		return nil, nil, 0, cmp.Or(err, short)
	}
	if slices.ContainsFunc(form, func(part string) bool { return strings.HasSuffix(part, "{document}") }) {
		return slices.Delete(ids, end-over, end), nil, over, nil
	}
	all, err := m.tok.Encode(p.Document, tokenizer.Options{})
	for keep := len(all) - over; err == nil && keep > 0; keep-- { // its end is joined with what stands behind it
		if ids, _, err = filled(m.tok.Decode(all[:keep])); err == nil && len(ids) <= limit {
			return ids, nil, len(all) - keep, nil
		}
	}
	return nil, nil, 0, cmp.Or(err, short)
}

// part gives the tokens of a part of a pair's form: a text with what is put into it, which is never read as a control
// token, a text without, in which control tokens are, {begin}, or a token by its number, {100}.
func (m *Model) part(form string, values map[string]string) ([]int32, error) {
	if form == "{begin}" {
		if m.tok.BOS() == tokenizer.None {
			return nil, errors.New("the tokenizer has no token that begins a text, which the model's form of two wants")
		}
		return []int32{m.tok.BOS()}, nil
	}
	if id, err := strconv.ParseInt(strings.Trim(form, "{}"), 10, 32); err == nil && strings.HasPrefix(form, "{") {
		return []int32{int32(id)}, nil
	}
	var list []string
	for key, v := range values {
		list = append(list, key, v)
	}
	text := strings.NewReplacer(list...).Replace(form)
	return m.tok.Encode(text, tokenizer.Options{ParseSpecial: text == form})
}

// Unit makes a vector's length 1; zeros stay.
func Unit(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	by := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * by)
	}
}

// Cosine is the cosine of the angle between two vectors.
func Cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		ab, aa, bb = ab+float64(x)*float64(b[i]), aa+float64(x)*float64(x), bb+float64(b[i])*float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// Rank scores texts by how well they answer a query: a model of scores by its own, one of vectors by the cosine.
func (m *Model) Rank(ctx context.Context, query string, texts []string, o ScoreOptions) ([]Score, error) {
	queries := make([]string, len(texts))
	for i := range queries {
		queries[i] = query
	}
	return m.Pairs(ctx, queries, texts, o)
}

// Pairs scores texts[i] as an answer of queries[i], as Rank does.
func (m *Model) Pairs(ctx context.Context, queries, texts []string, o ScoreOptions) ([]Score, error) {
	if m.task == models.Score {
		if n := m.Labels(); n != 1 {
			return nil, fmt.Errorf("the model tells %d labels apart: it gives no score of a text", n)
		}
		pairs := make([]Pair, len(texts))
		for i, text := range texts {
			pairs[i] = Pair{queries[i], text}
		}
		return m.Score(ctx, pairs, o)
	}
	if o.Instruction != "" {
		return nil, errors.New("the model takes no instruction: it gives vectors")
	}
	asked, err := m.side(ctx, queries, "query", o.Truncate)
	if err != nil {
		return nil, err
	}
	found, err := m.side(ctx, texts, "document", o.Truncate)
	if err != nil {
		return nil, err
	}
	scores := make([]Score, len(texts))
	for i := range scores {
		q, d := asked[i], found[i]
		scores[i] = Score{Value: Cosine(q.Values, d.Values), Tokens: q.Tokens + d.Tokens, Cut: q.Cut + d.Cut}
	}
	return scores, nil
}

// side gives the vectors of queries, or of documents, each text once, with the prompt of that name if the model has it.
func (m *Model) side(ctx context.Context, texts []string, prompt string, truncate int) ([]Vector, error) {
	if _, ok := m.set.prompts[prompt]; !ok {
		prompt = ""
	}
	at, inputs := map[string]int{}, []Input(nil)
	for _, text := range texts {
		if _, ok := at[text]; !ok {
			at[text] = len(inputs)
			inputs = append(inputs, Input{Text: text})
		}
	}
	vectors, err := m.Embed(ctx, inputs, Options{Prompt: prompt, Truncate: truncate})
	if err != nil {
		return nil, err
	}
	out := make([]Vector, len(texts))
	for i, text := range texts {
		out[i] = vectors[at[text]]
	}
	return out, nil
}
