package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/tokenizer"
)

func (a *app) tokenizeCmd() *cobra.Command {
	var asJSON, pieces, special, noBOS, decode bool
	c := &cobra.Command{
		Use:   "tokenize MODEL TEXT",
		Short: "Turn text into token ids, or ids into text",
		Long: `MODEL is what run takes, or a tokenizer: tokenizer.json, tokenizer.model,
tokenizer.bin. TEXT - is standard input. With --decode TEXT is ids, 1,2,3.`,
		Args: exactly(2, "a model or tokenizer, and a text"),
		RunE: func(c *cobra.Command, args []string) error {
			from, err := localModel(c.Context(), a.err, args[0])
			if err != nil {
				return usage(err)
			}
			t, err := openTokenizer(from)
			if err != nil {
				return usage(err)
			}
			text, err := a.rawText(args[1])
			if err != nil {
				return err
			}
			var ids []int32
			if decode {
				if ids, err = parseTokens("--decode", text); err != nil {
					return usage(err)
				}
				for _, id := range ids {
					if id < 0 || int(id) >= t.VocabSize() {
						return usage(fmt.Errorf("--decode: there is no token %d, the tokenizer has %d", id, t.VocabSize()))
					}
				}
				text = t.Decode(ids)
			} else if ids, err = t.Encode(text, tokenizer.Options{AddBOS: t.AddBOS() && !noBOS,
				ParseSpecial: special}); err != nil {
				return usage(err)
			}
			names := make([]string, len(ids))
			for i, id := range ids {
				names[i] = t.Token(id)
			}
			switch {
			case asJSON:
				return writeJSON(a.out, map[string]any{"text": text, "ids": ids, "pieces": names})
			case pieces:
				table := report.NewTable("id", "<piece")
				for i, id := range ids {
					table.Row(strconv.Itoa(int(id)), strconv.Quote(names[i]))
				}
				_, err = fmt.Fprint(a.out, table.String())
			case decode:
				_, err = fmt.Fprintln(a.out, text)
			default:
				_, err = fmt.Fprintln(a.out, joinIDs(ids))
			}
			return err
		},
	}
	s := c.Flags()
	s.BoolVar(&pieces, "pieces", false, "print each token with its piece")
	s.BoolVar(&decode, "decode", false, "turn ids into text")
	s.BoolVar(&special, "special", false, "read control tokens in the text as tokens")
	s.BoolVar(&noBOS, "no-bos", false, "put no begin token before the text")
	s.BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// joinIDs writes ids as --tokens reads them.
func joinIDs(ids []int32) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	return strings.Join(text, ",")
}
