// Package pyjson reads what Python's json module writes beyond JSON: the
// numbers NaN, Infinity and -Infinity.
package pyjson

import "bytes"

// Replace gives data with NaN replaced by nan, Infinity by inf and -Infinity by
// minus where they stand as values. Text in quotes is left alone. Data without
// them is returned as it is.
func Replace(data []byte, nan, inf, minus string) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	var out []byte
	for i := 0; i < len(data); {
		rest := data[i:]
		switch {
		case data[i] == '"':
			n := quoted(rest)
			out = append(out, rest[:n]...)
			i += n
		case bytes.HasPrefix(rest, []byte("NaN")):
			out = append(out, nan...)
			i += len("NaN")
		case bytes.HasPrefix(rest, []byte("-Infinity")):
			out = append(out, minus...)
			i += len("-Infinity")
		case bytes.HasPrefix(rest, []byte("Infinity")):
			out = append(out, inf...)
			i += len("Infinity")
		default:
			out = append(out, data[i])
			i++
		}
	}
	return out
}

// quoted gives the length of the string that data begins with.
func quoted(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}
