package health

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/greta-project/greta/internal/child"
)

// SmokeReport is what smoke runs gave.
type SmokeReport struct {
	Backend    string     `json:"backend"`
	Device     string     `json:"device,omitempty"`
	Level      string     `json:"level,omitempty"`
	Driver     string     `json:"driver,omitempty"`
	Profile    Profile    `json:"profile"`
	Repeat     int        `json:"repeat"`
	Validation string     `json:"validation,omitempty"`
	Paths      []Decision `json:"paths,omitempty"`
	Runs       []Run      `json:"runs"`
	Messages   int        `json:"messages"`
	Status     string     `json:"status"` // OK or FAILED
	Reason     string     `json:"reason,omitempty"`
}

// NoDevice says that there was nothing to smoke, and why.
type NoDevice struct{ Reason string }

func (e *NoDevice) Error() string { return e.Reason }

// Watch runs a child that calls ServeSmoke under a watchdog: a step that takes
// longer than limit ends it. each is told of every run. The report's status is OK
// only where every run was made and clean. The error is ctx's, or a *NoDevice.
func Watch(ctx context.Context, c child.Command, backend string, p Profile, repeat int, limit time.Duration,
	each func(Run)) (*SmokeReport, error) {
	r := &SmokeReport{Backend: backend, Profile: p, Repeat: repeat, Runs: []Run{}, Status: "FAILED"}
	process, err := child.Start(c, limit)
	if err != nil {
		r.Reason = err.Error()
		return r, nil
	}
	defer context.AfterFunc(ctx, process.Kill)()
	lines := bufio.NewReader(process.Out)
	stage, done, none := "", false, ""
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		process.Alive()
		switch {
		case e.Stage != "":
			stage = e.Stage
		case e.Device != nil:
			r.Device, r.Level, r.Driver, r.Paths, r.Validation = e.Device.Name, e.Device.Level, e.Device.Driver, e.Paths,
				e.Validation
		case e.Run != nil:
			r.Runs = append(r.Runs, *e.Run)
			r.Messages += e.Run.Messages
			each(*e.Run)
		case e.NoDevice != "":
			none = e.NoDevice
		}
		done = done || e.Done
	}
	io.Copy(io.Discard, process.Out)
	err = process.Wait()
	bad := 0
	for _, run := range r.Runs {
		if !run.OK() {
			bad++
		}
	}
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case none != "":
		r.Reason = none
		return r, &NoDevice{none}
	case err != nil:
		r.Reason = fmt.Sprintf("%s: %v", cmp.Or(stage, "before the device was opened"), err)
	case !done || len(r.Runs) != repeat:
		r.Reason = fmt.Sprintf("%d of %d runs were made", len(r.Runs), repeat)
	case bad > 0:
		r.Reason = fmt.Sprintf("%d of %d runs were not clean", bad, repeat)
	default:
		r.Status = "OK"
	}
	return r, nil
}
