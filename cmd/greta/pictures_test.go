package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestReportPlotGap(t *testing.T) {
	h := newShelf(t)
	h.run("aaa", "Card A", map[string]float64{"op/linear": 1e-3, "op/rows": -1})
	h.run("bbb", "Card A", map[string]float64{"op/linear": 2e-3})
	h.run("bbb", "Card B", map[string]float64{"op/linear": 4e-3})
	dir := t.TempDir()
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	page := filepath.Join(dir, "page.html")
	h.greta(0, "report", "-o", page, "--title", "Two cards")
	has(t, read("page.html"), "<title>Two cards</title>", "Devices compared", "History: Card A", "rows", "failed")
	h.greta(0, "report", "-o", page, "--device", "Card B")
	hasNot(t, read("page.html"), "Devices compared", "Card A")
	has(t, h.greta(0, "report", "-o", "-").out, "<!doctype html>")
	has(t, h.greta(2, "report", "-o", page, "--device", "nothing").err, "no results match")
	has(t, h.greta(exitUsage, "report", "-o", filepath.Join(dir, "none", "page.html")).err, "cannot be written",
		"the folder "+filepath.Join(dir, "none")+" does not exist")
	hasNot(t, h.greta(exitUsage, "report", "-o", filepath.Join(dir, "none", "page.html")).err, ".part")

	has(t, h.greta(exitUsage, "report", "-o", "-", "--open").err, "--open needs a file")
	t.Setenv("BROWSER", filepath.Join(dir, "nobody"))
	has(t, h.greta(exitFailed, "report", "-o", page, "--open").err, "no browser was started", page)
	if runtime.GOOS != "windows" {
		cannot := filepath.Join(dir, "cannot")
		if err := os.WriteFile(cannot, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		browser := os.Getenv("BROWSER")
		t.Setenv("BROWSER", cannot) // as xdg-open does where there is none
		has(t, h.greta(exitFailed, "report", "-o", page, "--open").err, "no browser was started", "exit status 3", page,
			"BROWSER")
		t.Setenv("BROWSER", browser)
		opened := filepath.Join(dir, "opened")
		script := "#!/bin/sh\nprintf %s \"$1\" >" + opened + ".part && mv " + opened + ".part " + opened + "\n"
		if err := os.WriteFile(os.Getenv("BROWSER"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		h.greta(0, "report", "-o", page, "--open")
		for range 2000 {
			if _, err := os.Stat(opened); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if got := read("opened"); got != page {
			t.Errorf("the browser was given %q, not %q", got, page)
		}
	}

	h.greta(0, "plot", "devices", "-o", filepath.Join(dir, "d.svg"))
	has(t, read("d.svg"), "<svg", "Card A", "Card B")
	h.greta(0, "plot", "history", "-o", filepath.Join(dir, "h.png"))
	if !strings.HasPrefix(read("h.png"), "\x89PNG") {
		t.Error("no PNG is written")
	}
	has(t, h.greta(0, "plot", "history", "--list").out, "1  History: Card A")
	has(t, h.greta(2, "plot", "history", "--nth", "9", "-o", filepath.Join(dir, "h.svg")).err, "--nth 9", "history has 1")
	has(t, h.greta(2, "plot", "history", "-o", filepath.Join(dir, "h.gif")).err, ".svg or .png")
	has(t, h.greta(2, "plot", "history").err, "-o is missing")
	has(t, h.greta(2, "plot").err, "the name of a picture: greta plot NAME -o FILE.svg|FILE.png; see")
	has(t, h.greta(2, "plot", "cake", "-o", filepath.Join(dir, "h.svg")).err, "cake", "roofline")
	has(t, h.greta(2, "plot", "latency", "-o", filepath.Join(dir, "h.svg")).err, "latency")

	has(t, h.greta(0, "gap").out, "Card A, cpu", "linear", "2.00 ms")
	var rows []map[string]any
	if err := json.Unmarshal([]byte(h.greta(0, "gap", "--json", "--device", "Card B").out), &rows); err != nil ||
		len(rows) != 1 || rows[0]["device"] != "Card B, cpu" {
		t.Errorf("gap --json: %v, %v", rows, err)
	}
	has(t, h.greta(2, "gap", "-o", "cake").err, "cake", "csv")
	has(t, h.greta(2, "gap", "--bench", "op/nothing").err, "bench op")
}
