// Command spvpack packs a module of SPIR-V from its input to its output, or unpacks it with -d; see
// backends/vulkan/spvpack. Bytes of SPIR-V are left as they are by -d.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/greta-project/greta/backends/vulkan/spvpack"
)

func main() {
	unpack := flag.Bool("d", false, "unpack")
	flag.Parse()
	if err := run(*unpack); err != nil {
		fmt.Fprintln(os.Stderr, "spvpack:", err)
		os.Exit(1)
	}
}

func run(unpack bool) error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var words []uint32
	if unpack {
		words, err = spvpack.Words(in)
	} else {
		words, err = spvpack.Plain(in)
	}
	if err != nil {
		return err
	}
	var out []byte
	if unpack {
		for _, w := range words {
			out = binary.LittleEndian.AppendUint32(out, w)
		}
	} else if out, err = spvpack.Pack(words); err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
