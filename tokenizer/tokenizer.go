// Package tokenizer turns text into token ids and back, as the tools that
// trained each model do: SentencePiece BPE and Unigram, byte-level BPE, WordPiece, and
// llama2.c's greedy BPE, from SentencePiece models, GGUF metadata, Hugging Face
// folders and llama2.c files.
package tokenizer

import (
	"fmt"
	"slices"
)

// Kind says what a token is. The values are those of SentencePiece and GGUF.
type Kind uint8

const (
	Normal      Kind = 1
	Unknown     Kind = 2 // stands for text that the vocabulary cannot spell
	Control     Kind = 3 // <s>, <|im_end|>: written only on request, never shown
	UserDefined Kind = 4 // always matched whole in text
	Unused      Kind = 5
	Byte        Kind = 6 // "<0x0A>": one byte
)

// None is the id of a special token that a vocabulary lacks.
const None int32 = -1

// Options say how Encode treats one text.
type Options struct {
	AddBOS, AddEOS bool // put the begin and end tokens around the ids, where the vocabulary has them
	// ParseSpecial reads control tokens written in the text ("<|im_start|>")
	// as those tokens. Without it they are spelt out like any text, which is
	// what text from strangers needs.
	ParseSpecial bool
}

// Tokenizer is a vocabulary with its algorithm. It does not change after it is
// loaded: all methods may be called from several goroutines at once.
type Tokenizer struct {
	pieces []piece
	output []string // what each id adds to decoded text
	ids    map[string]int32
	model  model
	lead   leading
	chain  *hfChain  // the decoder of a tokenizer.json, which says what lead does of others
	lossy  bool      // what is no UTF-8 becomes one U+FFFD for as much as may have begun a character, not for a byte
	split  *splitter // tokens matched whole: control and user-defined
	user   *splitter // user-defined alone; nil where the model matches them itself
	normed *splitter // added tokens that are matched in normalized text

	bos, eos, eot, unk, pad int32
	addBOS, addEOS          bool
	around                  *[2]int32 // what a tokenizer.json puts before and after texts, or None; nil: bos and eos
	behind                  []int32   // what comes behind the token after a text: a language's
	end                     map[int32]bool
	pairs                   []pairItem // how two texts are read as one; none: they are not

	origin export
}

// piece is one entry of the vocabulary.
type piece struct {
	text  string // as the model file has it
	score float32
	kind  Kind
	addedFlags
}

// addedFlags say how an added token is matched in text, in Hugging Face's terms.
type addedFlags struct {
	added          bool // matched whole, whatever its kind
	lstrip, rstrip bool // swallow whitespace on that side
	single         bool // not next to a letter, digit, mark or connector
	normalized     bool // matched after normalization, by its normalized text
	outside        bool // not in the model's own vocabulary: never spelt by it
}

// model encodes text that holds no special token: normalize comes first, and
// added tokens may be cut out between the two. first says that text starts at
// the beginning of the whole text; otherwise it follows a special token. lead is how many
// bytes go back to the whole text's first character; of text that follows none do.
// special says that control tokens may be spelt, where the format has them among its pieces.
type model interface {
	normalize(text string, first bool) (normal string, lead int, err error)
	encode(dst []int32, text string, lead int, special bool) ([]int32, error)
}

// finish derives what follows from the pieces once a loader has set the rest.
func (t *Tokenizer) finish() {
	t.ids = make(map[string]int32, len(t.pieces))
	for id, p := range t.pieces {
		if _, taken := t.ids[p.text]; !taken {
			t.ids[p.text] = int32(id)
		}
	}
	for _, id := range []*int32{&t.bos, &t.eos, &t.eot, &t.unk, &t.pad} {
		if *id < 0 || int(*id) >= len(t.pieces) {
			*id = None
		}
	}
	t.end = make(map[int32]bool)
	t.addEnd(t.eos, t.eot)
	for _, text := range endTexts {
		id, ok := t.ids[text]
		if !ok || t.pieces[id].kind == Normal && id != t.eos {
			continue
		}
		if t.eot == None && id != t.eos {
			t.eot = id
		}
		t.addEnd(id)
	}
}

// endTexts are the spellings by which model families end a turn or a text; few
// files list them all as ends of generation.
var endTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|eom_id|>",
	"<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
	"<｜end▁of▁sentence｜>", "<end_of_utterance>",
}

func (t *Tokenizer) addEnd(ids ...int32) {
	for _, id := range ids {
		if id >= 0 && int(id) < len(t.pieces) {
			t.end[id] = true
		}
	}
}

// VocabSize is the number of tokens: ids run from 0 to VocabSize-1.
func (t *Tokenizer) VocabSize() int { return len(t.pieces) }

// BOS is the id of the begin token, or None.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS is the id of the token that ends a text, or None.
func (t *Tokenizer) EOS() int32 { return t.eos }

// EOT is the id of the token that ends a turn of a conversation, or None.
func (t *Tokenizer) EOT() int32 { return t.eot }

// UNK is the id of the unknown token, or None.
func (t *Tokenizer) UNK() int32 { return t.unk }

// PAD is the id of the padding token, or None.
func (t *Tokenizer) PAD() int32 { return t.pad }

// AddBOS reports whether the model was trained with the begin token before
// every text.
func (t *Tokenizer) AddBOS() bool { return t.addBOS && t.before() != None }

// AddEOS reports whether the model was trained with the end token after every
// text that it reads (T5, BERT).
func (t *Tokenizer) AddEOS() bool { return t.addEOS && t.after() != None }

// before and after are what is put around a text: the configuration may name others, by which a text ends.
func (t *Tokenizer) before() int32 {
	if t.around != nil && t.around[0] != None {
		return t.around[0]
	}
	return t.bos
}

func (t *Tokenizer) after() int32 {
	if t.around != nil && t.around[1] != None {
		return t.around[1]
	}
	return t.eos
}

// Defaults are the options that the model was trained with.
func (t *Tokenizer) Defaults() Options {
	return Options{AddBOS: t.AddBOS(), AddEOS: t.AddEOS()}
}

// Ends lists, ascending, the ids at which generation stops.
func (t *Tokenizer) Ends() []int32 {
	ids := make([]int32, 0, len(t.end))
	for id := range t.end {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// IsEnd reports whether generation stops at id.
func (t *Tokenizer) IsEnd(id int32) bool { return t.end[id] }

// IsControl reports whether id is a control token, which decoding leaves out.
func (t *Tokenizer) IsControl(id int32) bool { return t.Kind(id) == Control }

// Kind gives what a token is; 0 for an id out of range.
func (t *Tokenizer) Kind(id int32) Kind {
	if id < 0 || int(id) >= len(t.pieces) {
		return 0
	}
	return t.pieces[id].kind
}

// Token gives a token's text as the model file spells it ("▁the", "Ġthe",
// "<0x0A>"); empty for an id out of range.
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.pieces) {
		return ""
	}
	return t.pieces[id].text
}

// ID finds a token by its text as the model file spells it.
func (t *Tokenizer) ID(text string) (int32, bool) {
	id, ok := t.ids[text]
	return id, ok
}

// EncodeChat gives the ids of what a chat template wrote. Control tokens in it are read as tokens, and none is put
// around it: those that the model wants the template has written, which is the one rule of transformers'
// apply_chat_template and vLLM. Its errors are Encode's.
func (t *Tokenizer) EncodeChat(text string) ([]int32, error) {
	return t.Encode(text, Options{ParseSpecial: true})
}

// Encode gives the ids of text. Any bytes are accepted: what is not UTF-8 is
// kept byte for byte by byte-level vocabularies and read as U+FFFD by
// SentencePiece ones. Its only error is a pattern of the model file that runs
// into the time limit on this text.
func (t *Tokenizer) Encode(text string, opts Options) ([]int32, error) {
	ids := make([]int32, 0, len(text)/3+2)
	if id := t.before(); opts.AddBOS && id != None {
		ids = append(ids, id)
	}
	s := t.user
	if opts.ParseSpecial {
		s = t.split
	}
	err := s.each(text, t.pieces, opts.ParseSpecial, func(part string, at int, id int32) error {
		if id != None {
			ids = append(ids, id)
			return nil
		}
		normal, lead, err := t.model.normalize(part, at == 0)
		if err != nil {
			return err
		}
		return t.normed.each(normal, t.pieces, opts.ParseSpecial, func(part string, within int, id int32) (err error) {
			if id != None {
				ids = append(ids, id)
				return nil
			}
			ids, err = t.model.encode(ids, part, lead-within, opts.ParseSpecial)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("tokenizer: encode: %w", err)
	}
	if id := t.after(); opts.AddEOS && id != None {
		ids = append(append(ids, id), t.behind...)
	}
	return ids, nil
}
