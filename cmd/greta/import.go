package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/greta-project/greta/bench/store"
)

func (a *app) importCmd() *cobra.Command {
	var f storeFlag
	var asJSON bool
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Take results of another machine into the store",
		Long: `import adds the runs of a file that greta export json wrote, or of another
machine's store (bench.sqlite). A run that is here already is not added again; if
it had not ended when it came the first time, what it measured since then is added.
Each result is judged as one of a run here: what its file calls ok and is wrong by its
own check, has no usable samples or is faster than its device can be is kept as refused,
with the reason, and is in no comparison. So is what leaves out a roof that every run
knows, names one or reaches a rate that the device it names cannot have by its maker's
data sheet (a device that is not known here: the best of its kind), counts other work
than its sizes take, or has a limit of errors above those of its kind. A file with a run
that begins in the future is not taken at all.`,
		Args: exactly(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error {
			bundles, err := store.ReadExchange(args[0])
			if err != nil {
				return usage(err)
			}
			s, err := f.open()
			if err != nil {
				return err
			}
			defer s.Close()
			sum, err := s.Absorb(bundles)
			if err != nil {
				return err
			}
			if sum.Refused > 0 {
				fmt.Fprintf(a.err, "greta: %d results that the file calls ok are refused; greta export csv tells why\n",
					sum.Refused)
			}
			if asJSON {
				return writeJSON(a.out, sum)
			}
			_, err = fmt.Fprintf(a.out, "%d runs added, %d were known, %d results added to %s\n", sum.Runs, sum.Known,
				sum.Results, s.Path())
			return err
		},
	}
	f.register(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
