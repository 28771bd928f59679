// Package hub gets models from where people keep them: Hugging Face, Ollama's registry, or any address. What is
// got lies where the others' own tools keep it, so that it is shared with them, and is checked against
// its hash before anything may read it.
package hub

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/greta-project/greta/internal/plainfile"
)

// Source is where a model comes from.
type Source string

// The sources.
const (
	HF     Source = "hf"
	Ollama Source = "ollama"
	URL    Source = "https"
)

// Ref names a model: hf:ORG/NAME[:QUANT][@REVISION], ollama:[ORG/]NAME[:TAG], or an address.
type Ref struct {
	Source   Source
	Repo     string // ORG/NAME
	Quant    string // of GGUF files, such as Q4_K_M, or a file's name; Ollama's tag
	Revision string // branch, tag or commit; "main" where none is named
	Address  string
	SHA256   string // of an address with #sha256=…
}

// Is says whether an argument names a model of the hub and not a file.
func Is(arg string) bool {
	return strings.HasPrefix(arg, "hf:") || strings.HasPrefix(arg, "ollama:") || strings.HasPrefix(arg, "https://") ||
		strings.HasPrefix(arg, "http://")
}

var (
	part   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	branch = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	digest = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Parse reads a name. It accepts nothing that could lead out of a folder.
func Parse(arg string) (Ref, error) {
	bad := func(what string) (Ref, error) {
		return Ref{}, fmt.Errorf("%s: %s; hf:ORG/NAME[:QUANT][@REVISION], ollama:NAME[:TAG] or https://… is expected",
			arg, what)
	}
	source, rest, _ := strings.Cut(arg, ":")
	switch source {
	case "http", "https":
		u, err := url.Parse(arg)
		if err != nil || u.Host == "" {
			return bad("that is no address")
		}
		r := Ref{Source: URL, Revision: "main"}
		if sum, ok := strings.CutPrefix(u.Fragment, "sha256="); ok {
			if r.SHA256 = strings.ToLower(sum); !digest.MatchString(r.SHA256) {
				return bad("#sha256= takes 64 hexadecimal digits")
			}
		}
		u.Fragment = ""
		r.Address = u.String()
		return r, nil
	case "hf", "ollama":
	default:
		return bad("no source is named")
	}
	r := Ref{Source: Source(source), Revision: "main"}
	if at := strings.IndexByte(rest, '@'); at >= 0 && source == "hf" {
		rest, r.Revision = rest[:at], rest[at+1:]
		if !branch.MatchString(r.Revision) || strings.Contains(r.Revision, "..") {
			return bad("the revision is no name")
		}
	}
	rest, r.Quant, _ = strings.Cut(rest, ":")
	names := strings.Split(rest, "/")
	if source == "ollama" && len(names) == 1 {
		names = append([]string{"library"}, names...)
	}
	if len(names) != 2 {
		return bad("the name has no ORG/")
	}
	for _, n := range names {
		if !part.MatchString(n) || strings.Contains(n, "..") {
			return bad("\"" + n + "\" is no name")
		}
	}
	if r.Quant != "" && (!part.MatchString(r.Quant) || strings.Contains(r.Quant, "..")) {
		return bad("what stands behind : is no name")
	}
	if source == "ollama" && r.Quant == "" {
		r.Quant = "latest"
	}
	r.Repo = strings.Join(names, "/")
	return r, nil
}

// String gives the name back.
func (r Ref) String() string {
	switch r.Source {
	case URL:
		return r.Address
	case Ollama:
		return "ollama:" + strings.TrimPrefix(r.Repo, "library/") + ":" + r.Quant
	}
	s := "hf:" + r.Repo
	if r.Quant != "" {
		s += ":" + r.Quant
	}
	if r.Revision != "main" {
		s += "@" + r.Revision
	}
	return s
}

// Hub knows where models come from and where they lie. Its zero value is not ready: see New.
type Hub struct {
	Endpoint  string // of Hugging Face
	Registry  string // of Ollama
	Token     string // for Hugging Face
	HFCache   string // models--ORG--NAME folders
	OllamaDir string // manifests and blobs
	URLDir    string // files of addresses
	Offline   bool

	Client   *http.Client
	Parallel int           // requests at once for one file
	Part     int64         // bytes of one request
	Stall    time.Duration // how long nothing may come
	Tries    int           // of one request in a row that bring nothing
	Wait     time.Duration // behind the first failure; it doubles

	// Progress is told how many bytes of how many are there; nil: nobody. It may be called from several goroutines.
	Progress func(what string, done, total int64)
	// Notify is told what a person should know; nil: nobody.
	Notify func(string)

	free func(dir string) (int64, bool) // free bytes; tests have their own
}

// New takes what the environment says: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, OLLAMA_MODELS.
func New() (*Hub, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("the folder of models: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("the folder of models: %w", err)
	}
	hfHome := or(os.Getenv("HF_HOME"), filepath.Join(or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")),
		"huggingface"))
	h := &Hub{
		Endpoint:  strings.TrimRight(or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/"),
		Registry:  "https://registry.ollama.ai",
		HFCache:   or(os.Getenv("HF_HUB_CACHE"), filepath.Join(hfHome, "hub")),
		OllamaDir: or(os.Getenv("OLLAMA_MODELS"), filepath.Join(home, ".ollama", "models")),
		URLDir:    filepath.Join(cache, "greta", "models"),
		Offline:   truthy(os.Getenv("HF_HUB_OFFLINE")),
		Token:     or(os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN")),
		Client:    newClient(), Parallel: 4, Part: 32 << 20, Stall: 30 * time.Second, Tries: 6, Wait: time.Second,
		free: freeBytes,
	}
	if h.Token == "" {
		if data, err := plainfile.Read(or(os.Getenv("HF_TOKEN_PATH"), filepath.Join(hfHome, "token"))); err == nil {
			h.Token = strings.TrimSpace(string(data))
		}
	}
	return h, nil
}

func or(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

func truthy(s string) bool {
	s = strings.ToLower(s)
	return s == "1" || s == "true" || s == "yes" || s == "on"
}

func (h *Hub) note(format string, args ...any) {
	if h.Notify != nil {
		h.Notify(fmt.Sprintf(format, args...))
	}
}

// unseen says whether a character steers a terminal, or how the others are shown.
func unseen(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) || unicode.IsControl(r) }

// safePath says whether a file's name from a server stays within a folder.
func safePath(name string) bool {
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unseen) || strings.ContainsAny(name, "\\:") ||
		strings.HasPrefix(name, "/") || len(name) > 512 {
		return false
	}
	for p := range strings.SplitSeq(name, "/") {
		if p == "" || p == "." || p == ".." {
			return false
		}
	}
	return filepath.IsLocal(filepath.FromSlash(name))
}
