package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights/open"
)

// continueText writes what a model says behind a prompt, token by token, the most likely one each
// time. The folder holds config.json, safetensors and a tokenizer, as Hugging Face has them.
func continueText(ctx context.Context, w io.Writer, folder, prompt string, most int) (err error) {
	source, err := open.Open(folder) // what is at hand, by content: GGUF and llama2.c too
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	text, err := tokenizer.Load(folder)
	if err != nil {
		return err
	}
	file, err := models.Match(source) // the model file for these weights; models.Load reads one of yours
	if err != nil {
		return err
	}
	device, err := cpu.New(0) // all cores
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	e, err := engine.New(ctx, engine.Options{Model: file, Source: source, Device: device, Context: 512})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	ids, err := text.Encode(prompt, text.Defaults())
	if err != nil {
		return err
	}
	decoder := text.NewDecoder()
	for _, id := range ids {
		decoder.Write(id) // so that the continuation's first space is right
	}
	_, err = s.Generate(ctx, ids, engine.Generation{Max: most, End: text.IsEnd, Emit: func(id int32) bool {
		_, failed := io.WriteString(w, decoder.Write(id))
		return failed == nil
	}})
	return err
}

// Text from a folder of safetensors. What is opened is closed in the reverse order.
func Example() {
	if err := continueText(context.Background(), os.Stdout, "../testdata/tolstoy-2.7m", "Prince Andrew", 12); err != nil {
		fmt.Println(err)
	}
	// Output: was sitting in the middle of the room, and the
}
