package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answers are the lines that greta chat --json writes.
type answers []struct {
	Role, Content, Reasoning string
	Cut                      bool
	Stop                     string `json:"stop_reason"`
	Prompt                   int    `json:"prompt_tokens"`
	Kept                     int    `json:"cached_tokens"`
	Tokens                   int
	Thoughts                 string `json:"reasoning_content"`
}

func chatJSON(t *testing.T, in string, args ...string) (all answers) {
	t.Helper()
	r := gretaIn(t, in, append([]string{"chat", trained(t), "--chat-template", "plain", "--json"}, args...)...)
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for line := range strings.Lines(r.out) {
		all = append(all, answers{{}}...)
		if err := json.Unmarshal([]byte(line), &all[len(all)-1]); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return all
}

// TestChatFromPipe: each line is a message, the answers alone come out, and what two prompts have alike is kept.
func TestChatFromPipe(t *testing.T) {
	r := gretaIn(t, "The prince said\n\nAnd then\n", "chat", trained(t), "--chat-template", "plain", "-n", "8",
		"--temperature", "0", "--verbose")
	if r.code != 0 || strings.Count(r.err, "tokens kept")+strings.Count(r.err, "of them kept") != 2 ||
		strings.Contains(r.out, ">>>") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.out, r.err)
	}
	all := chatJSON(t, "The prince said\nAnd then\n", "--gen", "8", "--temperature", "0")
	if len(all) != 2 || all[0].Content == "" || all[0].Tokens != 8 || !all[0].Cut || all[0].Stop != "max" ||
		all[0].Kept != 0 || all[1].Kept < all[0].Prompt-1 {
		t.Errorf("%+v", all)
	}
	if !strings.HasPrefix(r.out, all[0].Content) {
		t.Errorf("as text %q, as JSON %q", r.out, all[0].Content)
	}
	again := chatJSON(t, "The prince said\nAnd then\n", "--gen", "8", "--temperature", "0", "--context", "256")
	if len(again) != 2 || again[1].Content != all[1].Content {
		t.Errorf("the second answer is %q, and in another context %q", all[1].Content, again[1].Content)
	}
}

// TestChatPrefixIsExact: an answer behind kept tokens is that of a prompt computed anew.
func TestChatPrefixIsExact(t *testing.T) {
	all := chatJSON(t, "The prince said\nAnd then he\n", "-n", "6", "--temperature", "0")
	file := filepath.Join(t.TempDir(), "talk.json")
	gretaIn(t, "The prince said\n/save "+file+"\n", "chat", trained(t), "--chat-template", "plain", "-n", "6",
		"--temperature", "0")
	anew := chatJSON(t, "And then he\n", "-n", "6", "--temperature", "0", "--load", file)
	if len(anew) != 1 || anew[0].Kept != 0 || all[1].Kept == 0 || anew[0].Content != all[1].Content {
		t.Errorf("kept %+v\nanew %+v", all, anew)
	}
}

// TestChatCommands runs the commands of a script.
func TestChatCommands(t *testing.T) {
	script := "/set temperature 0\n/set gen 4\n/system You are a prince.\nSpeak\n/retry\n/undo\n/clear\n" +
		"\"\"\"\nof two\nlines\n\"\"\"\n" +
		"and a \\\nthird\n/set\n/help\n/bye\nnever\n"
	all := chatJSON(t, script, "--system", "x", "--history", "off", "--reasoning", "hide", "--seed", "3", "--top-k",
		"40",
		"--top-p", "0.9", "--min-p", "0.01", "--repeat-penalty", "1.1", "--stop", "Never.")
	if len(all) != 4 {
		t.Fatalf("%d answers: %+v", len(all), all)
	}
	if all[1].Kept != all[0].Prompt-1 || all[2].Prompt == all[1].Prompt {
		t.Errorf("%+v", all)
	}
	for _, c := range []struct{ in, want string }{
		{"/nope\n", "/nope is no command"}, {"/set x 1\n", "no such setting"}, {"/set top-p 7\n", "between 0 and 1"},
		{"/set temperature hot\n", "hot"}, {"/set reasoning loud\n", "show, fold or hide"}, {"/set gen -1\n", "0 or more"},
		{"/set gen 2147483648\n", "below 2^31"}, {"/set verbose maybe\n", "on or off"},
		{"/undo\n", "nothing to take back"}, {"/retry\n", "no answer"}, {"/save\n", "name of a file"},
		{"/load /nowhere/x\n", "no such file"}, {"/thoughts\n", "no reasoning"}, {"\"\"\"\nopen\n", "inside a message"},
		{strings.Repeat("long ", 400) + "\n", "--context"},
	} {
		r := gretaIn(t, c.in, "chat", trained(t), "--chat-template", "plain", "--context", "128")
		if r.code == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: exit %d, %s; want %s", c.in, r.code, r.err, c.want)
		}
	}
}

// TestChatReasoning: a template that begins the thoughts, whose end does not come: everything is reasoning.
func TestChatReasoning(t *testing.T) {
	file := write(t, "think.jinja", "{{ messages[-1].content }}{% if think %}\n<think>{% endif %}")
	args := []string{"--chat-template", file, "--answer-format", "think", "-n", "5", "--temperature", "0", "--var",
		"think=true"}
	all := chatJSON(t, "The prince\n/thoughts\n", args...)
	if len(all) != 1 || all[0].Content != "" || all[0].Thoughts == "" {
		t.Fatalf("%+v", all)
	}
	for how, want := range map[string]string{"show": all[0].Thoughts, "fold": "thought for"} {
		r := gretaIn(t, "The prince\n", append([]string{"chat", trained(t), "--reasoning", how}, args...)...)
		if r.code != 0 || strings.TrimSpace(r.out) != "" || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit %d, %q, %q", how, r.code, r.out, r.err)
		}
	}
	if all := chatJSON(t, "/set var think=false\nThe prince\n", args...); all[0].Content == "" || all[0].Thoughts != "" {
		t.Errorf("with think=false: %+v", all)
	}
}

func TestChatRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{trained(t)}, "comes without a chat template"},
		{[]string{trained(t), "--chat-template", "nope"}, "chatml"},
		{[]string{trained(t), "--chat-template", "plain", "--reasoning", "loud"}, "show, fold or hide"},
		{[]string{trained(t), "--chat-template", "plain", "--answer-format", "x"}, "hermes"},
		{[]string{trained(t), "--chat-template", "plain", "--gen", "-1"}, "0 or more"},
		{[]string{trained(t), "--chat-template", "plain", "--stop", ""}, "--stop is empty"},
		{[]string{trained(t), "--chat-template", "plain", "--var", "x"}, "NAME=JSON"},
		{[]string{trained(t), "--chat-template", "plain", "--tokenizer", "/nowhere"}, "/nowhere"},
		{[]string{trained(t), "--chat-template", write(t, "bad.jinja", "{% if %}")}, "TemplateSyntaxError"},
		{[]string{"llama2_block"}, "block"}, {[]string{"llama2_7b"}, "no tokenizer"},
	} {
		r := gretaIn(t, "Hi\n", append([]string{"chat"}, c.args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%v: exit %d, %s; want exit 2 and %q", c.args, r.code, r.err, c.want)
		}
	}
}

// TestChatInTerminal talks in a real terminal: lines are edited, Ctrl-C stops an answer and not the program.
func TestChatInTerminal(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("no tmux")
	}
	socket := filepath.Join(t.TempDir(), "tmux")
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(tmux, append([]string{"-u", "-S", socket}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	history := filepath.Join(t.TempDir(), "history")
	run("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "env", "GRETA_TEST_MAIN=1", self,
		"chat", trained(t),
		"--chat-template", "plain", "--context", "2000", "--history", history, "-v", "--chunk", "64")
	defer exec.Command(tmux, "-S", socket, "kill-server").Run()
	wait := func(what string, ok func(screen string) bool) string {
		t.Helper()
		screen := ""
		for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if screen = run("capture-pane", "-p", "-S", "-200"); ok(screen) {
				return screen
			}
		}
		t.Fatalf("%s did not come; the screen is\n%s", what, screen)
		return ""
	}
	shows := func(text string) func(string) bool {
		return func(screen string) bool { return strings.Contains(screen, text) }
	}
	wait("a prompt", shows(">>>"))
	run("send-keys", "/set gemm 8", "BSpace", "BSpace", "BSpace", "BSpace", "n 8", "Enter") // a mistake is mended
	run("send-keys", "/set", "Enter")
	wait("a setting", shows("gen 8"))
	run("send-keys", "The prince said", "Enter")
	wait("an answer", shows("answer of "))
	run("send-keys", "/set gen 0", "Enter")
	run("send-keys", "Up", "Up", "Enter") // the question again, from the history
	wait("the question again", func(s string) bool { return strings.Count(s, ">>> The prince said") == 2 })
	time.Sleep(300 * time.Millisecond)
	run("send-keys", "C-c")
	wait("the end of the answer", func(s string) bool { return strings.Count(s, "answer of ") == 2 })
	run("send-keys", "abc", "C-c")
	wait("a word that it is alive", shows("/bye ends"))
	run("send-keys", "/clear", "Enter")
	wait("an empty conversation", shows("nothing was said"))
	run("set-buffer", "first line\nsecond line\n")
	run("paste-buffer", "-p") // as terminals mark it
	wait("the pasted lines in one", shows(">>> first line␤second line␤"))
	cursorInTerminal(t, run)
	run("send-keys", "C-e", "C-u", "C-d")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command(tmux, "-S", socket, "has-session").Run() != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Ctrl-D did not end it:\n%s", run("capture-pane", "-p"))
		}
	}
	if data, err := os.ReadFile(history); err != nil || !strings.Contains(string(data), "The prince said") {
		t.Errorf("history %q, %v", data, err)
	}
}

// cursorInTerminal edits marks and wide characters, and looks where the cursor is.
func cursorInTerminal(t *testing.T, run func(args ...string) string) {
	t.Helper()
	for _, step := range []struct{ keys, at string }{
		{"C-u", "4"}, {"-l ne\u0301日本x", "11"}, {"Left Left", "8"}, {"BSpace BSpace DC", "5"},
	} {
		run(append([]string{"send-keys"}, strings.Fields(step.keys)...)...)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			got := strings.TrimSpace(run("display-message", "-p", "#{cursor_x}"))
			if got == step.at {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the cursor is in column %s, not %s:\n%s", step.keys, got, step.at, run("capture-pane", "-p"))
			}
		}
	}
	if screen := run("capture-pane", "-p"); !strings.Contains(screen, ">>> nx") {
		t.Errorf("nx is left:\n%s", screen)
	}
}
