package grammar

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"
)

type suiteCase struct {
	Schema json.RawMessage `json:"schema"`
	Tests  []struct {
		Valid bool            `json:"valid"`
		Data  json.RawMessage `json:"data"`
	} `json:"tests"`
}

func TestDev(t *testing.T) {
	files, _ := filepath.Glob("/tmp/grammar/*.json")
	refused := map[string]int{}
	pass, wrong := 0, 0
	var times []time.Duration
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		var c suiteCase
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		m, err := build(Schema(string(c.Schema)), Options{}, nil)
		d := time.Since(t0)
		times = append(times, d)
		if d > 50*time.Millisecond {
			fmt.Println("SLOW", filepath.Base(f), d, err)
		}
		if err != nil {
			k := "?"
			if r, ok := err.(*Refused); ok {
				k = r.Keyword
			}
			refused[k]++
			if os.Getenv("V") != "" {
				fmt.Println("REFUSED", filepath.Base(f), err)
			}
			continue
		}
		ok := true
		for i, x := range c.Tests {
			func() {
				defer func() {
					if r := recover(); r != nil {
						fmt.Println("PANIC", filepath.Base(f), r)
						ok = false
					}
				}()
				end, at := m.read(m.start, string(x.Data))
				got := at < 0 && m.configs[end].accept
				if got != x.Valid {
					ok = false
					n := at
					if n < 0 {
						n = len(x.Data)
					}
					fmt.Println("WRONG", filepath.Base(f), i, "valid", x.Valid, "at", at, string(x.Data[max(0, n-60):min(len(x.Data), n+20)]), m.expected(end))
				}
			}()
		}
		if ok {
			pass++
		} else {
			wrong++
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	fmt.Println(len(files), "pass", pass, "wrong", wrong, "refused", refused, "p50", times[len(times)/2], "p99", times[len(times)*99/100], "max", times[len(times)-1])
}
