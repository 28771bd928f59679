//go:build clients

// What drives a browser takes long to compile: .ci/run asks for it.

package pictures

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/greta-project/greta/internal/testbrowser"
)

// Queries are by selector: a search would find the names in the page's own style first.

// TestPage chooses, points, zooms, compares, and does all of it by keys, in a real browser. It is in one piece: a
// walk through the page.
func TestPage(t *testing.T) {
	ctx := testbrowser.Start(t)
	var bad []string
	if err := chromedp.Run(ctx, network.Enable()); err != nil {
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			bad = append(bad, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			bad = append(bad, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file:") && !strings.HasPrefix(e.Request.URL, "data:") { // its own icons
				bad = append(bad, "asks for "+e.Request.URL)
			}
		}
	})
	run := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v\n%v", what, err, bad)
		}
	}
	var text, view, whole string
	var n int
	js := func(expr string, to any) chromedp.Action { return chromedp.Evaluate(expr, to) }
	marks := js(`document.querySelectorAll("#plot circle").length`, &n)
	seen := js(`document.getElementById("plot").dataset.view`, &view)
	expect := func(what string, want int) {
		t.Helper()
		if n != want {
			t.Errorf("%s: %d marks, want %d", what, n, want)
		}
	}

	run("open", chromedp.EmulateViewport(1200, 1000), chromedp.Navigate("file://"+writePage(t)), marks)
	expect("everything", 2*(24+6)+3)
	testbrowser.Shot(t, ctx, "report")

	set := func(id, value string) chromedp.Action {
		return js(fmt.Sprintf(`{const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("change"))}`,
			id, value), nil)
	}
	run("one operator", chromedp.Click("#no-benches", chromedp.ByQuery), marks)
	expect("no operator", 0)
	run("one operator", chromedp.Click(`#benches input[value="op/linear"]`, chromedp.ByQuery), marks)
	expect("op/linear", 4+3)
	run("a device", chromedp.Click(`#devices input[value="Card <1>, vulkan"]`, chromedp.ByQuery), marks)
	expect("op/linear by hip", 2+3)
	run("a shape", set("shape-m", "1"), marks)
	expect("m = 1", 3)
	run("dates", set("from", "2026-03-03"), set("to", "2026-03-08"), marks)
	expect("between dates", 1)
	run("all shapes and dates", set("from", "2026-03-01"), set("to", "2026-03-09"), set("shape-m", ""), set("over", "m"),
		set("show", "gflops"), marks, chromedp.TextContent("#plot", &text, chromedp.ByQuery))
	expect("over m", 5)
	for _, want := range []string{"GFLOP/s", "100"} {
		if !strings.Contains(text, want) {
			t.Errorf("the axes do not have %q: %s", want, text)
		}
	}

	tip := chromedp.Text("#tip", &text, chromedp.ByQuery)
	point := func(i int) chromedp.Action {
		var at []float64
		return chromedp.Tasks{js(
			fmt.Sprintf(`{const b = document.querySelector('circle[data-i="%d"]').getBoundingClientRect();
			window.at = [b.x + b.width / 2, b.y + b.height / 2]} window.at`, i), &at),
			chromedp.ActionFunc(func(c context.Context) error {
				return chromedp.MouseEvent(input.MouseMoved, at[0], at[1]).Do(c)
			})}
	}
	run("a tooltip", chromedp.ScrollIntoView("#plot", chromedp.ByQuery), point(4),
		chromedp.WaitVisible("#tip", chromedp.ByQuery), tip)
	for _, want := range []string{"op/linear", "n = 8", "10 µs", "10000 GFLOP/s",
		"greta bench op linear --label </script><b>x", "% of the modelled roof"} {
		if !strings.Contains(text, want) {
			t.Errorf("the tooltip has no %q: %s", want, text)
		}
	}
	testbrowser.Shot(t, ctx, "report-tip")

	run("zoom", seen)
	whole = view
	drag := chromedp.ActionFunc(func(c context.Context) error {
		var at []float64
		if err := js(
			`{const b = document.getElementById("plot").getBoundingClientRect();
			window.at = [b.x, b.y, b.width, b.height]} window.at`, &at).Do(c); err != nil {
			return err
		}
		to := func(kind string, x, y float64) error {
			return chromedp.MouseEvent(input.MouseType(kind), at[0]+x*at[2], at[1]+y*at[3], chromedp.ButtonLeft).Do(c)
		}
		for _, step := range []struct {
			kind string
			x, y float64
		}{{"mousePressed", 0.3, 0.3}, {"mouseMoved", 0.5, 0.5}, {"mouseMoved", 0.6, 0.6}, {"mouseReleased", 0.6, 0.6}} {
			if err := to(step.kind, step.x, step.y); err != nil {
				return err
			}
		}
		return nil
	})
	run("a frame", drag, seen)
	if view == whole {
		t.Error("a frame does not zoom")
	}
	run("the whole", chromedp.Click("#zoom-reset", chromedp.ByQuery), seen)
	if view != whole {
		t.Errorf("the whole is %s, was %s", view, whole)
	}

	run("keys", chromedp.Focus("#plot", chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight),
		chromedp.WaitVisible("#tip", chromedp.ByQuery), tip)
	first := text
	run("keys", chromedp.KeyEvent(kb.End), tip)
	if text == first || !strings.Contains(text, "n = 8") {
		t.Errorf("End shows %s", text)
	}
	run("keys", chromedp.KeyEvent(kb.ArrowRight), tip)
	if text != first {
		t.Errorf("behind the last point comes %s, not the first", text)
	}
	run("keys", chromedp.KeyEvent("+"), seen)
	if view == whole {
		t.Error("+ does not zoom")
	}
	run("keys", chromedp.KeyEvent("0"), seen)
	if view != whole {
		t.Error("0 does not show the whole")
	}
	// from the top by Tab alone: the first box is a device's, which Space turns off
	run("tab", js(`document.activeElement.blur(); document.querySelector("#devices input").focus()`, nil),
		chromedp.KeyEvent(" "),
		js(`document.querySelector("#devices input").checked`, new(bool)), marks)
	expect("no device by Space", 0)
	run("everything again", chromedp.Click("#again", chromedp.ByQuery), marks)
	expect("everything again", 2*(24+6)+3)
	run("keys", chromedp.Focus("#plot", chromedp.ByQuery), chromedp.KeyEvent(kb.Home), tip)
	first = text
	run("keys", chromedp.KeyEvent(kb.ArrowDown), tip)
	if text == first {
		t.Errorf("the next series: %s, behind %s", text, first)
	}

	var options []string
	run("runs", js(`[...document.querySelectorAll("#run-a option")].map(o => o.textContent)`, &options))
	at := func(date, backend string) string {
		for i, o := range options {
			if strings.HasPrefix(o, date) && strings.Contains(o, backend) {
				return fmt.Sprint(i)
			}
		}
		t.Fatalf("no run of %s by %s: %q", date, backend, options)
		return ""
	}
	run("compare", set("run-a", at("2026-03-02", "hip")), set("run-b", at("2026-03-03", "hip")),
		chromedp.Text("#compared", &text, chromedp.ByQuery),
		chromedp.Text("#comparison", &view, chromedp.ByQuery), chromedp.ScrollIntoView("#comparison", chromedp.ByQuery))
	if !strings.HasPrefix(text, "3 in common: 3 slower, 0 faster, 0 as before") || strings.Count(view, "1.100") != 3 {
		t.Errorf("compared: %s\n%s", text, view)
	}
	testbrowser.Shot(t, ctx, "report-compare")
	run("the same run", set("run-b", at("2026-03-02", "hip")), chromedp.Text("#compared", &text, chromedp.ByQuery))
	if !strings.Contains(text, "two different runs") {
		t.Errorf("a run and itself: %s", text)
	}
	run("narrow", chromedp.EmulateViewport(390, 800), js(`document.documentElement.scrollWidth`, &n))
	if n > 400 {
		t.Errorf("on a narrow screen the page is %d wide", n)
	}
	testbrowser.Shot(t, ctx, "report-narrow")
	if len(bad) > 0 {
		t.Errorf("the browser complains: %q", bad)
	}
}
