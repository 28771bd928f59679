package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/internal/hfclass"
)

// Configurations say how positions turn heads in an object, which older ones call rope_scaling and newer ones
// rope_parameters. transformers takes the older one for the whole of the newer, where it says anything: of two, what
// rope_parameters says holds nowhere.

const (
	oldTurn = "rope_scaling"
	newTurn = "rope_parameters"
)

// hasObject says whether config.json has an object under a dotted key, and something in it.
func hasObject(w Weights, key string) bool {
	source, ok := w.(interface{ Keys() []string })
	return ok && slices.ContainsFunc(source.Keys(), func(have string) bool { return strings.HasPrefix(have, key+".") })
}

// turnObject is the key of the object that holds: the language model's own before the whole model's.
func (s *scope) turnObject() string {
	if s.turn != nil {
		return *s.turn
	}
	found := ""
	for _, in := range []string{hfclass.Inside, ""} {
		for _, object := range []string{oldTurn, newTurn} {
			if found == "" && !s.o.unread.Has(object) && hasObject(s.o.Weights, in+object) {
				found = in + object
			}
		}
	}
	s.turn = &found
	return found
}

// turned gives the key under which config.json says what a key of either object says.
func (s *scope) turned(key string) string {
	object, rest, ok := strings.Cut(key, ".")
	if !ok || object != oldTurn && object != newTurn || s.o.Weights.Dialect() != "hf" {
		return key
	}
	if found := s.turnObject(); found != "" {
		return found + "." + rest
	}
	return key
}

// sameTurns refuses a rope_scaling beside rope_parameters that differ from layer to layer, which classes put together
// in ways of their own, unless it says what those say of layers that see all.
func sameTurns(w Weights) error {
	for _, in := range []string{hfclass.Inside, ""} {
		layers := in + newTurn + ".full_attention"
		if !hasObject(w, in+oldTurn) || !hasObject(w, layers) {
			continue
		}
		for _, key := range w.(interface{ Keys() []string }).Keys() {
			rest, ok := strings.CutPrefix(key, in+oldTurn+".")
			if !ok {
				continue
			}
			old, _ := w.Meta(key)
			now, there := w.Meta(layers + "." + rest)
			if rest == "type" && !there {
				now, there = w.Meta(layers + ".rope_type")
			}
			if !there || fmt.Sprint(old) != fmt.Sprint(now) {
				is := "says nothing of it"
				if there {
					is = fmt.Sprintf("has %v", now)
				}
				return fmt.Errorf("%s of %s is %v, and %s %s: take one of the objects out of config.json", key, w.Path(), old,
					layers, is)
			}
		}
	}
	return nil
}
