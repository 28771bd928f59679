package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/greta-project/greta/internal/errlist"
)

// wholeVocabulary reads a vocab.txt whose tokens are found in a text wherever they stand, the longest first (letters of
// proteins); what lies between them is unknown, one token for each part without a space. It is a tokenizer.json whose
// tokens are all added ones.
func wholeVocabulary(data []byte, config *tokenizerConfig, added []hfAdded) (*Tokenizer, error) {
	names := map[string]string{"unk": "<unk>", "cls": "<cls>", "eos": "<eos>", "pad": "<pad>", "mask": "<mask>"}
	for key, name := range map[string]*tokenName{"unk": config.UNK, "cls": config.CLS, "eos": config.EOS,
		"pad": config.PAD, "mask": config.Mask} {
		if name != nil {
			names[key] = string(*name)
		}
	}
	special := map[string]bool{}
	for _, name := range names {
		special[name] = true
	}
	vocab, beside := map[string]int32{}, map[string]bool{}
	for _, a := range added {
		beside[a.Content] = true
	}
	var whole []hfAdded
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		vocab[token] = int32(i)
		if !beside[token] {
			whole = append(whole, hfAdded{ID: int32(i), Content: token, Special: special[token], Normalized: new(false)})
		}
	}
	cls, begins := vocab[names["cls"]]
	eos, ends := vocab[names["eos"]]
	if _, ok := vocab[names["unk"]]; !ok || !begins || !ends {
		return nil, errors.New("vocab.txt: expected a line a token, " + names["unk"] + ", " + names["cls"] + " and " +
			names["eos"] + " among them")
	}
	words, err1 := json.Marshal(vocab)
	tokens, err2 := json.Marshal(whole)
	if err := errlist.Join(err1, err2); err != nil {
		return nil, err
	}
	form := `{"SpecialToken":{"id":"cls"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"eos"}}`
	file := fmt.Appendf(nil, `{"added_tokens":%s,"pre_tokenizer":{"type":"WhitespaceSplit"},"model":{"type":"WordPiece",
		"unk_token":%s,"continuing_subword_prefix":%s,"vocab":%s},"post_processor":{"type":"TemplateProcessing","single":[%s],
		"pair":[%s,{"Sequence":{"id":"B"}},{"SpecialToken":{"id":"eos"}}],
		"special_tokens":{"cls":{"ids":[%d]},"eos":{"ids":[%d]}}}}`,
		tokens, quoted(names["unk"]), quoted(wordPrefix), words, form, form, cls, eos)
	return fromTokenizerJSON(file, added)
}
