package parse

import (
	"slices"
	"strings"
)

// Options are what a parser knows of an answer beforehand.
type Options struct {
	Prompt string // the rendered prompt: its end may have begun the reasoning already
	Tools  []Tool // that may be called; without them a bare JSON object is text
	Form   bool   // the answer behind its thoughts is of a form: what looks like a tag in it, is text
}

// Parser reads one answer.
type Parser struct {
	f      *Format
	opt    Options
	held   string // may be the beginning of a tag
	space  string // whitespace at the end of the text so far, which a tag takes away
	parts  []Part
	mode   mode
	fresh  bool // no text came yet, but for thoughts: tags of the beginning count
	tagged bool // some tag came
	spoken bool // some text or reasoning came since the last tag
	calls  int
	call   body
}

type mode uint8

const (
	inText mode = iota
	inThoughts
	inCall
)

// body reads a call behind its opening tag.
type body interface {
	// write takes text; it gives what does not belong to the call, and true, when the call has ended.
	write(p *Parser, text string) (rest string, done bool)
	// end is told that the answer ends.
	end(p *Parser)
}

// New begins an answer.
func (f *Format) New(opt Options) *Parser {
	p := &Parser{f: f, opt: opt, fresh: true}
	p.open(opt.Prompt)
	return p
}

// open reads the tag that a prompt ends with, if it does, as the beginning of the answer.
func (p *Parser) open(prompt string) {
	prompt = strings.TrimRight(prompt, " \n\r\t")
	best := ""
	for _, t := range p.tags() {
		tag := strings.TrimRight(t.text, " \n\r\t")
		if tag != "" && strings.HasSuffix(prompt, tag) && len(tag) > len(best) && t.kind != closing {
			best = tag
		}
	}
	if best != "" {
		p.step(best)
		p.parts = nil
	}
}

type tagKind uint8

const (
	thinking tagKind = iota
	calling
	dropping
	closing
)

type tag struct {
	text string
	kind tagKind
}

// tags are what may end the text at hand.
func (p *Parser) tags() []tag {
	var all []tag
	if p.mode == inThoughts {
		all = append(all, tag{p.f.think.Close, closing})
		if c := p.f.calls; c != nil && !p.opt.Form { // some call without ending their thoughts
			for _, o := range c.Open {
				all = append(all, tag{o, calling})
			}
		}
		return all
	}
	if p.opt.Form && !p.fresh {
		return nil
	}
	if r := p.f.think; r != nil {
		all = append(all, tag{r.Open, thinking}, tag{r.Close, dropping})
	}
	c := p.f.calls
	if c == nil {
		return all
	}
	if !p.opt.Form {
		for _, o := range c.Open {
			all = append(all, tag{o, calling})
		}
	}
	if !p.opt.Form && p.fresh && (!c.Bare || len(p.opt.Tools) > 0) {
		for _, o := range c.Start {
			all = append(all, tag{o, calling})
		}
	}
	for _, d := range c.Drop {
		all = append(all, tag{d, dropping})
	}
	return all
}

// Write takes more of the answer and gives what is known by it.
func (p *Parser) Write(text string) []Part {
	p.step(text)
	out := join(p.parts)
	p.parts = nil
	return out
}

// End gives what was held back.
func (p *Parser) End() []Part {
	for p.held != "" && p.mode != inCall {
		text := p.held
		p.held = ""
		t, i := p.find(text, true)
		if t == nil {
			p.say(text)
			break
		}
		p.say(text[:i])
		p.take(*t, text[i+len(t.text):])
	}
	if p.mode == inCall {
		p.call.end(p)
		p.mode = inText
	}
	if p.mode == inText && p.space != "" && (p.spoken || !p.tagged) {
		p.parts = append(p.parts, Part{Text: p.space})
	}
	p.space = ""
	out := join(p.parts)
	p.parts = nil
	return out
}

// join makes neighbouring pieces of one kind one.
func join(parts []Part) []Part {
	var out []Part
	for _, q := range parts {
		if n := len(out); n > 0 {
			last := &out[n-1]
			switch {
			case q.Text != "" && last.Text != "":
				last.Text += q.Text
				continue
			case q.Reasoning != "" && last.Reasoning != "":
				last.Reasoning += q.Reasoning
				continue
			case q.Call != nil && last.Call != nil && q.Call.Name == "" && last.Call.Name == "" &&
				q.Call.Index == last.Call.Index:
				c := *last.Call
				c.Arguments += q.Call.Arguments
				last.Call = &c
				continue
			}
		}
		out = append(out, q)
	}
	return out
}

// step reads as far as it can.
func (p *Parser) step(text string) {
	for text != "" {
		if p.mode == inCall {
			rest, done := p.call.write(p, text)
			if text = rest; done {
				p.mode = inText
			}
			if !done {
				return
			}
			continue
		}
		text = p.held + text
		p.held = ""
		t, i := p.find(text, false)
		if t == nil {
			keep := p.partial(text)
			p.say(text[:len(text)-keep])
			p.held = text[len(text)-keep:]
			return
		}
		p.say(text[:i])
		rest := text[i+len(t.text):]
		p.take(*t, "")
		text = rest
	}
}

// find gives the first tag in a text, the longest where several begin there; nil where there is none, or a longer
// one may still come.
func (p *Parser) find(text string, last bool) (*tag, int) {
	var best *tag
	at := -1
	all := p.tags()
	for i := range all {
		t := &all[i]
		j := strings.Index(text, t.text)
		if start := p.atStart(t); start && j >= 0 && strings.TrimSpace(text[:j]) != "" {
			continue
		}
		if j >= 0 && (at < 0 || j < at || j == at && len(t.text) > len(best.text)) {
			best, at = t, j
		}
	}
	if best == nil || last {
		return best, at
	}
	for _, t := range all {
		if len(t.text) > len(text)-at && strings.HasPrefix(t.text, text[at:]) {
			return nil, -1
		}
	}
	return best, at
}

// atStart says whether a tag counts at the beginning only.
func (p *Parser) atStart(t *tag) bool {
	if p.opt.Form && p.mode == inText {
		return true
	}
	return t.kind == calling && p.f.calls != nil && slices.Contains(p.f.calls.Start, t.text) &&
		!slices.Contains(p.f.calls.Open, t.text)
}

// partial gives how much of a text's end may be the beginning of a tag.
func (p *Parser) partial(text string) int {
	keep := 0
	for _, t := range p.tags() {
		if i := strings.Index(text, t.text); i >= 0 && !p.atStart(&t) {
			keep = max(keep, len(text)-i) // a longer tag is waited for
			continue
		}
		for n := min(len(t.text)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, t.text[:n]) {
				if p.atStart(&t) && strings.TrimSpace(text[:len(text)-n]) != "" {
					continue
				}
				keep = n
			}
		}
	}
	return keep
}

// say gives text of the mode at hand. Whitespace at its end waits: a tag behind it takes it away.
func (p *Parser) say(text string) {
	if text == "" {
		return
	}
	if p.f.think == nil && p.f.calls == nil {
		p.parts = append(p.parts, Part{Text: text})
		return
	}
	body := strings.TrimRight(text, " \n\r\t")
	space := text[len(body):]
	if body == "" {
		p.space += space
		return
	}
	body = p.space + body
	if !p.spoken && p.tagged {
		body = strings.TrimLeft(body, " \n\r\t") // between a tag and its text
	}
	p.space, p.spoken = space, true
	if p.mode == inThoughts {
		p.parts = append(p.parts, Part{Reasoning: body})
	} else {
		p.fresh = false
		p.parts = append(p.parts, Part{Text: body})
	}
}

// take does what a tag means.
func (p *Parser) take(t tag, rest string) {
	p.space, p.spoken, p.tagged = "", false, true
	switch t.kind {
	case thinking:
		p.mode = inThoughts
	case closing:
		p.mode = inText
	case calling:
		p.mode, p.fresh = inCall, false
		p.call = p.newBody(t)
	}
	if rest != "" {
		p.step(rest)
	}
}

// begin gives a call's name.
func (p *Parser) begin(name string) {
	p.calls++
	p.parts = append(p.parts, Part{Call: &CallPart{Index: p.calls - 1, Name: name}})
}

// hasTool says whether the conversation has a tool of this name.
func (p *Parser) hasTool(name string) bool {
	return slices.ContainsFunc(p.opt.Tools, func(t Tool) bool { return t.Name == name })
}

// arguments gives more of the last call's arguments.
func (p *Parser) arguments(text string) {
	if text != "" {
		p.parts = append(p.parts, Part{Call: &CallPart{Index: p.calls - 1, Arguments: text}})
	}
}

// literal gives text that looked like a call and was none.
func (p *Parser) literal(text string) {
	if text != "" {
		p.mode = inText
		p.parts = append(p.parts, Part{Text: text})
		p.spoken, p.fresh = true, false
	}
}
