package house

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// commands gives the lines of a document's code blocks without what is said in people's words: comments, and what
// stands three spaces behind a greta command.
func commands(t *testing.T, text string) (lines []string, headings int) {
	t.Helper()
	comment := regexp.MustCompile(`(^|\s)#( |$).*|^(greta .*?)\s{3,}.*`)
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
			lines = append(lines, line)
		case inside:
			lines = append(lines, strings.TrimRight(comment.ReplaceAllString(line, "$3"), " "))
		case strings.HasPrefix(line, "#"):
			headings++
		}
	}
	return lines, headings
}

// The model file that README shows is the built-in one, whole.
func TestReadmeShowsTheFile(t *testing.T) {
	file, err := os.ReadFile(testfiles.Repo(t, "models", "gemma2_block.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "README.es.md"} {
		text, err := os.ReadFile(testfiles.Repo(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```yaml\n"+string(file)+"```") {
			t.Errorf("%s does not show models/gemma2_block.yaml as it is: copy the file between ```yaml and ```", name)
		}
	}
}

// What can be typed is the same in both languages, and so are the chapters and what they point to.
func TestBothReadmesSayTheSame(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(testfiles.Repo(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	english, spanish := read("README.md"), read("README.es.md")
	a, chapters := commands(t, english)
	b, capitulos := commands(t, spanish)
	if len(a) < 80 {
		t.Fatalf("README.md has %d lines of code", len(a))
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("line %d of the code blocks: README.md has %q, README.es.md %q", i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) || chapters != capitulos {
		t.Errorf("README.md has %d lines of code and %d headings, README.es.md %d and %d", len(a), chapters, len(b),
			capitulos)
	}
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	var to [2][]string
	for i, text := range []string{english, spanish} {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "README") {
				to[i] = append(to[i], m[1])
			}
		}
		slices.Sort(to[i])
	}
	if !slices.Equal(to[0], to[1]) {
		t.Errorf("README.md points to %q, README.es.md to %q", to[0], to[1])
	}
	for _, p := range to[0] {
		path, _, _ := strings.Cut(p, "#")
		if _, err := os.Stat(testfiles.Repo(t, path)); err != nil {
			t.Error(err)
		}
	}
}
