package pictures

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
)

func writePage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	entries := sample()
	run := newRun("hip", 9)
	run.Command = []string{"bench", "op", "linear", "--label", "</script><b>x"}
	for _, m := range []string{"1", "8", "512"} {
		entries = append(entries, result(run, "op/linear", 1e-5, func(r *record.Result) {
			r.Params = map[string]string{"m": m, "k": "4096"}
			r.Cache, r.Bytes, r.Flops, r.Roofs = record.Cold, 1e7, 1e8, record.Roofs{ReadGBs: 4800, GFlops: 6e4}
		}))
	}
	if err := Page(f, "Test", entries, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The file asks for nothing, and no text of a run ends its script.
func TestPageIsOneFile(t *testing.T) {
	data, err := os.ReadFile(writePage(t))
	if err != nil {
		t.Fatal(err)
	}
	outside := regexp.MustCompile(`(?:src|href)="[^#"]|url\(["']?[^#"']|@import|innerHTML|\beval\(|fetch\(|XMLHttp`)
	if found := outside.Find(data); found != nil {
		t.Errorf("the page has %s", found)
	}
	if n := strings.Count(string(data), "</script>"); n != 2 {
		t.Errorf("%d ends of scripts", n)
	}
	for _, m := range regexp.MustCompile(`<(?:select|input)[^>]* id="([^"]+)"`).FindAllStringSubmatch(string(data), -1) {
		if !regexp.MustCompile(`<label>[^<]*<\w+[^>]* id="` + m[1] + `"`).Match(data) {
			t.Errorf("%s has no label", m[1])
		}
	}
}
