//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
)

// Staging: a ring of slots. The host fills one, by several goroutines as pages of a
// mapped file come one fault at a time, while the device copies those before it. An
// upload returns when its bytes are in slots; the queue's order does the rest.
const (
	slots     = 4
	slotBytes = 16 << 20
)

// transfer is a slot with the submission that copies it.
type transfer struct {
	*submission
	host *buffer
	then func() // what to do with the bytes when they have come
}

func (t *transfer) close() {
	t.submission.close()
	t.host.release()
}

// finish waits for the copy.
func (t *transfer) finish() error {
	err := t.wait()
	if t.then != nil && err == nil {
		t.then()
	}
	t.then = nil
	return err
}

// stage gives the next slot, free to use.
func (d *Device) stage() (*transfer, error) {
	i := d.next % slots
	d.next++
	t := d.staging[i]
	if t == nil {
		host, err := d.newBuffer(slotBytes, d.types.read, "staging")
		if err != nil {
			return nil, err
		}
		s, err := d.newSubmission("copy through staging memory")
		if err != nil {
			host.release()
			return nil, err
		}
		t = &transfer{s, host, nil}
		d.staging[i] = t
	}
	return t, t.finish()
}

// upload copies bytes to a buffer that the host cannot reach. Behind the last byte
// of a buffer come zeros up to its end.
func (d *Device) upload(dst *buffer, offset int, src []byte) error {
	for len(src) > 0 {
		t, err := d.stage()
		if err != nil {
			return err
		}
		n := min(len(src), slotBytes-16)
		mapped.Copy(t.host.mapped, src[:n])
		send := n
		if offset+n == dst.size {
			send = int(dst.bytes) - offset
			clear(t.host.mapped[n:send])
		}
		if err := d.copyRange(t, dst, t.host, offset, 0, send); err != nil {
			return err
		}
		offset, src = offset+n, src[n:]
	}
	return nil
}

// download copies bytes from a buffer that the host cannot reach.
func (d *Device) download(src *buffer, offset int, dst []byte) error {
	for len(dst) > 0 {
		t, err := d.stage()
		if err != nil {
			return err
		}
		n := min(len(dst), slotBytes)
		to := dst[:n]
		if err := d.copyRange(t, t.host, src, 0, offset, n); err != nil {
			return err
		}
		t.then = func() { mapped.Copy(to, t.host.mapped) }
		offset, dst = offset+n, dst[n:]
	}
	return d.drain()
}

// drain waits for all copies.
func (d *Device) drain() error {
	var errs []error
	for i := range d.staging {
		if t := d.staging[(d.next+i)%slots]; t != nil {
			errs = append(errs, t.finish())
		}
	}
	return errlist.Join(errs...)
}

// copyRange submits the copy of n bytes, after all writes before it.
func (d *Device) copyRange(t *transfer, dst, src *buffer, to, from, n int) error {
	if err := d.begin(*t.cb); err != nil {
		return err
	}
	r := &recorder{d: d, cb: *t.cb}
	r.barrier(shaderStage|transferStage, transferStage)
	d.c.CmdCopyBuffer(r.cb, src.handle, dst.handle, 1, &vk.BufferCopy{SrcOffset: uint64(from), DstOffset: uint64(to),
		Size: uint64(n)})
	r.barrier(transferStage, shaderStage|transferStage|hostStage)
	if err := d.check(d.c.EndCommandBuffer(r.cb), "vkEndCommandBuffer", t.what); err != nil {
		return err
	}
	return t.submit()
}

// Stream runs launches one by one.
func (d *Device) Stream() (backends.Stream, error) { return &stream{d}, d.lost }

type stream struct{ d *Device }

func (s *stream) Launch(l *backends.Launch) error {
	e, err := s.d.Capture(&backends.Program{Name: l.Node.String(), Launches: []backends.Launch{*l}})
	if err != nil {
		return err
	}
	if err = e.Submit(); err == nil {
		err = e.Wait()
	}
	return errlist.Join(err, e.Close())
}

func (s *stream) Write(dst backends.Buffer, offset int, src []byte) error {
	b, err := s.d.own(dst, offset, len(src))
	if err != nil || len(src) == 0 {
		return err
	}
	if b.mirror != nil {
		if b.mapped != nil {
			if err := b.zero(); err != nil {
				return err
			}
			copy(b.mapped[offset:], src)
		}
		b = b.mirror
	}
	if len(src) == b.size {
		b.fresh = false
	} else if err := b.zero(); err != nil {
		return err
	}
	for _, p := range b.parts {
		from, to := max(offset, p.from), min(offset+len(src), p.from+p.size)
		if from >= to {
			continue
		}
		if err := s.d.write(p.buffer, from-p.from, src[from-offset:to-offset]); err != nil {
			return err
		}
	}
	if b.parts != nil {
		return nil
	}
	return s.d.write(b, offset, src)
}

func (d *Device) write(b *buffer, offset int, src []byte) error {
	if b.mapped == nil {
		return d.upload(b, offset, src)
	}
	mapped.Copy(b.mapped[offset:], src)
	if offset+len(src) == b.size {
		clear(b.mapped[b.size:])
	}
	return nil
}

func (s *stream) Read(src backends.Buffer, offset int, dst []byte) error {
	b, err := s.d.own(src, offset, len(dst))
	if err != nil || len(dst) == 0 {
		return err
	}
	if b.mirror != nil {
		b = b.mirror
	}
	if err := b.zero(); err != nil {
		return err
	}
	for at := offset; b.parts != nil && len(dst) > 0; {
		i := slices.IndexFunc(b.parts, func(p part) bool { return at < p.from+p.size })
		p := b.parts[i]
		n := min(len(dst), p.from+p.size-at)
		if err := s.d.read(p.buffer, at-p.from, dst[:n]); err != nil {
			return err
		}
		at, dst = at+n, dst[n:]
	}
	if b.parts != nil {
		return nil
	}
	return s.d.read(b, offset, dst)
}

func (d *Device) read(b *buffer, offset int, dst []byte) error {
	if b.mapped == nil {
		return d.download(b, offset, dst)
	}
	mapped.Copy(dst, b.mapped[offset:offset+len(dst)])
	return nil
}

func (s *stream) Close() error { return nil }
