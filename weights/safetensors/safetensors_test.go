package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// file puts a header before data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i))
	}
	return b
}

func write(t testing.TB, dir string, files map[string][]byte) string {
	t.Helper()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func one(name, dtype, shape string, begin, end int) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
}

func TestTypes(t *testing.T) {
	for dtype, typ := range dtypes {
		_, width := typ.Block()
		for _, lead := range []int{0, 1} { // an odd start needs a copy
			head := "{" + one("lead", "U8", fmt.Sprintf("[%d]", lead), 0, lead) + "," + one("w", dtype, "[3,1,2]", lead,
				lead+6*width) + "}   "
			s, err := Parse("x", file(head, lead+6*width))
			if err != nil {
				t.Fatal(dtype, err)
			}
			got, shape, _ := s.Lookup("w")
			b, err := s.Data("w")
			want := file("", lead+6*width)[8+lead:]
			if err != nil || got != typ || !shape.Equal(tensor.Shape{3, 1, 2}) || !bytes.Equal(b, want) {
				t.Errorf("%s: %s %v %v (%v), expected %s %v", dtype, got, shape, b, err, typ, want)
			}
		}
	}
}

var badFiles = map[string][]byte{
	"expected 8 for the header's length":       {1, 2, 3},
	"a header of 72340172838076673":            bytes.Repeat([]byte{1}, 20),
	"but 2 follow":                             {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
	"expected a JSON object":                   file(`[]`, 0),
	"not UTF-8":                                file("{\"\xff\":1}", 0),
	"expected a tensor's name: unexpected EOF": file(`{"`, 0),
	"end of the header's object":               file(`{`, 0),
	"only spaces after":                        file(`{} {}`, 0),
	`reading tensor "w"`:                       file(`{"w":3}`, 0),
	`reading tensor "f"`:                       file(`{"f":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4),
	`reading tensor "big"`: file(
		`{"big":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}`, 4),
	`"n": expected dtype, shape`:  file(`{"n":{"dtype":"F32","data_offsets":[0,4]}}`, 4),
	`"o": expected dtype, shape`:  file(`{"o":{"dtype":"F32","shape":[1],"data_offsets":[0]}}`, 4),
	"a tensor's name has 0 bytes": file("{"+one("", "F32", "[1]", 0, 4)+"}", 4),
	"listed twice": file("{"+one("w", "F32", "[1]", 0, 4)+","+one("w", "F32", "[1]", 4, 8)+"}",
		8),
	`dtype "F4" and 0 bytes`:          file("{"+one("w", "F4", "[1]", 0, 0)+"}", 4),
	"negative size":                   file("{"+one("w", "F32", "[-1]", 0, 4)+"}", 4),
	"overflows":                       file("{"+one("w", "F32", "[4294967296,4294967296]", 0, 4)+"}", 4),
	"data_offsets [4, 0]":             file("{"+one("w", "F32", "[1]", 4, 0)+"}", 4),
	"data_offsets [-4, 0]":            file("{"+one("w", "F32", "[1]", -4, 0)+"}", 4),
	"ends at byte 8 of the data, but": file("{"+one("w", "F32", "[2]", 0, 8)+"}", 7),
	"F32 [3] takes 12":                file("{"+one("w", "F32", "[3]", 0, 8)+"}", 8),
	`"v" and "w" overlap`: file("{"+one("v", "F32", "[2]", 0, 8)+","+one("z", "F32", "[0]", 8,
		8)+","+one("w", "F32", "[1]", 4, 8)+"}", 8),
}

func TestBadFiles(t *testing.T) {
	for want, b := range badFiles {
		path := filepath.Join(write(t, t.TempDir(), map[string][]byte{"bad.safetensors": b}), "bad.safetensors")
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, expected one with %q and the path", err, want)
		}
	}
}

func TestConfig(t *testing.T) {
	cfg := `{"a": 1, "eps": 1e-5, "big": 123456789012345678901234567890, "no": null, "yes": true, "s": "x",
	 "ints": [1, 2], "mixed": [1, 2.5], "words": ["a"], "flags": [true], "none": [], "odd": [1, "x", null, {"y": [2]}],
	 "rope_parameters": {"rope_theta": 10000.0, "deep": {"er": -3}}, "text_config": {"hidden_size": 7, "a": 9}, "a": 2}`
	w := file("{"+one("w", "F32", "[1]", 0, 4)+"}", 4)
	dir := write(t, t.TempDir(), map[string][]byte{"config.json": []byte(cfg), "m.safetensors": w,
		"generation_config.json": []byte(`{"eos_token_id":[1,2]}`)})
	for _, path := range []string{dir, filepath.Join(dir, "m.safetensors")} {
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for key, want := range map[string]any{
			"a": int64(2), "eps": 1e-5, "big": 1.2345678901234568e29, "yes": true, "s": "x",
			"ints": []int64{1, 2}, "mixed": []float64{1, 2.5}, "words": []string{"a"}, "flags": []bool{true}, "none": []string{},
			"odd.0": int64(1), "odd.1": "x", "odd.3.y": []int64{2}, "rope_parameters.rope_theta": 10000.0,
			"rope_parameters.deep.er": int64(-3),
			"text_config.hidden_size": int64(7), "hidden_size": int64(7), "generation_config.eos_token_id": []int64{1, 2},
		} {
			if got, ok := s.Meta(key); !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %#v, expected %#v", key, got, want)
			}
		}
		for _, key := range []string{"no", "odd", "odd.2", "absent"} {
			if v, ok := s.Meta(key); ok {
				t.Errorf("%s: %v, expected none", key, v)
			}
		}
		if keys := s.Keys(); len(keys) != 18 || keys[0] != "a" || keys[2] != "big" {
			t.Errorf("keys %q", keys)
		}
	}
}

// TestLanguageModel: the language model in a model of several modalities has the names that it has alone, unless one is
// there already.
func TestLanguageModel(t *testing.T) {
	const text = `{"text_config": {"hidden_size": 7}, "vision_config": {"hidden_size": 3}}`
	for _, c := range []struct {
		config       string
		names, wants []string
	}{
		{text, []string{"language_model.model.norm.weight", "language_model.lm_head.weight", "vision_tower.x"},
			[]string{"model.norm.weight", "lm_head.weight", "vision_tower.x"}},
		{text, []string{"model.language_model.norm.weight", "lm_head.weight", "model.vision_tower.x"},
			[]string{"model.norm.weight", "lm_head.weight", "model.vision_tower.x"}},
		{text, []string{"model.text_model.norm.weight", "model.language_model.model.x"},
			[]string{"model.norm.weight", "model.x"}},
		{text, []string{"model.language_model.norm.weight", "model.norm.weight"},
			[]string{"model.language_model.norm.weight", "model.norm.weight"}},
		{`{"hidden_size": 7}`, []string{"language_model.model.norm.weight"}, []string{"language_model.model.norm.weight"}},
	} {
		entries := make([]string, len(c.names))
		for i, name := range c.names {
			entries[i] = one(name, "F32", "[1]", 4*i, 4*i+4)
		}
		data := file("{"+strings.Join(entries, ",")+"}", 4*len(entries))
		dir := write(t, t.TempDir(), map[string][]byte{"config.json": []byte(c.config), "model.safetensors": data})
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := s.Names(); !slices.Equal(got, c.wants) {
			t.Errorf("%v: %v, expected %v", c.names, got, c.wants)
		}
		for i, name := range c.wants {
			if b, err := s.Data(name); err != nil || !bytes.Equal(b, data[len(data)-4*len(entries)+4*i:][:4]) {
				t.Errorf("%s: %v, %v; expected the bytes of %s", name, b, err, c.names[i])
			}
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []string{``, `[]`, `{`, `{"a"`, `{"a":`, `{"a":[1`, `{"a":1}x`, `{"a":1e999}`, `{"a":NaNs}`,
		strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50), `{"a":` + strings.Repeat("[", 100000)} {
		dir := write(t, t.TempDir(), map[string][]byte{"config.json": []byte(cfg), single: file("{}", 0)})
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "config.json")) {
			t.Errorf("%.40s: error %v, expected one with the path", cfg, err)
		}
	}
}

func TestFolders(t *testing.T) {
	a := file("{"+one("w", "F32", "[1]", 0, 4)+","+one("spare", "U8", "[1]", 4, 5)+"}", 5)
	b := file("{"+one("v", "U8", "[2]", 0, 2)+"}", 2)
	index := func(m string) []byte { return []byte(`{"metadata":{},"weight_map":` + m + `}`) }
	good := index(`{"v":"b.safetensors","w":"a.safetensors"}`)
	for name, c := range map[string]struct {
		files map[string][]byte
		names []string
		err   string
	}{
		"sharded": {map[string][]byte{"a.safetensors": a, "b.safetensors": b, indexName: good}, []string{"w", "v"},
			""},
		"single first": {map[string][]byte{single: b, "a.safetensors": a, indexName: good}, []string{"v"}, ""},
		"the only one": {map[string][]byte{"b.safetensors": b}, []string{"v"}, ""},
		"two and no index": {map[string][]byte{"a.safetensors": a, "b.safetensors": b}, nil,
			"found 2 .safetensors files and no index"},
		"none":            {map[string][]byte{"config.json": []byte("{}")}, nil, "expected model.safetensors or"},
		"a pickle":        {map[string][]byte{"pytorch_model.bin": b}, nil, "found pytorch_model.bin"},
		"a shard missing": {map[string][]byte{"a.safetensors": a, indexName: good}, nil, "b.safetensors"},
		"a tensor missing": {map[string][]byte{"a.safetensors": a, "b.safetensors": a, indexName: good}, nil,
			`no tensor "v"`},
		"an index astray": {map[string][]byte{"a.safetensors": a, indexName: index(`{"w":"../a.safetensors"}`)}, nil,
			"in the same folder"},
		"an empty index":    {map[string][]byte{"a.safetensors": a, indexName: index(`{}`)}, nil, "expected a weight_map"},
		"an index not JSON": {map[string][]byte{"a.safetensors": a, indexName: []byte("x")}, nil, indexName},
	} {
		dir := write(t, t.TempDir(), c.files)
		s, err := Open(dir)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: error %v, expected one with %q and the path", name, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(s.Names(), c.names) {
			t.Errorf("%s: %v (%v), expected %v", name, s, err, c.names)
			continue
		}
		for _, n := range s.Names() {
			if _, err := s.Data(n); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Data(c.names[0]); err == nil {
			t.Error("Data after Close gives bytes")
		}
	}
}

func TestGoldens(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "goldens"), "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, dir := range append(dirs, testfiles.Shared(t, "data", "tolstoy-2.7m")) {
		s, err := Open(dir)
		if err != nil {
			t.Error(err)
			continue
		}
		if archs, _ := s.Meta("architectures"); len(archs.([]string)) != 1 {
			t.Errorf("%s: architectures %v", dir, archs)
		}
		hidden, _ := s.Meta("hidden_size")
		params := 0
		for _, name := range s.Names() {
			_, shape, _ := s.Lookup(name)
			b, err := s.Data(name)
			if err != nil || len(b) == 0 {
				t.Errorf("%s: %s: %d bytes (%v)", dir, name, len(b), err)
			}
			params += shape.Elems()
			if strings.HasSuffix(name, "input_layernorm.weight") && int64(shape[0]) != hidden.(int64) {
				t.Errorf("%s: %s is %v, hidden_size %v", dir, name, shape, hidden)
			}
		}
		if params < 100_000 {
			t.Errorf("%s: %d parameters", dir, params)
		}
		s.Close()
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(file("{"+one("w", "F32", "[1]", 0, 4)+","+one("v", "U8", "[2,1]", 4, 6)+`,"__metadata__":{"format":"pt"}}  `, 6))
	for _, b := range badFiles {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := config{values: map[string]any{}}
		c.parse(b, "")
		parseIndex(b)
		s, err := Parse("fuzz", b)
		if err != nil {
			return
		}
		for _, name := range s.Names() {
			typ, shape, _ := s.Lookup(name)
			data, err := s.Data(name)
			if typ == tensor.Invalid { // of a dtype that is not known
				if err == nil {
					t.Fatalf("%s: data of no known type", name)
				}
				continue
			}
			if size, _ := shape.Bytes(typ); err != nil || len(data) != size {
				t.Fatalf("%s: %d bytes, expected %d (%v)", name, len(data), size, err)
			}
		}
	})
}

// TestBitFlips turns every bit of a file in turn: an error or a sound file.
func TestBitFlips(t *testing.T) {
	b := file("{"+one("w", "F32", "[2,1]", 0, 8)+","+one("v", "BF16", "[4]", 8, 16)+`,"__metadata__":{"format":"pt"}}  `,
		16)
	refused := 0
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		s, err := Parse("flipped", b)
		if err != nil {
			refused++
		} else {
			for _, name := range s.Names() {
				typ, shape, _ := s.Lookup(name)
				data, err := s.Data(name)
				if err != nil && strings.Contains(err.Error(), "is not supported") {
					refused++ // a dtype that is not known
					continue
				}
				if size, _ := shape.Bytes(typ); err != nil || len(data) != size {
					t.Fatalf("bit %d: %s has %d bytes, expected %d (%v)", bit, name, len(data), size, err)
				}
			}
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if refused < 500 {
		t.Errorf("%d flips are refused: the header is hardly checked", refused)
	}
}

// Python writes numbers that JSON lacks, and null is told from what is absent.
func TestPythonNumbers(t *testing.T) {
	w := file("{"+one("w", "F32", "[1]", 0, 4)+"}", 4)
	cfg := `{"top": Infinity, "low": [-Infinity, 1], "nan": NaN, "text": "NaN and \"Infinity", "gone": null, "a": 1}`
	s, err := Open(write(t, t.TempDir(), map[string][]byte{"config.json": []byte(cfg), "model.safetensors": w}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	top, _ := s.Meta("top")
	low, _ := s.Meta("low")
	nan, _ := s.Meta("nan")
	if text, _ := s.Meta("text"); top != math.Inf(1) || nan == nan || text != `NaN and "Infinity` {
		t.Errorf("%v, %v, %v", top, nan, text)
	}
	if list, ok := low.([]float64); !ok || list[0] != math.Inf(-1) || list[1] != 1 {
		t.Errorf("%v", low)
	}
	if !s.Null("gone") || s.Null("a") || s.Null("absent") {
		t.Error("null is not told from what is absent")
	}
}
