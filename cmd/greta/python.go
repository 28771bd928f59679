package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// runPython runs a script of greta's in Python and gives what it prints. It has the time limit. The error has the end
// of what Python said.
func runPython(ctx context.Context, limit time.Duration, python, script string, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "greta-python-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "script.py")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, python, append([]string{path}, args...)...)
	c.WaitDelay = time.Second
	var said bytes.Buffer
	c.Stderr = &said
	answer, err := c.Output()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s was ended: %w", python, ctx.Err())
	case err != nil:
		text := strings.TrimSpace(said.String())
		return nil, fmt.Errorf("%s: %w: %s", python, err, text[max(0, len(text)-2000):])
	}
	return answer, nil
}
