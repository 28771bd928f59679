// Sets of characters: what the classes of Oniguruma's patterns stand for.

package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/greta-project/greta/internal/sorting"
)

// runeSpan is the characters lo to hi, both included.
type runeSpan struct{ lo, hi rune }

// runeSet is a set of characters: ascending spans with gaps between them.
type runeSet []runeSpan

func spans(bounds ...rune) runeSet {
	var s runeSet
	for i := 0; i < len(bounds); i += 2 {
		s = append(s, runeSpan{bounds[i], bounds[i+1]})
	}
	return s
}

// tables joins Unicode's tables, by Go's names of categories, scripts and properties, as Unicode 16 has them.
func tables(names ...string) runeSet {
	var s runeSet
	for _, name := range names {
		t := cmp.Or(unicode.Categories[name], unicode.Scripts[name], unicode.Properties[name])
		part := tableSet(t)
		for changed, c := range since15() {
			if changed == name || len(name) == 1 && len(changed) == 2 && changed[:1] == name {
				part = append(part, c.more...)
			}
		}
		if less := since15()[name].less; len(less) > 0 {
			part = part.tidy().and(less.not())
		}
		s = append(s, part...)
	}
	return s.tidy()
}

// tableSet is a table of Go's.
func tableSet(t *unicode.RangeTable) runeSet {
	var s runeSet
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			s = append(s, runeSpan{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			s = append(s, runeSpan{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return s
}

// tidy sorts the spans and joins those that touch.
func (s runeSet) tidy() runeSet {
	s = slices.Clone(s)
	sorting.Sort(s, func(a, b runeSpan) int { return int(a.lo - b.lo) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

func (s runeSet) union(o runeSet) runeSet { return slices.Concat(s, o).tidy() }

func (s runeSet) not() runeSet {
	var out runeSet
	next := rune(0)
	for _, r := range s {
		if r.lo > next {
			out = append(out, runeSpan{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeSpan{next, unicode.MaxRune})
	}
	return out
}

func (s runeSet) and(o runeSet) runeSet { return s.not().union(o.not()).not() }

func (s runeSet) has(r rune) bool {
	_, ok := slices.BinarySearchFunc(s, r, func(span runeSpan, r rune) int {
		switch {
		case span.hi < r:
			return -1
		case span.lo > r:
			return 1
		}
		return 0
	})
	return ok
}

// text writes the set as a class of the engine.
func (s runeSet) text() string {
	if len(s) == 0 {
		return `(?!)`
	}
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range s {
		b.WriteString(literalRune(r.lo))
		if r.hi > r.lo {
			b.WriteByte('-')
			b.WriteString(literalRune(r.hi))
		}
	}
	b.WriteByte(']')
	return b.String()
}

// literalRune writes one character so that it means itself in and out of classes.
func literalRune(r rune) string {
	switch {
	case '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z':
		return string(r)
	case r <= 0xFFFF:
		return fmt.Sprintf(`\u%04X`, r)
	}
	return string(r)
}

// folding holds what matching without case needs: characters that stand for
// one another, and strings that one character stands for ("ss" and "ß").
var folding = sync.OnceValue(func() (f struct {
	orbits []rune             // every character that has another of its kind
	many   map[string]runeSet // by folded string of two or three characters
	single map[rune]string    // its other direction
}) {
	f.many, f.single = map[string]runeSet{}, map[rune]string{}
	for r := rune(0); r <= 0x1FFFF; r++ {
		if unicode.SimpleFold(r) != r {
			f.orbits = append(f.orbits, r)
		}
	}
	for r := range foldsSince15() {
		f.orbits = append(f.orbits, r)
	}
	for _, pair := range strings.Fields(fullFoldings) {
		one, several, _ := strings.Cut(pair, "=")
		r := []rune(one)[0]
		f.many[several] = f.many[several].union(spans(r, r))
		f.single[r] = several
	}
	return f
})

// fullFoldings are the characters that fold to several: those of status F in Unicode's CaseFolding.txt. A test holds
// them against golang.org/x/text/cases, which brings tables of languages too.
const fullFoldings = "" +
	"\u00df=ss \u0130=i\u0307 \u0149=\u02bcn \u01f0=j\u030c \u0390=\u03b9\u0308\u0301 " +
	"\u03b0=\u03c5\u0308\u0301 \u0587=\u0565\u0582 \u1e96=h\u0331 \u1e97=t\u0308 \u1e98=w\u030a " +
	"\u1e99=y\u030a \u1e9a=a\u02be \u1e9e=ss \u1f50=\u03c5\u0313 \u1f52=\u03c5\u0313\u0300 " +
	"\u1f54=\u03c5\u0313\u0301 \u1f56=\u03c5\u0313\u0342 \u1f80=\u1f00\u03b9 \u1f81=\u1f01\u03b9 " +
	"\u1f82=\u1f02\u03b9 \u1f83=\u1f03\u03b9 \u1f84=\u1f04\u03b9 \u1f85=\u1f05\u03b9 \u1f86=\u1f06\u03b9 " +
	"\u1f87=\u1f07\u03b9 \u1f88=\u1f00\u03b9 \u1f89=\u1f01\u03b9 \u1f8a=\u1f02\u03b9 \u1f8b=\u1f03\u03b9 " +
	"\u1f8c=\u1f04\u03b9 \u1f8d=\u1f05\u03b9 \u1f8e=\u1f06\u03b9 \u1f8f=\u1f07\u03b9 \u1f90=\u1f20\u03b9 " +
	"\u1f91=\u1f21\u03b9 \u1f92=\u1f22\u03b9 \u1f93=\u1f23\u03b9 \u1f94=\u1f24\u03b9 \u1f95=\u1f25\u03b9 " +
	"\u1f96=\u1f26\u03b9 \u1f97=\u1f27\u03b9 \u1f98=\u1f20\u03b9 \u1f99=\u1f21\u03b9 \u1f9a=\u1f22\u03b9 " +
	"\u1f9b=\u1f23\u03b9 \u1f9c=\u1f24\u03b9 \u1f9d=\u1f25\u03b9 \u1f9e=\u1f26\u03b9 \u1f9f=\u1f27\u03b9 " +
	"\u1fa0=\u1f60\u03b9 \u1fa1=\u1f61\u03b9 \u1fa2=\u1f62\u03b9 \u1fa3=\u1f63\u03b9 \u1fa4=\u1f64\u03b9 " +
	"\u1fa5=\u1f65\u03b9 \u1fa6=\u1f66\u03b9 \u1fa7=\u1f67\u03b9 \u1fa8=\u1f60\u03b9 \u1fa9=\u1f61\u03b9 " +
	"\u1faa=\u1f62\u03b9 \u1fab=\u1f63\u03b9 \u1fac=\u1f64\u03b9 \u1fad=\u1f65\u03b9 \u1fae=\u1f66\u03b9 " +
	"\u1faf=\u1f67\u03b9 \u1fb2=\u1f70\u03b9 \u1fb3=\u03b1\u03b9 \u1fb4=\u03ac\u03b9 \u1fb6=\u03b1\u0342 " +
	"\u1fb7=\u03b1\u0342\u03b9 \u1fbc=\u03b1\u03b9 \u1fc2=\u1f74\u03b9 \u1fc3=\u03b7\u03b9 " +
	"\u1fc4=\u03ae\u03b9 \u1fc6=\u03b7\u0342 \u1fc7=\u03b7\u0342\u03b9 \u1fcc=\u03b7\u03b9 " +
	"\u1fd2=\u03b9\u0308\u0300 \u1fd3=\u03b9\u0308\u0301 \u1fd6=\u03b9\u0342 \u1fd7=\u03b9\u0308\u0342 " +
	"\u1fe2=\u03c5\u0308\u0300 \u1fe3=\u03c5\u0308\u0301 \u1fe4=\u03c1\u0313 \u1fe6=\u03c5\u0342 " +
	"\u1fe7=\u03c5\u0308\u0342 \u1ff2=\u1f7c\u03b9 \u1ff3=\u03c9\u03b9 \u1ff4=\u03ce\u03b9 " +
	"\u1ff6=\u03c9\u0342 \u1ff7=\u03c9\u0342\u03b9 \u1ffc=\u03c9\u03b9 \ufb00=ff \ufb01=fi \ufb02=fl " +
	"\ufb03=ffi \ufb04=ffl \ufb05=st \ufb06=st \ufb13=\u0574\u0576 \ufb14=\u0574\u0565 \ufb15=\u0574\u056b " +
	"\ufb16=\u057e\u0576 \ufb17=\u0574\u056d"

// folded adds to a set all that its members stand for without case.
func (s runeSet) folded() runeSet {
	var more runeSet
	for _, r := range folding().orbits {
		if s.has(r) {
			for o := simpleFold(r); o != r; o = simpleFold(o) {
				more = append(more, runeSpan{o, o})
			}
		}
	}
	if len(more) == 0 {
		return s
	}
	return s.union(more)
}

// Oniguruma's named sets, as its data has them for UTF-8.
var (
	setAlpha = sync.OnceValue(func() runeSet { return tables("L", "Nl", "Other_Alphabetic") })
	setSpace = sync.OnceValue(func() runeSet { return tables("White_Space") })
	// setWord is [[:word:]].
	setWord = sync.OnceValue(func() runeSet {
		return setAlpha().union(tables("M", "Nd", "Pc"))
	})
	// setWordAlone is \w outside of classes and what \b asks, where the data for
	// the first 256 characters counts ² ³ ¹ ¼ ½ ¾ in.
	setWordAlone = sync.OnceValue(func() runeSet {
		return setWord().union(spans(0xB2, 0xB3, 0xB9, 0xB9, 0xBC, 0xBE))
	})
	setHex      = spans('0', '9', 'A', 'F', 'a', 'f')
	setAll      = spans(0, unicode.MaxRune)
	setAssigned = sync.OnceValue(func() runeSet {
		return tables("L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Cs",
			"Co")
	})
)

// posixSet is [[:name:]] and \p{name}.
func posixSet(name string) (runeSet, bool) {
	switch name {
	case "alnum":
		return setAlpha().union(tables("Nd")), true
	case "alpha":
		return setAlpha(), true
	case "ascii":
		return spans(0, 0x7F), true
	case "blank":
		return tables("Zs").union(spans('\t', '\t')), true
	case "cntrl":
		return tables("Cc"), true
	case "digit":
		return tables("Nd"), true
	case "graph":
		return setSpace().union(tables("Cc", "Cs")).union(setAssigned().not()).not(), true
	case "print":
		s, _ := posixSet("graph")
		return s.union(tables("Zs")), true
	case "lower":
		return tables("Ll", "Other_Lowercase"), true
	case "upper":
		return tables("Lu", "Other_Uppercase"), true
	case "punct":
		return tables("P", "S"), true
	case "space":
		return setSpace(), true
	case "word":
		return setWord(), true
	case "xdigit":
		return setHex, true
	}
	return nil, false
}

// property gives the set of \p{name}; case, spaces, '-' and '_' do not count. alone says that it is in no class.
func property(name string, alone bool) (runeSet, bool) {
	name = strings.ToLower(strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name))
	if table, ok := propertyTables()[name]; ok {
		return tables(table), true
	}
	switch name {
	case "word":
		if alone {
			return setWordAlone(), true
		}
	case "punct", "punctuation": // \p{Punct} is the category, [[:punct:]] is more
		return tables("P"), true
	case "any":
		return setAll, true
	case "assigned":
		return setAssigned(), true
	case "cn", "unassigned":
		return setAssigned().not(), true
	case "c", "other":
		return tables("Cc", "Cf", "Cs", "Co").union(setAssigned().not()), true
	case "lc", "casedletter":
		return tables("Lu", "Ll", "Lt"), true
	case "alphabetic":
		return setAlpha(), true
	case "lowercase":
		name = "lower"
	case "uppercase":
		name = "upper"
	case "math":
		return tables("Sm", "Other_Math"), true
	case "idstart", "ids":
		return idStart(), true
	case "idcontinue", "idc":
		return idStart().union(tables("M", "Nd", "Pc", "Other_ID_Continue").
			and(tables("Me").not()).and(tables("Pattern_Syntax", "Pattern_White_Space").not())), true
	case "unknown", "zzzz":
		var known runeSet
		for script := range unicode.Scripts {
			known = append(known, tables(script)...)
		}
		for name, c := range since15() { // those of scripts that Go does not know are of a category
			if len(name) == 2 {
				known = append(known, c.more...)
			}
		}
		return known.tidy().not(), true
	}
	return posixSet(name)
}

func idStart() runeSet {
	return tables("L", "Nl", "Other_ID_Start").
		and(tables("Pattern_Syntax", "Pattern_White_Space").not())
}

// propertyTables are Go's names of Unicode's categories, scripts and properties by the long and short ones.
var propertyTables = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for name := range unicode.Properties {
		switch name {
		case "Other_Alphabetic", "Other_Lowercase", "Other_Uppercase", "Other_Math":
		default:
			all[plain(name)] = name
		}
	}
	for name := range unicode.Scripts {
		all[plain(name)] = name
	}
	for short, long := range scriptNames {
		if _, ok := unicode.Scripts[long]; ok {
			all[short] = long
		}
	}
	for name := range unicode.Categories {
		all[plain(name)] = name
	}
	for long, short := range unicode.CategoryAliases {
		if _, ok := unicode.Categories[short]; ok {
			all[plain(long)] = short
		}
	}
	for _, name := range []string{"punct", "punctuation", "cn", "unassigned", "c", "other", "lc", "casedletter"} {
		delete(all, name) // property says what these are
	}
	return all
})

// scriptNames are the four-letter codes of scripts (ISO 15924).
var scriptNames = func() map[string]string {
	const list = `adlm Adlam ahom Ahom hluw Anatolian_Hieroglyphs arab Arabic armn Armenian avst Avestan bali Balinese
bamu Bamum bass Bassa_Vah batk Batak beng Bengali bhks Bhaiksuki bopo Bopomofo brah Brahmi brai Braille bugi Buginese
buhd Buhid cans Canadian_Aboriginal cari Carian aghb Caucasian_Albanian cakm Chakma cham Cham cher Cherokee
chrs Chorasmian zyyy Common copt Coptic qaac Coptic xsux Cuneiform cprt Cypriot cpmn Cypro_Minoan cyrl Cyrillic
dsrt Deseret deva Devanagari diak Dives_Akuru dogr Dogra dupl Duployan egyp Egyptian_Hieroglyphs elba Elbasan
elym Elymaic ethi Ethiopic geor Georgian glag Glagolitic goth Gothic gran Grantha grek Greek gujr Gujarati
gong Gunjala_Gondi guru Gurmukhi hani Han hang Hangul rohg Hanifi_Rohingya hano Hanunoo hatr Hatran hebr Hebrew
hira Hiragana armi Imperial_Aramaic zinh Inherited qaai Inherited phli Inscriptional_Pahlavi
prti Inscriptional_Parthian java Javanese kthi Kaithi knda Kannada kana Katakana kawi Kawi kali Kayah_Li
khar Kharoshthi kits Khitan_Small_Script khmr Khmer khoj Khojki sind Khudawadi laoo Lao latn Latin lepc Lepcha
limb Limbu lina Linear_A linb Linear_B lisu Lisu lyci Lycian lydi Lydian mahj Mahajani maka Makasar mlym Malayalam
mand Mandaic mani Manichaean marc Marchen gonm Masaram_Gondi medf Medefaidrin mtei Meetei_Mayek mend Mende_Kikakui
merc Meroitic_Cursive mero Meroitic_Hieroglyphs plrd Miao modi Modi mong Mongolian mroo Mro mult Multani mymr Myanmar
nbat Nabataean nagm Nag_Mundari nand Nandinagari talu New_Tai_Lue newa Newa nkoo Nko nshu Nushu
hmnp Nyiakeng_Puachue_Hmong ogam Ogham olck Ol_Chiki hung Old_Hungarian ital Old_Italic narb Old_North_Arabian
perm Old_Permic xpeo Old_Persian sogo Old_Sogdian sarb Old_South_Arabian orkh Old_Turkic ougr Old_Uyghur orya Oriya
osge Osage osma Osmanya hmng Pahawh_Hmong palm Palmyrene pauc Pau_Cin_Hau phag Phags_Pa phnx Phoenician
phlp Psalter_Pahlavi rjng Rejang runr Runic samr Samaritan saur Saurashtra shrd Sharada shaw Shavian sidd Siddham
sgnw SignWriting sinh Sinhala sogd Sogdian sora Sora_Sompeng soyo Soyombo sund Sundanese sylo Syloti_Nagri syrc Syriac
tglg Tagalog tagb Tagbanwa tale Tai_Le lana Tai_Tham tavt Tai_Viet takr Takri taml Tamil tnsa Tangsa tang Tangut
telu Telugu thaa Thaana thai Thai tibt Tibetan tfng Tifinagh tirh Tirhuta toto Toto ugar Ugaritic vaii Vai
vith Vithkuqi wcho Wancho wara Warang_Citi yezi Yezidi yiii Yi zanb Zanabazar_Square`
	names := map[string]string{}
	words := strings.Fields(list)
	for i := 0; i < len(words); i += 2 {
		names[words[i]] = words[i+1]
	}
	return names
}()
