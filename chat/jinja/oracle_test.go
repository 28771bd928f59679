package jinja

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// oracleFile is what testdata/oracle.py makes with jinja2; GRETA_JINJA_ORACLE names another one.
func oracleFile() string {
	if name := os.Getenv("GRETA_JINJA_ORACLE"); name != "" {
		return name
	}
	return "testdata/oracle.json"
}

// TestOracle compares small templates, written and random ones, with what jinja2 itself makes of them.
func TestOracle(t *testing.T) {
	data, err := os.ReadFile(oracleFile())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct {
			Source      string
			Text, Error *string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 1000 {
		t.Fatalf("%d cases are too few", len(file.Cases))
	}
	bad := 0
	for _, c := range file.Cases {
		vars, err := FromJSON(file.Vars)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		tmpl, err := Parse(c.Source)
		if err == nil {
			got, err = tmpl.Render(Env{Vars: vars.(*Dict), Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
		}
		fine := c.Error == nil && err == nil && got == *c.Text || c.Error != nil && err != nil && err.Error() == *c.Error
		if fine {
			continue
		}
		if bad++; bad > 200 {
			t.Fatal("and more")
		}
		want := "error " + plain(c.Error)
		if c.Error == nil {
			want = "text " + reprString(*c.Text)
		}
		t.Errorf("%s\n got %q, %v\nwant %s", c.Source, got, err, want)
	}
}

func plain(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
