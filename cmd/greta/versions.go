package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/versions"
)

// versions judges the drivers and libraries that the platforms' findings name.
func (d *doctor) versions() {
	var parts []versions.Part
	for i := range d.all {
		for _, p := range d.all[i].Parts {
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
		d.all[i].Parts = nil
	}
	d.verdicts = []versions.Verdict{}
	for _, p := range parts {
		v := versions.Judge(p)
		d.verdicts = append(d.verdicts, v)
		switch v.State {
		case versions.Bad:
			d.say("versions", warned, "docs/versions.md has what is tested", "%s", v)
		case versions.Untried:
			d.say("versions", noted, "greta smoke tries a card, greta check a model", "%s", v)
		default:
			d.say("versions", fine, "", "%s", v)
		}
	}
}

// warnVersions tells of a device's driver and libraries what greta's table has against them: each time of what is known
// not to work, at the first use of what nothing is known of. toldFile remembers; "" for nothing.
func warnVersions(i backends.Info, toldFile string, notify func(string)) {
	data, _ := os.ReadFile(toldFile) // none: the first use
	told := strings.Split(string(data), "\n")
	var news []string
	for _, p := range versions.Read(i.Driver, "") {
		switch v := versions.Judge(p); v.State {
		case versions.Bad:
			notify(v.String())
		case versions.Untried:
			if line := p.Part + " " + p.Version; !slices.Contains(told, line) {
				notify(v.String() + "; greta smoke tries a card (said once)")
				news = append(news, line+"\n")
			}
		}
	}
	if len(news) == 0 || toldFile == "" {
		return
	}
	// Where it cannot be kept the warning comes again, which is all that is lost.
	if os.MkdirAll(filepath.Dir(toldFile), 0o755) != nil {
		return
	}
	if f, err := os.OpenFile(toldFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		f.WriteString(strings.Join(news, ""))
		f.Close()
	}
}

// toldVersions is the file of warnVersions; "" where the user has no folder of caches.
func toldVersions() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "greta", "versions.txt")
}
