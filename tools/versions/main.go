// Command versions compares what greta doctor --json read on a machine with the versions that internal/versions lists
// as tested, and adds those that are missing:
//
//	greta doctor --json | go run ./tools/versions
//	go run ./tools/versions -where "RX 7900 XTX: all tests of the Vulkan backend" -rewrite doctor.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/greta-project/greta/internal/versions"
)

func main() {
	where := flag.String("where", "", "what was run there: the text beside \"tested\"")
	rewrite := flag.Bool("rewrite", false, "add what is missing to the table, and write the page anew")
	flag.Parse()
	if err := run(flag.Arg(0), *where, *rewrite); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

const (
	tablePath = "internal/versions/versions.yaml"
	pagePath  = "docs/versions.md"
)

func run(file, where string, rewrite bool) error {
	if rewrite && where == "" {
		return fmt.Errorf("-rewrite needs -where: what was run there")
	}
	var in io.Reader = os.Stdin
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	var said struct{ Versions []versions.Verdict }
	if err := json.NewDecoder(in).Decode(&said); err != nil {
		return fmt.Errorf("what greta doctor --json prints is expected: %w", err)
	}
	text, err := os.ReadFile(tablePath)
	if err != nil {
		return fmt.Errorf("run it in the repository's root: %w", err)
	}
	added, missing, err := add(string(text), said.Versions, where)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		fmt.Printf("all %d versions that were read are listed as tested\n", len(said.Versions))
		return nil
	}
	if !rewrite {
		return fmt.Errorf("not listed as tested: %s; add them: go run ./tools/versions -where TEXT -rewrite FILE",
			strings.Join(missing, ", "))
	}
	table, err := versions.Parse([]byte(added))
	if err != nil {
		return err
	}
	fmt.Printf("added %s\n", strings.Join(missing, ", "))
	if err := os.WriteFile(tablePath, []byte(added), 0o644); err != nil {
		return err
	}
	return os.WriteFile(pagePath, []byte(table.Page()), 0o644)
}

// add gives the table with lines for those versions that it does not list as tested, and their names.
func add(text string, read []versions.Verdict, where string) (added string, missing []string, err error) {
	table, err := versions.Parse([]byte(text))
	if err != nil {
		return "", nil, err
	}
	for _, v := range read {
		if now := table.Judge(v.Part); now.State != versions.Tested {
			missing = append(missing, v.Part.Part+" "+v.Version)
			text += fmt.Sprintf("  - {part: %s, version: %q, where: %q}\n", v.Part.Part, v.Version, where)
		}
	}
	return text, missing, nil
}
