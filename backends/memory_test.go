package backends

import (
	"fmt"
	"slices"
	"testing"

	"github.com/greta-project/greta/tensor"
)

type memory struct{ Buffer }

// inner is memory of a device that knows what it is for.
type inner struct {
	memory
	use Use
}

func (m *inner) Use() Use { return m.use }

// bytes is an operand of so many rows of n bytes, stride apart.
func bytes(b Buffer, offset, rows, n, stride int) Operand {
	return Operand{Buffer: b, Offset: offset, Stride: stride, Type: tensor.U8, Shape: tensor.Shape{rows, n}}
}

func TestOverlaps(t *testing.T) {
	one, other := &memory{}, &memory{}
	o := bytes(one, 10, 2, 4, 6) // 10 to 20
	if o.Extent() != 10 {
		t.Errorf("from the first byte to the last are %d", o.Extent())
	}
	for want, all := range map[bool][]Operand{
		true:  {bytes(one, 19, 1, 1, 1), bytes(one, 0, 1, 11, 11), bytes(one, 14, 1, 2, 2), o},
		false: {bytes(one, 20, 1, 1, 1), bytes(one, 0, 1, 10, 10), bytes(one, 12, 0, 4, 4), bytes(other, 10, 2, 4, 6), {}},
	} {
		for i := range all {
			if all[i].Overlaps(&o) != want || o.Overlaps(&all[i]) != want {
				t.Errorf("bytes %d to %d and 10 to 20: not %v", all[i].Offset, all[i].Offset+all[i].Extent(), want)
			}
		}
	}
	if (&Operand{}).Overlaps(&Operand{}) {
		t.Error("operands that are left out share bytes")
	}
}

func TestConflicts(t *testing.T) {
	b := &memory{}
	at := func(i int) []Operand { return []Operand{bytes(b, i, 1, 1, 1)} }
	l := Launch{In: at(0), Out: at(1), Scratch: at(2)[0]}
	for m, want := range map[*Launch]bool{
		{In: at(0), Out: at(9)}: false, {In: at(1)}: true, {Out: at(0)}: true, {Out: at(1)}: true, {In: at(2)}: true,
		{Out: at(2)}: true, {Scratch: at(0)[0]}: true, {Scratch: at(1)[0]}: true, {Scratch: at(2)[0]}: true, {}: false,
	} {
		if l.Conflicts(m) != want || m.Conflicts(&l) != want {
			t.Errorf("%+v: not %v", m, want)
		}
	}
}

func TestSame(t *testing.T) {
	one, other := &memory{}, &memory{}
	o := bytes(one, 10, 2, 4, 6)
	if p := o; !o.Same(&p) || !(&Operand{}).Same(&Operand{}) {
		t.Error("an operand is not the same as itself")
	}
	typ, shape := o, o
	typ.Type, shape.Shape = tensor.F8E4M3, tensor.Shape{2, 2, 2}
	for _, p := range []Operand{bytes(other, 10, 2, 4, 6), bytes(one, 11, 2, 4, 6), bytes(one, 10, 2, 4, 4), typ, shape,
		{}} {
		if o.Same(&p) || p.Same(&o) {
			t.Errorf("%+v and %+v are the same", o, p)
		}
	}
}

func TestLastWriter(t *testing.T) {
	b := &memory{}
	at := func(i int) []Operand { return []Operand{bytes(b, i, 1, 2, 2)} }
	launches := []Launch{{Out: at(0)}, {Out: at(1), In: at(0)}, {In: at(0), Out: at(4)}, {Scratch: at(8)[0]}}
	for place, want := range map[int]int{0: 1, 2: 1, 3: 2, 9: 3, 6: -1} {
		if got := LastWriter(launches, &at(place)[0]); got != want {
			t.Errorf("byte %d is written by %d last, want %d", place, got, want)
		}
	}
}

func TestReadOnlyBy(t *testing.T) {
	for use, want := range map[Use]bool{Arena: true, Step: false, States: false, Weights: false} {
		o := bytes(&inner{use: use}, 0, 1, 2, 2)
		launches := []Launch{{Out: []Operand{o}}, {In: []Operand{o}}}
		if o.Inside() != want || ReadOnlyBy(launches, 0, &o, func(launch, _ int) bool { return launch == 1 }) != want {
			t.Errorf("memory of the %s: not %v", use, want)
		}
		if ReadOnlyBy(launches, 0, &o, func(launch, _ int) bool { return launch != 1 }) {
			t.Errorf("memory of the %s: launch 1 reads it", use)
		}
	}
	if o := bytes(&memory{}, 0, 1, 2, 2); o.Inside() || (&Operand{}).Inside() {
		t.Error("memory of no known use is inside")
	}
}

func TestReaders(t *testing.T) {
	b := &memory{}
	part := func(from, to int) []Operand { return []Operand{bytes(b, from, 1, to-from, to-from)} }
	launches := []Launch{
		{In: part(0, 20)},
		{Out: part(0, 20)}, // whose readers are asked for
		{In: slices.Concat(part(20, 30), part(4, 6))},
		{In: part(0, 1), Out: part(5, 15)},
		{In: part(6, 14)}, // of the one before
		{In: part(0, 20)},
		{Out: []Operand{bytes(b, 0, 2, 1, 19)}}, // rows with a gap
		{In: part(16, 18)},
		{Scratch: part(0, 5)[0]},
		{In: part(0, 14)},
		{Out: part(15, 20)},
		{In: part(0, 20)}, // all of it is overwritten
	}
	readers := func(most int) (all []string, told bool) {
		told = Readers(launches, 1, &launches[1].Out[0], func(launch, operand int) bool {
			all = append(all, fmt.Sprint(launch, ".", operand))
			return len(all) < most
		})
		return all, told
	}
	want := []string{"2.1", "3.0", "5.0", "7.0"}
	if all, told := readers(9); !slices.Equal(all, want) || !told {
		t.Errorf("%q, %v; want %q", all, told, want)
	}
	if all, told := readers(2); !slices.Equal(all, want[:2]) || told {
		t.Errorf("%q, %v; want %q, false", all, told, want[:2])
	}
	if !Readers(launches, 0, &Operand{}, nil) {
		t.Error("what is left out is read")
	}
}

func TestWithout(t *testing.T) {
	got := without([]span{{0, 10}, {20, 30}}, span{5, 25})
	if want := []span{{0, 5}, {25, 30}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := without([]span{{4, 6}}, span{0, 10}); len(got) != 0 {
		t.Errorf("%v is left of what is covered", got)
	}
}
