package models

import (
	"fmt"
	"io/fs"
	"testing"
)

// FuzzModelFile reads and builds any text: it may be refused, never panic or hang.
func FuzzModelFile(f *testing.F) {
	for _, name := range Names() {
		_, data, _ := readBuiltin(name)
		f.Add(data)
	}
	f.Add([]byte("block: b\nin: {x: 'float[S, D]'}\nparams: {D: E, E: D}\nbody: {y: x * 2}\nout: y"))
	f.Add([]byte("model: m\nin: {x: 'float[S, 4096]', pos: 'i32[S]'}\nbody: {y: 'repeat(99999, llama2_block, x, " +
		"pos)'}\nout: y"))
	f.Add([]byte("model: m\nin: {x: 'float[S, 4096]', pos: 'i32[S]'}\nparams: {window: 4 if far else j, far: i > 0, " +
		"j: i}\nbody: {y: 'repeat(3, llama2_block, x, pos, H=8 if far else 4)'}\nout: y"))
	f.Add([]byte("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := resolve("m.yaml", data, func(stem string) (string, []byte, error) {
			if stem == "m" {
				return "m.yaml", data, nil
			}
			if path, text, err := readBuiltin(stem); err == nil {
				return path, text, nil
			}
			return "", nil, fmt.Errorf("%s: %w", stem, fs.ErrNotExist)
		})
		if err != nil {
			_ = err.Error()
			return
		}
		o := Options{S: 2, C: 8}
		if _, err := file.Params(o); err != nil {
			_ = err.Error()
		}
		g, err := file.Build(o)
		if err != nil {
			_ = err.Error()
			return
		}
		if len(g.Outputs) == 0 {
			t.Error("a graph without a result")
		}
	})
}
