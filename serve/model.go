// Package serve gives models to others over HTTP: the protocols that clients know, a page for a
// browser, keys, limits and metrics. It knows no device and no kernel: a model is what Model says.
//
// This file holds the seam: what the protocols need of a model. SessionModel runs one on sessions of
// the engine; tests have a model of their own.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/greta-project/greta/chat/parse"
	"github.com/greta-project/greta/engine"
)

// Model is a model that answers. Its methods may be called from several goroutines at once.
type Model interface {
	Info() Info
	Text() Tokens
	// Chat turns conversations into prompts, nil where the model has no chat template.
	Chat() Chat
	// Constrain makes what builds masks for one answer each, or says by *Unsupported what it cannot honour.
	Constrain(Constraint) (func() (Mask, error), error)
	// Generate begins an answer. When ctx ends, it ends. Errors are *TooLong, *Full, *Unsupported
	// or the device's.
	Generate(ctx context.Context, r Request) (Answer, error)
	Stats() Stats
	Close() error
}

// Info is what a model says of itself.
type Info struct {
	Name    string    // as it was loaded; what clients call it is the server's business
	Root    string    // path of the weights
	Device  string    // where it runs
	Context int       // positions at most, prompt and answer together
	Rows    int       // sequences that run beside each other
	Created time.Time // when it was loaded
	Cache   string    // type of the caches
}

// Tokens turns text into tokens and back.
type Tokens interface {
	// Encode gives the ids of text; special reads control tokens that are written in it, bos puts the begin
	// token before it where the model was trained so.
	Encode(text string, bos, special bool) ([]int32, error)
	// EncodeChat gives the ids of what a chat template wrote, which has the begin token in it where the model wants one.
	EncodeChat(text string) ([]int32, error)
	Decode(ids []int32) string
	// Decoder begins a stream behind the prompt's ids.
	Decoder(prompt []int32) Decoder
	// Piece is what a token looks like, alone: the text of it, also of control tokens.
	Piece(id int32) string
	Control(id int32) bool
	End(id int32) bool
	Ends() []int32
	Vocabulary() int
}

// Decoder gives the text of a stream of ids without splitting a character.
type Decoder interface {
	Write(id int32) string
	Flush() string
}

// Message is one of a conversation's.
type Message struct {
	Role       string // system, developer, user, assistant, tool
	Content    string
	Reasoning  string // of an assistant, where the client sent it back
	Name       string
	ToolCalls  []ToolCall
	ToolCallID string // of a tool's result
}

// ToolCall is a call that an answer asks for.
type ToolCall struct {
	ID, Name  string
	Arguments string // JSON, as the model wrote it
}

// Tool is a function that may be called.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // a JSON schema, nil: no arguments
	Strict            bool
}

// ChatOptions are what a prompt is made with.
type ChatOptions struct {
	Tools     []Tool
	Effort    string // of reasoning: none, minimal, low, medium, high, or someEffort; "" as the template has it
	Continue  bool   // go on with the last message, which is the assistant's
	NoPrompt  bool   // end behind the last message, and not where an answer begins
	Form      bool   // the answer is of a form that is no call of a tool
	Variables map[string]json.RawMessage
}

// Chat is a model's way to write conversations.
type Chat interface {
	// Prompt renders a conversation; an error is the template's refusal.
	Prompt(messages []Message, o ChatOptions) (string, error)
	// Sees says whether a control token's text is one that the parser must see; others are left out.
	Sees(token string) bool
	// Parser reads an answer to a prompt that Prompt gave.
	Parser(prompt string, o ChatOptions) Parser
	// Tools says whether calls of tools can be written and read; Reasoning the same of thoughts.
	Tools() bool
	Reasoning() bool
	// ToolMask is the form of calls of these tools. must: the answer calls one; several: it may call more than one.
	ToolMask(tools []Tool, must, several bool) (Constraint, error)
	// Thoughts are the tags between which an answer to that prompt may think before what is constrained: the first is
	// empty where the prompt began the thoughts, both where there are none.
	Thoughts(prompt string, o ChatOptions) [2]string
}

// Parser divides an answer's text as it comes.
type Parser interface {
	Write(text string) []Part
	// End gives what was held back.
	End() []Part
}

// Part is a piece of an answer. One of its fields is set; a call's name comes before its arguments.
type Part struct {
	Text, Reasoning string
	Call            *CallPart
}

// CallPart is a piece of a call: the first has its name, the others more of its arguments.
type CallPart struct {
	Index           int
	Name, Arguments string
}

// Constraint says what a text must be. One field is set.
type Constraint struct {
	Schema  json.RawMessage // JSON of this schema
	JSON    bool            // any JSON object
	Regex   string
	Choice  []string // one of these
	Grammar string   // GBNF
	Calls   *CallForm
	// Thoughts are the tags of what may come before: a reasoning model thinks until the second. Where the first is empty
	// it is within thoughts from the beginning, otherwise it may begin by that tag, and by nothing else.
	Thoughts [2]string
}

// CallForm is the form of calls of tools in a text that is free otherwise.
type CallForm struct {
	Shapes     []CallShape // the ways to write one; where one's Open is "", the answer is a call
	Must, Once bool        // there must be one, there may be no more

	Group [2]string // what begins and ends all calls that follow each other

	// Else is the form of an answer that is no call; nil: any text. Where it is set or a call is a must, a call has no
	// text beside it but Between, and thoughts before the first one where they are between the tags of Lead.
	Else    *Constraint
	Lead    [2]string
	Between []string

	// NotInText and NotInThoughts are what would be read as a call's beginning and is none of Shapes'.
	NotInText, NotInThoughts []string
}

// CallShape is a way to write a call.
type CallShape struct {
	Open, Close string          // texts around it
	Schema      json.RawMessage // of what stands between them
	Params      *parse.Params   // how arguments are tagged there; nil: JSON
	Python      *parse.Python   // the functions of a list of calls in Python, instead of Schema
}

// Mask says which tokens may come next. engine and grammar mean the same by it.
type Mask interface {
	Allowed(bits []uint32) error
	Accept(token int32) error
	Forced() []int32
}

// Sampling says how a token is chosen. Filters apply as engine.Sampling has them.
type Sampling struct {
	Temperature      float64
	TopK             int
	TopP, MinP       float64
	TypicalP         float64
	RepeatPenalty    float64
	FrequencyPenalty float64
	PresencePenalty  float64
	LogitBias        map[int32]float32
	Seed             uint64
}

// Request is one prompt with what is wanted of it.
type Request struct {
	Prompt    []int32
	Max       int  // tokens at most of each answer
	None      bool // an answer has none: the prompt alone is read
	Choices   int  // answers
	Sampling  Sampling
	IgnoreEnd bool
	MinTokens int     // no end before, unless Mask has nothing else
	Ends      []int32 // tokens that end an answer for who reads it, beside the model's
	Logprobs  int     // 0: none; n: of the chosen one and the n best, n counted from 1; -1: of the chosen one alone
	OfPrompt  bool    // those of the prompt's tokens too: the answer is Thoughtful
	Mask      func() (Mask, error)
	Key       string // whom to be fair to
	Priority  int    // lower first
	Adapter   string
	Salt      string // prefixes are shared among equal salts alone
}

// Token is one of an answer.
type Token struct {
	Choice  int
	ID      int32
	Logprob float32
	Top     []TokenLogprob
}

// TokenLogprob is a token that could have come.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

// Answer is an answer that is being made.
type Answer interface {
	Tokens() iter.Seq2[Token, error]
	// Result is valid when Tokens has ended.
	Result() Result
	Cancel()
}

// Thoughtful is an answer that knows the log-probabilities of its prompt, of the tokens behind the first, from the
// answer's first token on.
type Thoughtful interface{ Prompt() []Token }

// Result is what an answer took.
type Result struct {
	Prompt, Cached         int
	Stops                  []string // of each choice: stop, length, or empty
	Queue, Prefill, Decode time.Duration
}

// Stats is a model's state.
type Stats struct {
	Running, Waiting int
	WaitingBy        map[string]int // reason → requests
	PagesUsed, Pages int
	Swapped          int
	PrefixQueries    uint64 // tokens
	PrefixHits       uint64
	Preemptions      uint64
	Steps, StepRows  uint64                // steps done and their rows in all
	LastRows         int                   // rows of the last step
	StepSizes        map[float64]uint64    // rows at most → steps, cumulative, of a histogram; may be nil
	StepTimes        map[int]time.Duration // rows at most → what the device takes for a step of them; may be nil
	Recomputed       uint64                // tokens, behind preemptions
	Drafts, Drafted  uint64
	Accepted         uint64
	AcceptedAt       []int // by the place in a draft
	// Adapters that a request may name, and of which requests run and wait. None: the model has no adapters.
	Adapters, AdaptersRunning, AdaptersWaiting []string
	CacheType                                  string
	PageSize                                   int
}

// TooLong says that a prompt or an answer does not fit.
type TooLong struct{ Prompt, Max, Context int }

func (t *TooLong) Error() string {
	if t.Prompt >= t.Context {
		return fmt.Sprintf("the prompt has %d tokens, this model's maximum context length is %d tokens, "+
			"one of which at least is the answer's; shorten the prompt", t.Prompt, t.Context)
	}
	return fmt.Sprintf("the prompt's %d tokens and %d of the answer are more than this model's maximum context length of "+
		"%d tokens; shorten the prompt or ask for fewer", t.Prompt, t.Max, t.Context)
}

// Full says that too many requests wait.
type Full struct {
	Waiting, Most int
	After         time.Duration // when to come again
}

func (f *Full) Error() string {
	return fmt.Sprintf("%d requests wait already, %d may; try again in %v", f.Waiting, f.Most, f.After)
}

// Unsupported says what a model cannot do. Param is the request's field.
type Unsupported struct{ Param, What string }

func (u *Unsupported) Error() string { return u.What }

// ErrDevice marks errors of a device that is lost: the server answers 503 until the model is loaded anew.
var ErrDevice = engine.ErrDevice
