package hip

import (
	"slices"
	"testing"
)

// Two devices of a fake driver: who reaches whom is asked and allowed once, and a copy names both by what the vendor
// calls a device.
func TestPeerCopies(t *testing.T) {
	for _, who := range []vendor{amd, nvidia} {
		f := newFake(who)
		d := &driver{f}
		found, err := d.devices()
		if err != nil {
			t.Fatal(err)
		}
		var raws []*Raw
		for _, one := range found[:2] {
			dev, err := openDevice(d, one, Options{Cache: &Cache{Dir: t.TempDir()}})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			r, err := dev.Raw()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			raws = append(raws, r)
		}
		a, b := raws[0], raws[1]
		if direct, err := a.Reach(b); err != nil || direct {
			t.Errorf("%s: not reachable: %v %v", who, direct, err)
		}
		f.peers = true
		for _, code := range []uintptr{0, errPeerEnabled} {
			f.answers = map[fn]uintptr{fnPeerEnable: code}
			if direct, err := a.Reach(b); err != nil || !direct {
				t.Errorf("%s: reachable, allowing gives %d: %v %v", who, code, direct, err)
			}
		}
		if last := f.calls[len(f.calls)-1]; last.f != fnPeerEnable || last.args[0] != b.dev.current[0] {
			t.Errorf("%s: allowed was %v", who, last)
		}
		f.answers = map[fn]uintptr{fnPeerEnable: 1}
		if _, err := a.Reach(b); err == nil {
			t.Errorf("%s: an error of the driver was not told", who)
		}
		from, err := a.Alloc(64, OnDevice)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Free()
		to, err := b.Alloc(64, OnDevice)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Free()
		if err := a.StartPeerCopy(to, from, 16, 32); err != nil {
			t.Fatal(err)
		}
		want := []uintptr{to.at + 16, b.dev.current[0], from.at + 16, a.dev.current[0], 32, a.dev.stream}
		if last := f.calls[len(f.calls)-1]; last.f != fnPeerCopy || !slices.Equal(last.args, want) {
			t.Errorf("%s: %v, want %v", who, last, want)
		}
		for name, err := range map[string]error{"beyond the end": a.StartPeerCopy(to, from, 40, 32),
			"one device": a.StartPeerCopy(from, from, 0, 8)} {
			if err == nil {
				t.Errorf("%s: %s was taken", who, name)
			}
		}
	}
}
