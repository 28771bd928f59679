// JSON schema's formats as regular expressions (RFC 3339, 5321, 1123, 4291, 3986,
// 4122, 6901, 6570).

package grammar

import "strings"

const (
	reDate = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|` +
		`02-(?:0[1-9]|1\d|2[0-8]))|` + reLeap + `-02-29)`
	reLeap  = `(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	reClock = `(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))`
	// A leap second is the last of a day in UTC.
	reLeapSecond = `(?:23:59:60(?:\.\d+)?(?:[Zz]|[+-]00:00))`
	reTime       = `(?:` + reClock + `|` + reLeapSecond + `)`

	reLabel = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	reHost  = `(?=.{1,253}$)` + reLabel + `(?:\.` + reLabel + `)*`

	reByte = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	reIPv4 = reByte + `(?:\.` + reByte + `){3}`
	reH16  = `[0-9A-Fa-f]{1,4}`
	reLS32 = `(?:` + reH16 + `:` + reH16 + `|` + reIPv4 + `)`

	reUnreserved = `A-Za-z0-9\-._~`
	reSubDelims  = `!$&'()*+,;=`
	rePct        = `%[0-9A-Fa-f]{2}`
	rePchar      = `(?:[` + reUnreserved + reSubDelims + `:@]|` + rePct + `)`
	reQuery      = `(?:\?(?:` + rePchar + `|[/?])*)?(?:#(?:` + rePchar + `|[/?])*)?`
	reAuthority  = `(?:(?:[` + reUnreserved + reSubDelims + `:]|` + rePct + `)*@)?` +
		`(?:\[(?:IPV6|v[0-9A-Fa-f]+\.[` + reUnreserved +
		reSubDelims + `:]+)\]|(?:[` + reUnreserved + reSubDelims + `]|` + rePct + `)*)(?::\d*)?`
	reAbsEmpty = `(?:/` + rePchar + `*)*`
	reHier     = `(?://` + reAuthority + reAbsEmpty +
		`|/(?:` + rePchar + `+` + reAbsEmpty + `)?|` + rePchar + `+` + reAbsEmpty + `|)`
	reURI      = `[A-Za-z][A-Za-z0-9+\-.]*:` + reHier + reQuery
	reNoColon  = `(?:[` + reUnreserved + reSubDelims + `@]|` + rePct + `)+`
	reRelative = `(?://` + reAuthority + reAbsEmpty +
		`|/(?:` + rePchar + `+` + reAbsEmpty + `)?|` + reNoColon + reAbsEmpty + `|)` + reQuery

	reAtext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	reEmail = `(?=.{1,254}$)(?=[^@]{1,64}@|")(?:` + reAtext + `(?:\.` + reAtext + `)*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:` +
		reLabel + `(?:\.` + reLabel + `)*|\[` + reIPv4 + `\]|\[IPv6:(?:IPV6)\])`

	reDuration = `P(?:\d+W|(?=.)(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)?` +
		`(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?)`
)

// ipv6 is RFC 4291's text form: eight groups, a run of them left out once.
func ipv6() string {
	forms := []string{`(?:` + reH16 + `:){6}` + reLS32, `::(?:` + reH16 + `:){5}` + reLS32}
	for before := 1; before <= 7; before++ {
		head := `(?:(?:` + reH16 + `:){0,` + string(rune('0'+before-1)) + `}` + reH16 + `)?::`
		switch after := 5 - before; {
		case after > 0:
			forms = append(forms, head+`(?:`+reH16+`:){`+string(rune('0'+after))+`}`+reLS32)
		case after == 0:
			forms = append(forms, head+reLS32)
		case after == -1:
			forms = append(forms, head+reH16)
		default:
			forms = append(forms, head)
		}
	}
	return `(?:` + strings.Join(forms, "|") + `)`
}

// formats are the ones that a schema's instances must follow. Others are
// annotations, as the specification has it.
var formats = map[string]string{
	"date":                  reDate,
	"time":                  reTime,
	"date-time":             reDate + `[Tt]` + reTime,
	"duration":              reDuration,
	"email":                 reEmail,
	"hostname":              reHost,
	"ipv4":                  reIPv4,
	"ipv6":                  ipv6(),
	"uri":                   strings.ReplaceAll(reURI, "IPV6", ipv6()),
	"uri-reference":         strings.ReplaceAll(`(?:`+reURI+`|`+reRelative+`)`, "IPV6", ipv6()),
	"uuid":                  `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`,
	"json-pointer":          `(?:/(?:[^/~]|~[01])*)*`,
	"relative-json-pointer": `(?:0|[1-9]\d*)(?:#|(?:/(?:[^/~]|~[01])*)*)`,
}

// refusedFormats are checked by validators, and are not done here.
var refusedFormats = []string{"regex", "idn-email", "idn-hostname", "iri", "iri-reference", "uri-template"}

func init() { formats["email"] = strings.ReplaceAll(formats["email"], "IPV6", ipv6()) }

// formatText gives the texts of a format; ok is false where the name is only an
// annotation.
func (a *arena) formatText(name string) (r rx, ok bool, err error) {
	src, ok := formats[name]
	if !ok {
		return rxNone, false, nil
	}
	r, err = a.wholePattern(src)
	return r, true, err
}
