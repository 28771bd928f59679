package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tokenizer"
	"github.com/greta-project/greta/weights/open"
)

// answerAll continues several prompts at once and gives the texts.
func answerAll(ctx context.Context, folder string, prompts []string, most int) (texts []string, err error) {
	source, err := open.Open(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	text, err := tokenizer.Load(folder)
	if err != nil {
		return nil, err
	}
	file, err := models.Match(source)
	if err != nil {
		return nil, err
	}
	device, err := cpu.New(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	e, err := engine.New(ctx, engine.Options{Model: file, Source: source, Device: device, Context: 512})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s, err := engine.NewScheduler(e, engine.SchedulerOptions{Tokens: 4096}) // caches for 4096 positions of all together
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	texts = make([]string, len(prompts))
	failed := make([]error, len(prompts))
	var wait sync.WaitGroup
	for i, prompt := range prompts {
		ids, err := text.Encode(prompt, text.Defaults())
		if err != nil {
			return nil, err
		}
		h, err := s.Add(ctx, engine.Request{Prompt: ids, Max: most, End: text.IsEnd})
		if err != nil {
			return nil, err
		}
		wait.Go(func() { // each is read as it comes; h.Cancel(), or the end of ctx, ends it early
			decoder := text.NewDecoder()
			for _, id := range ids {
				decoder.Write(id)
			}
			var b strings.Builder
			for token, err := range h.Tokens() {
				if err != nil {
					failed[i] = err
					return
				}
				b.WriteString(decoder.Write(token.ID))
			}
			texts[i] = b.String()
		})
	}
	wait.Wait()
	return texts, errors.Join(failed...)
}

// Several texts at once: each step computes the next token of all of them.
func ExampleScheduler() {
	prompts := []string{"Prince Andrew", "The army", "In the morning"}
	texts, err := answerAll(context.Background(), "../testdata/tolstoy-2.7m", prompts, 8)
	if err != nil {
		fmt.Println(err)
	}
	for _, t := range texts {
		fmt.Printf("%q\n", t)
	}
	// Output:
	// " was sitting in the middle of the"
	// " of the army, the Russian army,"
	// " of the morning of the day of the"
}
