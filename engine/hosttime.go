package engine

import "time"

// stepStart is when a step began, and how long its session had waited by then.
type stepStart struct {
	at     time.Time
	waited time.Duration
}

func (s *Session) start() stepStart { return stepStart{time.Now(), s.waited} }

// since gives the time since a step began; of it, that until its submission
// returned; and that in which nobody waited for the device.
func (s *Session) since(step stepStart) (all, submit, host time.Duration) {
	all = time.Since(step.at)
	return all, s.submitted.Sub(step.at), all - (s.waited - step.waited)
}

// Timed calls run, which computes one step, and gives what it took: as a whole; until
// the step was submitted; and without waiting for the device. Where the device computes
// on the host, the last two are 0.
func (s *Session) Timed(run func() error) (all, submit, host time.Duration, err error) {
	step := s.start()
	err = run()
	if all, submit, host = s.since(step); err != nil || !s.engine.queued {
		submit, host = 0, 0
	}
	return all, submit, host, err
}
