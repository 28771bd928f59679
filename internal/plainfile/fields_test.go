package plainfile

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	if all, err := Fields(path, 10); all != nil || err != nil {
		t.Errorf("no file: %q, %v", all, err)
	}
	if err := os.WriteFile(path, []byte("a\t\tb\r\nc d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Fields(path, 11)
	if want := [][]string{{"a", "", "b"}, {"c d"}}; err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%q, %v; want %q", all, err, want)
	}
	if all, err := Fields(path, 8); all != nil || err != nil {
		t.Errorf("a long file: %q, %v", all, err)
	}
	if _, err := Fields(filepath.Dir(path), 8); err == nil {
		t.Error("a folder is read")
	}
	if got := Field(" a\tb\x7fc\n"); got != "a b c" {
		t.Errorf("a field: %q", got)
	}
}
