package guard

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// TestEveryRuleHasATest reads the table of rules in docs/bench.md: each of the
// thirteen must name tests, and those must be there.
func TestEveryRuleHasATest(t *testing.T) {
	text, err := os.ReadFile(testfiles.Repo(t, "docs", "bench.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+)\. [^|]+\| ([^|]+) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) != 13 {
		t.Fatalf("%d rules are in the table, 13 are expected", len(rows))
	}
	for _, row := range rows {
		for part := range strings.SplitSeq(row[2], ";") {
			fields := strings.Fields(strings.ReplaceAll(part, ",", " "))
			if len(fields) < 2 {
				t.Errorf("rule %s: %q names no test", row[1], part)
				continue
			}
			dir := testfiles.Repo(t, strings.Split(strings.Trim(fields[0], "`"), "/")...)
			source := ""
			files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
			for _, f := range files {
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				source += string(data)
			}
			for _, name := range fields[1:] {
				if !strings.Contains(source, "func "+name+"(") {
					t.Errorf("rule %s: %s has no %s", row[1], fields[0], name)
				}
			}
		}
	}
}
