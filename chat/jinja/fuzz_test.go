package jinja

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// small are limits that end a bad template at once.
var small = Limits{Steps: 20000, Depth: 60, Bytes: 4 << 20, Output: 1 << 20}

// FuzzRender renders whatever comes: an error is fine, a panic or a hang is not.
func FuzzRender(f *testing.F) {
	data, err := os.ReadFile("testdata/snippets.txt")
	if err != nil {
		f.Fatal(err)
	}
	for s := range strings.SplitSeq(string(data), "\n---\n") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			return
		}
		vars, err := FromJSON([]byte(`{"s":"Hello","n":7,"l":[3,1,2],"d":{"a":[1,{"x":null}]},"f":2.5,"m":[{"r":"u"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = tmpl.Render(Env{Vars: vars.(*Dict), Limits: small})
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("an error of another kind: %v", err)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// TestLimits runs templates that would take for ever, all memory, or the whole stack.
func TestLimits(t *testing.T) {
	deep := strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000)
	for _, source := range []string{
		"{% for a in range(99999) %}{% for b in range(99999) %}{{ 1 }}{% endfor %}{% endfor %}",
		"{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
		"{{ 'a' * 999999999999 }}", "{{ [0] * 999999999999 }}", "{{ 'x' * 9223372036854775807 }}",
		"{{ 'a'.center(99999999999) }}", "{{ '%999999999d' % 1 }}", "{{ '{:>999999999}'.format(1) }}",
		"{{ 'a'|indent(999999999, true) }}", "{{ [1]|tojson(indent=999999999) }}", "{{ 'a'.zfill(99999999999) }}",
		"{{ 'a'|center(99999999999) }}", "{{ [1]|batch(99999999999, 0)|list }}", "{{ [1]|slice(99999999999)|list }}",
		"{{ '\t'.expandtabs(99999999999) }}", "{{ '%.*f' % (999999999, 1) }}", "{{ range(99999)|join('x' * 100000) }}",
		"{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
		"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}" +
			"{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		"{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
		"{% macro r(n) %}{{ r(n) }}{% endmacro %}{{ r(1) }}",
		"{% macro r(n) %}{{ caller() }}{{ r(n) }}{% endmacro %}{% call r(1) %}{% endcall %}",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"{% block a %}{{ self.a() }}{% endblock %}",
		"{{ 'ab'.replace('', 'x' * 1000000).replace('x', 'y' * 1000000) }}",
		"{{ 2 ** 999999999 }}", "{{ " + deep + " }}", "{{ " + strings.Repeat("-", 5000) + "1 }}",
		"{{ " + strings.Repeat("not ", 5000) + "1 }}", strings.Repeat("{% if 1 %}", 5000),
		"{{ " + strings.Repeat("[", 5000), "{{ 1" + strings.Repeat("+1", 20000) + " }}",
		"{{ a" + strings.Repeat("[0]", 20000) + " }}", "{{ 1" + strings.Repeat("|abs", 20000) + " }}",
	} {
		start := time.Now()
		tmpl, err := Parse(source)
		if err == nil {
			_, err = tmpl.Render(Env{Limits: small})
		}
		if err == nil {
			t.Errorf("%.60s: no error", source)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%.60s took %v", source, d)
		}
	}
}

// TestErrorLine says where a template failed.
func TestErrorLine(t *testing.T) {
	for source, line := range map[string]int{
		"a\nb\n{{ x.y }}": 3, "{% set a = 1 %}\n\n{% if a.b.c %}{% endif %}": 3, "\n{{ 1 + }}": 2, "\n\n{{ 'a }}": 3,
	} {
		tmpl, err := Parse(source)
		if err == nil {
			_, err = tmpl.Render(Env{})
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != line {
			t.Errorf("%q: %v, want line %d", source, err, line)
		}
	}
}
