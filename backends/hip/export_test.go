package hip

// What tests compare with: launches one by one, without overlap.

// Alone makes programs that are captured from then on run each launch by itself.
func (dev *Device) Alone() { dev.alone = true }

// Serial makes launches wait for the end of those before them.
func (dev *Device) Serial() { dev.overlaps = false }

// Needs names the programs that were found.
func (b *Builder) Needs() []string {
	var all []string
	for p := range b.need {
		all = append(all, string(p))
	}
	return all
}
