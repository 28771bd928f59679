package hip

import "greta/graph"

func (dev *Device) usesMatrixCores(n *graph.Node) bool { return false }
func matrixScratch(n *graph.Node) int                  { return 0 }
func (b *binder) matrix(p product)                     {}
