package template

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestOpenFileSpecial: what is no text, or none that a conversation could be written by, is refused when it is read.
func TestOpenFileSpecial(t *testing.T) {
	dir := t.TempDir()
	cases := map[string]string{"/dev/zero": "a device", dir: "a folder"}
	if runtime.GOOS == "linux" {
		cases["/proc/self/mem"] = "/proc/self/mem: "
		cases["/proc/self/cmdline"] = "UTF-8" // divided by zeros; its size is said to be none
	} else {
		delete(cases, "/dev/zero")
	}
	for name, c := range map[string][2]string{"latin1": {"{{ 'caf\xe9' }}", "UTF-8"}, "nul": {"a\x00b", "UTF-8"},
		"empty": {"", "empty"}, "blank": {" \n", "empty"}} {
		path := filepath.Join(dir, name+".jinja")
		if err := os.WriteFile(path, []byte(c[0]), 0o600); err != nil {
			t.Fatal(err)
		}
		cases[path] = c[1]
	}
	for path, want := range cases {
		if _, err := OpenFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
