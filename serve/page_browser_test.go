//go:build clients

// What drives a browser takes long to compile: .ci/run asks for it.

package serve

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/greta-project/greta/internal/testbrowser"
)

const shown = "```go\nfunc main() { return 7 } // seven\n```\n\n# Title\n\n- one\n- **two** and `code`\n\n| a | b " +
	"|\n|---|---|\n| 1 | 2 |\n\n" +
	"$$\\frac{1}{2} + x^2$$ and <script>alert(1)</script> [link](https://example.com/) [bad](javascript:alert(1))"

// A conversation in a real browser: streamed, formatted, stopped, edited into a branch, with probabilities, and
// the live view of the batch.
// In one piece: one conversation.
func TestPage(t *testing.T) {
	ctx := testbrowser.Start(t)
	fake := newFake()
	_, h := testServer(t, &scripted{fakeModel: fake, text: shown})
	var bad []string
	if err := chromedp.Run(ctx); err != nil { // it starts
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			bad = append(bad, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			bad = append(bad, e.Entry.Text)
		case *page.EventJavascriptDialogOpening:
			bad = append(bad, "a dialog: "+e.Message)
		}
	})
	var text, html, tokens string
	var branches, width, inner int
	last := `#chat article:last-child`
	run := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			var seen string
			c, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_ = chromedp.Run(c, chromedp.Text("body", &seen))
			t.Fatalf("%s: %v\n%s\n%v", what, err, seen, bad)
		}
	}
	done := chromedp.WaitVisible(last + `.assistant:not(.busy) .actions`)
	run("ask", chromedp.EmulateViewport(1200, 800), chromedp.Navigate(h.URL), chromedp.WaitReady(`#model option`),
		chromedp.SendKeys("#text", "show"+kb.Enter), done, chromedp.Text(last, &text),
		chromedp.OuterHTML(last+" .body", &html))
	for _, want := range []string{"<pre>", `<span class="kw">func</span>`, "<h4>Title</h4>", "<li><strong>two</strong>",
		"<td>2</td>",
		"<mfrac>", "<msup>", "&lt;script&gt;", `href="https://example.com/"`} {
		if !strings.Contains(html, want) {
			t.Errorf("the answer has no %s: %s", want, html)
		}
	}
	if strings.Contains(html, `href="javascript`) || strings.Contains(html, "<script") {
		t.Errorf("%s", html)
	}
	testbrowser.Shot(t, ctx, "light")

	fake.delay = 20 * time.Millisecond
	run("stop", chromedp.SendKeys("#text", "say something that goes on for a long, long, long while, so that it can be "+
		"stopped"+kb.Enter),
		chromedp.WaitVisible(last+`.assistant.busy`), chromedp.WaitVisible("#stop"), chromedp.Click("#live-button"),
		chromedp.WaitVisible("#live-rows tr td"), chromedp.Text("#live", &text))
	for _, want := range []string{"running", "pages", "fake", "rows"} {
		if !strings.Contains(text, want) {
			t.Errorf("the live view has no %s: %s", want, text)
		}
	}
	testbrowser.Shot(t, ctx, "live")
	run("stopped", chromedp.Click("#stop"), done, chromedp.Text("#status", &text))
	if text != "Stopped" {
		t.Errorf("status %q", text)
	}
	wait(t, "the model goes on though it was stopped", func() bool { return fake.running.Load() == 0 })
	fake.delay = 0

	run("edit", chromedp.Click("#live-button"), chromedp.Click("#settings-button"), chromedp.Click("#logprobs"),
		chromedp.Click("#settings-button"),
		chromedp.Click(`//article[last()-1]//button[text()="Edit"]`), chromedp.SetValue(`.edit textarea`, "say short"),
		chromedp.SendKeys(`.edit textarea`, kb.Enter), done, chromedp.Text(last+" .body", &text),
		chromedp.Text(last+" .tokens", &tokens),
		chromedp.Evaluate(`root.children[0].children[0].children.length`, &branches))
	if text != "short" || tokens != "short</s>" || branches != 2 {
		t.Errorf("edited: %q, tokens %q, %d branches", text, tokens, branches)
	}
	run("choices", chromedp.Click(last+` .tokens button`), chromedp.Text(last+" .choices", &text))
	if !strings.Contains(text, `"s" 60.65 %`) {
		t.Errorf("choices %q", text)
	}
	run("branch", chromedp.Click(`//article[last()-1]//button[text()="‹"]`),
		chromedp.Text(`#chat article:nth-last-child(2)`, &text))
	if !strings.Contains(text, "goes on for a long") {
		t.Errorf("the other branch is %q", text)
	}

	run("phone", emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: "dark"}}),
		chromedp.EmulateViewport(360, 700, chromedp.EmulateMobile), chromedp.Sleep(100*time.Millisecond),
		chromedp.Evaluate(`document.documentElement.scrollWidth`, &width), chromedp.Evaluate(`innerWidth`, &inner))
	if width > inner {
		t.Errorf("on a phone the page is %d wide, the screen %d", width, inner)
	}
	testbrowser.Shot(t, ctx, "phone-dark")
	if len(bad) > 0 {
		t.Errorf("the browser complains: %v", bad)
	}
}

// hostile draws texts that models caught in a loop write, and gives the first that fails or takes long.
const hostile = `(() => {
	for (const u of ["[", "\\\\[", "[a", "> ", "{", "$^", "**a ", "- ", "\\\\frac", "\\x60"]) {
		const begin = performance.now();
		const text = u === "{" ? "$" + u.repeat(6000) + "a$" : u.repeat(60000 / u.length);
		try { markdown(text, document.createElement("div")); } catch (e) { return u + ": " + e.message; }
		if (performance.now() - begin > 5000) return u + ": " + (performance.now() - begin) + " ms";
	}
	return "";
})()`

// TestPageOfLoops: a text that repeats one mark is drawn, and quickly. Enter that ends the input of a character by
// several keys sends no edited message.
func TestPageOfLoops(t *testing.T) {
	ctx := testbrowser.Start(t)
	_, h := testServer(t, newFake())
	var slow string
	var branches int
	done := chromedp.WaitVisible(`#chat article:last-child.assistant:not(.busy) .actions`)
	if err := chromedp.Run(ctx, chromedp.Navigate(h.URL), chromedp.WaitReady(`#model option`),
		chromedp.Evaluate(hostile, &slow), chromedp.SendKeys("#text", "say a"+kb.Enter), done,
		chromedp.Click(`//article[last()-1]//button[text()="Edit"]`), chromedp.WaitVisible(".edit textarea"),
		chromedp.Evaluate(`document.querySelector(".edit textarea").dispatchEvent(
			new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true })); root.children.length`,
			&branches)); err != nil {
		t.Fatal(err)
	}
	if slow != "" || branches != 1 {
		t.Errorf("drawing failed or was slow: %q; %d branches", slow, branches)
	}
}

// scripted says a text when it is asked to show one.
type scripted struct {
	*fakeModel
	text string
}

func (m *scripted) Generate(ctx context.Context, r Request) (Answer, error) {
	if strings.HasSuffix(fakeText{}.Decode(r.Prompt), "user: show\nassistant: ") {
		r.Prompt, _ = fakeText{}.Encode("user: say "+strings.ReplaceAll(m.text, "\n", "\x01")+"\nassistant: ", true, false)
	}
	return m.fakeModel.Generate(ctx, r)
}
