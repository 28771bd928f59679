// Models and tokens.

package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// each calls f for 0 to n−1 at once.
func each(n int, f func(int)) {
	if n == 1 {
		f(0)
		return
	}
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() { f(i) })
	}
	g.Wait()
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	list := s.models.list(rs.key.allows)
	if rs.proto == anthropic {
		for i := range list {
			list[i] = list[i].anthropic()
		}
	}
	return listPage(w, r, list)
}

func (s *Server) getModel(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	name := r.PathValue("model")
	for _, m := range s.models.list(rs.key.allows) {
		if m.ID == name {
			if rs.proto == anthropic {
				m = m.anthropic()
			}
			writeJSON(w, 200, m)
			return nil
		}
	}
	return s.models.noModel(name, rs.key)
}

// tokenizeRequest is vLLM's: a prompt or a conversation.
type tokenizeRequest struct {
	Model     string                     `json:"model"`
	Prompt    *string                    `json:"prompt"`
	Messages  []chatMessage              `json:"messages"`
	AddBOS    *bool                      `json:"add_special_tokens"`
	Pieces    bool                       `json:"return_token_strs"`
	AddPrompt *bool                      `json:"add_generation_prompt"`
	GoOn      bool                       `json:"continue_final_message"`
	Variables map[string]json.RawMessage `json:"chat_template_kwargs"`
	Tools     []chatTool                 `json:"tools"`
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q tokenizeRequest
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	var ids []int32
	switch {
	case q.Prompt != nil && q.Messages != nil:
		return badRequest("prompt", "prompt and messages exclude each other")
	case q.Prompt != nil:
		if ids, err = model.Text().Encode(*q.Prompt, q.AddBOS == nil || *q.AddBOS, true); err != nil {
			return badRequest("prompt", err.Error())
		}
	case q.Messages == nil:
		return badRequest("prompt", "prompt, or messages, is missing")
	default:
		messages, err := s.conversation(q.Messages)
		if err != nil {
			return err
		}
		tools, err := chatTools(q.Tools)
		if err != nil {
			return err
		}
		t := turn{messages: messages, tools: tools, choice: choice{mode: "auto"}, goOn: q.GoOn, vars: q.Variables,
			noPrompt: q.AddPrompt != nil && !*q.AddPrompt, addBOS: q.AddBOS != nil && *q.AddBOS}
		if q.GoOn && messages[len(messages)-1].Role != "assistant" {
			return badRequest("continue_final_message", "the last message is not the assistant's")
		}
		if q.GoOn && q.AddPrompt != nil && *q.AddPrompt {
			return badRequest("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
		}
		j := &job{model: model, name: rs.model}
		if err := j.prompt(t); err != nil {
			return err
		}
		ids = j.request.Prompt
	}
	if ids == nil {
		ids = []int32{}
	}
	out := struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int32  `json:"tokens"`
		Pieces  []string `json:"token_strs"`
	}{Count: len(ids), Context: model.Info().Context, Tokens: ids}
	if q.Pieces {
		for _, id := range ids {
			out.Pieces = append(out.Pieces, model.Text().Piece(id))
		}
	}
	writeJSON(w, 200, out)
	return nil
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q struct {
		Model  string          `json:"model"`
		Tokens json.RawMessage `json:"tokens"`
	}
	model, release, err := s.read(w, r, rs, &q, &q.Model)
	if err != nil {
		return err
	}
	defer release()
	if len(q.Tokens) == 0 || string(q.Tokens) == "null" {
		return badRequest("tokens", "tokens is missing")
	}
	ids, ok := tokenIDs(q.Tokens)
	if !ok {
		return badRequest("tokens", "tokens must be an array of integers")
	}
	if err := checkIDs("tokens", ids, model.Text().Vocabulary()); err != nil {
		return err
	}
	writeJSON(w, 200, map[string]string{"prompt": whole(model.Text(), ids)})
	return nil
}

// whole is the text of ids with that of control tokens, which Decode leaves out.
func whole(text Tokens, ids []int32) string {
	var b strings.Builder
	d := text.Decoder(nil)
	for _, id := range ids {
		if text.Control(id) {
			b.WriteString(d.Flush() + text.Piece(id))
		} else {
			b.WriteString(d.Write(id))
		}
	}
	return b.String() + d.Flush()
}
