package hip

// What tests compare with: launches one by one, without overlap.

// Alone makes programs that are captured from then on run each launch by itself.
func (dev *Device) Alone() { dev.alone = true }

// Serial makes launches wait for the end of those before them.
func (dev *Device) Serial() { dev.overlaps = false }
