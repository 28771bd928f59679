package serve

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// The page's files name no outside resource, and their answers forbid one.
func TestPageFiles(t *testing.T) {
	_, h := testServer(t, newFake())
	outside := regexp.MustCompile(`(?:src|href)="https?:|url\(|@import|innerHTML|insertAdjacentHTML|\beval\(|style="`)
	for _, path := range []string{"/", "/page.js", "/markdown.js", "/page.css"} {
		status, header, body := get(t, h.URL+path)
		if status != 200 || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, status, header)
		}
		if found := outside.FindString(body); found != "" {
			t.Errorf("%s has %s", path, found)
		}
	}
	html, _ := pageFiles.ReadFile("page/index.html")
	for _, r := range regexp.MustCompile(`<(input|select|textarea|button)[^>]*id="(\w+)"`).FindAllStringSubmatch(
		string(html), -1) {
		if r[1] != "button" && !regexp.MustCompile(`<label[^>]*>[^<]*<\w+ id="`+r[2]+`"|<label for="`+r[2]+
			`"|<input id="logprobs"`).Match(html) {
			t.Errorf("the field %s has no label", r[2])
		}
	}
}

// wait waits for something that happens soon.
func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal(what)
}
