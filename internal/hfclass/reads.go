package hfclass

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/internal/unpack"
)

// packed is reads.txt, the table of what classes read, whose first lines say how: a third of its size.
//
//go:embed reads.txt.gz
var packed string

var readsText = sync.OnceValue(func() string { return unpack.Text("reads.txt.gz", packed) })

// line gives what stands in the table behind a line's first words; nil: there is no such line.
func line(first string) []string {
	_, rest, _ := strings.Cut(readsText(), "\n"+first+" ")
	text, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(text)
}

// Words are those that a list of one for each layer may have under a key of config.json: any class refuses others, also
// one that does not read the list. nil: no such list.
func Words(key string) []string { return line("= " + key) }

// Forms are the keys of config.json that are a list, and those that are an object, in any class that has them.
func Forms() (lists, objects []string) { return line("= lists"), line("= objects") }

// Known says whether the table has a model_type, and Lacks whether it names it as one that transformers lacks.
func Known(modelType string) bool { return len(line(modelType)) > 0 }

// Lacks is said with Known.
func Lacks(modelType string) bool { return slices.Contains(line("= others"), modelType) }

// Unread are the keys of config.json that a class does not read, of those that the table tells apart. nil: none.
type Unread map[string]bool

// said gives what the table says of a model_type; nil where it does not have it. What is false is not said: a line has
// taken it away that counts before the one that has it.
func said(modelType string) map[string]bool {
	read := map[string]bool{}
	at := modelType
	for at != "." {
		words := line(at)
		if len(words) == 0 {
			return nil
		}
		for _, word := range words[1:] {
			k, minus := strings.CutPrefix(word, "-")
			if _, said := read[k]; !said {
				read[k] = !minus
			}
		}
		at = words[0]
	}
	return read
}

// UnreadBy gives those of the class of a model_type; nil where the table does not have it.
func UnreadBy(modelType string) Unread {
	read := said(modelType)
	if read == nil {
		return nil
	}
	_, text, _ := strings.Cut(readsText(), "\n= none ")
	unread := Unread{}
	for _, word := range strings.Fields(text) {
		if k := strings.TrimPrefix(word, "-"); !read[k] {
			unread[k] = true
		}
	}
	return unread
}

// Inside is the object of the language model in the config.json of a model of several modalities.
const Inside = "text_config."

// Own gives a key of a config.json as the language model has it: its own in a model of several modalities, else the
// whole model's, where its class hands that on.
func Own(meta func(key string) (any, bool), key string) (any, bool) {
	if v, ok := meta(Inside + key); ok {
		return v, true
	}
	if first, _, _ := strings.Cut(key, "."); !slices.Contains(whole, first) && apart(meta) {
		return nil, false
	}
	return meta(key)
}

// whole are the keys that stand for all parts of a model of several modalities.
var whole = []string{"model_type", "architectures", "auto_map", "text_config", "vocab_size", "tie_word_embeddings",
	"num_nextn_predict_layers", "num_mtp_layers", "sentence_transformers", "sbert_ce_default_activation_function",
	"quantization_config"}

// apart says whether the class for a config.json has the language model made of its own object alone: what stands
// beside that under the same words is then of other parts (a window of sound, a head's width of pictures). It is so in
// every class of transformers that has such an object; of others nothing is known.
func apart(meta func(key string) (any, bool)) bool {
	kind, _ := meta(Inside + "model_type")
	inner, is := kind.(string)
	if !is {
		return false
	}
	kind, _ = meta("model_type")
	outer, _ := kind.(string)
	if inner == outer || !known(inner) || !known(outer) {
		return false
	}
	own, _ := types(meta)
	return own != ""
}

var knownTypes sync.Map // of strings: whether the table has them

// known is Known, asked for each key of each layer.
func known(modelType string) bool {
	if is, ok := knownTypes.Load(modelType); ok {
		return is.(bool)
	}
	is := Known(modelType)
	knownTypes.Store(modelType, is)
	return is
}

// Anywhere gives a key of a config.json, or where it has none the language model's own.
func Anywhere(meta func(key string) (any, bool), key string) (any, bool) {
	if v, ok := meta(key); ok {
		return v, true
	}
	return meta(Inside + key)
}

// lacking are the architectures that transformers has no class for.
var lacking = sync.OnceValue(func() []string { return line("= classes") })

// types gives the model_types of a config.json: the language model's own, and that of all; none where the folder
// brings a class of its own.
func types(meta func(key string) (any, bool)) (own, all string) {
	for _, class := range []string{"AutoConfig", "AutoModel", "AutoModelForCausalLM"} {
		if _, ok := meta("auto_map." + class); ok {
			return "", ""
		}
	}
	archs, _ := meta("architectures")
	list, _ := archs.([]string)
	for _, class := range list {
		if slices.Contains(lacking(), class) {
			return "", ""
		}
	}
	kind, _ := meta("model_type")
	all, _ = kind.(string)
	if kind, ok := meta(Inside + "model_type"); ok {
		own, _ = kind.(string)
		return own, all
	}
	return all, all
}

// UnreadOf gives those of the class for a config.json; nil where nothing is known of it: where the folder brings a
// class of its own, or the table does not have its model_type. The class of a model of several modalities may read what
// stands in the language model's own object.
func UnreadOf(meta func(key string) (any, bool)) Unread {
	own, all := types(meta)
	unread := UnreadBy(own)
	if own != all && unread != nil {
		other := UnreadBy(all)
		maps.DeleteFunc(unread, func(key string, _ bool) bool { return !other[key] })
	}
	if unread != nil && slices.Contains(line("= nests"), own) {
		unread[turn+".*"] = true
	}
	return unread
}

// Without gives the parts that the class for a config.json does not have, each with the key by which the class would
// have it, "" where there is none: a bias by its name, as "q_proj.bias", a module as "q_norm.".
func Without(meta func(key string) (any, bool)) map[string]string {
	own, _ := types(meta)
	without := map[string]string{}
	for word, is := range said(own) {
		part, key, ok := strings.Cut(word, "=")
		if !ok || !is {
			continue
		}
		key, usual := strings.CutSuffix(key, "+")
		v, there := Own(meta, key)
		if there && (v == false || v == int64(0)) || !there && !usual {
			without[part] = key
		}
	}
	return without
}

// turn is the object that says how positions turn heads: for all layers, or in objects for each kind of them.
const turn = "rope_parameters"

// Has says whether a dotted key is one of them, or stands in an object that is, or in that for all kinds of layers
// where the class reads those for each kind alone.
func (u Unread) Has(key string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(key, Inside), ".")
	second, _, deep := strings.Cut(rest, ".")
	return u[first] || u[first+"."+second] ||
		rest != "" && !deep && u[first+".*"] && !slices.Contains(Words("layer_types"), rest)
}
