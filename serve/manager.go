// Which models there are: loaded on demand, under several names, and unloaded when nobody has asked
// for a while.

package serve

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/plainfile"
)

// Spec is one model that can be served.
type Spec struct {
	Name         string        `yaml:"name"`
	Path         string        `yaml:"path"`
	Aliases      []string      `yaml:"aliases"`
	Preload      bool          `yaml:"preload"`
	Idle         time.Duration `yaml:"idle"` // unloaded when nobody asked for so long; 0: as the server's flag says
	Context      int           `yaml:"context"`
	Parallel     int           `yaml:"parallel"`
	Backend      string        `yaml:"backend"`
	Device       string        `yaml:"device"`
	ChatTemplate string        `yaml:"chat-template"`
	KV           string        `yaml:"kv"`
	// Adapters are files or folders by the names under which clients ask for the model with one of them.
	Adapters map[string]string `yaml:"adapters"`
	Task     string            `yaml:"task"` // generate, embed or score; empty: as the model's files say
}

// modelsFile is what --models names.
type modelsFile struct {
	Models []Spec `yaml:"models"`
	Most   int    `yaml:"most-loaded"`
}

// ReadSpecs reads a file of models. Its keys are those of Spec; unknown ones are errors.
func ReadSpecs(path string) (specs []Spec, most int, err error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var file modelsFile
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && err != io.EOF {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	if file.Most < 0 {
		return nil, 0, fmt.Errorf("%s: most-loaded %d: it must be 0 or more", path, file.Most)
	}
	if len(file.Models) == 0 {
		return nil, 0, fmt.Errorf("%s: it lists no models; expected is models: [{name: NAME, path: PATH}]", path)
	}
	for i, m := range file.Models {
		if m.Name == "" || m.Path == "" {
			return nil, 0, fmt.Errorf("%s: model %d needs name and path", path, i+1)
		}
		if m.Idle < 0 || m.Context < 0 || m.Parallel < 0 {
			return nil, 0, fmt.Errorf("%s: %s: idle, context and parallel must be 0 or more", path, m.Name)
		}
	}
	return file.Models, file.Most, nil
}

// Loader loads a model. It is called by one goroutine at a time for each model.
type Loader func(ctx context.Context, spec Spec) (Model, error)

// Manager keeps models.
type Manager struct {
	load  Loader
	idle  time.Duration
	most  int // loaded at once; 0: all
	log   *slog.Logger
	now   func() time.Time
	order []*entry

	mu     sync.Mutex
	byName map[string]*entry
	closed bool
}

type entry struct {
	spec    Spec
	manager *Manager
	model   Model
	users   int
	used    time.Time
	loading chan struct{} // closed when a load has ended; nil: none is under way
	err     error         // of the last load
	took    time.Duration
}

// NewManager checks names. idle is how long a model that nobody uses stays, 0: for ever.
func NewManager(specs []Spec, load Loader, idle time.Duration, most int, log *slog.Logger) (*Manager, error) {
	m := &Manager{load: load, idle: idle, most: most, log: log, now: time.Now, byName: map[string]*entry{}}
	for _, s := range specs {
		e := &entry{spec: s, manager: m}
		m.order = append(m.order, e)
		for _, name := range s.names() {
			if _, taken := m.byName[name]; taken {
				return nil, fmt.Errorf("two models are called %s", name)
			}
			m.byName[name] = e
		}
	}
	return m, nil
}

// names are all under which clients ask for the model: its own, aliases, those of adapters.
func (s *Spec) names() []string {
	return slices.Concat([]string{s.Name}, s.Aliases, slices.Sorted(maps.Keys(s.Adapters)))
}

// adapterOf gives the adapter that a name asks for, "" where it asks for none.
func (e *entry) adapterOf(name string) string {
	if _, ok := e.spec.Adapters[name]; ok {
		return name
	}
	return ""
}

// Lose unloads a model whose device is lost, and loads it anew: requests that come meanwhile wait for it.
func (m *Manager) Lose(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byName[name]
	if e == nil || e.model == nil || m.closed {
		return
	}
	m.log.Error("the device is lost; loading anew", "model", name, "error", err)
	lost := e.model
	e.model, e.loading = nil, make(chan struct{})
	go func() {
		if err := lost.Close(); err != nil {
			m.log.Warn("closing behind a lost device", "model", name, "error", err)
		}
		m.loadEntry(e)
	}()
}

// names are those of the models that a key may use.
func (m *Manager) names(key *Key) []string {
	var names []string
	for _, e := range m.order {
		if key.allows(e.spec.Name) {
			names = append(names, e.spec.Name)
		}
	}
	return names
}

// noModel is the error for a name that nobody has, as far as the holder of a key knows.
func (m *Manager) noModel(name string, key *Key) *Error {
	e := &Error{Status: 404, Type: "invalid_request_error", Code: "model_not_found", Param: "model",
		Message: "no model is served that this key may use"}
	if names := m.names(key); len(names) > 0 {
		e.Message = fmt.Sprintf("The model `%s` does not exist; there are %s", clip(name, 100), strings.Join(names, ", "))
	}
	return e
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// find gives the entry of a name that a key may use; the first of those where none is named.
func (m *Manager) find(name string, key *Key) (*entry, error) {
	if name == "" {
		if names := m.names(key); len(names) > 0 {
			name = names[0]
		}
	}
	e := m.byName[name]
	if e == nil || !key.allows(e.spec.Name) {
		return nil, m.noModel(name, key)
	}
	return e, nil
}

// Use gives a model, loading it first if need be. release must be called.
func (m *Manager) Use(ctx context.Context, name string) (model Model, release func(), err error) {
	e, err := m.find(name, nil)
	if err != nil {
		return nil, nil, err
	}
	for {
		m.mu.Lock()
		switch {
		case m.closed:
			m.mu.Unlock()
			return nil, nil, &Error{Status: 503, Type: "server_error", Message: "the server is ending", After: time.Second}
		case e.model != nil:
			e.users++
			e.used = m.now()
			model := e.model
			m.mu.Unlock()
			return model, sync.OnceFunc(func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				e.users--
				e.used = m.now()
			}), nil
		case e.loading == nil:
			e.loading = make(chan struct{})
			go m.loadEntry(e)
		}
		loading := e.loading
		m.mu.Unlock()
		select {
		case <-loading:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		m.mu.Lock()
		err := e.err
		m.mu.Unlock()
		if err != nil {
			return nil, nil, &Error{Status: 503, Type: "server_error", Code: "model_load_failed",
				Message: fmt.Sprintf("%s could not be loaded: %v", e.spec.Name, err), After: 10 * time.Second}
		}
	}
}

// loadEntry loads for all who wait. It goes on when the one who asked first went away.
func (m *Manager) loadEntry(e *entry) {
	m.makeRoom(e)
	start := time.Now()
	model, err := m.load(context.Background(), e.spec)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.Error("loading failed", "model", e.spec.Name, "error", err)
	} else {
		m.log.Info("loaded", "model", e.spec.Name, "seconds", time.Since(start).Seconds())
	}
	if m.closed && model != nil {
		go model.Close()
		model = nil
	}
	e.model, e.err, e.took, e.used = model, err, time.Since(start), m.now()
	close(e.loading)
	e.loading = nil
}

// makeRoom unloads the model that was used longest ago, where as many are loaded as may be.
func (m *Manager) makeRoom(e *entry) {
	if m.most <= 0 {
		return
	}
	m.mu.Lock()
	loaded := 0
	var oldest *entry
	for _, o := range m.order {
		if o.model == nil || o == e {
			continue
		}
		loaded++
		if o.users == 0 && (oldest == nil || o.used.Before(oldest.used)) {
			oldest = o
		}
	}
	if loaded < m.most || oldest == nil {
		m.mu.Unlock()
		return
	}
	model := oldest.model
	oldest.model = nil
	m.mu.Unlock()
	m.log.Info("unloaded for another", "model", oldest.spec.Name, "error", model.Close())
}

// Sweep unloads what nobody has used for long.
func (m *Manager) Sweep() {
	m.mu.Lock()
	var gone []*entry
	var models []Model
	for _, e := range m.order {
		idle := e.spec.Idle
		if idle == 0 {
			idle = m.idle
		}
		if e.model != nil && e.users == 0 && idle > 0 && m.now().Sub(e.used) > idle {
			gone, models = append(gone, e), append(models, e.model)
			e.model = nil
		}
	}
	m.mu.Unlock()
	for i, e := range gone {
		m.log.Info("unloaded, nobody asked for it", "model", e.spec.Name, "error", models[i].Close())
	}
}

// Loaded calls f for each loaded model.
func (m *Manager) Loaded(f func(name string, model Model)) {
	m.mu.Lock()
	var names []string
	var models []Model
	for _, e := range m.order {
		if e.model != nil {
			names, models = append(names, e.spec.Name), append(models, e.model)
		}
	}
	m.mu.Unlock()
	for i, model := range models {
		f(names[i], model)
	}
}

// Preload loads those that are to be there from the beginning. It gives the first error.
func (m *Manager) Preload(ctx context.Context) error {
	for _, e := range m.order {
		if !e.spec.Preload {
			continue
		}
		_, release, err := m.Use(ctx, e.spec.Name)
		if err != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			if e.err != nil {
				return e.err
			}
			return err
		}
		release()
	}
	return nil
}

// Close unloads all. Answers must have ended.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	var models []Model
	for _, e := range m.order {
		if e.model != nil {
			models = append(models, e.model)
			e.model = nil
		}
	}
	m.mu.Unlock()
	var err error
	for _, model := range models {
		if e := model.Close(); err == nil {
			err = e
		}
	}
	return err
}

// modelObject is OpenAI's object of a model, with vLLM's and Mistral's fields beside it.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // model
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Root    string `json:"root,omitempty"`
	Parent  string `json:"parent,omitempty"` // what it is another name of
	Length  int    `json:"max_model_len,omitempty"`
	Loaded  bool   `json:"loaded"`
	Chat    bool   `json:"chat"`

	Type    string     `json:"type"` // Mistral's: base; Anthropic's: model
	Does    *modelDoes `json:"capabilities,omitempty"`
	Longest int        `json:"max_context_length,omitempty"`

	Display  string `json:"display_name,omitempty"`
	CreateAt string `json:"created_at,omitempty"`
}

// modelDoes is what Mistral's clients read of a model; of one that is not loaded nothing is known.
type modelDoes struct {
	Chat      bool `json:"completion_chat"`
	Tools     bool `json:"function_calling"`
	Reasoning bool `json:"reasoning"`
}

// anthropic gives Anthropic's fields instead of Mistral's.
func (o modelObject) anthropic() modelObject {
	o.Does, o.Longest = nil, 0
	o.Type, o.Display, o.CreateAt = "model", o.ID, time.Unix(o.Created, 0).UTC().Format(time.RFC3339)
	return o
}

// started is when the server's models were first known.
var started = time.Now()

// list gives all models under all their names that may sees.
func (m *Manager) list(may func(name string) bool) []modelObject {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []modelObject{}
	for _, e := range m.order {
		for _, name := range e.spec.names() {
			if !may(e.spec.Name) {
				continue
			}
			o := modelObject{ID: name, Object: "model", Created: started.Unix(), OwnedBy: "greta", Root: e.spec.Path,
				Type: "base", Does: &modelDoes{}}
			if name != e.spec.Name {
				o.Parent = e.spec.Name
			}
			if e.model != nil {
				i := e.model.Info()
				o.Length, o.Longest, o.Loaded = i.Context, i.Context, true
				if chat := e.model.Chat(); chat != nil {
					o.Chat, o.Does = true, &modelDoes{Chat: true, Tools: chat.Tools(), Reasoning: chat.Reasoning()}
				}
			}
			out = append(out, o)
		}
	}
	return out
}
