package engine

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// What filters know of tokens: their masses and their order. A mass is exp(logit − top) as a whole number, so that
// sums of masses are the same in any order. Nothing is sorted: masses go into bins by how far a logit lies behind the
// top one, a filter ends in one bin, and only that one's tokens are looked at one by one. All of it takes time in
// proportion to the tokens, however flat they are.

const (
	// farBits are the bits behind the point of a distance, which counts halvings of the mass.
	farBits = 24
	// massBits are the bits of the top token's mass: 2^23 tokens come to less than 2^63.
	massBits = 40
	// farthest is the distance from which on tokens have no mass.
	farthest = massBits << farBits
	// binBits are the most bits of a distance that a bin does not tell: a bin is a 64th of a halving or less.
	binBits = farBits - 6
	bins    = farthest >> binBits
)

// powers[i][j] is 2^(31 − j/256^(i+1)), rounded.
var powers = func() (t [3][256]uint64) {
	for i := range t {
		for j := range t[i] {
			t[i][j] = uint64(math.Round(math.Exp2(31 - math.Ldexp(float64(j), -8*(i+1)))))
		}
	}
	return t
}()

// mass is 2^(massBits − far/2^farBits), within 2e-9 of it or one, whichever is more.
func mass(far uint32) uint64 {
	m := powers[0][far>>16&255] * powers[1][far>>8&255] >> 31 * powers[2][far&255]
	return m >> ((62 - massBits + far>>farBits) & 63)
}

// farOf is how many halvings a logit lies behind the top one, in 2^farBits of one; false where it is a NaN, or so
// far that it has no mass.
func farOf(top float64, logit float32) (uint32, bool) {
	far := (top - float64(logit)) * (math.Log2E * (1 << farBits))
	if !(far < farthest) {
		return 0, false
	}
	return uint32(int64(far)), true
}

// tokens are what a choice is made among: token ids[i], or i where there are no ids, has the logit x[i]. A NaN is no
// token.
type tokens struct {
	x   []float32
	ids []int32
}

func (t *tokens) id(i int) int32 {
	if t.ids == nil {
		return int32(i)
	}
	return t.ids[i]
}

// item is a token with the place that it has in some order and what it counts.
type item struct{ key, mass uint64 }

// placeOf puts tokens in order, the most likely first, of equals that of the least number.
func placeOf(logit float32, id int32) uint64 {
	b := math.Float32bits(logit + 0) // −0 is 0
	if b>>31 == 0 {
		b = ^b &^ (1 << 31)
	}
	return uint64(b)<<32 | uint64(uint32(id))
}

// placed is the token of a place.
func placed(key uint64) candidate {
	b := uint32(key >> 32)
	if b>>31 == 0 {
		b = ^b &^ (1 << 31)
	}
	return candidate{int32(uint32(key)), math.Float32frombits(b)}
}

// reach moves the fewest items of the least keys that come to need to the front and gives their number; all where all
// come to less. No two keys are equal, need is more than 0.
func reach(list []item, need uint64) int {
	from, to := 0, len(list) // those before from are in, those from to on are not
	for to-from > 1 {
		mid := int(uint(from+to) / 2)
		a, b, c := list[from].key, list[mid].key, list[to-1].key
		pivot := max(min(a, b), min(max(a, b), c))
		at, sum := from, uint64(0) // at: where those up to the pivot end, which sum counts
		for i := from; i < to; i++ {
			if it := list[i]; it.key <= pivot {
				list[i], list[at] = list[at], it
				at++
				sum += it.mass
			}
		}
		switch {
		case sum < need:
			need -= sum
			from = at
		case at < to:
			to = at
		default: // the pivot is the last of all
			last := slices.IndexFunc(list[from:to], func(it item) bool { return it.key == pivot }) + from
			list[last], list[to-1] = list[to-1], list[last]
			if sum-list[to-1].mass < need {
				return to
			}
			to--
		}
	}
	return to
}

// room is what choices need while they are made.
type room struct {
	bins    [bins]uint64
	list    []item
	x       []float32 // of the tokens that a filter leaves
	ids     []int32
	counts  []int32     // of recent tokens, one more than counted; zeros between choices
	changes []change    // of recent tokens
	changed []candidate // the logits that tokens had before they were changed
	sum     uint64      // of bins
	shift   int         // bits of a distance that they do not tell
	of      *float32    // the first of the logits that bins are of; nil: of none
}

// rooms are kept for the next choices: there are as many as choices were made at once.
var rooms struct {
	sync.Mutex
	free []*room
}

func takeRoom() *room {
	rooms.Lock()
	defer rooms.Unlock()
	n := len(rooms.free)
	if n == 0 {
		return new(room)
	}
	r := rooms.free[n-1]
	rooms.free = rooms.free[:n-1]
	return r
}

func (r *room) leave() {
	r.of = nil
	rooms.Lock()
	rooms.free = append(rooms.free, r)
	rooms.Unlock()
}

// spread puts the masses of tokens into bins by distance. top is their greatest logit.
func (r *room) spread(t tokens, top float32) {
	if r.of == &t.x[0] {
		return
	}
	r.scale(t, top)
	r.fill(t, top)
}

// scale makes bins so narrow that those of the tokens, as some of them tell, are all there is room for. What is further
// away is in the last one.
func (r *room) scale(t tokens, top float32) {
	most, from := uint32(1), float64(top)
	for i := 0; i < len(t.x); i += len(t.x)/256 + 1 {
		if far, ok := farOf(from, t.x[i]); ok {
			most = max(most, far)
		}
	}
	r.shift = min(binBits, max(0, bits.Len32(2*most/bins)))
}

func (r *room) fill(t tokens, top float32) {
	clear(r.bins[:])
	sum, from, shift := uint64(0), float64(top), r.shift&31
	for _, v := range t.x {
		if far, ok := farOf(from, v); ok {
			m := mass(far)
			r.bins[min(far>>shift, bins-1)] += m
			sum += m
		}
	}
	r.sum, r.of = sum, &t.x[0]
}

// share is the mass that a share of all comes to.
func (r *room) share(p float64) uint64 {
	return max(1, min(r.sum, uint64(math.Ceil(p*float64(r.sum)))))
}

// bin finds in which bin the masses come to need, and how much of it is left behind the bins before.
func (r *room) bin(need uint64) (at uint32, left uint64) {
	for ; need > r.bins[at]; at++ {
		need -= r.bins[at]
	}
	return at, need
}

// nucleus gives the place of the last of the fewest most likely tokens that come to a share p of the mass.
func (r *room) nucleus(t tokens, top float32, p float64) uint64 {
	r.spread(t, top)
	at, need := r.bin(r.share(p))
	if at == bins-1 && r.shift < binBits { // what is further away than was thought
		r.shift = binBits
		r.fill(t, top)
		at, need = r.bin(r.share(p))
	}
	list := r.list[:0]
	// A little more than the bin, which is told by the distance itself.
	from, width := float64(top), float64(uint64(1)<<r.shift)
	most := float32(from - (float64(at)*width-1)/(math.Log2E*(1<<farBits)))
	least := float32(from - (float64(at+1)*width+1)/(math.Log2E*(1<<farBits)))
	most, least = math.Nextafter32(most, float32(math.Inf(1))), math.Nextafter32(least, float32(math.Inf(-1)))
	for i, v := range t.x {
		if !(v >= least && v <= most) {
			continue
		}
		if far, ok := farOf(from, v); ok && far>>r.shift == at {
			list = append(list, item{placeOf(v, t.id(i)), mass(far)})
		}
	}
	r.list = list
	return r.last(list, need, func(key uint64) uint32 {
		far, _ := farOf(from, placed(key).logit)
		return far
	})
}

// last gives the key of the last of the fewest items of the least keys that come to need. All are of one bin; where
// they are many they go into narrower ones, by the distance that a key has.
func (r *room) last(list []item, need uint64, distance func(key uint64) uint32) uint64 {
	const parts = 1 << 9
	for shift := r.shift; shift > 0 && len(list) > parts; {
		shift = max(0, shift-9)
		clear(r.bins[:parts])
		r.of = nil
		for _, it := range list {
			r.bins[distance(it.key)>>shift%parts] += it.mass
		}
		var at uint32
		at, need = r.bin(need)
		left := list[:0]
		for _, it := range list {
			if distance(it.key)>>shift%parts == at {
				left = append(left, it)
			}
		}
		list = left
	}
	return greatestKey(list[:reach(list, need)])
}

// mostLikely gives the places of the k most likely tokens, in no order.
func (r *room) mostLikely(t tokens, k int) []item {
	list, least, last := r.list[:0], float32(math.Inf(-1)), ^uint64(0)
	for i, v := range t.x {
		if !(v >= least) { // a NaN too
			continue
		}
		place := placeOf(v, t.id(i))
		if place >= last {
			continue
		}
		list = append(list, item{place, 1})
		if len(list) >= 2*k+64 {
			list = list[:reach(list, uint64(k))]
			last = greatestKey(list)
			least = placed(last).logit
		}
	}
	r.list = list
	return list[:reach(list, uint64(k))]
}

func greatestKey(list []item) (key uint64) {
	for _, it := range list {
		key = max(key, it.key)
	}
	return key
}

// keep makes tokens of places.
func (r *room) keep(list []item) tokens {
	r.x, r.ids = r.x[:0], r.ids[:0]
	for _, it := range list {
		c := placed(it.key)
		r.x, r.ids = append(r.x, c.logit), append(r.ids, c.id)
	}
	return tokens{r.x, r.ids}
}

// norm is the logarithm of Σ exp(logit) of finite logits, of which top is the greatest.
func (r *room) norm(logits []float32, top float32) float64 {
	r.spread(tokens{x: logits}, top)
	return float64(top) + math.Log(math.Ldexp(float64(r.sum), -massBits))
}

// mostTypical leaves the fewest tokens that come to a share p of the mass, those first whose surprise −ln p is nearest
// to the expected one (Meister et al., "Locally typical sampling", 2022): whose distance from the top is nearest to
// the mean of distances by mass, since both differ by the same number. Of those as near the more likely come first,
// then those of the least number.
func (r *room) mostTypical(t tokens, top float32, p float64) tokens {
	from := float64(top)
	r.scale(t, top)
	middle := r.expected(t, top)
	r.fillAround(t, top, middle)
	at, need := r.bin(r.share(p))
	if at == bins-1 && r.shift < binBits {
		r.shift = binBits
		r.fillAround(t, top, middle)
		at, need = r.bin(r.share(p))
	}
	list := r.list[:0]
	for i, v := range t.x {
		if far, ok := farOf(from, v); ok && apartFrom(middle, far)>>(r.shift&31) == at {
			list = append(list, item{typicalPlace(middle, far, t.id(i)), mass(far)})
		}
	}
	r.list = list
	last := r.last(list, need, func(key uint64) uint32 { return uint32(key >> 32) })
	x, ids := r.x[:0], r.ids[:0] // they may be t's: what is written was read
	for i, v := range t.x {
		if far, ok := farOf(from, v); ok {
			if id := t.id(i); typicalPlace(middle, far, id) <= last {
				x, ids = append(x, v), append(ids, id)
			}
		}
	}
	r.x, r.ids = x, ids
	return tokens{x, ids}
}

// expected is the mean of distances by mass.
func (r *room) expected(t tokens, top float32) uint32 {
	from := float64(top)
	var sum, high, low uint64
	for _, v := range t.x {
		if far, ok := farOf(from, v); ok {
			m := mass(far)
			h, l := bits.Mul64(m, uint64(far))
			var carry uint64
			low, carry = bits.Add64(low, l, 0)
			high += h + carry
			sum += m
		}
	}
	r.sum = sum
	mean, _ := bits.Div64(high, low, sum)
	return uint32(mean)
}

// fillAround puts the masses of tokens into bins by how far from middle their distance is.
func (r *room) fillAround(t tokens, top float32, middle uint32) {
	clear(r.bins[:])
	r.of = nil
	from, shift := float64(top), r.shift&31
	for _, v := range t.x {
		if far, ok := farOf(from, v); ok {
			r.bins[min(apartFrom(middle, far)>>shift, bins-1)] += mass(far)
		}
	}
}

// apartFrom is |far − middle|, without a branch, as either may be the greater; both are less than 2³¹.
func apartFrom(middle, far uint32) uint32 {
	d := int32(far - middle)
	return uint32((d ^ d>>31) - d>>31)
}

// typicalPlace puts tokens in order, the most typical first.
func typicalPlace(middle, far uint32, id int32) uint64 {
	behind := (middle - far) & (1 << 31) // it is less likely than what is expected
	return uint64(apartFrom(middle, far))<<32 | uint64(behind|uint32(id))
}

// leastOf is the least logit whose probability is at least a share p of the top one's.
func leastOf(top float32, p float64) float32 {
	from, to := placeOf(top, 0)>>32, placeOf(float32(math.Inf(-1)), 0)>>32 // from is one, to is none
	for to-from > 1 {
		mid := (from + to) / 2
		if v := placed(mid << 32).logit; math.Exp(float64(v)-float64(top)) >= p {
			from = mid
		} else {
			to = mid
		}
	}
	return placed(from << 32).logit
}
