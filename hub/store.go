package hub

// What is here: listing, removing, copying.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
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
					first, _, _ := strings.Cut(string(address), "\n")
					all = append(all, Model{strings.TrimSpace(first), at, st.Size(), st.ModTime()})
				}
			}
		}
	}
	sorting.Sort(all, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func entries(dir string) []os.DirEntry {
	all, _ := os.ReadDir(dir)
	return all
}

// revisions gives the names of a repository's commits that are here: those of its refs, or the commits themselves.
func revisions(dir string) map[string][]string {
	names := map[string][]string{}
	for _, e := range entries(filepath.Join(dir, "snapshots")) {
		if commit.MatchString(e.Name()) {
			names[e.Name()] = nil
		}
	}
	root := filepath.Join(dir, "refs")
	_ = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		data, err := plainfile.Read(at)
		sha := strings.TrimSpace(string(data))
		if _, here := names[sha]; err == nil && here {
			rel, _ := filepath.Rel(root, at)
			names[sha] = append(names[sha], filepath.ToSlash(rel))
		}
		return nil
	})
	for sha := range names {
		if names[sha] == nil {
			names[sha] = []string{sha}
		}
	}
	return names
}

// snapshots gives the models of a repository that are here: of each revision each GGUF file, or the folder.
func (h *Hub) snapshots(dir, repo string) []Model {
	var all []Model
	for sha, names := range revisions(dir) {
		for _, name := range names {
			all = append(all, snapshotModels(filepath.Join(dir, "snapshots", sha),
				Ref{Source: HF, Repo: repo, Revision: name})...)
		}
	}
	return all
}

// snapshotModels gives the models of one commit.
func snapshotModels(snapshot string, r Ref) []Model {
	var all []Model
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
	return m, h.removeHF(r, m)
}

// removeHF takes a model out of its commit, and blobs, commits, refs and at last the repository that are of no more
// use. Where the commit has another name too, only the name goes.
func (h *Hub) removeHF(r Ref, m Model) error {
	dir := h.repoDir(r.Repo)
	ref := filepath.Join(dir, "refs", filepath.FromSlash(r.Revision))
	for sha, names := range revisions(dir) {
		if len(names) > 1 && slices.Contains(names, r.Revision) {
			return os.Remove(ref)
		} else if !slices.Contains(names, r.Revision) {
			continue
		}
		snapshot := filepath.Join(dir, "snapshots", sha)
		left, err := h.unlink(snapshot, r, m)
		if err != nil {
			return err
		}
		if left == 0 {
			if err := errlist.Join(os.RemoveAll(snapshot), ignoreMissing(os.Remove(ref))); err != nil {
				return err
			}
		}
	}
	if len(revisions(dir)) == 0 {
		return os.RemoveAll(dir)
	}
	return h.sweep(dir)
}

// unlink takes a model's files out of a snapshot, and says how many stay.
func (h *Hub) unlink(snapshot string, r Ref, m Model) (left int, err error) {
	stem := shard.ReplaceAllString(m.Path, ".gguf")
	err = filepath.WalkDir(snapshot, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		gguf := strings.HasSuffix(at, ".gguf")
		if r.Quant == "" && !gguf || gguf && r.Quant != "" && shard.ReplaceAllString(at, ".gguf") == stem {
			return os.Remove(at)
		}
		left++
		return nil
	})
	return left, err
}

// sweep removes the blobs of a repository that no snapshot has. What is not finished stays.
func (h *Hub) sweep(dir string) error {
	used := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(dir, "snapshots"), func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if to, err := filepath.EvalSymlinks(at); err == nil {
			used[filepath.Base(to)] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range entries(filepath.Join(dir, "blobs")) {
		if !used[e.Name()] && commit.MatchString(e.Name()) {
			if err := os.Remove(filepath.Join(dir, "blobs", e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
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
		if !intoFolder && shard.MatchString(m.Path) {
			return fmt.Errorf("%s has several files: %s must be a folder, or end in a slash", m.Name, to)
		}
		stem := shard.ReplaceAllString(m.Path, ".gguf")
		if !intoFolder {
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
			err = errlist.Join(err, ignoreMissing(os.Remove(to+unfinished)))
		}
	}()
	_, err = io.Copy(out, reader{ctx, in})
	if err = errlist.Join(err, out.Close()); err != nil {
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
