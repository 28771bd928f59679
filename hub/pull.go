package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"encoding/json"

	"github.com/greta-project/greta/internal/plainfile"
)

// Pull gets a model, unless it is there, and gives the path that engines open.
func (h *Hub) Pull(ctx context.Context, name string) (string, error) {
	r, err := Parse(name)
	if err != nil {
		return "", err
	}
	switch r.Source {
	case HF:
		return h.pullHF(ctx, r)
	case Ollama:
		return h.pullOllama(ctx, r)
	}
	return h.pullURL(ctx, r)
}

// manifest is a registry's list of what a model is made of.
type manifest struct {
	Layers []struct {
		Type   string `json:"mediaType"`
		Digest string `json:"digest"`
		Size   int64  `json:"size"`
	} `json:"layers"`
}

// model finds the layer that is the weights.
func (m *manifest) model(r Ref) (sum string, size int64, err error) {
	for _, l := range m.Layers {
		if l.Type != "application/vnd.ollama.image.model" {
			continue
		}
		sum, ok := strings.CutPrefix(l.Digest, "sha256:")
		if !ok || !digest.MatchString(sum) || l.Size <= 0 {
			return "", 0, &Lied{fmt.Sprintf("%s: %q with %d bytes is no layer", r, l.Digest, l.Size)}
		}
		return sum, l.Size, nil
	}
	return "", 0, fmt.Errorf("%s has no weights among its %d layers", r, len(m.Layers))
}

func (h *Hub) manifestPath(r Ref) string {
	host := "registry.ollama.ai"
	if u, err := url.Parse(h.Registry); err == nil && u.Host != "" {
		host = u.Host
	}
	return filepath.Join(h.OllamaDir, "manifests", strings.ReplaceAll(host, ":",
		"_"), filepath.FromSlash(r.Repo), r.Quant)
}

// pullOllama gets a model of a registry into Ollama's own folders: manifests by name, blobs by hash.
func (h *Hub) pullOllama(ctx context.Context, r Ref) (string, error) {
	var raw json.RawMessage
	if h.Offline {
		data, err := plainfile.Read(h.manifestPath(r))
		if err != nil {
			return "", fmt.Errorf("%s is not in %s, and HF_HUB_OFFLINE forbids getting it", r, h.OllamaDir)
		}
		raw = data
	} else {
		address := fmt.Sprintf("%s/v2/%s/manifests/%s", h.Registry, r.Repo, r.Quant)
		header := http.Header{"Accept": {"application/vnd.docker.distribution.manifest.v2+json"}}
		if err := h.getJSON(ctx, address, header, &raw); err != nil {
			return "", err
		}
	}
	var m manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return "", &Lied{fmt.Sprintf("%s: the manifest is not what is expected: %v", r, err)}
	}
	sum, size, err := m.model(r)
	if err != nil {
		return "", err
	}
	blob := filepath.Join(h.OllamaDir, "blobs", "sha256-"+sum)
	err = h.get(ctx, file{address: fmt.Sprintf("%s/v2/%s/blobs/sha256:%s", h.Registry, r.Repo, sum), name: r.String(),
		path: blob, lock: blob + ".lock", size: size, sha256: sum})
	if err != nil || h.Offline {
		return blob, err
	}
	if err := os.MkdirAll(filepath.Dir(h.manifestPath(r)), 0o755); err != nil {
		return "", err
	}
	return blob, writeWhole(h.manifestPath(r), raw)
}

// pullURL gets a file of an address. One whose hash is not given by #sha256= is taken as it comes.
func (h *Hub) pullURL(ctx context.Context, r Ref) (string, error) {
	u, err := url.Parse(r.Address)
	if err != nil {
		return "", err
	}
	name := filepath.Base(filepath.FromSlash(u.Path))
	if !safePath(name) || name == addressFile || strings.HasSuffix(name, ".lock") || strings.Contains(name, unfinished) {
		name = "model"
	}
	sum := sha256.Sum256([]byte(r.Address))
	at := filepath.Join(h.URLDir, hex.EncodeToString(sum[:8]), name)
	got, _ := os.Stat(at)
	err = h.get(ctx, file{address: r.Address, name: name, path: at, lock: at + ".lock", size: -1, sha256: r.SHA256})
	if err != nil {
		return "", err
	}
	about := filepath.Join(filepath.Dir(at), addressFile)
	known, err := plainfile.Read(about)
	text := r.Address + "\n" + r.SHA256 + "\n"
	if err == nil && (r.SHA256 == "" || string(known) == text) {
		return at, nil
	}
	if got != nil && r.SHA256 != "" { // it was here, and nobody compared it
		if err := h.check(file{name: name, sha256: r.SHA256}, at); err != nil {
			return "", fmt.Errorf("%w; greta rm %s takes away what is here", err, r)
		}
	}
	return at, writeWhole(about, []byte(text))
}

// addressFile says where the file beside it comes from, and in its second line which hash was found right.
const addressFile = "address.txt"
