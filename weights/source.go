// Package weights is the contract of every place that weights come from: a
// GGUF file, a folder of safetensors, a llama2.c file, or a seed. Each format
// has a package of its own below this one.
package weights

import "github.com/greta-project/greta/tensor"

// Source gives named tensors and the metadata beside them. All methods but
// Close may be called from several goroutines at once.
type Source interface {
	// Path says where the weights come from, for messages.
	Path() string
	// Format is "gguf", "safetensors", "llama2c" or "synthetic".
	Format() string
	// Dialect is "gguf" or "hf": whose tensor names and metadata keys the
	// source speaks. llama2.c files are presented in GGUF's.
	Dialect() string
	// Meta gives a metadata value: string, bool, int64, float64, or a slice of
	// one of these ([]string, []bool, []int64, []float64). Keys of a JSON
	// configuration are dotted ("rope_parameters.rope_theta"); JSON null is absent.
	Meta(key string) (any, bool)
	// Keys lists the metadata keys in the file's order.
	Keys() []string
	// Names lists the tensors in the file's order.
	Names() []string
	// Lookup gives a tensor's type and shape, slowest-varying dimension first
	// (GGUF's own order is the reverse).
	Lookup(name string) (tensor.Type, tensor.Shape, bool)
	// Data gives a tensor's bytes: dense rows as Lookup describes them, mapped
	// from the file where possible, read-only, valid until Close.
	Data(name string) ([]byte, error)
	// Close unmaps the files.
	Close() error
}
