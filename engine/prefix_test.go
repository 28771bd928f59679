package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPrefixesOnDisk: what one scheduler computed the next one need not, and says the same; other weights, types of
// cache and salts share nothing; a damaged page is computed.
// In one piece: each scheduler finds what the one before it left.
func TestPrefixesOnDisk(t *testing.T) {
	dir := t.TempDir()
	prompt := make([]int32, 70)
	for i := range prompt {
		prompt[i] = int32(i * 7 % 50)
	}
	ask := func(o Options, r Request) (text []int32, cached int, st Stats) {
		t.Helper()
		o.Model, o.Device = small(t), newCPU(t, 2)
		if o.Context == 0 {
			o.Context = 120
		}
		s, err := NewScheduler(newEngine(t, o), SchedulerOptions{Tokens: 256, Page: 16, PrefixDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		r.Max = 8
		h, err := s.Add(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(h)
		if err != nil {
			t.Fatal(err)
		}
		cached = h.Result().Cached
		st = s.Stats()
		freed(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return got[0], cached, st
	}
	want, cached, _ := ask(Options{}, Request{Prompt: prompt})
	if cached != 0 {
		t.Fatalf("%d of an empty folder's tokens were known", cached)
	}
	for _, c := range []struct {
		name string
		o    Options
		r    Request
		want int
	}{
		{"again", Options{}, Request{Prompt: prompt}, 64},
		{"another context", Options{Context: 110}, Request{Prompt: prompt}, 64},
		{"a part", Options{}, Request{Prompt: append(slices.Clone(prompt[:40]), 1, 2, 3)}, 32},
		{"several choices", Options{}, Request{Prompt: prompt, Choices: 2}, 64},
		{"another seed of weights", Options{Seed: 9}, Request{Prompt: prompt}, 0},
		{"another salt", Options{}, Request{Prompt: prompt, Salt: "x"}, 0},
		{"another prompt", Options{}, Request{Prompt: prompt[1:]}, 0},
	} {
		text, cached, st := ask(c.o, c.r)
		if cached != c.want || st.PrefixLoaded != c.want {
			t.Errorf("%s: %d cached, %d of them from the disk, not %d", c.name, cached, st.PrefixLoaded, c.want)
		}
		if slices.Equal(c.r.Prompt, prompt) && c.o.Seed == 0 && !slices.Equal(text, want) {
			t.Errorf("%s: %v, at first %v", c.name, text, want)
		}
	}
	// Half of all pages are damaged.
	n := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".page") {
			return err
		}
		if n++; n%2 == 0 {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 16
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil || n < 8 {
		t.Fatalf("%d pages: %v", n, err)
	}
	if text, cached, _ := ask(Options{}, Request{Prompt: prompt}); !slices.Equal(text, want) || cached == 64 && n > 20 {
		t.Errorf("behind damage: %v, at first %v, %d cached", text, want, cached)
	}
	if text, cached, _ := ask(Options{}, Request{Prompt: prompt}); !slices.Equal(text, want) || cached != 64 {
		t.Errorf("damaged pages are not written anew: %d cached, %v", cached, text)
	}
}

// TestUnkeptPrefixIsSaid: a server may run for months, so what cannot be kept is said while it runs, and once.
func TestUnkeptPrefixIsSaid(t *testing.T) {
	notes := make(chan string, 100)
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64, Notify: func(s string) { notes <- s }})
	s, err := NewScheduler(e, SchedulerOptions{Page: 16, PrefixDir: t.TempDir(), PrefixLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := int32(0); len(notes) == 0; i++ {
		if i == 1000 {
			t.Fatal("nothing is said of pages that are larger than the folder may be")
		}
		h, err := s.Add(t.Context(), Request{Prompt: append(make([]int32, 32), i%50), Max: 1, Salt: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(h); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if said := <-notes; len(notes) > 0 || !strings.Contains(said, "may hold") {
		t.Errorf("%d notes, the first: %s", 1+len(notes), said)
	}
}

func TestPrefixDirIsRefused(t *testing.T) {
	e := newEngine(t, Options{Model: small(t), Device: newCPU(t, 1), Context: 64})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []SchedulerOptions{{PrefixDir: file}, {PrefixDir: t.TempDir(), NoPrefix: true},
		{PrefixDir: t.TempDir(), PrefixLimit: -1}} {
		if s, err := NewScheduler(e, o); err == nil {
			t.Errorf("%+v was taken", o)
			s.Close()
		}
	}
}
