package main

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/internal/versions"
)

func TestAdd(t *testing.T) {
	const text = "parts: [{part: a, name: A, used: b, rules: []}]\ntested:\n  - {part: a, version: \"1.0\", where: CI}\n"
	read := []versions.Verdict{{Part: versions.Part{Part: "a", Version: "1.0"}},
		{Part: versions.Part{Part: "a", Version: "2.0"}}}
	added, missing, err := add(text, read, `a "card": all`)
	if err != nil || !slices.Equal(missing, []string{"a 2.0"}) {
		t.Fatalf("%v %v", missing, err)
	}
	table, err := versions.Parse([]byte(added))
	if err != nil {
		t.Fatal(err)
	}
	if v := table.Judge(read[1].Part); v.State != versions.Tested || v.Why != `a "card": all` {
		t.Errorf("%+v", v)
	}
	if again, missing, _ := add(added, read, "x"); again != added || missing != nil {
		t.Errorf("a second time adds %v", missing)
	}
}
