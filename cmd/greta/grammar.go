// The verb grammar: whether a schema or grammar can be honoured, which texts it
// accepts, and what its masks cost.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/grammar"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/tokenizer"
)

type grammarFlags struct {
	schema, gbnf, regex, instances string
	choice                         []string
	anyJSON, compact, ordered      bool
	asJSON                         bool
}

func (a *app) grammarCmd() *cobra.Command {
	var f grammarFlags
	c := &cobra.Command{
		Use:   "grammar MODEL",
		Short: "Say whether a schema or grammar can be honoured, and which texts it accepts",
		Long: `MODEL is what run takes, or a tokenizer. Just one source is given: a JSON schema,
a grammar in GBNF, a regular expression, a choice of texts, or --any-json.

The instances of a schema or --any-json are the elements of a JSON array, or JSON
values one after the other; an object {"data": …, "valid": true} tells what is
expected of it. Instances of other sources are lines. Each is read token by token
with the mask that a model would be given; the times are those of the masks.

Exit codes: 2 where the source cannot be honoured, which names the keyword and its
place; 4 where an instance is not what its "valid" says; 1 where one without
"valid" is not accepted.`,
		Args: exactly(1, "a model or tokenizer"),
		RunE: func(_ *cobra.Command, args []string) error { return a.checkGrammar(args[0], &f) },
	}
	s := c.Flags()
	s.StringVar(&f.schema, "schema", "", "JSON schema `FILE`, or - for standard input")
	s.StringVar(&f.gbnf, "gbnf", "", "grammar `FILE` in GBNF, or - for standard input")
	s.StringVar(&f.regex, "regex", "", "regular expression that the whole text matches")
	s.StringSliceVar(&f.choice, "choice", nil, "texts to choose from, A,B")
	s.BoolVar(&f.anyJSON, "any-json", false, "any JSON value")
	s.StringVar(&f.instances, "instances", "", "`FILE` of texts to check, or - for standard input")
	s.BoolVar(&f.compact, "compact", false, "JSON without whitespace and needless escapes, as it is generated")
	s.BoolVar(&f.ordered, "ordered", false, "properties in the schema's order, as they are generated")
	s.BoolVar(&f.asJSON, "json", false, "write JSON")
	return c
}

// grammarReport is what the verb tells.
type grammarReport struct {
	Compiled   bool              `json:"compiled"`
	Error      string            `json:"error,omitempty"`
	Keyword    string            `json:"keyword,omitempty"`
	At         string            `json:"at,omitempty"`
	Vocabulary int               `json:"vocabulary"`
	CompileMS  float64           `json:"compile_ms"`
	Instances  []grammarInstance `json:"instances,omitempty"`
	Masks      *maskTimes        `json:"masks,omitempty"`
}

type grammarInstance struct {
	Accepted bool   `json:"accepted"`
	Valid    *bool  `json:"valid,omitempty"` // what the file says of it
	At       *int   `json:"at,omitempty"`    // the byte where it is not accepted
	Why      string `json:"why,omitempty"`
}

type maskTimes struct {
	N      int     `json:"n"`
	MeanUS float64 `json:"mean_us"`
	P50US  float64 `json:"p50_us"`
	P99US  float64 `json:"p99_us"`
	MaxUS  float64 `json:"max_us"`
}

func (a *app) checkGrammar(model string, f *grammarFlags) error {
	src, isJSON, err := a.grammarSource(f)
	if err != nil {
		return usage(err)
	}
	t, err := openTokenizer(model)
	if err != nil {
		return usage(err)
	}
	var texts []labelled
	if f.instances != "" {
		data, err := a.readWhole(f.instances)
		if err != nil {
			return usage(err)
		}
		if texts, err = readInstances(data, isJSON); err != nil {
			return usage(fmt.Errorf("--instances: %w", err))
		}
	}
	v := grammar.NewVocabulary(t)
	r := grammarReport{Vocabulary: v.Size()}
	begin := time.Now()
	g, err := grammar.Compile(v, src, grammar.Options{Compact: f.compact, Ordered: f.ordered})
	r.CompileMS = float64(time.Since(begin).Microseconds()) / 1000
	r.Compiled = err == nil
	if err != nil {
		r.Error = err.Error()
		if e := (*grammar.Refused)(nil); errors.As(err, &e) {
			r.Keyword, r.At = e.Keyword, e.At
		}
		if !f.asJSON {
			return usage(err)
		}
		return a.grammarDone(&r, f, usage(err))
	}
	code, err := readWithMasks(&r, v, t, g, texts)
	if err != nil {
		return err
	}
	return a.grammarDone(&r, f, code)
}

// grammarSource reads what to constrain to.
func (a *app) grammarSource(f *grammarFlags) (src grammar.Source, isJSON bool, err error) {
	var given []string
	for name, is := range map[string]bool{"--schema": f.schema != "", "--gbnf": f.gbnf != "", "--regex": f.regex != "",
		"--choice": len(f.choice) > 0, "--any-json": f.anyJSON} {
		if is {
			given = append(given, name)
		}
	}
	if slices.Sort(given); len(given) != 1 {
		return src, false, fmt.Errorf("just one of --schema, --gbnf, --regex, --choice and --any-json is wanted, not %d %s",
			len(given), strings.Join(given, " "))
	}
	var data []byte
	switch given[0] {
	case "--schema":
		data, err = a.readWhole(f.schema)
		return grammar.Schema(string(data)), true, err
	case "--gbnf":
		data, err = a.readWhole(f.gbnf)
		return grammar.GBNF(string(data)), false, err
	case "--regex":
		return grammar.Regex(f.regex), false, nil
	case "--choice":
		return grammar.Choice(f.choice...), false, nil
	}
	return grammar.JSON(), true, nil
}

func (a *app) readWhole(path string) ([]byte, error) {
	if path == "-" {
		text, err := readAll(a.in, mostText)
		return []byte(text), err
	}
	return plainfile.Read(path)
}

// labelled is a text and what is expected of it.
type labelled struct {
	text  string
	valid *bool
}

// readInstances divides a file: see the verb's help.
func readInstances(data []byte, isJSON bool) ([]labelled, error) {
	var out []labelled
	if !isJSON {
		for line := range strings.Lines(string(data)) {
			out = append(out, labelled{text: strings.TrimSuffix(line, "\n")})
		}
		return out, nil
	}
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")) {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("no JSON array of instances: %w", err)
		}
	} else {
		for d := json.NewDecoder(bytes.NewReader(data)); ; {
			var one json.RawMessage
			if err := d.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("instance %d is no JSON: %w", len(list), err)
			}
			list = append(list, one)
		}
	}
	for _, one := range list {
		l := labelled{text: string(one)}
		var told map[string]json.RawMessage
		if json.Unmarshal(one, &told) == nil && told["data"] != nil && told["valid"] != nil {
			var valid bool
			if json.Unmarshal(told["valid"], &valid) == nil {
				l = labelled{string(told["data"]), &valid}
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// readWithMasks reads every text as a model would write it; code is the error that
// the verb ends with.
func readWithMasks(r *grammarReport, v *grammar.Vocabulary, t *tokenizer.Tokenizer, g *grammar.Grammar,
	texts []labelled) (code, err error) {
	set := make([]uint32, v.Words())
	var times []time.Duration
	differ, refused := 0, 0
	for _, l := range texts {
		k := g.NewMask()
		one := grammarInstance{Valid: l.valid}
		at := 0
		for _, id := range append(v.Spell(l.text), t.Ends()...) {
			begin := time.Now()
			if err := k.Allowed(set); err != nil {
				return nil, err
			}
			times = append(times, time.Since(begin))
			if err := k.Accept(id); err != nil {
				one.Why = err.Error()
				break
			} else if set[id>>5]>>(id&31)&1 == 0 {
				return nil, fmt.Errorf("token %d is accepted but not in the mask", id)
			}
			at += len(t.Bytes(id))
			if one.Accepted = k.Ended(); one.Accepted {
				break
			}
		}
		if !one.Accepted {
			one.At = &at
			if len(t.Ends()) == 0 {
				if one.Accepted, err = k.MayEnd(); err != nil {
					return nil, err
				}
			}
		}
		switch {
		case l.valid != nil && *l.valid != one.Accepted:
			differ++
		case l.valid == nil && !one.Accepted:
			refused++
		}
		r.Instances = append(r.Instances, one)
	}
	r.Masks = timesOf(times)
	if differ > 0 {
		err := fmt.Errorf("%d of %d instances are not what the file says", differ, len(texts))
		return &exitError{code: exitMismatch, err: err}, nil
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d instances are not accepted", refused, len(texts)), nil
	}
	return nil, nil
}

func timesOf(times []time.Duration) *maskTimes {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	var sum time.Duration
	for _, d := range times {
		sum += d
	}
	n := len(times)
	return &maskTimes{n, us(sum) / float64(n), us(times[n/2]), us(times[n*99/100]), us(times[n-1])}
}

// grammarDone prints the report and ends with an error or none.
func (a *app) grammarDone(r *grammarReport, f *grammarFlags, code error) error {
	if f.asJSON {
		if err := writeJSON(a.out, r); err != nil {
			return err
		}
		return code
	}
	fmt.Fprintf(a.out, "compiled in %.2f ms for %d tokens\n", r.CompileMS, r.Vocabulary)
	if len(r.Instances) > 0 {
		table := report.NewTable("instance", "<accepted", "<expected", "<why not")
		for i, one := range r.Instances {
			expected := ""
			if one.Valid != nil {
				expected = map[bool]string{true: "valid", false: "invalid"}[*one.Valid]
			}
			why := one.Why
			if one.At != nil {
				why = fmt.Sprintf("at byte %d: %s", *one.At, why)
			}
			table.Row(fmt.Sprint(i), map[bool]string{true: "yes", false: "no"}[one.Accepted], expected, why)
		}
		if _, err := fmt.Fprint(a.out, table.String()); err != nil {
			return err
		}
		m := r.Masks
		fmt.Fprintf(a.out, "masks: mean %.1f us, p50 %.1f, p99 %.1f, max %.1f, n=%d\n", m.MeanUS, m.P50US, m.P99US,
			m.MaxUS, m.N)
	}
	return code
}
