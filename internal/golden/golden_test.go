package golden

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/greta-project/greta/internal/testfiles"
)

// tensorsOf writes a safetensors file of zeros.
func tensorsOf(t *testing.T, tensors map[string]string) string {
	t.Helper()
	header, size := map[string]any{}, 0
	for name, spec := range tensors { // "I32 2 3"
		f := strings.Fields(spec)
		n, shape := 4, []int{}
		if strings.HasSuffix(f[0], "64") {
			n = 8
		}
		for _, d := range f[1:] {
			v := int(d[0] - '0')
			shape = append(shape, v)
			n *= v
		}
		header[name] = map[string]any{"dtype": f[0], "shape": shape, "data_offsets": []int{size, size + n}}
		size += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, append(data, make([]byte, size)...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	g, err := Open(testfiles.Repo(t, "testdata", "golden", "llama2_mha", "expected.safetensors.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Input) != 2 || g.Seq != 48 || len(g.Logits) != 2*48*g.Vocab || len(g.Greedy) != 32 || len(g.Prompt) == 0 {
		t.Errorf("%d rows of %d, %d logits of %d, greedy %d behind %d", len(g.Input), g.Seq, len(g.Logits), g.Vocab,
			len(g.Greedy), len(g.Prompt))
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		tensors map[string]string
		want    string // "" means that it is fine
	}{
		"fine":         {map[string]string{"input_ids": "I64 2 3", "logits": "F32 2 3 4"}, ""},
		"no ids":       {map[string]string{"logits": "F32 2 3 4"}, "input_ids"},
		"floats":       {map[string]string{"input_ids": "F32 2 3", "logits": "F32 2 3 4"}, "input_ids"},
		"one row":      {map[string]string{"input_ids": "I32 3", "logits": "F32 2 3 4"}, "two dimensions"},
		"no logits":    {map[string]string{"input_ids": "I32 2 3"}, "logits"},
		"other logits": {map[string]string{"input_ids": "I32 2 3", "logits": "F32 2 4 4"}, "logits[2, 3, V]"},
		"no prompt": {map[string]string{"input_ids": "I32 2 3", "logits": "F32 2 3 4", "greedy": "I32 2"},
			"greedy_prompt"},
	} {
		_, err := Open(tensorsOf(t, c.tensors))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadZstd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.zst")
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := w.EncodeAll([]byte("hello"), nil)
	if err := os.WriteFile(path, packed, 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(path); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.WriteFile(path, packed[:len(packed)-2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("a truncated file was read")
	}
	if err := Unpack(testfiles.Repo(t, "testdata", "golden", "qwen2"), t.TempDir()); err != nil {
		t.Error(err)
	}
}
