package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/gap"
	"github.com/greta-project/greta/bench/pictures"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/atomicfile"
	"github.com/greta-project/greta/internal/errlist"
)

// stored reads the results that the filter chooses from a store that is there.
func (f *filterFlags) stored() ([]store.Entry, error) {
	filter, err := f.filter()
	if err != nil {
		return nil, err
	}
	s, err := f.existing()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Results(filter)
}

// writeNew writes a file by way of another name, so that a full disk or Ctrl-C
// leaves what was there before.
func writeNew(path string, write func(io.Writer) error) (err error) {
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return usagef("%s cannot be written: %v", path, err)
	}
	if err = write(f); err == nil {
		err = f.Commit()
	}
	if err = errlist.Join(err, f.Discard()); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	return nil
}

func (a *app) reportCmd() *cobra.Command {
	var f struct {
		filterFlags
		out, title string
		open       bool
	}
	c := &cobra.Command{
		Use:   "report",
		Short: "Write what was measured as one HTML page",
		Long: `report draws stored results: bandwidth and latency over size, operators under the
roofs of their device, the kernels of a step, devices beside each other, and
history with its noise. The page needs nothing but itself; every picture has its
figures below it. In a browser devices, operators, shapes and dates are chosen,
points say how they were measured, and two runs are compared, by keys too.
--store and the filters choose what the page has; --open shows it, in $BROWSER
where that is set.`,
		Example: `  greta report -o report.html
  greta report --device H200 --since 7d --title "H200, this week" --open`,
		Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			if f.open && f.out == "-" {
				return usagef("--open needs a file: -o - writes to standard output")
			}
			entries, err := f.stored()
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				return usagef("no results match: greta bench measures, greta history lists what there is")
			}
			write := func(w io.Writer) error { return pictures.Page(w, f.title, entries, time.Now()) }
			if f.out == "-" {
				return write(a.out)
			}
			if err := writeNew(f.out, write); err != nil {
				return err
			}
			fmt.Fprintf(a.err, "%s: %d results\n", f.out, len(entries))
			if f.open {
				return browse(f.out)
			}
			return nil
		},
	}
	f.register(c.Flags())
	c.Flags().StringVarP(&f.out, "output", "o", "greta-report.html", "file to write, - for standard output")
	c.Flags().StringVar(&f.title, "title", "What greta measured", "heading of the page")
	c.Flags().BoolVar(&f.open, "open", false, "show the page in a browser")
	return c
}

// browse shows a file in the user's browser, and does not wait for the reader.
func browse(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	var c *exec.Cmd
	switch browser := os.Getenv("BROWSER"); {
	case browser != "":
		c = exec.Command(browser, path)
	case runtime.GOOS == "darwin":
		c = exec.Command("open", path)
	case runtime.GOOS == "windows":
		c = exec.Command("rundll32", "url.dll,FileProtocolHandler", path)
	default:
		c = exec.Command("xdg-open", path)
	}
	none := func(err error) error {
		return fmt.Errorf("no browser was started (%s: %w): open %s, or name one in BROWSER", filepath.Base(c.Path), err,
			path)
	}
	if err := c.Start(); err != nil {
		return none(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended: // a starter that found no browser says so soon
		if err != nil {
			return none(err)
		}
	case <-time.After(browserWait):
	}
	return nil
}

// browserWait is how long a program that shows a page may take to say that it cannot.
const browserWait = time.Second

func (a *app) plotCmd() *cobra.Command {
	var f struct {
		filterFlags
		out  string
		nth  int
		list bool
	}
	c := &cobra.Command{
		Use:   "plot NAME -o FILE.svg|FILE.png",
		Short: "Draw one picture of stored results",
		Long: fmt.Sprintf(`plot draws one picture of stored results, as SVG or PNG by the file's ending.
NAME is one of %s. Where a kind has several
pictures, such as one a device, --list names them and --nth chooses.`, strings.Join(pictures.Names(), ", ")),
		Example: `  greta plot roofline --device H200 -o roofline.svg
  greta plot bandwidth --list`,
		Args:      exactly(1, "the name of a picture"),
		ValidArgs: pictures.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			kind := strings.ToLower(strings.TrimPrefix(filepath.Ext(f.out), "."))
			if !f.list && f.out == "" {
				return usagef("-o is missing: the file to draw to, which ends in .svg or .png; --list names what there is to draw")
			}
			if !f.list && kind != "svg" && kind != "png" {
				return usagef("-o %q: a file that ends in .svg or .png is expected", f.out)
			}
			if _, err := pictures.Draw(args[0], nil); err != nil {
				return usage(err)
			}
			entries, err := f.stored()
			if err != nil {
				return err
			}
			pics, err := pictures.Draw(args[0], entries)
			if err != nil {
				return err
			}
			if len(pics) == 0 {
				return usagef("no result that matches belongs in a picture of %s; greta bench measures, greta history lists "+
					"what there is", args[0])
			}
			if f.list {
				for i, p := range pics {
					fmt.Fprintf(a.out, "%d  %s, %d figures\n", i+1, p.Title, len(p.Rows))
				}
				return nil
			}
			if f.nth < 1 || f.nth > len(pics) {
				return usagef("--nth %d: %s has %d of them (--list)", f.nth, args[0], len(pics))
			}
			if len(pics) > 1 && f.nth == 1 {
				fmt.Fprintf(a.err, "%d pictures of %s: this is the first; --list names them\n", len(pics), args[0])
			}
			return writeNew(f.out, func(w io.Writer) error { return pics[f.nth-1].Write(w, kind) })
		},
	}
	f.register(c.Flags())
	c.Flags().StringVarP(&f.out, "output", "o", "", "file to write: its ending says whether SVG or PNG")
	c.Flags().IntVar(&f.nth, "nth", 1, "which of several pictures")
	c.Flags().BoolVar(&f.list, "list", false, "name the pictures that there are instead of drawing")
	return c
}

func (a *app) gapCmd() *cobra.Command {
	var f struct {
		filterFlags
		format string
		json   bool
	}
	c := &cobra.Command{
		Use:   "gap",
		Short: "Set kernels against the vendor's library and the roofs",
		Long: `gap makes a table of stored results: for every operator and size on every device,
the last good time, the part of the modelled and the measured roof that it reaches,
and the vendor's own matrix product of the same sizes and type on the same card
where greta bench platform library measured it.`,
		Example: `  greta bench platform library --backend hip
  greta bench op linear --m 4096 --n 4096 --k 4096 --dtype f16 --backend hip
  greta gap --device H200`,
		Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			if f.json {
				f.format = "json"
			}
			if err := format.Check(f.format); err != nil {
				return usage(err)
			}
			if f.format == "benchstat" {
				return usagef("--format benchstat: a gap is no series of samples; greta export has them")
			}
			entries, err := f.stored()
			if err != nil {
				return err
			}
			rows := gap.Rows(entries)
			if len(rows) == 0 {
				return usagef("no result of an operator matches: greta bench op measures them")
			}
			r := &format.Report{People: []*format.Table{gap.Table(rows)}, Full: gap.Figures(rows)}
			return r.Write(a.out, f.format)
		},
	}
	f.register(c.Flags())
	c.Flags().StringVarP(&f.format, "format", "o", "md", "md, csv, json, jsonl or sql")
	c.Flags().BoolVar(&f.json, "json", false, "the same as -o json")
	return c
}
