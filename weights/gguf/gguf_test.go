package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
)

// every metadata type once, with odd lengths.
var everyKV = []KV{
	{"general.architecture", "llama"},
	{"t.u8", uint8(200)}, {"t.i8", int8(-3)}, {"t.u16", uint16(60000)}, {"t.i16", int16(-30000)},
	{"t.u32", uint32(4e9)}, {"t.i32", int32(-2e9)}, {"t.u64", uint64(1 << 63)}, {"t.i64", int64(-1 << 62)},
	{"t.f32", float32(0.1)}, {"t.f64", 0.1}, {"t.yes", true}, {"t.no", false}, {"t.empty", ""},
	{"a.u8", []uint8{1, 255}}, {"a.i8", []int8{-128}}, {"a.u16", []uint16{1, 2, 3}}, {"a.i16", []int16{-1}},
	{"a.u32", []uint32{7, 4e9}}, {"a.i32", []int32{-7}}, {"a.u64", []uint64{1 << 40}}, {"a.i64", []int64{-1, 5}},
	{"a.f32", []float32{1.5, -2}}, {"a.f64", []float64{3.25}}, {"a.bool", []bool{true, false, true}},
	{"a.str", []string{"", "a", "žluť", "\x00\xff"}}, {"a.none", []string{}}, {"a.zero", []uint32{}},
	{"a.nested", []any{[]uint32{1, 2}, []string{"x"}, []any{[]bool{true}}, []any{}}},
}

// sample writes a file of several types and odd sizes and gives its bytes.
func sample(t testing.TB, kvs []KV) (path string, tensors []Info, data [][]byte) {
	t.Helper()
	tensors = []Info{
		{"token_embd.weight", tensor.F32, tensor.Shape{5, 3}},
		{"blk.0.attn_q.weight", tensor.Q4_0, tensor.Shape{3, 64}},
		{"blk.0.ffn_down.weight", tensor.Q6_K, tensor.Shape{2, 256}},
		{"exps", tensor.BF16, tensor.Shape{2, 3, 1, 7}},
		{"scalar", tensor.F64, tensor.Shape{}},
		{"norm", tensor.F16, tensor.Shape{17}},
	}
	path = filepath.Join(t.TempDir(), "sample.gguf")
	w, err := Create(path, kvs, tensors)
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range tensors {
		size, err := info.Shape.Bytes(info.Type)
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Repeat([]byte{byte(i + 1), 0x5a}, size)[:size]
		data = append(data, b)
		for _, part := range [][]byte{b[:size/3], b[size/3:]} {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, tensors, data
}

func TestWriteAndRead(t *testing.T) {
	for _, align := range []int{0, 8, 64} {
		kvs := everyKV
		if align > 0 {
			kvs = append(append([]KV(nil), kvs...), KV{"general.alignment", uint32(align)})
		}
		path, tensors, data := sample(t, kvs)
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if !reflect.DeepEqual(f.KV(), kvs) {
			t.Errorf("align %d: metadata\n%#v, expected\n%#v", align, f.KV(), kvs)
		}
		for i, want := range tensors {
			typ, shape, ok := f.Lookup(want.Name)
			if !ok || typ != want.Type || !shape.Equal(want.Shape) || f.Names()[i] != want.Name {
				t.Errorf("align %d: tensor %d is %q %s %v, expected %v", align, i, f.Names()[i], typ, shape, want)
			}
			got, err := f.Data(want.Name)
			if err != nil || !bytes.Equal(got, data[i]) {
				t.Errorf("align %d: %s: data differ (%v)", align, want.Name, err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
			t.Errorf("temporary files left: %v", left)
		}
	}
}

// TestVersion2: versions 2 and 3 differ in the byte orders that they allow only.
func TestVersion2(t *testing.T) {
	path, tensors, data := sample(t, everyKV)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[4] = 2
	f, err := Parse("v2", b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Data(tensors[1].Name)
	if err != nil || f.Version() != 2 || !bytes.Equal(got, data[1]) {
		t.Errorf("version %d: data differ (%v)", f.Version(), err)
	}
}

func TestMetaWidened(t *testing.T) {
	path, _, _ := sample(t, everyKV)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for key, want := range map[string]any{
		"t.u8": int64(200), "t.i16": int64(-30000), "t.u32": int64(4e9), "t.u64": float64(1 << 63),
		"t.f32": float64(float32(0.1)),
		"t.yes": true, "a.u8": []int64{1, 255}, "a.u64": []int64{1 << 40}, "a.f32": []float64{1.5, -2},
		"a.str": everyKV[25].Value,
	} {
		if got, ok := f.Meta(key); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v %v, expected %#v", key, got, ok, want)
		}
	}
	for _, key := range []string{"absent", "a.nested"} {
		if v, ok := f.Meta(key); ok {
			t.Errorf("%s: %v, expected none", key, v)
		}
	}
}

func TestAfterClose(t *testing.T) {
	path, tensors, _ := sample(t, everyKV)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Data(tensors[0].Name); err == nil {
		t.Error("Data after Close gives bytes")
	}
}

func TestWriterRefuses(t *testing.T) {
	ok := Info{"a", tensor.F32, tensor.Shape{4}}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		kvs     []KV
		tensors []Info
		bytes   []int // sizes of writes
		want    string
	}{
		"duplicate key":    {kvs: []KV{{"a", true}, {"a", true}}, want: "given twice"},
		"unknown value":    {kvs: []KV{{"a", struct{}{}}}, want: "no form in GGUF"},
		"bad alignment":    {kvs: []KV{{"general.alignment", uint32(12)}}, want: "power of two"},
		"duplicate tensor": {tensors: []Info{ok, ok}, want: "given twice"},
		"no such type":     {tensors: []Info{{"a", tensor.F8E4M3, tensor.Shape{4}}}, want: "no type for f8e4m3"},
		"partial block":    {tensors: []Info{{"a", tensor.Q4_0, tensor.Shape{40}}}, want: "blocks of 32"},
		"five dimensions":  {tensors: []Info{{"a", tensor.F32, tensor.Shape{1, 1, 1, 1, 1}}}, want: "5 dimensions"},
		"zero":             {tensors: []Info{{"a", tensor.F32, tensor.Shape{3, 0}}}, want: "below 1"},
		"too few bytes":    {tensors: []Info{ok}, bytes: []int{15}, want: "15 of its 16"},
		"too many bytes":   {tensors: []Info{ok}, bytes: []int{17}, want: "17 bytes for tensor"},
		"after the end":    {tensors: []Info{ok}, bytes: []int{16, 1}, want: "after the last tensor"},
	} {
		path := filepath.Join(dir, "x.gguf")
		w, err := Create(path, c.kvs, c.tensors)
		if err == nil {
			for _, n := range c.bytes {
				w.Write(make([]byte, n))
			}
			err = w.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.gguf") {
			t.Errorf("%s: error %v, expected one with %q and the path", name, err, c.want)
		}
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Fatalf("%s: %s is left behind", name, files[0].Name())
		}
	}
}

// craft builds a header by hand, so that it may be wrong.
type craft struct{ bytes.Buffer }

func (c *craft) put(vs ...any) *craft {
	for _, v := range vs {
		if s, ok := v.(string); ok {
			binary.Write(c, binary.LittleEndian, uint64(len(s)))
			c.WriteString(s)
			continue
		}
		binary.Write(c, binary.LittleEndian, v)
	}
	return c
}

func start(version uint32, tensors, kvs uint64) *craft {
	c := &craft{}
	c.WriteString("GGUF")
	return c.put(version, tensors, kvs)
}

func pad32(b []byte) []byte { return append(b, make([]byte, pad(len(b), 32)+32)...) }

var badFiles = map[string]struct {
	b    []byte
	want string
}{
	"empty":                {nil, "not a GGUF file"},
	"other magic":          {[]byte("GGML\x03\x00\x00\x00"), `starts with "GGML"`},
	"version 1":            {start(1, 0, 0).Bytes(), "version 1"},
	"version 4":            {start(4, 0, 0).Bytes(), "version 4; expected 2 or 3"},
	"big-endian":           {append([]byte("GGUF\x00\x00\x00\x03"), make([]byte, 16)...), "big-endian GGUF version 3"},
	"cut in the version":   {[]byte("GGUF\x03\x00"), "ends within the version"},
	"cut in the counts":    {start(3, 0, 0).Bytes()[:12], "ends within the number of tensors"},
	"many tensors":         {start(3, 1<<62, 0).Bytes(), "the number of tensors"},
	"many entries":         {start(3, 0, 1<<63).Bytes(), "the number of metadata entries"},
	"long key":             {start(3, 0, 1).put(uint64(1<<63), uint64(0)).Bytes(), "the length of the key"},
	"unknown value type":   {start(3, 0, 1).put("k", uint32(13), uint64(0)).Bytes(), "type 13"},
	"unknown element type": {start(3, 0, 1).put("k", uint32(9), uint32(99), uint64(0)).Bytes(), "array of type 99"},
	"bad bool":             {start(3, 0, 1).put("k", uint32(7), uint8(2)).Bytes(), "bool of value 2"},
	"huge array":           {start(3, 0, 1).put("k", uint32(9), uint32(4), uint64(1<<61)).Bytes(), "the length of k"},
	"huge string array": {start(3, 0, 1).put("k", uint32(9), uint32(8), uint64(1), uint64(1<<60)).Bytes(),
		"string of k"},
	"deep arrays": {start(3, 0, 1).put("k", uint32(9), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1),
		uint32(9), uint64(1), uint32(9), uint64(1), uint32(4), uint64(0)).Bytes(), "nested deeper"},
	"duplicate key": {start(3, 0, 2).put("k", uint32(7), uint8(1), "k", uint32(7), uint8(1)).Bytes(),
		"appears twice"},
	"alignment of 0":     {start(3, 0, 1).put("general.alignment", uint32(4), uint32(0)).Bytes(), "power of two"},
	"alignment a string": {start(3, 0, 1).put("general.alignment", uint32(8), "x").Bytes(), "power of two"},
	"cut in a value":     {start(3, 0, 1).put("key", uint32(12), uint32(0)).Bytes(), "ends within key"},
	"newline in a key":   {start(3, 0, 1).put("a\nb", uint32(12), uint32(0)).Bytes(), `"a\nb"`},
	"unknown tensor type": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(1), uint32(99), uint64(0)).Bytes()),
		`tensor "w": type 99 is unknown`},
	"unsupported tensor type": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(256), uint32(41), uint64(0)).Bytes()),
		"type 41 (q1_0) is not supported"},
	"five dimensions": {pad32(start(3, 1, 0).put("w", uint32(5), [5]uint64{1, 1, 1, 1, 1}, uint32(0), uint64(0)).Bytes()),
		"5 dimensions"},
	"size overflow": {pad32(start(3, 1, 0).put("w", uint32(2), [2]uint64{1 << 40, 1 << 40}, uint32(0),
		uint64(0)).Bytes()), "overflows"},
	"size over int": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(1<<63), uint32(0), uint64(0)).Bytes()),
		"a size of 9223372036854775808"},
	"misaligned": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(1), uint32(0), uint64(4)).Bytes()),
		"not a multiple of the alignment 32"},
	"past the end": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(1), uint32(0), uint64(32)).Bytes()),
		`tensor "w" (f32 [1]) needs 4 bytes from offset 32`},
	"offset overflow": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(1), uint32(0), uint64(1<<64-32)).Bytes()),
		"truncated or damaged"},
	"partial block": {pad32(start(3, 1, 0).put("w", uint32(1), uint64(31), uint32(2), uint64(0)).Bytes()),
		"blocks of 32"},
	"twice": {pad32(start(3, 2, 0).put("w", uint32(1), uint64(1), uint32(0), uint64(0),
		"w", uint32(1), uint64(1), uint32(0), uint64(0)).Bytes()), "listed twice"},
	"overlap": {pad32(start(3, 2, 0).put("v", uint32(1), uint64(1), uint32(0), uint64(0),
		"w", uint32(1), uint64(1), uint32(0), uint64(0)).Bytes()), `tensors "v" and "w" overlap`},
}

func TestBadFiles(t *testing.T) {
	for name, c := range badFiles {
		path := filepath.Join(t.TempDir(), "bad.gguf")
		if err := os.WriteFile(path, c.b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, expected one line with %q and the path", name, err, c.want)
		}
	}
}

// TestEmptyTensorAtEnd reads a file that ends where its header does: its one
// tensor has no bytes, so nothing needs the padding.
func TestEmptyTensorAtEnd(t *testing.T) {
	b := start(3, 1, 0).put("w", uint32(1), uint64(0), uint32(0), uint64(0)).Bytes()
	if len(b)%defaultAlign == 0 {
		t.Fatalf("a header of %d bytes needs no padding", len(b))
	}
	f, err := Parse("empty", b)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := f.Data("w"); err != nil || len(data) != 0 {
		t.Errorf("%d bytes and %v, expected none", len(data), err)
	}
}

// TestTruncated cuts a file at every length: each must be an error, none a panic.
func TestTruncated(t *testing.T) {
	path, _, data := sample(t, everyKV)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := pad(len(data[len(data)-1]), 32) // padding after the last tensor may be missing
	for n := range len(b) - last {
		if _, err := Parse("cut", b[:n]); err == nil {
			t.Fatalf("%d of %d bytes are read without an error", n, len(b))
		}
	}
}

func TestTypeNumbers(t *testing.T) {
	for _, typ := range tensor.Types() {
		id, ok := TypeID(typ)
		back, err := TypeOf(id)
		switch {
		case ok && (err != nil || back != typ):
			t.Errorf("%s has number %d, which is %s (%v)", typ, id, back, err)
		case !ok && (typ.IsBlock() && typ < tensor.NF4 || typ == tensor.F32):
			t.Errorf("%s has no number", typ)
		}
	}
}

// split writes parts whose metadata the change may spoil.
func split(t *testing.T, change func(part int, kvs []KV, tensors []Info) ([]KV, []Info)) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 3 {
		kvs := []KV{{"split.no", uint16(i)}, {"split.count", uint16(3)}, {"split.tensors.count", int32(3)}}
		if i == 0 {
			kvs = append(kvs, KV{"general.architecture", "llama"})
		}
		tensors := []Info{{fmt.Sprintf("w%d", i), tensor.F32, tensor.Shape{i + 1}}}
		if change != nil {
			kvs, tensors = change(i, kvs, tensors)
		}
		w, err := Create(filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", i+1)), kvs, tensors)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(bytes.Repeat([]byte{byte(i), 0, 0, 0}, i+1))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSplit(t *testing.T) {
	dir := split(t, nil)
	for part := 1; part <= 3; part++ {
		f, err := Open(filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", part)))
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := f.Meta("general.architecture"); v != "llama" {
			t.Errorf("opened by part %d: architecture %v", part, v)
		}
		for i := range 3 {
			b, err := f.Data(fmt.Sprintf("w%d", i))
			if err != nil || !bytes.Equal(b, bytes.Repeat([]byte{byte(i), 0, 0, 0}, i+1)) {
				t.Errorf("w%d: %v %v", i, b, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSplitBad(t *testing.T) {
	for name, c := range map[string]struct {
		change func(part int, kvs []KV, tensors []Info) ([]KV, []Info)
		break_ func(dir string) error
		want   string
	}{
		"a part is missing": {break_: func(dir string) error {
			return os.Remove(filepath.Join(dir, "m-00002-of-00003.gguf"))
		}, want: "part 2 of 3"},
		"mixed up": {change: func(i int, kvs []KV, ts []Info) ([]KV, []Info) {
			kvs[0].Value = uint16(0)
			return kvs, ts
		}, want: "split.no is 0, expected 1"},
		"same tensor": {change: func(i int, kvs []KV, ts []Info) ([]KV, []Info) {
			ts[0].Name = "w"
			return kvs, ts
		}, want: "in an earlier part too"},
		"wrong number": {change: func(i int, kvs []KV, ts []Info) ([]KV, []Info) {
			kvs[2].Value = int32(4)
			return kvs, ts
		}, want: "hold 3 tensors"},
		"renamed": {break_: func(dir string) error {
			return os.Rename(filepath.Join(dir, "m-00001-of-00003.gguf"), filepath.Join(dir, "m.gguf"))
		}, want: "give the parts back their names"},
	} {
		dir := split(t, c.change)
		if c.break_ != nil {
			if err := c.break_(dir); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, "m-00001-of-00003.gguf")
		if name == "renamed" {
			path = filepath.Join(dir, "m.gguf")
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected one with %q", name, err, c.want)
		}
	}
}

func TestSharedFiles(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "data", "tokenizers"), "*.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no vocabularies", err)
	}
	for _, path := range paths {
		f, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		tokens, _ := f.Meta("tokenizer.ggml.tokens")
		types, _ := f.Meta("tokenizer.ggml.token_type")
		if s, ok := tokens.([]string); !ok || len(s) < 30000 || len(s) != len(types.([]int64)) {
			t.Errorf("%s: %d tokens, %d types", path, len(s), len(types.([]int64)))
		}
		// The writer gives the same header for the same metadata.
		head, _, _, err := header(f.KV(), nil)
		b, _ := os.ReadFile(path)
		if n := min(len(head), len(b)) &^ 31; err != nil || f.Version() == 3 && !bytes.Equal(head[:n], b[:n]) {
			t.Errorf("%s: the header written differs (%v)", path, err)
		}
		f.Close()
	}
}

func FuzzGGUF(f *testing.F) {
	path, _, _ := sample(f, everyKV)
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for _, c := range badFiles {
		f.Add(c.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("fuzz", b)
		if err != nil {
			return
		}
		for _, key := range file.Keys() {
			file.Meta(key)
		}
		for _, name := range file.Names() {
			typ, shape, _ := file.Lookup(name)
			data, err := file.Data(name)
			if size, _ := shape.Bytes(typ); err != nil || len(data) != size {
				t.Fatalf("%s: %d bytes, expected %d (%v)", name, len(data), size, err)
			}
		}
	})
}

// TestBitFlips turns every bit of the header in turn: an error or a sound file,
// never a panic or bytes from elsewhere.
func TestBitFlips(t *testing.T) {
	path, _, _ := sample(t, everyKV)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _, err := header(everyKV, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for bit := range 8 * (len(head) + 6*60) { // and the tensors' descriptions
		b[bit/8] ^= 1 << (bit % 8)
		f, err := Parse("flipped", b)
		if err != nil {
			refused++
		} else {
			for _, name := range f.Names() {
				typ, shape, _ := f.Lookup(name)
				data, err := f.Data(name)
				if size, _ := shape.Bytes(typ); err != nil || len(data) != size {
					t.Fatalf("bit %d: %s has %d bytes, expected %d (%v)", bit, name, len(data), size, err)
				}
			}
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if refused < 1000 {
		t.Errorf("%d flips are refused: the header is hardly checked", refused)
	}
}
