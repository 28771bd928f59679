package spvpack

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// archive packs modules, GROUP/NAME each, as tools/spvpack and zstd do.
func archive(t *testing.T, modules map[string][]uint32) fstest.MapFS {
	t.Helper()
	dir := fstest.MapFS{}
	groups := map[string][]byte{}
	var index strings.Builder
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		group, name, _ := strings.Cut(path, "/")
		packed, line, err := Line(group, name, modules[path])
		if err != nil {
			t.Fatal(err)
		}
		groups[group] = append(groups[group], packed...)
		index.WriteString(line)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for group, packed := range groups {
		dir[group+".zst"] = &fstest.MapFile{Data: z.EncodeAll(packed, nil)}
	}
	dir[Index] = &fstest.MapFile{Data: []byte(index.String())}
	return dir
}

func TestArchive(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	modules := map[string][]uint32{}
	for _, path := range []string{"b/one", "b/two", "b/three", "a/zero"} {
		modules[path] = module(rnd)
	}
	a, err := OpenArchive(archive(t, modules))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Names(); !slices.Equal(got, []string{"one", "three", "two", "zero"}) {
		t.Errorf("the names are %q", got)
	}
	hashes := map[string]bool{}
	for path, want := range modules {
		group, name, _ := strings.Cut(path, "/")
		got, err := a.Words(name)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s of %d words comes back as %d: %v", path, len(want), len(got), err)
		}
		if a.Group(name) != group {
			t.Errorf("the group of %s is %q", path, a.Group(name))
		}
		hashes[a.Hash(name)] = true
	}
	if len(hashes) != len(modules) || hashes[""] {
		t.Errorf("the hashes are %v", hashes)
	}
	if _, err := a.Words("four"); err == nil || !strings.Contains(err.Error(), "four") {
		t.Errorf("a module that is not there gives the error %v", err)
	}
}

// TestArchiveDamage: what a folder lacks, or has too much of, is an error that names it.
func TestArchiveDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	good := archive(t, map[string][]uint32{"g/one": module(rnd), "g/two": module(rnd)})
	other := archive(t, map[string][]uint32{"g/one": module(rnd)})
	first, _, _ := strings.Cut(string(good[Index].Data), "\n")
	index := func(text string) fstest.MapFS {
		dir := maps.Clone(good)
		dir[Index] = &fstest.MapFile{Data: []byte(text)}
		return dir
	}
	for name, c := range map[string]struct {
		dir  fstest.MapFS
		want string
	}{
		"no index":          {fstest.MapFS{}, Index},
		"a short line":      {index("g one 12"), "line 1"},
		"bytes of no sense": {index(first + "\ng two -1 00"), "line 2"},
		"one name twice":    {index(first + "\n" + first), "one a second time"},
		"no group":          {index(strings.Replace(first, "g one", "h one", 1)), "h.zst"},
		"more than is here": {index("g zero 999999 00\n" + first), "shorter than its index"},
		"other code":        {index(first[:len(first)-1] + "x"), "other code"},
		"another's group":   {fstest.MapFS{Index: good[Index], "g.zst": other["g.zst"]}, "g.zst"},
		"bytes of no zstd":  {fstest.MapFS{Index: good[Index], "g.zst": &fstest.MapFile{Data: []byte("none")}}, "g.zst"},
	} {
		a, err := OpenArchive(c.dir)
		if err == nil {
			for _, n := range a.Names() {
				if _, e := a.Words(n); e != nil {
					err = e
				}
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, which has not %q", name, err, c.want)
		}
	}
}
