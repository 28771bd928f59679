package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

// nfpm makes packages; go run fetches it, and the checksum database vouches for it.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// packages writes a Linux target's deb and rpm.
func (s *source) packages(t target, binary string, completions map[string][]byte, work, out string) error {
	dir := filepath.Join(work, "package_"+t.platform())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := s.packageConfig(t, binary, completions, dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return err
	}
	for _, kind := range []string{"deb", "rpm"} {
		c := exec.Command("go", "run", nfpm, "package", "--config", file, "--packager", kind, "--target",
			filepath.Join(out, s.base(t)+"."+kind))
		c.Dir = dir
		c.Env = append(os.Environ(), "GOFLAGS=", "SOURCE_DATE_EPOCH="+strconv.FormatInt(s.time.Unix(), 10))
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: nfpm %s: %w\n%s", t, kind, err, text)
		}
	}
	return nil
}

// packageConfig is what nfpm reads. Files that it needs and that are not in the tree are written to the folder.
func (s *source) packageConfig(t target, binary string, completions map[string][]byte, dir string) ([]byte, error) {
	type content map[string]any
	list := []content{}
	add := func(src, dst string, mode int) {
		list = append(list, content{"src": src, "dst": dst, "file_info": map[string]any{"mode": mode, "owner": "root",
			"group": "root", "mtime": s.time}})
	}
	add(binary, "/usr/bin/greta", 0o755)
	for name, to := range map[string]string{"greta.bash": "/usr/share/bash-completion/completions/greta",
		"_greta":     "/usr/share/zsh/vendor-completions/_greta",
		"greta.fish": "/usr/share/fish/vendor_completions.d/greta.fish"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, completions[name], 0o644); err != nil {
			return nil, err
		}
		add(path, to, 0o644)
		if name == "_greta" { // zsh looks in Debian's folder on Debian alone
			list[len(list)-1]["packager"] = "deb"
			add(path, "/usr/share/zsh/site-functions/_greta", 0o644)
			list[len(list)-1]["packager"] = "rpm"
		}
	}
	unit, err := os.ReadFile(filepath.Join(s.root, "deploy/greta.service"))
	if err != nil {
		return nil, err
	}
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/greta"), []byte("/usr/bin/greta"))
	lines := bytes.SplitAfter(unit, []byte("\n"))
	if bytes.HasPrefix(lines[0], []byte("# systemd unit: cp")) { // the package has put it there
		lines[0] = []byte("# systemd unit: write the files that ExecStart names, then systemctl enable --now greta\n")
	}
	path := filepath.Join(dir, "greta.service")
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o644); err != nil {
		return nil, err
	}
	add(path, "/usr/lib/systemd/system/greta.service", 0o644)
	add(filepath.Join(s.root, "LICENSE"), "/usr/share/doc/greta/copyright", 0o644)
	add(filepath.Join(s.root, "README.md"), "/usr/share/doc/greta/README.md", 0o644)
	add(filepath.Join(s.root, "README.es.md"), "/usr/share/doc/greta/README.es.md", 0o644)
	owner := strings.Split(s.module+"///", "/")[1]
	return yaml.Marshal(map[string]any{
		"name": "greta", "arch": t.arch, "platform": "linux", "version": s.version, "section": "science",
		"priority":   "optional",
		"maintainer": owner + " <" + owner + "@users.noreply.github.com>", "license": "Apache-2.0", "homepage": s.url(),
		"description": "runs neural networks that are described in YAML\n" +
			"One program that runs, checks, measures and serves language models\non processors and GPUs, without a toolkit.",
		"mtime": s.time, "contents": list,
		"rpm": map[string]any{"buildhost": "greta", "packager": owner},
		"overrides": map[string]any{
			"deb": map[string]any{"depends": []string{"libc6"}, "suggests": []string{"libvulkan1"}},
			"rpm": map[string]any{"depends": []string{"glibc"}, "suggests": []string{"vulkan-loader"}},
		},
	})
}

//go:embed greta.rb.tmpl
var formulaText string

// formula writes the Homebrew formula over those archives that are there; with none for macOS there is no formula.
func (s *source) formula(out string) error {
	text, err := s.formulaOf(func(name string) (string, bool) {
		h, err := sum(filepath.Join(out, name))
		return h, err == nil
	})
	if err != nil || text == nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "greta.rb"), text, 0o644)
}

// formulaOf fills the formula in. sha gives the checksum of an archive that is there.
func (s *source) formulaOf(sha func(name string) (string, bool)) ([]byte, error) {
	type file struct{ OS, Arch, Name, SHA string }
	var files []file
	for _, t := range targets {
		if t.variant != "" || t.os == "windows" {
			continue
		}
		name := s.base(t) + ".tar.gz"
		if h, ok := sha(name); ok {
			files = append(files, file{map[string]string{"darwin": "macos", "linux": "linux"}[t.os],
				map[string]string{"amd64": "intel", "arm64": "arm"}[t.arch], name, h})
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	err := template.Must(template.New("formula").Parse(formulaText)).Execute(&b, map[string]any{"URL": s.url(),
		"Version": s.version, "Files": files})
	return b.Bytes(), err
}

// container writes the context of an image for the static Linux binaries that were made.
func (s *source) container(binaries map[target]string, out string) error {
	text, err := os.ReadFile(filepath.Join(s.root, "deploy/Containerfile"))
	if err != nil {
		return err
	}
	list := []entry{{name: "Containerfile", data: text}}
	for t, path := range binaries {
		if t.variant != "_static" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		list = append(list, entry{name: "linux_" + t.arch + "/greta", data: data, exec: true})
	}
	if len(list) == 1 {
		return nil
	}
	base := "greta_" + s.version + "_container"
	f, err := os.Create(filepath.Join(out, base+".tar.gz"))
	if err != nil {
		return err
	}
	if err := writeTar(f, base, list, s.time); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// installer copies the script, which must fetch from where the module lies.
func (s *source) installer(out string) error {
	text, err := os.ReadFile(filepath.Join(s.root, "deploy/install.sh"))
	if err != nil {
		return err
	}
	if want := "repository=" + s.url() + "\n"; !bytes.Contains(text, []byte(want)) {
		return fmt.Errorf("deploy/install.sh has no line %q: tools/rename-module.sh changes both", strings.TrimSpace(want))
	}
	return os.WriteFile(filepath.Join(out, "install.sh"), text, 0o755)
}
