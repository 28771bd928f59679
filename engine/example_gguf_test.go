package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/open"
)

// toGGUF writes the model of a folder as a GGUF file, which is not part of reading one.
func toGGUF(folder, path string) {
	source, err := open.Open(folder)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	if _, err := convert.ToGGUF(source, path, convert.Options{Type: "q8_0"}); err != nil {
		log.Fatal(err)
	}
}

// Logits of a GGUF file, whose metadata hold the tokenizer: the three tokens that are most likely behind a text.
func Example_gguf() {
	dir, err := os.MkdirTemp("", "greta")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tolstoy.gguf")
	toGGUF("../testdata/tolstoy-2.7m", path)

	source, err := open.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	text, err := tokenizer.FromGGUF(source)
	if err != nil {
		log.Fatal(err)
	}
	file, err := models.Match(source)
	if err != nil {
		log.Fatal(err)
	}
	device, err := cpu.New(0)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	e, err := engine.New(context.Background(), engine.Options{Model: file, Source: source, Device: device, Context: 512})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	ids, err := text.Encode("Pierre looked at her with his", text.Defaults())
	if err != nil {
		log.Fatal(err)
	}
	logits, err := s.Prefill(context.Background(), ids)
	if err != nil {
		log.Fatal(err)
	}
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	for _, id := range order[:3] {
		fmt.Println(text.Token(id))
	}
	// s.Decode takes the token that is chosen, and gives the logits behind it.

	// Output:
	// ▁eyes
	// ▁face
	// ▁look
}
