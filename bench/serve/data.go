// Prompts of a file.

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/greta-project/greta/internal/plainfile"
)

// ReadPrompts reads a file of prompts: a JSON object a line with "prompt" (or "text") and perhaps
// "max_tokens", or ShareGPT's JSON array, of which the first human turns are taken.
func ReadPrompts(path string) ([]Prompt, error) {
	data, err := plainfile.Read(path)
	if err != nil {
		return nil, err
	}
	var out []Prompt
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '[' {
		var list []struct {
			Conversations []struct{ From, Value string }
			Prompt        string
			Max           int `json:"max_tokens"`
		}
		if err := json.Unmarshal(t, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, e := range list {
			text := e.Prompt
			for _, c := range e.Conversations {
				if text == "" && (c.From == "human" || c.From == "user") {
					text = c.Value
				}
			}
			if text != "" {
				out = append(out, Prompt{text, e.Max})
			}
		}
	} else {
		for i, line := range bytes.Split(data, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			var e struct {
				Prompt, Text string
				Max          int `json:"max_tokens"`
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			if e.Prompt == "" {
				e.Prompt = e.Text
			}
			if e.Prompt == "" {
				return nil, fmt.Errorf("%s:%d: there is no prompt", path, i+1)
			}
			out = append(out, Prompt{e.Prompt, e.Max})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no prompts in it", path)
	}
	return out, nil
}
