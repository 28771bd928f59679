package hub

// What is here: listing, removing, copying.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/plainfile"
)

// Model is one that is here.
type Model struct {
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	Time  time.Time `json:"time"`
}

// List gives the models that are here, by name.
func (h *Hub) List() ([]Model, error) {
	var all []Model
	repos, _ := filepath.Glob(filepath.Join(h.HFCache, "models--*--*"))
	for _, dir := range repos {
		repo := strings.Replace(strings.TrimPrefix(filepath.Base(dir), "models--"), "--", "/", 1)
		all = append(all, h.snapshots(dir, repo)...)
	}
	root := filepath.Join(h.OllamaDir, "manifests")
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreMissing(err)
		}
		rel, _ := filepath.Rel(root, at)
		parts := strings.Split(filepath.ToSlash(rel), "/")
		if len(parts) < 4 {
			return nil
		}
		r := Ref{Source: Ollama, Repo: strings.Join(parts[len(parts)-3:len(parts)-1], "/"), Quant: parts[len(parts)-1]}
		data, err := plainfile.Read(at)
		var m manifest
		if err != nil || json.Unmarshal(data, &m) != nil {
			return nil
		}
		sum, _, err := m.model(r)
		if err != nil {
			return nil
		}
		blob := filepath.Join(h.OllamaDir, "blobs", "sha256-"+sum)
		if st, err := os.Stat(blob); err == nil {
			all = append(all, Model{r.String(), blob, st.Size(), st.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	files, _ := filepath.Glob(filepath.Join(h.URLDir, "*", addressFile))
	for _, f := range files {
		address, err := plainfile.Read(f)
		if err != nil {
			continue
		}
		for _, e := range entries(filepath.Dir(f)) {
			if e.Name() != addressFile && !strings.Contains(e.Name(), unfinished) && !strings.HasSuffix(e.Name(), ".lock") {
				if st, err := e.Info(); err == nil {
					at := filepath.Join(filepath.Dir(f), e.Name())
					all = append(all, Model{strings.TrimSpace(string(address)), at, st.Size(), st.ModTime()})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func entries(dir string) []os.DirEntry {
	all, _ := os.ReadDir(dir)
	return all
}

// snapshots gives the models of a repository that its refs name: each GGUF file, or the folder.
func (h *Hub) snapshots(dir, repo string) []Model {
	var all []Model
	for _, ref := range entries(filepath.Join(dir, "refs")) {
		sha, err := plainfile.Read(filepath.Join(dir, "refs", ref.Name()))
		if err != nil || !commit.MatchString(strings.TrimSpace(string(sha))) {
			continue
		}
		snapshot := filepath.Join(dir, "snapshots", strings.TrimSpace(string(sha)))
		r := Ref{Source: HF, Repo: repo, Revision: ref.Name()}
		folder := Model{Name: r.String(), Path: snapshot}
		groups := map[string]*Model{}
		_ = filepath.WalkDir(snapshot, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			st, err := os.Stat(at)
			if err != nil {
				return nil
			}
			m := &folder
			if strings.HasSuffix(at, ".gguf") {
				stem := shard.ReplaceAllString(filepath.Base(at), ".gguf")
				if groups[stem] == nil {
					q := r
					q.Quant = strings.TrimSuffix(stem, ".gguf")
					groups[stem] = &Model{Name: q.String(), Path: at}
				}
				m = groups[stem]
			}
			m.Bytes += st.Size()
			if st.ModTime().After(m.Time) {
				m.Time = st.ModTime()
			}
			return nil
		})
		for _, g := range groups {
			all = append(all, *g)
		}
		if files, _ := filepath.Glob(filepath.Join(snapshot, "*.safetensors")); len(files) > 0 {
			all = append(all, folder)
		}
	}
	return all
}

// Find gives a model that is here.
func (h *Hub) Find(name string) (Model, error) {
	r, err := Parse(name)
	if err != nil {
		return Model{}, err
	}
	all, err := h.List()
	if err != nil {
		return Model{}, err
	}
	var fits []Model
	for _, m := range all {
		if m.Name == r.String() {
			return m, nil
		}
		q, err := Parse(m.Name)
		if err == nil && q.Source == r.Source && q.Repo == r.Repo && q.Revision == r.Revision && r.Source == HF &&
			(r.Quant == "" || hasWord(q.Quant, r.Quant)) {
			fits = append(fits, m)
		}
	}
	switch len(fits) {
	case 0:
		return Model{}, fmt.Errorf("%s is not here; greta list says what is", r)
	case 1:
		return fits[0], nil
	}
	var names []string
	for _, m := range fits {
		names = append(names, m.Name)
	}
	return Model{}, fmt.Errorf("%s can be each of %s", r, strings.Join(names, ", "))
}

// Remove takes a model away: its files, and what nothing else needs.
func (h *Hub) Remove(name string) (Model, error) {
	m, err := h.Find(name)
	if err != nil {
		return m, err
	}
	r, err := Parse(m.Name)
	if err != nil {
		return m, err
	}
	switch r.Source {
	case URL:
		return m, os.RemoveAll(filepath.Dir(m.Path))
	case Ollama:
		if err := os.Remove(h.manifestPath(r)); err != nil {
			return m, err
		}
		rest, err := h.List()
		if err != nil || slices.ContainsFunc(rest, func(o Model) bool { return o.Path == m.Path }) {
			return m, err
		}
		return m, os.Remove(m.Path)
	}
	if r.Quant == "" {
		return m, os.RemoveAll(h.repoDir(r.Repo))
	}
	stem := shard.ReplaceAllString(m.Path, ".gguf")
	for _, e := range entries(filepath.Dir(m.Path)) {
		at := filepath.Join(filepath.Dir(m.Path), e.Name())
		if shard.ReplaceAllString(at, ".gguf") != stem {
			continue
		}
		if blob, err := filepath.EvalSymlinks(at); err == nil && blob != at {
			if err := os.Remove(blob); err != nil {
				return m, err
			}
		}
		if err := os.Remove(at); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Copy writes a model's files to a path: a file, or a folder that is there or ends in a slash. What is
// there already is not overwritten.
func (h *Hub) Copy(ctx context.Context, name, to string) error {
	m, err := h.Find(name)
	if err != nil {
		return err
	}
	st, err := os.Stat(m.Path)
	if err != nil {
		return err
	}
	intoFolder := strings.HasSuffix(to, "/")
	if at, err := os.Stat(to); err == nil && at.IsDir() {
		intoFolder = true
	}
	if !st.IsDir() {
		stem := shard.ReplaceAllString(m.Path, ".gguf")
		if !intoFolder && stem == m.Path {
			return copyFile(ctx, m.Path, to)
		}
		for _, e := range entries(filepath.Dir(m.Path)) {
			if at := filepath.Join(filepath.Dir(m.Path), e.Name()); at == m.Path || shard.ReplaceAllString(at,
				".gguf") == stem {
				if err := copyFile(ctx, at, filepath.Join(to, e.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return filepath.WalkDir(m.Path, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(m.Path, at)
		if err != nil {
			return err
		}
		return copyFile(ctx, at, filepath.Join(to, rel))
	})
}

// copyFile writes a file anew, under another name until it is whole.
func copyFile(ctx context.Context, from, to string) (err error) {
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s is there already", to)
	}
	in, err := plainfile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to + unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(os.Remove(to+unfinished)))
		}
	}()
	_, err = io.Copy(out, reader{ctx, in})
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(to+unfinished, to)
}

// reader ends where ctx does.
type reader struct {
	ctx context.Context
	in  io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}
