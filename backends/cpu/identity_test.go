package cpu

import "testing"

// TestCodeHash: the code is that of the sources, the same for every device and level of a build.
func TestCodeHash(t *testing.T) {
	one, err := NewLevel("go", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if h := one.CodeHash(nil, ""); len(h) != 32 || h != two.CodeHash(nil, "x") {
		t.Errorf("%q and %q", h, two.CodeHash(nil, "x"))
	}
}
