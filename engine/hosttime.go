package engine

import "time"

// stepStart is when a step began, and how long its session had waited by then.
type stepStart struct {
	at     time.Time
	waited time.Duration
}

func (s *Session) start() stepStart { return stepStart{time.Now(), s.waited} }

// stepTimes are the time of a step; of it, that until its submission returned; and that in which nobody waited for the
// device.
type stepTimes struct{ took, submit, host time.Duration }

// since gives the times since a step began.
func (s *Session) since(step stepStart) stepTimes {
	took := time.Since(step.at)
	return stepTimes{took, s.submitted.Sub(step.at), took - (s.waited - step.waited)}
}

// Timed calls run, which computes one step, and gives what it took: as a whole; until
// the step was submitted; and without waiting for the device. Where the device computes
// on the host, the last two are 0.
func (s *Session) Timed(run func() error) (all, submit, host time.Duration, err error) {
	step := s.start()
	err = run()
	times := s.since(step)
	if err != nil || !s.engine.queued {
		times.submit, times.host = 0, 0
	}
	return times.took, times.submit, times.host, err
}
