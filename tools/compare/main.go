// Compare measures greta and llama.cpp's llama-bench on the same GGUF file, by
// turns, and prints both medians and the median of the ratios pair by pair: on a
// machine whose speed drifts, the pairs are what repeats. The last column is what
// greta reached of the machine's limits, measured in the same runs: of a read loop
// over the weights in decode, of the arithmetic's peak in prefill.
//
//	go run ./tools/compare -peer PATH/llama-bench -threads 1,2 -pairs 5 -pp 512 -tg 128 -depth 0 FILE.gguf...
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("compare: ")
	peer := flag.String("peer", "llama-bench", "llama.cpp's llama-bench")
	greta := flag.String("greta", "", "greta's binary (default: built from this repository)")
	threads := flag.String("threads", "1,2", "numbers of threads")
	pairs := flag.Int("pairs", 5, "pairs of runs")
	pp := flag.Int("pp", 512, "tokens of prefill; 0: none")
	tg := flag.Int("tg", 128, "tokens to decode; 0: none")
	depth := flag.Int("depth", 0, "tokens in the cache before decode")
	flag.Parse()
	if flag.NArg() == 0 || *pairs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *greta == "" {
		dir, err := os.MkdirTemp("", "compare")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		*greta = filepath.Join(dir, "greta")
		run("go", "build", "-o", *greta, "./cmd/greta")
	}
	fmt.Println("| file | threads | test | greta, tokens/s | llama.cpp, tokens/s | ratio, median (range) | of the " +
		"limit, median (range) | pairs |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, file := range flag.Args() {
		// The file into the page cache, packed weights made.
		ours(*greta, file, "0", 8, 0)
		theirs(*peer, file, "1", 8, 0, 0)
		for t := range strings.SplitSeq(*threads, ",") {
			if *pp > 0 {
				line(file, t, "pp"+strconv.Itoa(*pp), *pairs,
					func() (rate, fraction float64) { return ours(*greta, file, t, *pp, 0) },
					func() float64 { return theirs(*peer, file, t, *pp, 0, 0) })
			}
			if *tg > 0 {
				name := "tg" + strconv.Itoa(*tg)
				if *depth > 0 {
					name += " @ d" + strconv.Itoa(*depth)
				}
				line(file, t, name, *pairs,
					func() (rate, fraction float64) { return ours(*greta, file, t, *depth, *tg) },
					func() float64 { return theirs(*peer, file, t, 0, *tg, *depth) })
			}
		}
	}
}

// line measures by turns, greta first in every second pair.
func line(file, threads, test string, pairs int, a func() (rate, fraction float64), b func() float64) {
	var as, bs, ratios, fractions []float64
	for i := range pairs {
		var x, y, of float64
		if i%2 == 0 {
			x, of = a()
			y = b()
		} else {
			y = b()
			x, of = a()
		}
		as, bs, ratios, fractions = append(as, x), append(bs, y), append(ratios, x/y), append(fractions, of)
	}
	fmt.Printf("| %s | %s | %s | %.2f | %.2f | %s | %s | %d |\n", filepath.Base(file), threads, test,
		median(as), median(bs), spread(ratios), spread(fractions), pairs)
}

func spread(x []float64) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(x), slices.Min(x), slices.Max(x))
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// ours is a measured run of greta; it ends in an error unless its own checks pass.
func ours(binary, file, threads string, prefill, gen int) (rate, fraction float64) {
	out := run(binary, "run", file, "--threads", threads, "--prefill", strconv.Itoa(prefill), "--gen", strconv.Itoa(gen),
		"--repeat", "1", "--json", "-")
	type phase struct {
		Rate  float64 `json:"tokens_per_second"`
		Limit struct {
			Fraction float64 `json:"fraction"`
		} `json:"limit"`
	}
	var r struct{ Prefill, Decode phase }
	if err := json.Unmarshal(out, &r); err != nil {
		log.Fatal("greta's report: ", err)
	}
	if gen > 0 {
		return r.Decode.Rate, r.Decode.Limit.Fraction
	}
	return r.Prefill.Rate, r.Prefill.Limit.Fraction
}

func theirs(binary, file, threads string, prefill, gen, depth int) float64 {
	out := run(binary, "-m", file, "-t", threads, "-p", strconv.Itoa(prefill), "-n", strconv.Itoa(gen), "-d",
		strconv.Itoa(depth), "-r", "1", "-o", "json")
	var r []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r) != 1 {
		log.Fatalf("llama-bench's report: %v\n%s", err, out)
	}
	return r[0].Rate
}

func run(name string, args ...string) []byte {
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		log.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return out
}
