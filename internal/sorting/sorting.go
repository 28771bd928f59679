// Package sorting sorts lists of structures.
package sorting

import "sort"

// Sort sorts by a comparison as of slices.SortStableFunc, for lists that are short or sorted rarely. It is one function
// for all types, where that of slices is compiled anew for each, 9 to 25 KB of the binary.
func Sort[E any](list []E, compare func(a, b E) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}
