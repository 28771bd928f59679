// Stored responses and conversations: in memory, or a file each, written so that a crash leaves it whole or not there.

package serve

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/plainfile"
	"github.com/greta-project/greta/internal/sorting"
)

// stored is a response with what it answered.
type stored struct {
	ID       string          `json:"id"`
	Input    []inputItem     `json:"input"`
	Messages []Message       `json:"messages"` // all of the conversation, the answer last
	Response *responseObject `json:"response"`
}

// store keeps responses and conversations. Each key sees its own alone.
type store struct {
	dir  string // "": in memory
	most int

	mu    sync.Mutex
	kept  map[string][]byte // by owner and id; nil where it is in a file
	order []string          // the oldest first

	changing sync.Mutex // held where what is stored is read, changed and stored anew
}

// openStore opens a folder, or a store in memory. What a crash left half written is removed.
func openStore(dir string, most int) (*store, error) {
	s := &store{dir: dir, most: most, kept: map[string][]byte{}}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	type found struct {
		name string
		at   int64
	}
	var all []found
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		name, ok := strings.CutSuffix(filepath.ToSlash(rel), ".json")
		if owner, id, two := strings.Cut(name, "/"); !ok || !two || len(owner) != ownerDigits || !storedID.MatchString(id) {
			return nil // not ours
		}
		if st, err := d.Info(); err == nil {
			all = append(all, found{name, st.ModTime().UnixNano()})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("stored responses: %w", err)
	}
	sorting.Sort(all, func(a, b found) int { return cmp.Compare(a.at, b.at) })
	for _, f := range all {
		s.kept[f.name] = nil
		s.order = append(s.order, f.name)
	}
	return s, nil
}

// storedID is what newID gives; nothing else becomes a path.
var storedID = regexp.MustCompile(`^(resp|conv)_[a-z2-7]{24}$`)

// Kinds of what is stored, as ids begin.
const (
	responseKind     = "resp_"
	conversationKind = "conv_"
)

const ownerDigits = 32

// place is where a key's response lies.
func place(key *Key, id string) string {
	sum := sha256.Sum256([]byte(key.name()))
	return hex.EncodeToString(sum[:])[:ownerDigits] + "/" + id
}

func notStored(kind, id string) *Error {
	name := map[string]string{responseKind: "Response", conversationKind: "Conversation"}[kind]
	return &Error{Status: 404, Type: "invalid_request_error",
		Message: fmt.Sprintf("%s with id '%s' not found.", name, clip(id, 80))}
}

// get gives a response of that key.
func (s *store) get(key *Key, id string) (*stored, error) {
	var v stored
	return &v, s.load(key, responseKind, id, &v)
}

// load reads what that key has of a kind.
func (s *store) load(key *Key, kind, id string, v any) error {
	if !strings.HasPrefix(id, kind) || !storedID.MatchString(id) {
		return notStored(kind, id)
	}
	name := place(key, id)
	s.mu.Lock()
	data, ok := s.kept[name]
	s.mu.Unlock()
	if !ok {
		return notStored(kind, id)
	}
	if data == nil {
		var err error
		if data, err = plainfile.Read(s.path(name)); errors.Is(err, fs.ErrNotExist) {
			return notStored(kind, id)
		} else if err != nil {
			return err
		}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("what is stored as %s is damaged: %w", id, err)
	}
	return nil
}

// item finds an item of that key's responses and conversations, nil where there is none.
func (s *store) item(key *Key, id string) (*inputItem, error) {
	if !itemID(id) {
		return nil, nil
	}
	owner := place(key, "")
	s.mu.Lock()
	order := slices.Clone(s.order)
	s.mu.Unlock()
	for _, name := range slices.Backward(order) {
		if !strings.HasPrefix(name, owner) {
			continue
		}
		s.mu.Lock()
		data, ok := s.kept[name]
		s.mu.Unlock()
		if ok && data == nil {
			var err error
			if data, err = plainfile.Read(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if !bytes.Contains(data, []byte(`"`+id+`"`)) {
			continue
		}
		var all struct {
			Input, Items []inputItem
			Response     struct{ Output []inputItem }
		}
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("what is stored as %s is damaged: %w", strings.TrimPrefix(name, owner), err)
		}
		for _, it := range slices.Concat(all.Response.Output, all.Input, all.Items) {
			if it.ID == id {
				return &it, nil
			}
		}
	}
	return nil, nil
}

func (s *store) path(name string) string {
	return filepath.Join(s.dir, filepath.FromSlash(name)+".json")
}

// put keeps a response.
func (s *store) put(key *Key, v *stored) error { return s.save(key, v.ID, v) }

// save keeps something under its id; the oldest goes where there is too much. An error means that it is not kept.
func (s *store) save(key *Key, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	name := place(key, id)
	if s.dir != "" {
		path := s.path(name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = atomicfile.Write(path, data, 0o600)
		}
		if err != nil {
			return &Error{Status: 500, Type: "server_error", Code: "not_stored",
				Message: fmt.Sprintf("%s could not be stored: %v; store: false asks for no response", id, unpathed(err))}
		}
		data = nil
	}
	s.mu.Lock()
	if _, again := s.kept[name]; again {
		s.order = slices.DeleteFunc(s.order, func(n string) bool { return n == name })
	}
	s.kept[name] = data
	s.order = append(s.order, name)
	var gone []string
	for len(s.kept) > s.most && len(s.order) > 0 {
		old := s.order[0]
		s.order = s.order[1:]
		if _, ok := s.kept[old]; ok {
			delete(s.kept, old)
			gone = append(gone, old)
		}
	}
	s.mu.Unlock()
	if s.dir != "" {
		for _, old := range gone {
			os.Remove(s.path(old))
		}
	}
	return nil
}

// unpathed is what is wrong with a file, without where it lies.
func unpathed(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// remove forgets what that key has of a kind.
func (s *store) remove(key *Key, kind, id string) error {
	if !strings.HasPrefix(id, kind) || !storedID.MatchString(id) {
		return notStored(kind, id)
	}
	name := place(key, id)
	s.mu.Lock()
	_, ok := s.kept[name]
	delete(s.kept, name)
	s.mu.Unlock()
	if !ok {
		return notStored(kind, id)
	}
	if s.dir != "" {
		return os.Remove(s.path(name))
	}
	return nil
}
