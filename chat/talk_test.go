package chat

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/chat/jinja"
	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/chat/template"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

// runeText has a token for every character; 0 is the end, 1 a control token.
type runeText struct{}

const control = 1

func (runeText) EncodeChat(text string) ([]int32, error) {
	var ids []int32
	for _, r := range text {
		ids = append(ids, r)
	}
	return ids, nil
}

func (runeText) NewDecoder() Decoder     { return runeDecoder{} }
func (runeText) IsEnd(id int32) bool     { return id == 0 }
func (runeText) IsControl(id int32) bool { return id <= control }

func (runeText) Token(id int32) string {
	if id == control {
		return "<think>"
	}
	return string(rune(id))
}

type runeDecoder struct{}

func (runeDecoder) Write(id int32) string { return string(rune(id)) }
func (runeDecoder) Flush() string         { return "" }

// script answers with texts, one after another.
type script struct {
	size    int
	answers [][]int32
	prompts []string
	seeds   []uint64
	err     error
}

func (s *script) Context() int { return s.size }

func (s *script) Run(ctx context.Context, tokens []int32, o RunOptions) (Stats, error) {
	var text strings.Builder
	for _, t := range tokens {
		text.WriteRune(t)
	}
	s.prompts, s.seeds = append(s.prompts, text.String()), append(s.seeds, o.Sampling.Seed)
	st := Stats{Prompt: len(tokens), Stop: engine.StopEnd}
	if s.err != nil {
		return st, s.err
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	for _, id := range answer {
		st.Tokens++
		if goOn := o.Emit(id); !goOn {
			st.Stop = engine.StopEmit
			break
		}
		if o.End(id) {
			break
		}
		if ctx.Err() != nil {
			st.Stop = engine.StopInterrupted
			break
		}
	}
	return st, nil
}

func says(text string) []int32 {
	ids, _ := runeText{}.EncodeChat(text)
	return append(ids, 0)
}

const turns = "{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}>"

func talk(size int, answers ...[]int32) (*Talk, *script) {
	s := &script{size: size, answers: answers}
	return &Talk{Templates: template.New("t", turns), Format: parse.Find(""), Text: runeText{}, Runner: s,
		Vars: jinja.NewDict()}, s
}

// ask gives what was shown of an answer.
func ask(t *testing.T, k *Talk, text string) string {
	t.Helper()
	var shown strings.Builder
	if _, err := k.Ask(t.Context(), text, func(p parse.Part) { shown.WriteString(p.Text) }); err != nil {
		t.Fatal(err)
	}
	return shown.String()
}

func TestTurns(t *testing.T) {
	k, s := talk(1000, says("Hi!"), says("Fine."), says("Well."), says("X"))
	k.System = "Brief."
	if got := ask(t, k, "Hello"); got != "Hi!" {
		t.Errorf("got %q", got)
	}
	ask(t, k, "How?")
	if _, err := k.Retry(t.Context(), func(parse.Part) {}); err != nil {
		t.Fatal(err)
	}
	want := "[s:Brief.][u:Hello][a:Hi!][u:How?]>"
	if s.prompts[1] != want || s.prompts[2] != want {
		t.Errorf("prompts %q, want %q twice", s.prompts[1:], want)
	}
	if s.seeds[1] == s.seeds[2] {
		t.Error("the answer was asked for again with the same seed")
	}
	if k.Messages[3].Content != "Well." {
		t.Errorf("the answer is %+v", k.Messages[3])
	}
	if !k.Undo() || len(k.Messages) != 2 {
		t.Errorf("%d messages are left, want 2", len(k.Messages))
	}
	if k.Undo(); k.Undo() || len(k.Messages) != 0 {
		t.Error("more was taken back than was said")
	}
	ask(t, k, "New")
	if got := s.prompts[3]; got != "[s:Brief.][u:New]>" {
		t.Errorf("prompt %q", got)
	}
	if _, err := (&Talk{}).Retry(t.Context(), nil); err == nil {
		t.Error("an answer that there is not was made again")
	}
}

// TestContextFull leaves out the oldest turns, whole ones, and says so; the system's text and the question stay.
func TestContextFull(t *testing.T) {
	answer := says("answer of twenty ch.")
	k, s := talk(120, answer, answer, answer, answer, answer)
	k.System = "SYS"
	var notes []string
	k.Note = func(n string) { notes = append(notes, n) }
	for _, q := range []string{"first question", "second question", "third question", "fourth question"} {
		ask(t, k, q)
	}
	last := s.prompts[3]
	if len([]rune(last)) > 90 || !strings.HasPrefix(last, "[s:SYS][u:") ||
		!strings.HasSuffix(last, "[u:fourth question]>") ||
		strings.Contains(last, "first") {
		t.Errorf("prompt %q", last)
	}
	if len(notes) == 0 || !strings.Contains(notes[0], "context of 120 tokens is full") {
		t.Errorf("notes %q", notes)
	}
	if len(k.Messages) != 8 {
		t.Errorf("%d messages are kept, want 8", len(k.Messages))
	}
	_, err := k.Ask(t.Context(), strings.Repeat("long ", 40), func(parse.Part) {})
	var long *TooLong
	if !errors.As(err, &long) || !strings.Contains(err.Error(), "--context") || len(k.Messages) != 8 {
		t.Errorf("a question that is too long: %v, %d messages", err, len(k.Messages))
	}
}

// caches are a runner's that keeps what two prompts begin with alike, and counts what it computes.
type caches struct {
	script
	have     []int32
	computed []int // tokens of each prompt
}

func (c *caches) Run(ctx context.Context, tokens []int32, o RunOptions) (Stats, error) {
	kept := 0
	for kept < min(len(tokens), len(c.have)) && tokens[kept] == c.have[kept] {
		kept++
	}
	c.computed = append(c.computed, len(tokens)-kept)
	c.have = append(append([]int32{}, tokens...), c.answers[0]...)
	return c.script.Run(ctx, tokens, o)
}

// TestContextFullKeepsCaches: a turn that leaves others out makes room for several that go on from what the caches
// hold. Over ten turns of 50 tokens with a full context 653 tokens are computed, 3 times from the system's text on; one
// turn left out at a time would take 2,480, all ten times.
func TestContextFullKeepsCaches(t *testing.T) {
	k, _ := talk(0)
	c := &caches{script: script{size: 400}}
	k.Runner, k.System = c, "SYS"
	longest := 0
	for turn := range 20 {
		c.answers = [][]int32{says("an answer of 24 letters.")}
		ask(t, k, "question number "+string(rune('a'+turn)))
		if last := c.prompts[turn]; turn > 0 && !strings.Contains(last, "an answer") {
			t.Errorf("turn %d does not see the one before: %q", turn, last)
		}
		longest = max(longest, len(c.prompts[turn]))
	}
	again, sum := 0, 0
	for _, n := range c.computed[10:] {
		sum += n
		if n > 100 {
			again++
		}
	}
	if again != 3 || sum != 653 {
		t.Errorf("%d of ten prompts were computed again, want 3; %d tokens in all, want 653: %v", again, sum, c.computed)
	}
	if longest > 300 || longest < 200 {
		t.Errorf("the longest prompt has %d tokens of 300", longest)
	}
}

// TestContextFullKeepsLastTurn: the turn that a question is about is not left out to make room for coming ones, and
// older turns come back where what followed them is taken back.
func TestContextFullKeepsLastTurn(t *testing.T) {
	long := says(strings.Repeat("long ", 28))
	k, s := talk(400, long, long, long, says("so"), long)
	for _, q := range []string{"one", "two", "three"} {
		ask(t, k, q)
	}
	if got := s.prompts[2]; !strings.HasPrefix(got, "[u:two][a:long ") {
		t.Errorf("the last turn is left out, which fits: %q", got)
	}
	for k.Undo() && len(k.Messages) > 2 {
	}
	ask(t, k, "and")
	if got := s.prompts[3]; !strings.HasPrefix(got, "[u:one][a:long ") {
		t.Errorf("a turn that fits again is left out: %q", got)
	}
}

// TestInterrupted keeps what came of an answer.
func TestInterrupted(t *testing.T) {
	k, _ := talk(1000, says("A long answer"))
	ctx, stop := context.WithCancel(t.Context())
	a, err := k.Ask(ctx, "Q", func(p parse.Part) { stop() })
	if err != nil || !a.Cut || a.Content != "A" || k.Messages[1].Content != "A" {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestFailure leaves the conversation as it was.
func TestFailure(t *testing.T) {
	k, s := talk(1000, says("ok"))
	ask(t, k, "Q")
	s.err = errors.New("device lost")
	if _, err := k.Ask(t.Context(), "R", func(parse.Part) {}); err == nil || len(k.Messages) != 2 {
		t.Errorf("%v, %d messages", err, len(k.Messages))
	}
	if _, err := k.Retry(t.Context(), func(parse.Part) {}); err == nil || k.Messages[1].Content != "ok" {
		t.Errorf("%v, %+v", err, k.Messages)
	}
	k.Templates = template.New("r", "{{ raise_exception('no') }}")
	var refused *template.Refusal
	if _, err := k.Ask(t.Context(), "R", func(parse.Part) {}); !errors.As(err, &refused) {
		t.Errorf("a refusal: %v", err)
	}
}

// TestReasoning divides an answer, also where its tags are control tokens, and gives the thoughts to the template.
func TestReasoning(t *testing.T) {
	answer := append([]int32{control}, says("Hm.</think>\n\nYes.")...)
	k, s := talk(1000, answer, says("!"))
	k.Format, _ = parse.Named("think")
	k.Templates = template.New("t", "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }};{% endfor %}")
	if got := ask(t, k, "Q"); got != "Yes." {
		t.Errorf("shown %q", got)
	}
	if m := k.Messages[1]; m.Reasoning != "Hm." || m.Content != "Yes." {
		t.Errorf("message %+v", m)
	}
	ask(t, k, "R")
	if s.prompts[1] != "|Q;Hm.|Yes.;|R;" {
		t.Errorf("prompt %q", s.prompts[1])
	}
}

func TestStops(t *testing.T) {
	k, _ := talk(1000, says("One. User: Two"))
	k.Stops = []string{"User:"}
	if got := ask(t, k, "Q"); got != "One. " || k.Messages[1].Cut {
		t.Errorf("shown %q, %+v", got, k.Messages[1])
	}
}

func TestSaveAndLoad(t *testing.T) {
	k, _ := talk(1000, says("A"))
	k.System = "S"
	ask(t, k, "Q")
	path := filepath.Join(t.TempDir(), "talk.json")
	for range 2 { // a second time over itself
		if err := k.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	other, _ := talk(1000)
	if err := other.Load(path); err != nil || other.System != "S" || len(other.Messages) != 2 ||
		other.Messages[1].Content != "A" {
		t.Errorf("%v, %+v", err, other)
	}
	foreign := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(foreign, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(foreign); err == nil {
		t.Error("a file that is no conversation was overwritten")
	}
	for _, text := range []string{"my notes", `{}`, `[{"role": "tool", "content": "x"}]`,
		`[{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]`} {
		if err := os.WriteFile(foreign, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := other.Load(foreign); err == nil || len(other.Messages) != 2 {
			t.Errorf("%s: %v, %d messages", text, err, len(other.Messages))
		}
	}
}

// TestLoadForeign: other clients' conversations have parts as contents; what is none is told by its place, and not as
// the program has it.
func TestLoadForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.json")
	k, _ := talk(1000)
	for text, want := range map[string]string{
		`[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
			{"role": "assistant", "content": "c", "reasoning_content": "d", "refusal": null}]`: "",
		`[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]`: "message 0 has a part",
		`[{"role": "user", "content": "a"}, {"role": "assistant"}]`:                         "message 1 has no content",
		`["a"]`:           "message 0 is no object",
		`{"messages": 3}`: `expected a list of messages`,
		`{"a":`:           `is no JSON`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := k.Load(path)
		if want == "" {
			if err != nil || len(k.Messages) != 2 || k.Messages[0].Content != "a\nb" || k.Messages[1].Reasoning != "d" {
				t.Errorf("%s: %v, %+v", text, err, k.Messages)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestRunnerKeepsWhatItMay: caches of rows go back to what two prompts begin with; a recurrence only goes on.
func TestRunnerKeepsWhatItMay(t *testing.T) {
	e, s := tolstoy(t)
	r := NewSessionRunner(e, s)
	run := func(ids ...int32) Stats {
		t.Helper()
		st, err := r.Run(t.Context(), ids, RunOptions{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	run(1, 5, 6, 7)
	if st := run(1, 5, 9); st.Kept != 2 {
		t.Errorf("%d tokens were kept, want 2", st.Kept)
	}
	r.rewinds = false
	if st := run(1, 5, 8); st.Kept != 0 {
		t.Errorf("a recurrence went back: %d tokens were kept", st.Kept)
	}
	if st := run(1, 5, 8, 4); st.Kept != 3 {
		t.Errorf("%d tokens were kept where the prompt goes on, want 3", st.Kept)
	}
}

func tolstoy(t *testing.T) (*engine.Engine, *engine.Session) {
	t.Helper()
	source, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Match(source)
	if err != nil {
		t.Fatal(err)
	}
	device, err := cpu.New(0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(t.Context(), engine.Options{Model: model, Source: source, Device: device, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), e.Close(), device.Close(), source.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, s
}
