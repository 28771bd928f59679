package backends

// Sharer is a device that opens memory which another process of the machine has on it.
type Sharer interface {
	Located
	// SharedKind names whose handles the device opens: "cuda", "hip".
	SharedKind() string
	// OpenShared opens the first bytes of memory that another process has made a handle of. Free closes it; the memory
	// stays that process's.
	OpenShared(handle []byte, bytes int) (Buffer, error)
	// ImportShared opens a whole allocation of another process by a file's descriptor that the driver there made of it.
	// The descriptor stays the caller's. Free closes the memory.
	ImportShared(descriptor, bytes int) (Buffer, error)
	// Move starts a copy of n bytes between two buffers of the device, behind what was started before and in front of
	// what is started after it.
	Move(dst Buffer, dstOffset int, src Buffer, srcOffset, n int) error
	// Settle waits for all that was started.
	Settle() error
}

// Shared is memory of a device as processes name it to each other.
type Shared struct {
	Kind     string `json:"kind"`     // Sharer.SharedKind
	Location string `json:"location"` // of the device: Located.Location
	Handle   []byte `json:"handle,omitempty"`
	Bytes    int    `json:"bytes"` // that may be used, from the handle's first on
	// FD is the number of a descriptor that was sent, in place of the handle. Bytes are then the whole allocation's.
	FD uint64 `json:"fd,omitempty"`
	// Keep says that what FD names stays open for further requests, until it is forgotten.
	Keep bool `json:"keep,omitempty"`
}
