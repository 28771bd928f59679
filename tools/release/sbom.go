package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill is the bill of materials of a binary, CycloneDX JSON: the modules that the linker noted in it, with the
// versions and sums under which Go's checksum database knows them, and Go's own library.
func (s *source) bill(t target, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	return s.billOf(t, info)
}

func (s *source) billOf(t target, info *debug.BuildInfo) ([]byte, error) {
	root := "pkg:golang/" + s.module + "@v" + s.version
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{
		Timestamp: s.time.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: root, Type: cdx.ComponentTypeApplication, Name: "greta", Version: s.version,
			PackageURL: root, Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
			ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: s.url()}},
			Properties: &[]cdx.Property{{Name: "greta:platform", Value: t.String()},
				{Name: "greta:commit", Value: s.commit}, {Name: "greta:tags", Value: t.tags}}},
	}
	goVersion := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
	std := "pkg:golang/std@" + goVersion
	components := []cdx.Component{{BOMRef: std, Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion,
		PackageURL: std,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "BSD-3-Clause"}}}}}
	refs := []string{std}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: go install would refuse such a go.mod", m.Path, m.Replace.Path)
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
		if h, ok := strings.CutPrefix(m.Sum, "h1:"); ok { // SHA-256 of the module's files
			raw, err := base64.StdEncoding.DecodeString(h)
			if err != nil {
				return nil, fmt.Errorf("%s: sum %q: %w", m.Path, m.Sum, err)
			}
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", raw)}}
		}
		components = append(components, c)
		refs = append(refs, url)
	}
	b.Components = &components
	b.Dependencies = &[]cdx.Dependency{{Ref: root, Dependencies: &refs}}
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(b, cdx.SpecVersion1_6)
	return out.Bytes(), err
}
