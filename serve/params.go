// Fields that several protocols share, and what becomes of them.

package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// texts is a string or a list of them.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		if string(data) != "null" {
			*t = texts{one}
		}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return badRequest("stop", "a string or an array of strings is expected")
	}
	*t = many
	return nil
}

// samplingFields are OpenAI's and vLLM's.
type samplingFields struct {
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	TypicalP          *float64           `json:"typical_p"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`
	Stop              texts              `json:"stop"`
	StopTokenIDs      []int32            `json:"stop_token_ids"`
	N                 *int               `json:"n"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	MinTokens         *int               `json:"min_tokens"`
	IncludeStop       bool               `json:"include_stop_str_in_output"`
	SkipSpecial       *bool              `json:"skip_special_tokens"`
	Priority          int                `json:"priority"`
	CacheSalt         string             `json:"cache_salt"`
	Stream            bool               `json:"stream"`
	StreamOptions     *streamOptions     `json:"stream_options"`
	User              string             `json:"user"`
	structuredFields
}

type streamOptions struct {
	IncludeUsage    bool  `json:"include_usage"`
	ContinuousUsage bool  `json:"continuous_usage_stats"`
	Obfuscation     *bool `json:"include_obfuscation"` // nothing is padded here
}

// structuredFields are vLLM's ways to ask for a form, the older ones too, and llama-server's.
type structuredFields struct {
	Structured    *structured     `json:"structured_outputs"`
	GuidedJSON    json.RawMessage `json:"guided_json"`
	GuidedRegex   string          `json:"guided_regex"`
	GuidedChoice  []string        `json:"guided_choice"`
	GuidedGrammar string          `json:"guided_grammar"`
	JSONSchema    json.RawMessage `json:"json_schema"` // llama-server's
	Grammar       string          `json:"grammar"`     // llama-server's
}

type structured struct {
	JSON       json.RawMessage `json:"json"`
	Regex      string          `json:"regex"`
	Choice     []string        `json:"choice"`
	Grammar    string          `json:"grammar"`
	JSONObject bool            `json:"json_object"`
	Tag        json.RawMessage `json:"structural_tag"`
}

// responseFormat is OpenAI's way.
type responseFormat struct {
	Type       string          `json:"type"` // text, json_object, json_schema
	Schema     json.RawMessage `json:"schema"`
	JSONSchema *struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict *bool           `json:"strict"`
	} `json:"json_schema"`
}

// form is the constraint that is asked for, nil: none. The schema may lie beside the type, as llama-server has it.
func (r *responseFormat) form() (*Constraint, error) {
	if r == nil {
		return nil, nil
	}
	schema := r.Schema
	switch r.Type {
	case "", "text":
		if given(schema) || r.JSONSchema != nil {
			return nil, badRequest("response_format.type", "response_format.type must be json_schema for a schema")
		}
		if r.Type == "" {
			return nil, badRequest("response_format.type", "response_format.type is missing; it must be text, json_object "+
				"or json_schema")
		}
		return nil, nil
	case "json_object":
	case "json_schema":
		if j := r.JSONSchema; j != nil && j.Name != "" {
			schema = j.Schema
		} else if j != nil || !given(schema) {
			return nil, badRequest("response_format.json_schema",
				"response_format of type json_schema needs json_schema with name and schema")
		}
	default:
		return nil, badRequest("response_format.type", fmt.Sprintf(
			"response_format.type must be text, json_object or json_schema, it is %q", clip(r.Type, 50)))
	}
	if !given(schema) {
		return &Constraint{JSON: true}, nil
	}
	return &Constraint{Schema: schema}, nil
}

// checkTier refuses a service tier that the protocol does not have. There is one kind of service here: others are
// named as ignored.
func checkTier(h http.Header, tier string, known ...string) error {
	if tier == "" {
		return nil
	}
	if !slices.Contains(known, tier) {
		return badRequest("service_tier", fmt.Sprintf("service_tier must be one of %s, it is %q", strings.Join(known, ", "),
			clip(tier, 50)))
	}
	if !slices.Contains([]string{"auto", "default", "standard_only"}, tier) {
		addIgnored(h, "service_tier")
	}
	return nil
}

// openAITiers are OpenAI's.
var openAITiers = []string{"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"}

// within refuses a number outside its range.
func within(name string, v *float64, low, high, def float64) (float64, error) {
	if v == nil {
		return def, nil
	}
	if !(*v >= low && *v <= high) {
		top := fmt.Sprintf("between %v and %v", low, high)
		if math.IsInf(high, 1) {
			top = fmt.Sprintf("%v or more", low)
		}
		return 0, badRequest(name, fmt.Sprintf("%s must be %s, it is %v", name, top, *v))
	}
	return *v, nil
}

// sampling makes the model's sampling of the fields.
func (f *samplingFields) sampling(vocabulary int) (o Sampling, err error) {
	for _, x := range []struct {
		to             *float64
		name           string
		v              *float64
		low, high, def float64
	}{
		{&o.Temperature, "temperature", f.Temperature, 0, 2, 1},
		{&o.TopP, "top_p", f.TopP, 0, 1, 1},
		{&o.MinP, "min_p", f.MinP, 0, 1, 0},
		{&o.TypicalP, "typical_p", f.TypicalP, 0, 1, 0},
		{&o.FrequencyPenalty, "frequency_penalty", f.FrequencyPenalty, -2, 2, 0},
		{&o.PresencePenalty, "presence_penalty", f.PresencePenalty, -2, 2, 0},
		{&o.RepeatPenalty, "repetition_penalty", f.RepetitionPenalty, 0, math.Inf(1), 0},
	} {
		if *x.to, err = within(x.name, x.v, x.low, x.high, x.def); err != nil {
			return o, err
		}
	}
	if f.RepetitionPenalty != nil && *f.RepetitionPenalty == 0 {
		return o, badRequest("repetition_penalty", "repetition_penalty must be more than 0; 1 is none")
	}
	if f.TopK != nil && *f.TopK > 0 { // −1 and 0 are vLLM's words for all
		o.TopK = *f.TopK
	} else if f.TopK != nil && *f.TopK < -1 {
		return o, badRequest("top_k", fmt.Sprintf("top_k must be -1, 0 or more, it is %d", *f.TopK))
	}
	if f.TopP != nil && *f.TopP == 0 { // the fewest tokens are one; a model's 0 is all
		o.TopK = 1
	}
	for text, bias := range f.LogitBias {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 || int(id) >= vocabulary {
			return o, badRequest("logit_bias", fmt.Sprintf("logit_bias: %q is no token of this model, whose tokens are 0 to %d",
				clip(text, 50), vocabulary-1))
		}
		if !(bias >= -100 && bias <= 100) {
			return o, badRequest("logit_bias", fmt.Sprintf("logit_bias of %s must be between -100 and 100, it is %v", text,
				bias))
		}
		if o.LogitBias == nil {
			o.LogitBias = map[int32]float32{}
		}
		o.LogitBias[int32(id)] = float32(bias)
	}
	if f.Seed != nil {
		o.Seed = uint64(*f.Seed)
	} else {
		o.Seed = randomSeed()
	}
	return o, nil
}

// mostStops bounds stop strings, which are looked for at every token.
const mostStops, longestStop = 64, 1024

// fill puts the fields into a job.
func (f *samplingFields) fill(s *Server, j *job) (err error) {
	r := &j.request
	vocabulary := j.model.Text().Vocabulary()
	if r.Sampling, err = f.sampling(vocabulary); err != nil {
		return err
	}
	r.Choices = 1
	if f.N != nil {
		r.Choices = *f.N
	}
	if r.Choices < 1 || r.Choices > s.opt.MaxChoices {
		return badRequest("n", fmt.Sprintf("n must be between 1 and %d, it is %d", s.opt.MaxChoices, r.Choices))
	}
	if len(f.Stop) > mostStops {
		return badRequest("stop", fmt.Sprintf("at most %d stop strings may be given, there are %d", mostStops, len(f.Stop)))
	}
	for _, stop := range f.Stop {
		if stop == "" || len(stop) > longestStop {
			return badRequest("stop", fmt.Sprintf("a stop string must have between 1 and %d bytes, it has %d", longestStop,
				len(stop)))
		}
	}
	for _, id := range f.StopTokenIDs {
		if id < 0 || int(id) >= vocabulary {
			return badRequest("stop_token_ids", fmt.Sprintf("%d is no token of this model, whose tokens are 0 to %d", id,
				vocabulary-1))
		}
	}
	if f.MinTokens != nil {
		if r.MinTokens = *f.MinTokens; r.MinTokens < 0 {
			return badRequest("min_tokens", "min_tokens must be 0 or more")
		}
	}
	if f.StreamOptions != nil && !f.Stream {
		return badRequest("stream_options", "stream_options is only allowed when stream is true")
	}
	j.stops, j.stopIDs, j.showStop = f.Stop, f.StopTokenIDs, f.IncludeStop
	r.Ends = f.StopTokenIDs
	j.special = f.SkipSpecial != nil && !*f.SkipSpecial
	r.IgnoreEnd, r.Priority, r.Salt = f.IgnoreEOS, f.Priority, f.CacheSalt
	return nil
}

// bound is the most tokens of an answer, of what was asked for.
func (s *Server) bound(name string, asked *int, def int) (int, error) {
	n := def
	if asked != nil {
		if n = *asked; n < 1 {
			return 0, badRequest(name, fmt.Sprintf("%s must be 1 or more, it is %d", name, n))
		}
	}
	if most := s.opt.MaxTokens; most > 0 && (n == 0 || n > most) {
		if asked != nil {
			return 0, badRequest(name, fmt.Sprintf("%s may be %d at most on this server, it is %d", name, most, n))
		}
		n = most
	}
	return n, nil
}

// checkMin refuses a least number of tokens that is above the most.
func (j *job) checkMin() error {
	if r := &j.request; r.None && r.MinTokens > 0 {
		return badRequest("min_tokens", fmt.Sprintf("min_tokens is %d, and the answer may have no tokens", r.MinTokens))
	} else if r.Max > 0 && r.MinTokens > r.Max {
		return badRequest("min_tokens", fmt.Sprintf("min_tokens is %d, more than the %d tokens that the answer may have",
			r.MinTokens, r.Max))
	}
	return nil
}

// constraint finds the form that was asked for, nil: none.
func (f *structuredFields) constraint(format *responseFormat) (*Constraint, string, error) {
	var found []*Constraint
	param := ""
	add := func(name string, c *Constraint) {
		found, param = append(found, c), name
	}
	if c, err := format.form(); err != nil {
		return nil, "", err
	} else if c != nil {
		add("response_format", c)
	}
	st := f.Structured
	if st == nil {
		st = &structured{JSON: f.GuidedJSON, Regex: f.GuidedRegex, Choice: f.GuidedChoice, Grammar: f.GuidedGrammar}
	}
	name := func(field string) string {
		if f.Structured != nil {
			return "structured_outputs." + field
		}
		return "guided_" + field
	}
	if len(st.Tag) > 0 && string(st.Tag) != "null" {
		return nil, "", unsupported(name("structural_tag"), "structural tags are not supported; json, json_object, regex, "+
			"choice and grammar are")
	}
	if st.Choice != nil && len(st.Choice) == 0 {
		return nil, "", badRequest(name("choice"), name("choice")+" is empty")
	}
	if len(st.JSON) > 0 && string(st.JSON) != "null" {
		schema := st.JSON
		var text string
		if json.Unmarshal(schema, &text) == nil { // vLLM takes a schema as text too
			if schema = json.RawMessage(text); !json.Valid(schema) {
				return nil, "", badRequest(name("json"), name("json")+" is a text that is no JSON")
			}
		}
		add(name("json"), &Constraint{Schema: schema})
	}
	if st.JSONObject {
		add(name("json_object"), &Constraint{JSON: true})
	}
	if st.Regex != "" {
		add(name("regex"), &Constraint{Regex: st.Regex})
	}
	if len(st.Choice) > 0 {
		add(name("choice"), &Constraint{Choice: st.Choice})
	}
	if st.Grammar != "" {
		add(name("grammar"), &Constraint{Grammar: st.Grammar})
	}
	if given(f.JSONSchema) {
		add("json_schema", &Constraint{Schema: f.JSONSchema})
	}
	if f.Grammar != "" {
		add("grammar", &Constraint{Grammar: f.Grammar})
	}
	switch len(found) {
	case 0:
		return nil, "", nil
	case 1:
		return found[0], param, nil
	}
	return nil, "", badRequest(param, "the answer's form is asked for in several ways; one is possible")
}

// constrain puts a form into a job.
func (j *job) constrain(c *Constraint, param string) {
	if c != nil {
		own := *c
		j.form, j.param = &own, param
	}
}

// compile makes the masks of the job's form. A form that is only a wish is left out where it cannot be had: calls of
// tools that are not strict may be anything.
func (j *job) compile() error {
	if j.form == nil {
		return nil
	}
	mask, err := j.model.Constrain(*j.form)
	if err != nil && j.wish {
		return nil
	}
	if err != nil {
		e := *asError(err)
		if e.Status == 500 { // a schema that cannot be read
			e = *badRequest(j.param, err.Error())
		}
		e.Param = j.param
		return &e
	}
	j.request.Mask = mask
	return nil
}
