package models

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema gives the JSON schema of model files, which editors read by the first
// line of each. It says what stands where; the reader alone knows expressions.
func Schema() []byte {
	data, err := json.MarshalIndent(schema(), "", "  ")
	if err != nil {
		panic("models.Schema: " + err.Error()) // a mistake in this file
	}
	return append(data, '\n')
}

// schema is what a model file may hold.
// It is in one piece: one literal that shows what stands where.
func schema() *jsonschema.Schema {
	type S = jsonschema.Schema
	name := &S{Type: "string", Pattern: "^[A-Za-z_][A-Za-z0-9_]*$"}
	names := &S{Type: "string", Pattern: "^[A-Za-z_][A-Za-z0-9_]*( *, *[A-Za-z_][A-Za-z0-9_]*)*$"}
	never := &S{Not: &S{}}
	str := func(doc string) *S { return &S{Type: "string", Description: doc} }
	expr := func(doc string) *S { return &S{Types: []string{"string", "number", "boolean"}, Description: doc} }
	list := func(doc string) *S {
		one := 1
		return &S{Description: doc, AnyOf: []*S{{Type: "string"}, {Type: "array", Items: &S{Type: "string"}, MinItems: &one}}}
	}
	object := func(doc string, order []string, required []string, props map[string]*S) *S {
		return &S{Type: "object", Description: doc, Properties: props, PropertyOrder: order, Required: required,
			AdditionalProperties: never}
	}
	mapping := func(doc string, keys, values *S) *S {
		return &S{Type: "object", Description: doc, PropertyNames: keys, AdditionalProperties: values}
	}
	one, eight := 1, maxDims
	param := &S{AnyOf: []*S{
		expr("an expression over other parameters, and i, the number of the block, where values differ by it"),
		object("read from the weights' metadata", paramKeys, nil, map[string]*S{
			"gguf": str(
				"key of GGUF's metadata; alternatives are divided by |; .$i at the end: the block's element of a list"),
			"hf":     str("dotted key of config.json; alternatives are divided by |"),
			"from":   str("the weight whose own shape says it where the metadata do not"),
			"is":     expr("the value where nothing else says it"),
			"none":   expr("the value where config.json says null, which otherwise means that the key is absent"),
			"among":  expr("the list of which the metadata's value, or each element of it, must be one"),
			"length": expr("how many elements a list of the metadata must have: a number, or a list of numbers"),
		}),
	}}
	weight := object("a tensor of the weights", []string{"shape", "gguf", "hf", "if", "numbers", "optional"},
		[]string{"shape"}, map[string]*S{
			"shape": {Type: "array", Items: expr("a size"), MinItems: &one, MaxItems: &eight,
				Description: "sizes, slowest-varying first; a matrix is [out, in]"},
			"gguf": str("name in GGUF files: a | b: the first present; +1: add one; .T: transposed; $i: block; $e: a " +
				"tensor per expert; /name: without the pattern"),
			"hf":       str("name in safetensors, as for gguf"),
			"if":       expr("a condition without which the weight is absent"),
			"numbers":  str("a list of its elements, where no tensor holds them"),
			"optional": {Type: "boolean", Description: "the weights may lack it; the operand is then left out"},
		})
	held := &S{Type: "string", Pattern: `^(float|f32) *\[.*\]$`}
	state := &S{AnyOf: []*S{held, object("another block's state", []string{"shape", "of"}, []string{"shape"},
		map[string]*S{
			"shape": held,
			"of":    expr("the number of the block whose state it is"),
		})}}
	s := object("A network, or a block of one, as equations.",
		fileKeys, nil, map[string]*S{
			"model": str("the file defines a model of this name"),
			"block": str("the file defines a block of this name, which can be run alone"),
			"part":  str("the file has parameters and weights for others, which name it under use:"),
			"use":   list("files whose parameters, conditions and weights this one takes over"),
			"match": object("which weights this file is for", []string{"gguf", "has", "hf"}, nil, map[string]*S{
				"gguf": list("general.architecture"),
				"has":  list("keys that GGUF's metadata must have"),
				"hf":   list("one of config.json's architectures, or its model_type"),
			}),
			"task":   taskSchema(),
			"text":   mapping("what a verb must know of texts and results", taskTexts(), expr("an expression")),
			"ignore": list("tensors of the weights that the file knows and does not read; * stands for any part of a name"),
			"in": mapping("inputs of one step: type[dims]; S is the number of tokens, C the context length, R the rows "+
				"of logits wanted", name, &S{Type: "string", Pattern: `^(i32|float) *\[.*\]$`}),
			"params":  mapping("numbers and words", name, param),
			"require": {Type: "array", Items: expr("a condition"), Description: "conditions on parameters that this file needs"},
			"names": object("patterns of weight names: $i is the number of the block, * the name given below",
				[]string{"gguf", "hf"}, nil, map[string]*S{"gguf": str("pattern in GGUF files"),
					"hf": str("pattern in safetensors")}),
			"weights": mapping("the weights", name, weight),
			"state":   mapping("what survives from step to step", name, state),
			"body":    mapping("the equations, in the order in which they run", names, str("an equation")),
			"out":     {AnyOf: []*S{names, {Type: "array", Items: name, MinItems: &one}}, Description: "the result or results"},
			"kernels": mapping("kernels of one's own for operators (docs/custom-kernels.md)", name, &S{AnyOf: []*S{
				kernelSchema(), list("use: files with kernels: beside this one")}}),
		})
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "greta model file"
	s.OneOf = []*S{{Required: []string{"model", "body", "out"}}, {Required: []string{"block", "body", "out"}},
		{Required: []string{"part"}, Not: &S{Required: []string{"body"}}}}
	return s
}

// kernelSchema is that of a kernel of one's own.
func kernelSchema() *jsonschema.Schema {
	type S = jsonschema.Schema
	str := func(doc string) *S { return &S{Type: "string", Description: doc} }
	expr := func(doc string) *S { return &S{Types: []string{"string", "number", "boolean"}, Description: doc} }
	exprs := func(doc string) *S {
		return &S{Description: doc, AnyOf: []*S{expr(""), {Type: "array", Items: expr("")}}}
	}
	return &S{Type: "object", Description: "source or binary for an operator", AdditionalProperties: &S{Not: &S{}},
		PropertyOrder: kernelKeys, Required: []string{"op", "source", "args", "grid"}, Properties: map[string]*S{
			"op":       str("the operator that it computes"),
			"equation": str("only for the result of this name, as greta dump --stage plan prints it"),
			"source":   str("file beside this one: .hip, .cubin, .hsaco, .comp or .spv; $NAME is a constant's value"),
			"entry":    str("the function; default: the kernel's name"),
			"arch":     str("the architecture that a binary is for: sm_90, gfx942"),
			"when":     expr("a condition on the operator's sizes without which greta's own is used"),
			"types":    {Type: "object", Description: "types of operands that it takes; f32 where nothing is said"},
			"args":     exprs("operands by name, numbers as i32(…), u32(…), i64(…), u64(…), f32(…), and null"),
			"grid":     exprs("blocks (workgroups) along x, y, z"),
			"block":    exprs("threads of a block along x, y, z"),
			"shared":   expr("bytes of dynamic shared memory"),
			"constants": {Type: "object",
				Description: "whole numbers that it is compiled with; of a list each value is tried"},
			"tiles": {Type: "object",
				Description: "operands that lie in tiles of [rows, columns], packed once when weights are loaded"},
			"tolerance": {Type: "number", Description: "relative error that its results may have; default: as f32"},
			"always":    {Type: "boolean", Description: "use it also where greta's own is faster"},
		}}
}

func taskSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{Embed, Score},
		Description: "what the results are, where they are " +
			"no logits of a next token: a vector of each text, or its score"}
}

// taskTexts are the names under text:.
func taskTexts() *jsonschema.Schema {
	names := &jsonschema.Schema{}
	for _, name := range saids {
		names.Enum = append(names.Enum, name)
	}
	return names
}
