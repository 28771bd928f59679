package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/internal/testfiles"
)

// clients is the folder where tools/clients/install.sh has put the official clients.
func clients(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("GRETA_CLIENTS")
	if dir == "" {
		t.Skip("GRETA_CLIENTS names no folder of tools/clients/install.sh")
	}
	return dir
}

// The official clients of JavaScript and Python, and LangChain's: chat, streams, tools in a loop,
// schemas, errors, leaving.
func TestClients(t *testing.T) {
	dir := clients(t)
	fake := newFake()
	fake.delay = 100 * time.Microsecond
	_, h := testServer(t, fake)
	for _, args := range [][]string{{"node", "client.mjs"}, {filepath.Join(dir, "py", "bin", "python"), "client.py"},
		{filepath.Join(dir, "py", "bin", "python"), "langchain_client.py"}} {
		data, err := os.ReadFile(testfiles.Repo(t, "tools", "clients", args[1]))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, args[1]), data, 0o644); err != nil { // beside node_modules
			t.Fatal(err)
		}
		cmd := exec.Command(args[0], args[1], h.URL)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), ": ok") {
			t.Errorf("%s: %v\n%s", args[1], err, out)
		}
	}
	wait(t, "the model goes on though clients left", func() bool { return fake.running.Load() == 0 })
}

// schemathesis, led by the protocol's own description, finds no 5xx.
func TestSchemathesis(t *testing.T) {
	dir := clients(t)
	packed := testfiles.Shared(t, "data", "openai", "openapi.yaml.xz")
	text, err := exec.Command("xz", "-dc", packed).Output()
	if err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(t.TempDir(), "openapi.yaml")
	if err := os.WriteFile(spec, text, 0o644); err != nil {
		t.Fatal(err)
	}
	_, h := testServer(t, newFake(), func(o *Options) { o.MaxTokens = 50 })
	args := []string{"run", spec, "--url", h.URL + "/v1", "--checks", "not_a_server_error", "--max-examples", "25",
		"--phases", "fuzzing",
		"--seed", "1", "--mode", "all", "--request-timeout", "20"}
	for _, p := range []string{"/chat/completions", "/completions", "/responses", "/embeddings", "/models"} {
		args = append(args, "--include-path", p)
	}
	cmd := exec.Command(filepath.Join(dir, "py", "bin", "schemathesis"), args...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "Server error") || err != nil && !strings.Contains(string(out), "No issues found") {
		t.Errorf("%v\n%s", err, out[max(0, len(out)-3000):])
	}
	t.Logf("%s", out[max(0, len(out)-600):])
}
