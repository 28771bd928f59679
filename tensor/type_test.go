package tensor

import "testing"

// TestParseType: names come back from themselves, in capitals too, and 8-bit floats
// are known as safetensors writes them.
func TestParseType(t *testing.T) {
	for _, typ := range Types() {
		if got, ok := ParseType(typ.String()); !ok || got != typ {
			t.Errorf("%s is read as %s", typ, got)
		}
	}
	for s, want := range map[string]Type{"F8_E4M3": F8E4M3, "f8_e5m2": F8E5M2, "F8_E5M2FNUZ": F8E5M2FNUZ, "Q8_0": Q8_0} {
		if got, ok := ParseType(s); !ok || got != want {
			t.Errorf("%s is read as %s", s, got)
		}
	}
	for _, s := range []string{"", "f8_", "f8", "f8_8", "q8"} {
		if got, ok := ParseType(s); ok {
			t.Errorf("%q is read as %s", s, got)
		}
	}
}
