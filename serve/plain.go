// The plainest chat: for models that were trained on texts and not on conversations.

package serve

import (
	"errors"
	"strings"
)

// PlainChat writes a conversation as its texts, a line each; the answer goes on behind them.
type PlainChat struct{}

// Prompt joins the texts.
func (PlainChat) Prompt(messages []Message, o ChatOptions) (string, error) {
	var b strings.Builder
	for i, m := range messages {
		if m.Role == "tool" || len(m.ToolCalls) > 0 {
			return "", errors.New("plain conversations have no tools")
		}
		b.WriteString(m.Content)
		if i < len(messages)-1 || !o.Continue && m.Role == "assistant" {
			b.WriteByte('\n')
		}
	}
	return b.String(), nil
}

// HasBOS says no: texts are not looked into.
func (PlainChat) HasBOS(string) bool { return false }

// Sees says no.
func (PlainChat) Sees(string) bool { return false }

// Parser gives the text as it is.
func (PlainChat) Parser(string, ChatOptions) Parser { return plainParser{} }

// Tools and Reasoning are not known to plain texts.
func (PlainChat) Tools() bool { return false }

// Reasoning says no.
func (PlainChat) Reasoning() bool { return false }

// ToolMask refuses.
func (PlainChat) ToolMask([]Tool, bool, bool) (Constraint, error) {
	return Constraint{}, errors.New("plain conversations have no tools")
}

// ThoughtsEnd says that there are none.
func (PlainChat) ThoughtsEnd(string, ChatOptions) string { return "" }

type plainParser struct{}

func (plainParser) Write(text string) []Part { return []Part{{Text: text}} }
func (plainParser) End() []Part              { return nil }
