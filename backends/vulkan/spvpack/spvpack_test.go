package spvpack

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// module is a random module: instructions of all kinds, numbers near each other and not.
func module(rnd *rand.Rand) []uint32 {
	words := []uint32{Magic, 0x10500, 7, 1000, 0}
	for range rnd.IntN(200) {
		n, op := 1+rnd.IntN(9), uint32(rnd.IntN(5000))
		switch rnd.IntN(8) {
		case 0, 1, 2:
			op = 43 // a constant
		case 3:
			if rnd.IntN(20) == 0 {
				op = 54 // a function
			}
		}
		words = append(words, op|uint32(n)<<16)
		for range n - 1 {
			w := rnd.Uint32() >> rnd.IntN(32)
			if rnd.IntN(8) == 0 {
				w = ^uint32(0) - w%3
			}
			words = append(words, w)
		}
	}
	return words
}

func TestUnpackGivesWhatWasPacked(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		words := module(rnd)
		packed, err := Pack(words)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Unpack(packed)
		if err != nil || !slices.Equal(got, words) {
			t.Fatalf("module %d of %d words comes back as %d: %v", i, len(words), len(got), err)
		}
		if plain, err := Plain(Bytes(words)); err != nil || !slices.Equal(plain, words) {
			t.Fatalf("bytes of module %d give other words: %v", i, err)
		}
	}
}

// TestNumberedAnew: the same code with its values numbered from another place on has the same bytes, also behind
// other constants.
func TestNumberedAnew(t *testing.T) {
	code := func(constants, first uint32) []byte {
		words := []uint32{Magic, 0x10500, 7, 1000, 0, 17 | 2<<16, 1, 22 | 3<<16, 20, 32}
		for i := range constants {
			words = append(words, 43|4<<16, 20, 30+i, 3*i)
		}
		words = append(words, 43|4<<16, 20, 30+constants, 0x40490fdb, // π
			54|5<<16, 20, first-3, 0, 20, 248|2<<16, first-2, 128|5<<16, 20, first, 30+constants, 30+constants)
		for i := range uint32(20) { // floats added to those before, and to π
			words = append(words, 129|5<<16, 20, first+2*i+1, first+2*i, first+i)
			words = append(words, 129|5<<16, 20, first+2*i+2, first+2*i+1, 30+constants)
		}
		packed, err := Pack(words)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	a := code(1, 500)
	for _, b := range [][]byte{code(1, 30000), code(2, 500), code(90, 700)} {
		if tail := 250; !slices.Equal(a[len(a)-tail:], b[len(b)-tail:]) {
			t.Errorf("the last %d bytes of %d differ:\n%x\n%x", tail, len(a), a, b)
		}
	}
}

func TestDamage(t *testing.T) {
	good, err := Pack(module(rand.New(rand.NewPCG(3, 4))))
	if err != nil {
		t.Fatal(err)
	}
	long := slices.Clone(good[:13])
	if first, n := binary.Uvarint(good); first != Magic || n == 0 {
		t.Fatal("the first number is not the magic one")
	}
	for name, bad := range map[string][]byte{"nothing": nil, "cut off": good[:len(good)-1], "a header": good[:4],
		"a long instruction": append(long, 0xff, 0xff, 0x03, 0xff, 0xff, 0x03, 1), "another beginning": {1, 2, 3, 4, 5}} {
		if _, err := Unpack(bad); err == nil {
			t.Errorf("%s has no error", name)
		}
	}
	if _, err := Plain([]byte{3, 2, 0x23, 7, 1}); err == nil {
		t.Error("half a word has no error")
	}
	for name, bad := range map[string][]uint32{"nothing": nil, "another first word": {1, 2, 3, 4, 5},
		"no words": {Magic, 0, 0, 1, 0, 0}, "a long instruction": {Magic, 0, 0, 1, 0, 2 << 16}} {
		if _, err := Pack(bad); err == nil {
			t.Errorf("%s is packed", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for seed := range uint64(5) {
		packed, _ := Pack(module(rand.New(rand.NewPCG(seed, 0))))
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		words, err := Unpack(packed)
		if err != nil {
			return
		}
		again, err := Pack(words)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Unpack(again); err != nil || !slices.Equal(back, words) {
			t.Fatalf("%v comes back as %v: %v", words, back, err)
		}
	})
}
