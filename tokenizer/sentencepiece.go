// SentencePiece's tokenizer.model (sentencepiece_model.proto).

package tokenizer

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// trainerSpec is what encoding and decoding need of how a model was trained.
type trainerSpec struct {
	modelType  int32
	suffix     bool // the dummy prefix goes to the end
	bytes      bool // what no piece spells is spelt by bytes
	bos, eos   string
	pad, unk   string
	unkSurface string
}

// Types of SentencePiece models.
const (
	spUnigram = 1
	spBPE     = 2
)

// spFile is a tokenizer.model.
type spFile struct {
	pieces []piece
	spec   trainerSpec
	norm   spNormalizer
}

// FromSentencePiece reads a tokenizer.model.
func FromSentencePiece(data []byte) (*Tokenizer, error) { return fromSentencePiece(data, nil) }

// fromSentencePiece also takes the added tokens of the files beside it.
func fromSentencePiece(data []byte, added []hfAdded) (*Tokenizer, error) {
	file, err := readSentencePiece(data)
	if err == nil {
		var t *Tokenizer
		if t, err = file.tokenizer(added); err == nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("tokenizer.model: %w", err)
}

// tokenizer reads texts as the SentencePiece library does, and puts the begin token before them.
func (s *spFile) tokenizer(added []hfAdded) (*Tokenizer, error) {
	t := &Tokenizer{pieces: s.pieces, unk: s.unknown(), eot: None}
	if err := t.addPieces(added); err != nil {
		return nil, err
	}
	find := func(text string) int32 {
		for id, p := range t.pieces {
			if p.text == text && p.kind == Control {
				return int32(id)
			}
		}
		return None
	}
	t.bos, t.eos, t.pad = find(s.spec.bos), find(s.spec.eos), find(s.spec.pad)
	t.addBOS = true
	return t, t.setSentencePiece(s.spec.modelType, &s.norm, true, s.spec.unkSurface)
}

func (s *spFile) unknown() int32 {
	unk := None
	for id, p := range s.pieces {
		if p.kind == Unknown {
			unk = int32(id)
		}
	}
	return unk
}

func readSentencePiece(data []byte) (*spFile, error) {
	if tiktoken(data) {
		return nil, errors.New("a vocabulary of tiktoken, which is not read: expected a SentencePiece model or a " +
			"tokenizer.json; " + convertedBy)
	}
	s := &spFile{spec: trainerSpec{modelType: spUnigram, bos: "<s>", eos: "</s>", pad: "<pad>", unk: "<unk>",
		unkSurface: " ⁇ "}, norm: spNormalizer{prefix: prefixEach, removeExtra: true, escape: true}}
	var chars []byte
	err := eachField(data, 0, func(f field, at int) error {
		if !f.is(wireBytes) {
			return nil
		}
		switch f.number {
		case 1:
			p, err := readPiece(f.data, at)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(s.pieces), err)
			}
			s.pieces = append(s.pieces, p)
		case 2:
			return s.spec.read(f.data, at)
		case 3:
			return eachField(f.data, at, func(f field, _ int) error {
				switch {
				case f.number == 2 && f.is(wireBytes):
					chars = f.data
				case f.number == 3 && f.is(wireVarint) && !f.bool():
					s.norm.prefix = prefixNever
				case f.number == 4 && f.is(wireVarint):
					s.norm.removeExtra = f.bool()
				case f.number == 5 && f.is(wireVarint):
					s.norm.escape = f.bool()
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(s.pieces) == 0 {
		return nil, errors.New("expected a SentencePiece model, found no pieces")
	}
	if s.norm.chars, err = newCharsMap(chars); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	s.norm.suffix = s.spec.suffix
	if s.unknown() == None {
		return nil, errors.New("expected a piece of type unknown, found none")
	}
	return s, nil
}

// tiktoken says that data begins as tiktoken's vocabularies do: with bytes in base64, a space and a number.
func tiktoken(data []byte) bool {
	line, _, _ := bytes.Cut(data[:min(len(data), 200)], []byte("\n"))
	text, rank, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
	_, err := base64.StdEncoding.DecodeString(text)
	_, bad := strconv.ParseUint(rank, 10, 31)
	return ok && text != "" && err == nil && bad == nil
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
	switch { // also where the dummy prefix is a suffix
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
		case f.number == 35 && f.is(wireVarint):
			s.bytes = f.bool()
		case f.number == 44 && f.is(wireBytes):
			s.unkSurface = f.text()
		case f.number == 45 && f.is(wireBytes):
			s.unk = f.text()
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
