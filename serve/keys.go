// Who may do what, and how much: keys are known by their hashes alone.

package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/greta-project/greta/internal/plainfile"
)

// Scopes of keys.
const (
	ScopeInference = "inference" // ask models
	ScopeMetrics   = "metrics"   // read /metrics
	ScopeLive      = "live"      // see the batch
	ScopeAdmin     = "admin"     // all of it
)

// Key is one line of a file of keys.
type Key struct {
	Name     string   `yaml:"name"`
	Hash     string   `yaml:"sha256"`           // of the key, in hexadecimal
	Scopes   []string `yaml:"scopes,omitempty"` // default: inference
	Models   []string `yaml:"models,omitempty"` // default: all
	Priority int      `yaml:"priority,omitempty"`
	// Bounds, 0: none. Tokens are those of prompts and answers.
	RequestsPerMinute int       `yaml:"requests-per-minute,omitempty"`
	TokensPerMinute   int       `yaml:"tokens-per-minute,omitempty"`
	TokensPerDay      int       `yaml:"tokens-per-day,omitempty"`
	Parallel          int       `yaml:"parallel,omitempty"` // requests at once
	Expires           time.Time `yaml:"expires,omitempty"`

	state *keyState
}

// keyState is what a key has used.
type keyState struct {
	mu       sync.Mutex
	requests bucket
	tokens   bucket
	day      bucket
	running  int
}

// bucket is filled at a steady rate and may be overdrawn by what was not known before.
type bucket struct {
	level float64
	at    time.Time
}

// fill gives the level now, of a bucket that holds most and fills in span.
func (b *bucket) fill(now time.Time, most float64, span time.Duration) float64 {
	if b.at.IsZero() {
		b.level = most
	} else {
		b.level = min(most, b.level+most*now.Sub(b.at).Seconds()/span.Seconds())
	}
	b.at = now
	return b.level
}

// wait is how long until the level is at least n.
func (b *bucket) wait(n, most float64, span time.Duration) time.Duration {
	return time.Duration((n - b.level) / most * float64(span))
}

// Keys are those that a server knows. A nil or empty one lets everybody in.
type Keys struct {
	mu     sync.RWMutex
	byHash map[[32]byte]*Key
	path   string
	now    func() time.Time
	looked time.Time // when the file was looked at
	stamp  stamp     // of the file as it was read last
	log    *slog.Logger
}

// stamp tells a file that changed.
type stamp struct {
	time time.Time
	size int64
}

// lookKeys is how often the file of keys is looked at, when requests come.
const lookKeys = 2 * time.Second

// NewKeys makes keys of lines.
func NewKeys(list []*Key) (*Keys, error) {
	k := &Keys{now: time.Now}
	m, err := index(list, nil)
	k.byHash = m
	return k, err
}

// PlainKey makes a line of a key as it is.
func PlainKey(name, key string) *Key {
	sum := sha256.Sum256([]byte(key))
	return &Key{Name: name, Hash: hex.EncodeToString(sum[:]), Scopes: []string{ScopeAdmin}}
}

// NewKey makes a random key and its line.
func NewKey(name string) (key string, line string, err error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	key = "sk-greta-" + base64.RawURLEncoding.EncodeToString(raw)
	k := PlainKey(name, key)
	k.Scopes = []string{ScopeInference}
	data, err := yaml.Marshal([]*Key{k})
	return key, string(data), err
}

// ReadKeys reads a file: a list of keys.
func ReadKeys(path string) (*Keys, error) {
	k := &Keys{path: path, now: time.Now, log: slog.New(slog.DiscardHandler)} // until a server has it
	return k, k.Reload()
}

// Reload reads the file again; what keys have used stays. On an error the old ones stay.
func (k *Keys) Reload() error {
	if k.path == "" {
		return nil
	}
	f, err := plainfile.Open(k.path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.stamp = stamp{st.ModTime(), st.Size()}
	k.mu.Unlock()
	var list []*Key
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&list); err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	if len(list) == 0 {
		return fmt.Errorf("%s: no keys; expected is a list of {name: NAME, sha256: HASH}", k.path)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	m, err := index(list, k.byHash)
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	k.byHash = m
	return nil
}

// refresh reads the file again where it changed. One that cannot be read is told once, and the old keys stay.
func (k *Keys) refresh() {
	if k.path == "" {
		return
	}
	k.mu.Lock()
	now := k.now()
	soon := now.Sub(k.looked) < lookKeys
	if !soon {
		k.looked = now
	}
	before := k.stamp
	k.mu.Unlock()
	if soon {
		return
	}
	st, err := os.Stat(k.path)
	switch {
	case err != nil && before == (stamp{}):
		return
	case err != nil:
		k.mu.Lock()
		k.stamp = stamp{}
		k.mu.Unlock()
	case (stamp{st.ModTime(), st.Size()}) == before:
		return
	default:
		err = k.Reload()
	}
	if err != nil {
		k.log.Warn("the file of keys cannot be read again; the keys before stay", "error", err)
		return
	}
	k.log.Info("the file of keys was read again", "file", k.path)
}

func index(list []*Key, old map[[32]byte]*Key) (map[[32]byte]*Key, error) {
	m := map[[32]byte]*Key{}
	for i, key := range list {
		raw, err := hex.DecodeString(strings.TrimSpace(key.Hash))
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("key %d (%s): sha256 must be 64 hexadecimal digits", i+1, key.Name)
		}
		if key.Name == "" {
			return nil, fmt.Errorf("key %d has no name", i+1)
		}
		if len(key.Scopes) == 0 {
			key.Scopes = []string{ScopeInference}
		}
		for _, s := range key.Scopes {
			if !slices.Contains([]string{ScopeInference, ScopeMetrics, ScopeLive, ScopeAdmin}, s) {
				return nil, fmt.Errorf("key %d (%s): there is no scope %s", i+1, key.Name, s)
			}
		}
		if key.RequestsPerMinute < 0 || key.TokensPerMinute < 0 || key.TokensPerDay < 0 || key.Parallel < 0 {
			return nil, fmt.Errorf("key %d (%s): bounds must be 0 or more; 0 is none", i+1, key.Name)
		}
		hash := [32]byte(raw)
		if other := m[hash]; other != nil {
			return nil, fmt.Errorf("key %d (%s) is the same as that of %s", i+1, key.Name, other.Name)
		}
		// Requests that run hold the line of before: what both have used is one.
		if before := old[hash]; before != nil {
			key.state = before.state
		} else {
			key.state = &keyState{}
		}
		m[hash] = key
	}
	return m, nil
}

// check finds the key of a request. Without keys it is nil and everything is allowed.
func (k *Keys) check(r *http.Request, scope string) (*Key, error) {
	if k == nil {
		return nil, nil
	}
	k.refresh()
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.byHash) == 0 {
		return nil, nil
	}
	text := r.Header.Get("X-Api-Key") // Anthropic's
	if auth := r.Header.Get("Authorization"); auth != "" {
		scheme, rest, _ := strings.Cut(auth, " ")
		if strings.EqualFold(scheme, "Bearer") {
			text = strings.TrimSpace(rest)
		}
	}
	if text == "" {
		return nil, &Error{Status: 401, Type: "invalid_request_error", Code: "missing_api_key",
			Message: "You didn't provide an API key: send it as Authorization: Bearer KEY or as x-api-key: KEY"}
	}
	key := k.byHash[sha256.Sum256([]byte(text))]
	if key == nil || !key.Expires.IsZero() && k.now().After(key.Expires) {
		return nil, &Error{Status: 401, Type: "invalid_request_error", Code: "invalid_api_key",
			Message: "Incorrect API key provided, or one that has expired"}
	}
	if !slices.Contains(key.Scopes, scope) && !slices.Contains(key.Scopes, ScopeAdmin) {
		return nil, &Error{Status: 403, Type: "permission_error", Code: "insufficient_permissions",
			Message: fmt.Sprintf("this key has not the scope %s", scope)}
	}
	return key, nil
}

// allows says whether a key may use a model.
func (k *Key) allows(model string) bool {
	return k == nil || len(k.Models) == 0 || slices.Contains(k.Models, model)
}

func (k *Key) name() string {
	if k == nil {
		return ""
	}
	return k.Name
}

// enter counts a request against a key's bounds; leave must be called behind it.
func (k *Keys) enter(key *Key) error {
	if key == nil {
		return nil
	}
	s := key.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := k.now()
	if key.Parallel > 0 && s.running >= key.Parallel {
		return &Error{Status: 429, Type: "rate_limit_error", Code: "rate_limit_exceeded", After: time.Second,
			Message: fmt.Sprintf("this key may have %d requests at once", key.Parallel)}
	}
	if n := float64(key.RequestsPerMinute); n > 0 {
		if s.requests.fill(now, n, time.Minute) < 1 {
			return limited("requests a minute", key.RequestsPerMinute, s.requests.wait(1, n, time.Minute))
		}
		s.requests.level--
	}
	s.running++
	return nil
}

func (k *Keys) leave(key *Key) {
	if key == nil {
		return
	}
	key.state.mu.Lock()
	key.state.running--
	key.state.mu.Unlock()
}

func limited(what string, most int, after time.Duration) *Error {
	return &Error{Status: 429, Type: "rate_limit_error", Code: "rate_limit_exceeded", After: max(after, time.Second),
		Message: fmt.Sprintf("Rate limit reached for this key: %d %s", most, what)}
}

// admit refuses a prompt for which a key has no tokens left. An answer may overdraw: then the next waits.
func (k *Keys) admit(key *Key, prompt int) error {
	if key == nil {
		return nil
	}
	s := key.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := k.now()
	for _, b := range []struct {
		b    *bucket
		most int
		span time.Duration
		what string
	}{{&s.tokens, key.TokensPerMinute, time.Minute, "tokens a minute"},
		{&s.day, key.TokensPerDay, 24 * time.Hour, "tokens a day"}} {
		if b.most <= 0 {
			continue
		}
		need := min(float64(prompt), float64(b.most))
		if b.b.fill(now, float64(b.most), b.span) < need {
			return limited(b.what, b.most, b.b.wait(need, float64(b.most), b.span))
		}
	}
	return nil
}

// spend takes tokens that were used.
func (k *Keys) spend(key *Key, tokens int) {
	if key == nil {
		return
	}
	s := key.state
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.level -= float64(tokens)
	s.day.level -= float64(tokens)
}
