package chat

// Conversations in files.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
)

// saved is the file of a conversation: OpenAI's messages under "messages".
type saved struct {
	Messages []Message `json:"messages"`
}

// Save writes the conversation. A file that holds something else is not overwritten.
func (t *Talk) Save(path string) error {
	if _, err := readMessages(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already and is no conversation: name another file", path)
	}
	all := saved{[]Message{}}
	if t.System != "" {
		all.Messages = append(all.Messages, Message{Role: "system", Content: t.System})
	}
	all.Messages = append(all.Messages, t.Messages...)
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, byte(10)), 0o600)
}

// mostFile bounds a conversation's file.
const mostFile = 64 << 20

func readMessages(path string) ([]Message, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > mostFile {
		return nil, fmt.Errorf("%s: expected a plain file of at most %d bytes", path, mostFile)
	}
	data, err := plainfile.Read(path)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, fmt.Errorf("%s is no JSON: expected a list of messages, or an object with \"messages\"", path)
	}
	var all struct{ Messages []json.RawMessage }
	if json.Unmarshal(data, &all.Messages) != nil && json.Unmarshal(data, &all) != nil {
		return nil, fmt.Errorf("%s: expected a list of messages, or an object with \"messages\"", path)
	}
	if all.Messages == nil {
		return nil, fmt.Errorf("%s has no \"messages\"", path)
	}
	out := make([]Message, len(all.Messages))
	for i, raw := range all.Messages {
		if out[i], err = readMessage(raw); err != nil {
			return nil, fmt.Errorf("%s: message %d %w", path, i, err)
		}
	}
	return out, nil
}

// readMessage reads a message of OpenAI's, whose content is a text, or parts that are texts.
func readMessage(raw json.RawMessage) (m Message, err error) {
	var wire struct {
		Message
		Content any `json:"content"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return m, errors.New("is no object with role and content")
	}
	m = wire.Message
	switch content := wire.Content.(type) {
	case string:
		m.Content = content
		return m, nil
	case []any:
		var texts []string
		for _, part := range content {
			object, _ := part.(map[string]any)
			text, ok := object["text"].(string)
			if !ok {
				return m, errors.New("has a part that is no text; the model reads text alone")
			}
			texts = append(texts, text)
		}
		m.Content = strings.Join(texts, "\n")
		return m, nil
	}
	return m, errors.New("has no content")
}

// Load takes up a conversation of a file. With an error the one at hand stays.
func (t *Talk) Load(path string) error {
	all, err := readMessages(path)
	if err != nil {
		return err
	}
	system, rest := "", []Message{}
	for i, m := range all {
		switch {
		case m.Role == "system" && i == 0:
			system = m.Content
		case m.Role == "user" || m.Role == "assistant":
			rest = append(rest, m)
		default:
			return fmt.Errorf("%s: message %d has the role %q; a conversation here has one system text at its "+
				"beginning, and user and assistant", path, i, m.Role)
		}
	}
	t.System, t.Messages, t.skipped = system, rest, 0
	return nil
}
