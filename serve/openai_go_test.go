//go:build clients

// OpenAI's client in Go takes as long to compile as this repository does: .ci/run asks for it, README's command does
// not.

package serve

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// The official Go client: chat, stream, tools in a loop, a schema, errors, leaving.
// In one piece: one client against one server.
func TestOpenAIGo(t *testing.T) {
	fake := newFake()
	_, h := testServer(t, fake)
	c := openai.NewClient(option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(0))
	ctx := context.Background()
	user := openai.UserMessage[string]
	params := func(m ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{Model: "fake", Messages: m}
	}
	a, err := c.Chat.Completions.New(ctx, params(user("say hello")))
	if err != nil || a.Choices[0].Message.Content != "hello" {
		t.Fatal(a, err)
	}

	stream := c.Chat.Completions.NewStreaming(ctx, params(user("say good day")))
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if stream.Err() != nil || acc.Choices[0].Message.Content != "good day" || acc.Choices[0].FinishReason != "stop" {
		t.Errorf("%v %+v", stream.Err(), acc.Choices)
	}

	p := params(user(`call weather {"city": "Rome"}`))
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
		shared.FunctionDefinitionParam{Name: "weather",
			Parameters: shared.FunctionParameters{"type": "object"}})}
	for turns := 0; ; turns++ {
		a, err = c.Chat.Completions.New(ctx, p)
		if err != nil || turns > 3 {
			t.Fatal(turns, err)
		}
		if a.Choices[0].FinishReason != "tool_calls" {
			break
		}
		p.Messages = append(p.Messages, a.Choices[0].Message.ToParam())
		for _, call := range a.Choices[0].Message.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage(call.Function.Name+call.Function.Arguments, call.ID))
		}
	}
	if got := a.Choices[0].Message.Content; got != `The tool said weather{"city": "Rome"}` {
		t.Errorf("%q", got)
	}

	p = params(user("a person"))
	p.ResponseFormat.OfJSONSchema =
		&shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name:   "person",
			Schema: map[string]any{"type": "object", "properties": map[string]any{"age": map[string]any{"type": "integer"}}}}}
	if a, err = c.Chat.Completions.New(ctx, p); err != nil || a.Choices[0].Message.Content != `{"age": 7}` {
		t.Error(a, err)
	}

	r, err := c.Responses.New(ctx, responses.ResponseNewParams{Model: "fake",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("say hi")}})
	if err != nil || r.OutputText() != "hi" {
		t.Error(r, err)
	}
	events := c.Responses.NewStreaming(ctx, responses.ResponseNewParams{Model: "fake",
		PreviousResponseID: openai.String(r.ID),
		Input:              responses.ResponseNewParamsInputUnion{OfString: openai.String("say more")}})
	text := ""
	for events.Next() {
		if e := events.Current(); e.Type == "response.output_text.delta" {
			text += e.Delta
		}
	}
	if events.Err() != nil || text != "more" {
		t.Error(text, events.Err())
	}

	var e *openai.Error
	if _, err = c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "none"}); !errors.As(err, &e) ||
		e.StatusCode != 404 || e.Code != "model_not_found" {
		t.Error(err)
	}
	if _, err = c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "fake",
		Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}}); !errors.As(err, &e) ||
		e.StatusCode != 400 {
		t.Error(err)
	}
	if m, err := c.Models.Get(ctx, "fake"); err != nil || m.OwnedBy != "greta" {
		t.Error(m, err)
	}

	fake.delay = 5 * time.Millisecond
	p = params(user("say something long that goes on and on and on and on"))
	p.MaxTokens = openai.Int(90000)
	p.SetExtraFields(map[string]any{"ignore_eos": true})
	stream = c.Chat.Completions.NewStreaming(ctx, p)
	for range 3 {
		stream.Next()
	}
	stream.Close()
	for i := 0; fake.running.Load() != 0; i++ {
		if i == 400 {
			t.Fatal("the model goes on though the client left")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The official Go client's conversations.
func TestOpenAIGoConversations(t *testing.T) {
	_, h := testServer(t, newFake())
	c := openai.NewClient(option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(0))
	ctx := context.Background()
	text := func(s string) responses.ResponseInputItemUnionParam {
		return responses.ResponseInputItemParamOfMessage(s, responses.EasyInputMessageRoleUser)
	}
	conv, err := c.Conversations.New(ctx, conversations.ConversationNewParams{Metadata: map[string]string{"k": "v"},
		Items: []responses.ResponseInputItemUnionParam{text("say none")}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Responses.New(ctx, responses.ResponseNewParams{Model: "fake",
		Conversation: responses.ResponseNewParamsConversationUnion{OfString: openai.String(conv.ID)},
		Input:        responses.ResponseNewParamsInputUnion{OfString: openai.String("say hi")}})
	if err != nil || r.OutputText() != "hi" || r.Conversation.ID != conv.ID {
		t.Fatal(r, err)
	}
	if _, err = c.Conversations.Items.New(ctx, conv.ID, conversations.ItemNewParams{
		Items: []responses.ResponseInputItemUnionParam{text("last")}}); err != nil {
		t.Fatal(err)
	}
	page := c.Conversations.Items.ListAutoPaging(ctx, conv.ID, conversations.ItemListParams{Limit: openai.Int(2),
		Order: "asc"})
	var got []string
	var ids []string
	for page.Next() {
		m := page.Current().AsMessage()
		got, ids = append(got, string(m.Role)+" "+m.Content[0].Text), append(ids, m.ID)
	}
	if want := "user say none|user say hi|assistant hi|user last"; page.Err() != nil || strings.Join(got, "|") != want {
		t.Fatal(got, page.Err())
	}
	item, err := c.Conversations.Items.Get(ctx, conv.ID, ids[2], conversations.ItemGetParams{})
	if err != nil || item.ID != ids[2] {
		t.Error(item, err)
	}
	if _, err = c.Conversations.Items.Delete(ctx, conv.ID, ids[2]); err != nil {
		t.Error(err)
	}
	changed, err := c.Conversations.Update(ctx, conv.ID, conversations.ConversationUpdateParams{
		Metadata: map[string]string{"k": "w"}})
	if err != nil || !strings.Contains(changed.RawJSON(), `"w"`) {
		t.Error(changed, err)
	}
	if one, err := c.Conversations.Get(ctx, conv.ID); err != nil || !strings.Contains(one.RawJSON(), `"w"`) {
		t.Error(one, err)
	}
	if gone, err := c.Conversations.Delete(ctx, conv.ID); err != nil || !gone.Deleted {
		t.Error(gone, err)
	}
}
