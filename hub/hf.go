package hub

// Hugging Face: which files of a repository a model is, and the cache that Python shares: blobs by their hash,
// snapshots of links to them by commit, refs from branches to commits.

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/plainfile"
)

// sibling is a file of a repository.
type sibling struct {
	Name string `json:"rfilename"`
	Size *int64 `json:"size"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// repository is what the endpoint says of one.
type repository struct {
	SHA      string    `json:"sha"`
	Siblings []sibling `json:"siblings"`
}

func (h *Hub) repoDir(repo string) string {
	return filepath.Join(h.HFCache, "models--"+strings.ReplaceAll(repo, "/", "--"))
}

var commit = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// pullHF gets a model and gives the path that engines open: a GGUF file, or the folder of a snapshot.
func (h *Hub) pullHF(ctx context.Context, r Ref) (string, error) {
	if h.Offline {
		return h.findHF(r)
	}
	var repo repository
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.Endpoint, r.Repo, url.PathEscape(r.Revision))
	if err := h.getJSON(ctx, address, nil, &repo); err != nil {
		return "", err
	}
	if !commit.MatchString(repo.SHA) {
		return "", &Lied{fmt.Sprintf("%s: %q is no commit", address, repo.SHA)}
	}
	for _, s := range repo.Siblings {
		if !safePath(s.Name) {
			return "", &Lied{fmt.Sprintf("%s has a file named %q, which leads out of its folder or is none", r, s.Name)}
		}
	}
	files, main, err := choose(r, repo.Siblings)
	if err != nil {
		return "", err
	}
	dir := h.repoDir(r.Repo)
	snapshot := filepath.Join(dir, "snapshots", repo.SHA)
	for _, s := range files {
		if err := h.getSibling(ctx, r, repo.SHA, s); err != nil {
			return "", err
		}
	}
	if r.Revision != repo.SHA {
		ref := filepath.Join(dir, "refs", filepath.FromSlash(r.Revision))
		if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
			return "", err
		}
		if err := writeWhole(ref, []byte(repo.SHA)); err != nil {
			return "", err
		}
	}
	return filepath.Join(snapshot, filepath.FromSlash(main)), nil
}

// getSibling gets one file into the blobs, and links it into the snapshot.
func (h *Hub) getSibling(ctx context.Context, r Ref, sha string, s sibling) error {
	dir := h.repoDir(r.Repo)
	link := filepath.Join(dir, "snapshots", sha, filepath.FromSlash(s.Name))
	if _, err := os.Stat(link); err == nil {
		return nil
	}
	if s.Size != nil && *s.Size < 0 || s.LFS != nil && s.LFS.Size < 0 {
		return &Lied{fmt.Sprintf("%s: the server says that %s has less than 0 bytes", r, s.Name)}
	}
	f := file{name: s.Name, size: -1, git: s.Blob}
	f.address = fmt.Sprintf("%s/%s/resolve/%s/%s", h.Endpoint, r.Repo, sha, escapePath(s.Name))
	if s.Size != nil {
		f.size = *s.Size
	}
	name := s.Blob
	if s.LFS != nil {
		f.sha256, f.git, f.size, name = s.LFS.SHA256, "", s.LFS.Size, s.LFS.SHA256
	}
	if !commit.MatchString(name) {
		return &Lied{fmt.Sprintf("%s: the server gives no hash of %s, but %q", r, s.Name, name)}
	}
	f.path = filepath.Join(dir, "blobs", name)
	f.lock = filepath.Join(h.HFCache, ".locks", filepath.Base(dir), name+".lock")
	if err := h.get(ctx, f); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(link), f.path)
	if err != nil {
		return err
	}
	err = os.Symlink(target, link)
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	return os.Link(f.path, link) // where there are no symbolic links
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// shard matches one file of several, NAME-00001-of-00003.gguf.
var shard = regexp.MustCompile(`-(\d{5})-of-\d{5}\.gguf$`)

// choose picks the files of a model; main is the one to open, "" for the folder.
func choose(r Ref, all []sibling) (files []sibling, main string, err error) {
	var ggufs, names []string
	tensors := false
	for _, s := range all {
		names = append(names, s.Name)
		if strings.HasSuffix(s.Name, ".gguf") && !strings.Contains(strings.ToLower(path.Base(s.Name)), "mmproj") {
			ggufs = append(ggufs, s.Name)
		}
		tensors = tensors || strings.HasSuffix(s.Name, ".safetensors")
	}
	if r.Quant == "" && tensors {
		for _, s := range all {
			if ofModel(s.Name) {
				files = append(files, s)
			}
		}
		return files, "", nil
	}
	group, err := pickGGUF(r, ggufs, names)
	if err != nil {
		return nil, "", err
	}
	for _, s := range all {
		if slices.Contains(group, s.Name) {
			files = append(files, s)
		}
	}
	return files, group[0], nil
}

// ofModel says whether a file of a repository belongs to a model in safetensors.
func ofModel(name string) bool {
	if strings.Contains(name, "/") {
		return strings.HasPrefix(name, "additional_chat_templates/")
	}
	for _, pattern := range []string{"*.safetensors", "*.json", "*.jinja", "tokenizer*", "vocab.*", "merges.txt",
		"*.model"} {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// usual are the quantisations that are taken where none is named.
var usual = []string{"Q4_K_M", "Q4_0", "Q8_0", "BF16", "F16"}

// pickGGUF finds the files of one quantisation, the shards in order.
func pickGGUF(r Ref, ggufs, all []string) ([]string, error) {
	groups := map[string][]string{}
	var stems []string
	for _, g := range ggufs {
		stem := shard.ReplaceAllString(g, ".gguf")
		if groups[stem] == nil {
			stems = append(stems, stem)
		}
		groups[stem] = append(groups[stem], g)
	}
	slices.Sort(stems)
	if len(stems) == 0 {
		return nil, fmt.Errorf("%s has neither GGUF files nor safetensors, but %d others", r, len(all))
	}
	wanted := []string{r.Quant}
	if r.Quant == "" {
		if len(stems) == 1 {
			wanted = []string{stems[0]}
		} else {
			wanted = usual
		}
	}
	for _, q := range wanted {
		var fits []string
		for _, s := range stems {
			if hasWord(s, q) {
				fits = append(fits, s)
			}
		}
		if len(fits) == 1 {
			group := groups[fits[0]]
			slices.Sort(group)
			return group, nil
		}
		if len(fits) > 1 && r.Quant != "" {
			return nil, fmt.Errorf("%s: several files fit: %s", r, strings.Join(fits, ", "))
		}
	}
	return nil, fmt.Errorf("%s: name one of its files behind a colon: %s", r, strings.Join(stems, ", "))
}

// hasWord says whether a file's name is the word, or has it as a part between dots, dashes or slashes.
func hasWord(name, word string) bool {
	name, word = strings.ToLower(name), strings.ToLower(word)
	base := path.Base(name)
	if name == word || base == word || strings.TrimSuffix(base, ".gguf") == word {
		return true
	}
	for at := 0; ; {
		i := strings.Index(name[at:], word)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(word)
		before := i == 0 || strings.IndexByte(".-/", name[i-1]) >= 0
		if before && (end == len(name) || strings.IndexByte(".-/", name[end]) >= 0) {
			return true
		}
		at = i + 1
	}
}

// findHF finds a model that is in the cache already.
func (h *Hub) findHF(r Ref) (string, error) {
	dir := h.repoDir(r.Repo)
	sha := r.Revision
	if !commit.MatchString(sha) {
		data, err := plainfile.Read(filepath.Join(dir, "refs", filepath.FromSlash(r.Revision)))
		if err != nil {
			return "", fmt.Errorf("%s is not in %s, and HF_HUB_OFFLINE forbids getting it", r, h.HFCache)
		}
		if sha = strings.TrimSpace(string(data)); !commit.MatchString(sha) {
			return "", fmt.Errorf("%s: the cache's ref is %q, no commit", r, sha)
		}
	}
	snapshot := filepath.Join(dir, "snapshots", sha)
	var here []sibling
	err := filepath.WalkDir(snapshot, func(at string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, statErr := os.Stat(at); !d.IsDir() && statErr == nil {
			rel, _ := filepath.Rel(snapshot, at)
			here = append(here, sibling{Name: filepath.ToSlash(rel)})
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%s is not in %s, and HF_HUB_OFFLINE forbids getting it", r, h.HFCache)
	}
	_, main, err := choose(r, here)
	if err != nil {
		return "", err
	}
	return filepath.Join(snapshot, filepath.FromSlash(main)), nil
}
