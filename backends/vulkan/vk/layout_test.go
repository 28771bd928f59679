//go:build linux && (amd64 || arm64) && !nogpu

package vk

import (
	"bufio"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestLayout compares every struct's size and offsets with those that a C
// compiler gave for the headers of the registry's version.
func TestLayout(t *testing.T) {
	f, err := os.Open("testdata/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		name, number, _ := strings.Cut(s.Text(), " ")
		want, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		name, member, isMember := strings.Cut(name, ".")
		v, ok := structs[name]
		if !ok {
			t.Errorf("%s is not bound", name)
			continue
		}
		typ := reflect.TypeOf(v)
		got := int(typ.Size())
		if isMember {
			field, ok := typ.FieldByName(strings.ToUpper(member[:1]) + member[1:])
			if !ok {
				t.Errorf("%s lacks %s", name, member)
				continue
			}
			got = int(field.Offset)
		} else {
			seen++
		}
		if got != want {
			t.Errorf("%s is %d in Go, %d in C", s.Text(), got, want)
		}
	}
	if seen != len(structs) {
		t.Errorf("%d structs have a known layout, %d are bound", seen, len(structs))
	}
}

func TestResultNames(t *testing.T) {
	for r, want := range map[Result]string{0: "VK_SUCCESS", -4: "VK_ERROR_DEVICE_LOST",
		-3: "VK_ERROR_INITIALIZATION_FAILED", 77: "VkResult(77)"} {
		if r.Error() != want {
			t.Errorf("%d is %s, not %s", int32(r), r.Error(), want)
		}
	}
}
