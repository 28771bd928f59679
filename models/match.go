package models

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/hfclass"
)

// Match gives the model file for weights: by GGUF's general.architecture and the
// keys under has:, or by the architectures of config.json (model_type where it
// names none). The file that asks for more keys wins; two that ask for as many
// are an error. Files in dirs are looked at before the built-in ones.
func Match(w Weights, dirs ...string) (*File, error) { return MatchTask(w, "", dirs...) }

// MatchTask is Match among the files of a task: Embed, Score, or empty for those that give logits.
func MatchTask(w Weights, task string, dirs ...string) (*File, error) {
	found := architectures(w)
	var known []string
	m := matching{w, found, task, &known}
	for _, dir := range dirs {
		paths, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
		f, err := m.best(paths, func(path string) (*File, error) {
			data, err := readLimited(path)
			if err != nil {
				return nil, err
			}
			return parse(path, data, beside(dir))
		})
		if err != nil {
			return nil, err
		}
		if f != "" {
			return Load(f)
		}
	}
	f, err := m.best(mentioning(append([]string{kind(w)}, found...)), Builtin)
	if err == nil && f == "" { // says what there is
		f, err = m.best(Names(), Builtin)
	}
	if err != nil {
		return nil, err
	}
	if f != "" {
		return Builtin(f)
	}
	key := map[string]string{"gguf": "general.architecture", "hf": "architectures"}[w.Dialect()]
	slices.Sort(known)
	known = slices.Compact(known)
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: the metadata lack %s, so no model file can be chosen; name one by --model", w.Path(), key)
	}
	var others []string
	for _, h := range hints {
		if h.task == task {
			continue
		}
		m := matching{w, found, h.task, new([]string)}
		if f, err := m.best(Names(), Builtin); err == nil && f != "" {
			others = append(others, h.gives)
		}
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("%s: %s has no file for this: it gives %s", w.Path(), strings.Join(found, ", "),
			strings.Join(others, " or "))
	}
	return nil, fmt.Errorf("%s: no model file is for %s (%s); there are files for %s; name another by --model",
		w.Path(), strings.Join(found, ", "), key, strings.Join(known, ", "))
}

// hints say what the files of a task are for.
var hints = []struct{ task, gives string }{
	{"", "the logits of a next token (greta run)"},
	{Embed, "vectors of texts (greta embed)"},
	{Score, "scores of texts (greta rerank)"},
}

// mentioning lists the built-in files whose match: names one of these architectures, or its class. It reads words and
// not YAML, which takes a hundredth of the time; best decides.
func mentioning(found []string) []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		data, err := builtinText(name)
		if err != nil {
			return false // best says why
		}
		_, text, _ := strings.Cut(string(data), "\nmatch:")
		for line := range strings.Lines(text) {
			for _, word := range strings.FieldsFunc(line, betweenWords) {
				for _, f := range found {
					if word == f || hfclass.Means(f, word) {
						return false
					}
				}
			}
			if strings.Contains(line, "}") && strings.HasPrefix(line, " {") {
				break // of one line
			}
			if line[0] != ' ' && line[0] != '\n' {
				break // the next key
			}
		}
		return true
	})
}

func betweenWords(r rune) bool { return strings.ContainsRune("{}[]:, \n", r) }

func builtinText(stem string) ([]byte, error) {
	_, data, err := readBuiltin(stem)
	return data, err
}

// architectures gives what the weights say of themselves.
func architectures(w Weights) []string {
	keys := []string{"architectures", "model_type"}
	if w.Dialect() == "gguf" {
		keys = []string{"general.architecture"}
	}
	for _, k := range keys {
		switch v, _ := w.Meta(k); v := v.(type) {
		case string:
			return []string{v}
		case []string:
			if len(v) > 0 {
				return v
			}
		}
	}
	return nil
}

// kind gives config.json's model_type. A file that names it is taken before one that names the architecture: a class
// may load what has other names of tensors.
func kind(w Weights) string {
	if w.Dialect() != "hf" {
		return ""
	}
	v, _ := w.Meta("model_type")
	word, _ := v.(string)
	return word
}

// named says whether what weights say of themselves is one of a model file's
// architectures. A model_type stands in where config.json names no architecture.
func named(w Weights, found string, want []string) bool {
	if slices.Contains(want, found) {
		return true
	}
	if archs, _ := w.Meta("architectures"); w.Dialect() != "hf" || archs != nil {
		if list, ok := archs.([]string); !ok || len(list) > 0 {
			return false
		}
	}
	return slices.ContainsFunc(want, func(class string) bool { return hfclass.Means(found, class) })
}

// matching is a search for the model file of weights.
type matching struct {
	w     Weights
	found []string // what they say of themselves
	task  string
	known *[]string // the architectures that there are files for
}

// best chooses among files; "" where none matches.
func (q *matching) best(names []string, read func(string) (*File, error)) (string, error) {
	w, found := q.w, q.found
	top, winners := -1, []string(nil)
	for _, name := range names {
		f, err := read(name)
		if err != nil {
			return "", err
		}
		if f.task != q.task {
			continue
		}
		m := f.match
		want := m.hf
		if w.Dialect() == "gguf" {
			want = m.gguf
		}
		*q.known = append(*q.known, want...)
		score := 0
		if slices.Contains(want, kind(w)) {
			score = 1
		} else if !slices.ContainsFunc(found, func(a string) bool { return named(w, a, want) }) {
			score = -1
		}
		if w.Dialect() == "gguf" && score >= 0 {
			for _, key := range m.has {
				if v, ok := w.Meta(key); !ok || v == nil || v == int64(0) || v == false {
					score = -1
					break
				}
				score++
			}
		}
		switch {
		case score < 0 || score < top:
		case score > top:
			top, winners = score, []string{name}
		default:
			winners = append(winners, name)
		}
	}
	if len(winners) > 1 {
		return "", fmt.Errorf("%s: several model files are for %s: %s; name one by --model", w.Path(),
			strings.Join(found, ", "), strings.Join(winners, ", "))
	}
	if top < 0 {
		return "", nil
	}
	return winners[0], nil
}
