// SentencePiece's tokenizer.model (sentencepiece_model.proto).

package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// trainerSpec is what encoding and decoding need of how a model was trained.
type trainerSpec struct {
	modelType  int32
	suffix     bool // the dummy prefix goes to the end
	bos, eos   string
	pad        string
	unkSurface string
}

// Types of SentencePiece models.
const (
	spUnigram = 1
	spBPE     = 2
)

// FromSentencePiece reads a tokenizer.model.
func FromSentencePiece(data []byte) (*Tokenizer, error) { return fromSentencePiece(data, nil) }

// fromSentencePiece also takes the added tokens of the files beside it.
func fromSentencePiece(data []byte, added []hfAdded) (*Tokenizer, error) {
	spec := trainerSpec{modelType: spUnigram, bos: "<s>", eos: "</s>", pad: "<pad>", unkSurface: " ⁇ "}
	norm := spNormalizer{prefix: prefixEach, removeExtra: true, escape: true}
	var chars []byte
	t := &Tokenizer{unk: None, eot: None}
	err := eachField(data, 0, func(f field, at int) error {
		if !f.is(wireBytes) {
			return nil
		}
		switch f.number {
		case 1:
			p, err := readPiece(f.data, at)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(t.pieces), err)
			}
			t.pieces = append(t.pieces, p)
		case 2:
			return spec.read(f.data, at)
		case 3:
			return eachField(f.data, at, func(f field, _ int) error {
				switch {
				case f.number == 2 && f.is(wireBytes):
					chars = f.data
				case f.number == 3 && f.is(wireVarint) && !f.bool():
					norm.prefix = prefixNever
				case f.number == 4 && f.is(wireVarint):
					norm.removeExtra = f.bool()
				case f.number == 5 && f.is(wireVarint):
					norm.escape = f.bool()
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	if len(t.pieces) == 0 {
		return nil, errors.New("tokenizer.model: expected a SentencePiece model, found no pieces")
	}
	if norm.chars, err = newCharsMap(chars); err != nil {
		return nil, fmt.Errorf("tokenizer.model: normalizer: %w", err)
	}
	norm.suffix = spec.suffix
	for id, p := range t.pieces {
		if p.kind == Unknown {
			t.unk = int32(id)
		}
	}
	if t.unk == None {
		return nil, errors.New("tokenizer.model: expected a piece of type unknown, found none")
	}
	if err := t.addPieces(added); err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	find := func(text string) int32 {
		for id, p := range t.pieces {
			if p.text == text && p.kind == Control {
				return int32(id)
			}
		}
		return None
	}
	t.bos, t.eos, t.pad = find(spec.bos), find(spec.eos), find(spec.pad)
	t.addBOS = true
	if err := t.setSentencePiece(spec.modelType, &norm, true, spec.unkSurface); err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w", err)
	}
	return t, nil
}

// setSentencePiece builds what tokenizer.model and GGUF have in common.
func (t *Tokenizer) setSentencePiece(modelType int32, norm *spNormalizer, freeze bool, unkSurface string) error {
	isUser := func(p piece) bool { return p.kind == UserDefined && !p.added }
	if freeze {
		if s := newSplitter(t.pieces, isUser); s != nil {
			norm.user = s.trie
		}
	}
	t.origin = export{addSpacePrefix: norm.prefix != prefixNever, removeExtra: norm.removeExtra}
	if norm.chars != nil {
		t.origin.charsMap = norm.chars.blob
	}
	switch modelType {
	case spBPE:
		t.model = newSPM(t.pieces, norm, t.unk, freeze)
		t.origin.model, t.origin.pre = "llama", "default"
	case spUnigram:
		t.model = newUnigram(t.pieces, norm, t.unk)
		t.origin.model, t.origin.pre = "t5", "default"
	default:
		return fmt.Errorf("model type %d: expected unigram (1) or BPE (2)", modelType)
	}
	t.setSplitters(func(p piece) bool { return isUser(p) && !freeze }, func(p piece) bool {
		return p.kind == Control || p.kind == Unknown || isUser(p) && !freeze
	})
	switch {
	case norm.suffix:
		t.lead = keepLead
	case norm.removeExtra:
		t.lead = dropAll
	case norm.prefix != prefixNever:
		t.lead = dropOne
	}
	t.output = make([]string, len(t.pieces))
	for id, p := range t.pieces {
		t.output[id] = pieceOutput(p, unkSurface)
	}
	t.finish()
	return nil
}

// pieceOutput is what a SentencePiece piece adds to decoded text.
func pieceOutput(p piece, unkSurface string) string {
	switch p.kind {
	case Control:
		return ""
	case Unknown:
		return unkSurface
	case Byte:
		if b, ok := byteToken(p.text); ok {
			return string([]byte{b})
		}
	}
	return strings.ReplaceAll(p.text, space, " ")
}

func readPiece(msg []byte, at int) (piece, error) {
	p := piece{kind: Normal}
	err := eachField(msg, at, func(f field, at int) error {
		switch {
		case f.number == 1 && f.is(wireBytes):
			if !utf8.Valid(f.data) {
				return fmt.Errorf("byte %d: text is not UTF-8", at)
			}
			p.text = f.text()
		case f.number == 2 && f.is(wireFixed32):
			p.score = f.float()
			if p.score != p.score {
				return fmt.Errorf("byte %d: score is not a number", at)
			}
		case f.number == 3 && f.is(wireVarint):
			if f.num < uint64(Normal) || f.num > uint64(Byte) {
				return fmt.Errorf("byte %d: type %d: expected 1 to 6", at, f.num)
			}
			p.kind = Kind(f.num)
		}
		return nil
	})
	return p, err
}

func (s *trainerSpec) read(msg []byte, at int) error {
	return eachField(msg, at, func(f field, _ int) error {
		switch {
		case f.number == 3 && f.is(wireVarint):
			s.modelType = f.int32()
		case f.number == 24 && f.is(wireVarint):
			s.suffix = f.bool()
		case f.number == 44 && f.is(wireBytes):
			s.unkSurface = f.text()
		case f.number == 46 && f.is(wireBytes):
			s.bos = f.text()
		case f.number == 47 && f.is(wireBytes):
			s.eos = f.text()
		case f.number == 48 && f.is(wireBytes):
			s.pad = f.text()
		}
		return nil
	})
}
