package report

import (
	"bytes"
	"os"
	"strconv"
)

// Memory gives the high-water mark of resident memory, mapped files included,
// and what is resident now without a file behind it, in bytes; 0 where the
// system does not say (Linux does, in /proc/self/status).
func Memory() (peak, private int) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return statusKB(data, "VmHWM:") * 1024, statusKB(data, "RssAnon:") * 1024
}

// statusKB reads a line like "VmHWM:    1234 kB".
func statusKB(data []byte, key string) int {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, _ := strconv.Atoi(string(f[0]))
				return n
			}
		}
	}
	return 0
}
