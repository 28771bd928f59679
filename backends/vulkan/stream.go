//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"errors"

	"greta/backends"
	"greta/backends/vulkan/vk"
)

// stagingBytes is the size of each of the two staging buffers: while the device
// copies one, the host fills the other.
const stagingBytes = 32 << 20

// transfer is a staging buffer with the submission that copies it.
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

// stage gives one of the two staging buffers, free to use.
func (d *Device) stage(i int) (*transfer, error) {
	t := d.staging[i&1]
	if t == nil {
		host, err := d.newBuffer(stagingBytes, d.types.read, "staging")
		if err != nil {
			return nil, err
		}
		s, err := d.newSubmission("copy through staging memory")
		if err != nil {
			host.release()
			return nil, err
		}
		t = &transfer{s, host, nil}
		d.staging[i&1] = t
	}
	return t, t.finish()
}

// upload copies bytes to a buffer that the host cannot reach.
func (d *Device) upload(dst *buffer, offset int, src []byte) error {
	for i := 0; len(src) > 0; i++ {
		t, err := d.stage(i)
		if err != nil {
			return err
		}
		n := copy(t.host.mapped, src)
		if err := d.copyRange(t, dst, t.host, offset, 0, n); err != nil {
			return err
		}
		offset, src = offset+n, src[n:]
	}
	return d.drain()
}

// download copies bytes from a buffer that the host cannot reach.
func (d *Device) download(src *buffer, offset int, dst []byte) error {
	for i := 0; len(dst) > 0; i++ {
		t, err := d.stage(i)
		if err != nil {
			return err
		}
		n := min(len(dst), stagingBytes)
		to := dst[:n]
		if err := d.copyRange(t, t.host, src, 0, offset, n); err != nil {
			return err
		}
		t.then = func() { copy(to, t.host.mapped) }
		offset, dst = offset+n, dst[n:]
	}
	return d.drain()
}

func (d *Device) drain() error {
	var errs []error
	for _, t := range d.staging {
		if t != nil {
			errs = append(errs, t.finish())
		}
	}
	return errors.Join(errs...)
}

// copyRange submits the copy of n bytes, after all writes before it.
func (d *Device) copyRange(t *transfer, dst, src *buffer, to, from, n int) error {
	if err := d.begin(*t.cb); err != nil {
		return err
	}
	r := &recorder{d: d, cb: *t.cb}
	r.barrier(shaderStage|transferStage, transferStage)
	d.c.CmdCopyBuffer(r.cb, src.handle, dst.handle, 1, &vk.BufferCopy{SrcOffset: uint64(from), DstOffset: uint64(to), Size: uint64(n)})
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
	return errors.Join(err, e.Close())
}

func (s *stream) Write(dst backends.Buffer, offset int, src []byte) error {
	b, err := s.d.own(dst, offset, len(src))
	if err != nil || len(src) == 0 {
		return err
	}
	if b.mirror != nil {
		b = b.mirror
	}
	if b.mapped != nil {
		copy(b.mapped[offset:], src)
		return nil
	}
	return s.d.upload(b, offset, src)
}

func (s *stream) Read(src backends.Buffer, offset int, dst []byte) error {
	b, err := s.d.own(src, offset, len(dst))
	if err != nil || len(dst) == 0 {
		return err
	}
	if b.mirror != nil {
		b = b.mirror
	}
	if b.mapped != nil {
		copy(dst, b.mapped[offset:])
		return nil
	}
	return s.d.download(b, offset, dst)
}

func (s *stream) Close() error { return nil }
