// Content blocks of Anthropic's messages: texts, thoughts, calls of tools and their results, documents and results of
// searches.

package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// block is a part of a message, in requests and answers.
type block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	// Of documents and results of searches; a search's source is a text.
	Title     *string         `json:"title,omitempty"`
	Context   *string         `json:"context,omitempty"`
	Source    json.RawMessage `json:"source,omitempty"`
	Citations *struct {
		Enabled bool `json:"enabled"`
	} `json:"citations,omitempty"`
}

// openCalls are the calls of the assistant's turn before, of which each has one result in the user's turn that follows.
// Messages of one role that follow each other are one turn.
type openCalls struct {
	role string
	asks []string // ids of calls
	done []string // those of them that have results
	all  map[string]bool
}

// begin notes that a message of a role begins.
func (c *openCalls) begin(role, at string) error {
	if role == c.role {
		return nil
	}
	was := c.role
	c.role = role
	if was != "user" {
		return nil
	}
	err := c.answered(at)
	c.asks, c.done = nil, nil
	return err
}

// answered refuses calls without a result in the turn that ends before at.
func (c *openCalls) answered(at string) error {
	var missing []string
	for _, id := range c.asks {
		if !slices.Contains(c.done, id) {
			missing = append(missing, clip(id, 140))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return badRequest(at, fmt.Sprintf("%s: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
		"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", at,
		strings.Join(missing, ", ")))
}

// call notes a call, which only the assistant makes and which has an id of its own.
func (c *openCalls) call(id, here string) error {
	if c.role != "assistant" {
		return badRequest(here, here+": `tool_use` blocks can only be in `assistant` messages")
	}
	if c.all[id] {
		return badRequest(here+".id", fmt.Sprintf("%s.id: `tool_use` ids must be unique, %s was used before", here,
			clip(id, 140)))
	}
	if c.all == nil {
		c.all = map[string]bool{}
	}
	c.all[id] = true
	c.asks = append(c.asks, id)
	return nil
}

// result notes a result, which only the user gives, one to each call of the message before.
func (c *openCalls) result(id, here string) error {
	switch {
	case c.role != "user":
		return badRequest(here, here+": `tool_result` blocks can only be in `user` messages")
	case !slices.Contains(c.asks, id):
		return badRequest(here+".tool_use_id", fmt.Sprintf("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
			"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", here,
			clip(id, 140)))
	case slices.Contains(c.done, id):
		return badRequest(here+".tool_use_id", fmt.Sprintf("%s: each `tool_use` must have a single result; there are "+
			"several `tool_result` blocks of %s", here, clip(id, 140)))
	}
	c.done = append(c.done, id)
	return nil
}

// addBlocks makes messages of blocks: results of tools are messages of their own.
func addBlocks(out []Message, role, at string, blocks []block, calls *openCalls) ([]Message, error) {
	m := Message{Role: role}
	var texts []string
	for k, b := range blocks {
		here := fmt.Sprintf("%s.content.%d", at, k)
		switch b.Type {
		case "thinking":
			if b.Thinking != nil {
				m.Reasoning += *b.Thinking
			}
		case "redacted_thinking":
		case "tool_use":
			call, err := b.toolCall(here)
			if err == nil {
				err = calls.call(b.ID, here)
			}
			if err != nil {
				return nil, err
			}
			m.ToolCalls = append(m.ToolCalls, call)
		case "tool_result":
			if b.ToolUseID == "" {
				return nil, badRequest(here+".tool_use_id", here+".tool_use_id: it is missing")
			}
			if err := calls.result(b.ToolUseID, here); err != nil {
				return nil, err
			}
			text, err := blocksText(b.Content, here+".content")
			if err != nil {
				return nil, err
			}
			if b.IsError { // which no chat template has a place for
				text = tagged("error", nil, text)
			}
			out = append(out, Message{Role: "tool", Content: text, ToolCallID: b.ToolUseID,
				Name: nameOfCall(out, b.ToolUseID, "")})
		default:
			text, err := b.text(here)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
	}
	m.Content = strings.Join(texts, "\n")
	if m.Content == "" && m.Reasoning == "" && len(m.ToolCalls) == 0 && len(out) > 0 {
		return out, nil // results alone
	}
	return append(out, m), nil
}

// toolCall is the call of a tool_use.
func (b *block) toolCall(here string) (ToolCall, error) {
	if b.Name == "" || b.ID == "" {
		return ToolCall{}, badRequest(here, here+": tool_use needs id and name")
	}
	args := string(b.Input)
	if args == "" {
		args = "{}"
	}
	if args[0] != '{' {
		return ToolCall{}, badRequest(here+".input", here+".input: it must be an object")
	}
	return ToolCall{ID: b.ID, Name: b.Name, Arguments: args}, nil
}

// blocksText is the text of a content that is a text or blocks of what text can stand for.
func blocksText(raw json.RawMessage, at string) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return contentText(raw, at)
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return "", badRequest(at, at+": a string or an array of blocks is expected")
	}
	var texts []string
	for i := range blocks {
		text, err := blocks[i].text(fmt.Sprintf("%s.%d", at, i))
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

// text is what a model that reads text alone is told of a block.
func (b *block) text(here string) (string, error) {
	if b.Citations != nil && b.Citations.Enabled {
		return "", unsupported(here+".citations", here+".citations: this server gives none; leave them out")
	}
	switch b.Type {
	case "text":
		if b.Text == nil {
			return "", badRequest(here+".text", here+".text: it is missing")
		}
		return *b.Text, nil
	case "document":
		return b.document(here)
	case "search_result":
		var source string
		if json.Unmarshal(b.Source, &source) != nil || source == "" || b.Title == nil {
			return "", badRequest(here, here+": search_result needs source and title, which are texts")
		}
		if len(bytes.TrimSpace(b.Content)) == 0 || bytes.TrimSpace(b.Content)[0] != '[' {
			return "", badRequest(here+".content", here+".content: an array of blocks of text is expected")
		}
		text, err := blocksText(b.Content, here+".content")
		return tagged("search_result", [][2]string{{"source", source}, {"title", *b.Title}}, text), err
	case "image":
		return "", unsupported(here, fmt.Sprintf("%s: it is of type %s; this model reads text alone", here, b.Type))
	}
	return "", badRequest(here+".type", fmt.Sprintf("%s.type: there is no block %q", here, clip(b.Type, 50)))
}

// document is the text of a document of plain text.
func (b *block) document(here string) (string, error) {
	var source struct {
		Type    string          `json:"type"`
		Media   string          `json:"media_type"`
		Data    string          `json:"data"`
		Content json.RawMessage `json:"content"`
	}
	at := here + ".source"
	if json.Unmarshal(b.Source, &source) != nil || source.Type == "" {
		return "", badRequest(at, at+": an object with a type is expected")
	}
	var text string
	var err error
	switch source.Type {
	case "text":
		if source.Media != "text/plain" {
			return "", badRequest(at+".media_type", fmt.Sprintf("%s.media_type: it must be text/plain, it is %q", at,
				clip(source.Media, 50)))
		}
		text = source.Data
	case "content":
		text, err = blocksText(source.Content, at+".content")
	case "base64", "url", "file":
		return "", unsupported(at, fmt.Sprintf("%s: it is of type %s; this model reads documents of type text and content",
			at, source.Type))
	default:
		return "", badRequest(at+".type", fmt.Sprintf("%s.type: there is no source %q", at, clip(source.Type, 50)))
	}
	var lines [][2]string
	for _, l := range []struct {
		name  string
		value *string
	}{{"title", b.Title}, {"context", b.Context}} {
		if l.value != nil && *l.value != "" {
			lines = append(lines, [2]string{l.name, *l.value})
		}
	}
	return tagged("document", lines, text), err
}

// tagged writes a text between tags, behind lines that say what it is.
func tagged(name string, lines [][2]string, text string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<%s>\n", name)
	for _, l := range lines {
		fmt.Fprintf(&b, "<%s>%s</%s>\n", l[0], l[1], l[0])
	}
	fmt.Fprintf(&b, "%s\n</%s>", text, name)
	return b.String()
}
