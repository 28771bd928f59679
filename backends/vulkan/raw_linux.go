//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/internal/errlist"
)

// Raw is a device as microbenchmarks see it. What it gives must be closed before it.
type Raw struct {
	d       *Device
	queries vk.QueryPool
}

// Raw opens the device's lower side. It is an error where there are no timestamps.
func (d *Device) Raw() (*Raw, error) {
	if !d.p.stamps || d.p.limits.TimestampPeriod == 0 {
		return nil, fmt.Errorf("%s has no timestamps", d.p.Name)
	}
	r := &Raw{d: d}
	info := (&vk.QueryPoolCreateInfo{QueryType: vk.VK_QUERY_TYPE_TIMESTAMP, QueryCount: 2}).Init()
	if err := d.check(d.c.CreateQueryPool(d.handle, info, nil, &r.queries), "vkCreateQueryPool", "raw"); err != nil {
		return nil, err
	}
	return r, nil
}

// Close ends the use of the lower side.
func (r *Raw) Close() error {
	if r.queries != 0 {
		r.d.c.DestroyQueryPool(r.d.handle, r.queries, nil)
		r.queries = 0
	}
	return nil
}

// Limits describes the device.
func (r *Raw) Limits() RawLimits {
	p := r.d.p
	r.d.in.memories(p)
	return RawLimits{Name: p.Name, Location: p.Location, Kind: p.Kind, Subgroup: p.Subgroup, Invocations: p.Invocations,
		MaxBuffer: min(p.MaxRange, p.MaxAllocation) &^ 255, Free: p.Memory()}
}

// RawMemory is a buffer that shaders reach, near the device or on the host's side.
type RawMemory struct{ b *buffer }

// Alloc gives memory of arbitrary content, near the device or, with host, on the
// host's side, where it is mapped.
func (r *Raw) Alloc(bytes int, host bool) (*RawMemory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	types := r.d.types.local
	if host {
		types = r.d.types.read
	}
	b, err := r.d.newBuffer(bytes, types, "a benchmark")
	if err != nil {
		return nil, err
	}
	if host && b.mapped == nil {
		b.release()
		return nil, errors.New("the host's side of memory cannot be mapped")
	}
	return &RawMemory{b}, nil
}

// Size is in bytes.
func (m *RawMemory) Size() int { return m.b.size }

// Host sees memory that is mapped as bytes, else nil.
func (m *RawMemory) Host() []byte {
	if m.b.mapped == nil {
		return nil
	}
	return m.b.mapped[:m.b.size]
}

// Free gives the memory back. Nothing may be using it.
func (m *RawMemory) Free() error { return m.b.Free() }

// Write copies bytes in, and waits for it.
func (m *RawMemory) Write(offset int, src []byte) error {
	if err := m.check(offset, len(src)); err != nil || len(src) == 0 {
		return err
	}
	if err := m.b.d.write(m.b, offset, src); err != nil {
		return err
	}
	return m.b.d.drain()
}

// Read copies bytes out, and waits for it.
func (m *RawMemory) Read(offset int, dst []byte) error {
	if err := m.check(offset, len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	return m.b.d.read(m.b, offset, dst)
}

func (m *RawMemory) check(offset, n int) error {
	if m.b.d == nil || offset < 0 || n > m.b.size || offset > m.b.size-n {
		return fmt.Errorf("bytes %d to %d of a benchmark's %d, or a use after its end", offset, offset+n, m.b.size)
	}
	return nil
}

// RawLaunch is a dispatch with its buffers and constants.
type RawLaunch struct{ x dispatch }

// Bind makes a dispatch of so many workgroups.
func (r *Raw) Bind(s RawShader, groups int, buffers []*RawMemory, push []uint32) (*RawLaunch, error) {
	most := r.d.p.Groups
	if groups <= 0 || len(buffers) == 0 || len(s.Constants) == 0 || 4*(len(push)+1) > pushBytes {
		return nil, fmt.Errorf("%s: a dispatch of %d workgroups, %d buffers, %d constants and %d push constants is not "+
			"possible", s.Name, groups, len(buffers), len(s.Constants), len(push))
	}
	pipe, err := r.pipeline(s, len(buffers))
	if err != nil {
		return nil, err
	}
	l := &RawLaunch{dispatch{kernel: s.Name, pipe: pipe, push: append([]uint32{uint32(groups)}, push...)}}
	wide := min(groups, most[0])
	high := (groups + wide - 1) / wide
	if high > most[1] {
		return nil, fmt.Errorf("%s: %d workgroups are more than the device has", s.Name, groups)
	}
	l.x.groups = [3]uint32{uint32(wide), uint32(high), 1}
	for _, m := range buffers {
		if m.b.d != r.d {
			return nil, fmt.Errorf("%s: a buffer of another device, or one that was freed", s.Name)
		}
		m.b.fresh = false
		l.x.bound = append(l.x.bound, span{b: m.b, to: min(m.b.bytes, uint64(r.d.p.MaxRange))})
	}
	return l, nil
}

// pipeline compiles a shader for its constants once.
func (r *Raw) pipeline(s RawShader, bindings int) (*pipeline, error) {
	d := r.d
	sum := sha256.Sum256(s.Code)
	key := fmt.Sprint("raw ", hex.EncodeToString(sum[:]), bindings, s.Constants)
	if p := d.pipelines[key]; p != nil {
		return p, nil
	}
	if len(s.Code) == 0 || len(s.Code)%4 != 0 {
		return nil, fmt.Errorf("%s: %d bytes are no SPIR-V", s.Name, len(s.Code))
	}
	l, err := d.layout(bindings)
	if err != nil {
		return nil, err
	}
	code := make([]uint32, len(s.Code)/4)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&code[0])), len(s.Code)), s.Code)
	var module vk.ShaderModule
	info := (&vk.ShaderModuleCreateInfo{CodeSize: uintptr(len(s.Code)), PCode: &code[0]}).Init()
	if err := d.check(d.c.CreateShaderModule(d.handle, info, nil, &module), "vkCreateShaderModule", s.Name); err != nil {
		return nil, err
	}
	defer d.c.DestroyShaderModule(d.handle, module, nil)
	entries := make([]vk.SpecializationMapEntry, len(s.Constants))
	for i := range entries {
		entries[i] = vk.SpecializationMapEntry{ConstantID: uint32(i), Offset: uint32(4 * i), Size: 4}
	}
	stage := (&vk.PipelineShaderStageCreateInfo{Stage: vk.VK_SHADER_STAGE_COMPUTE_BIT, Module: module,
		PName: vk.CString("main"),
		PSpecializationInfo: &vk.SpecializationInfo{MapEntryCount: uint32(len(entries)), PMapEntries: &entries[0],
			DataSize: uintptr(4 * len(s.Constants)), PData: unsafe.Pointer(&s.Constants[0])}}).Init()
	create := (&vk.ComputePipelineCreateInfo{Stage: *stage, Layout: l.pipeline}).Init()
	p := &pipeline{name: s.Name, layout: l}
	if err := d.check(d.c.CreateComputePipelines(d.handle, d.cache.handle, 1, create, nil, &p.handle),
		"vkCreateComputePipelines", s.Name); err != nil {
		return nil, err
	}
	d.pipelines[key] = p
	d.cache.grown = true
	return p, nil
}

// RawCommands are recorded commands that can be run again and again: in one
// command buffer, or in one for each launch.
type RawCommands struct {
	r     *Raw
	parts []*submission
	pool  vk.DescriptorPool
}

// Record records launches one after another, each behind what the one before it
// wrote, n times over. apart gives each a command buffer of its own, which is
// submitted by itself.
func (r *Raw) Record(list []*RawLaunch, n int, apart bool) (*RawCommands, error) {
	var all []dispatch
	for range n {
		for _, l := range list {
			all = append(all, l.x)
		}
	}
	return r.record(len(all), apart, all, func(rec *recorder, i int) error {
		rec.barrier(shaderStage|transferStage, shaderStage)
		return rec.dispatch(&all[i])
	})
}

// RecordCopies records n copies of so many bytes from a buffer to another, piece by
// piece from one end of both to the other, again and again: what was read before may
// lie in a cache.
func (r *Raw) RecordCopies(to, from *RawMemory, bytes, n int) (*RawCommands, error) {
	if err := errlist.Join(to.check(0, bytes), from.check(0, bytes)); err != nil {
		return nil, err
	}
	pieces := max(1, min(to.b.size, from.b.size)/max(bytes, 1))
	return r.record(n, false, nil, func(rec *recorder, i int) error {
		rec.barrier(shaderStage|transferStage, transferStage)
		at := uint64(i%pieces) * uint64(bytes)
		rec.copy(to.b, from.b, at, at+uint64(bytes))
		return nil
	})
}

// record makes the command buffers: two timestamps, and n steps between them.
func (r *Raw) record(n int, apart bool, all []dispatch, step func(*recorder, int) error) (_ *RawCommands, err error) {
	d := r.d
	c := &RawCommands{r: r}
	defer func() {
		if err != nil {
			err = errlist.Join(err, c.Close())
		}
	}()
	if c.pool, err = d.descriptorPool(all); err != nil {
		return nil, err
	}
	buffers := 1
	if apart {
		buffers = n
	}
	for i := range buffers {
		s, err := d.newSubmission("a benchmark")
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, s)
		if err := d.begin(*s.cb); err != nil {
			return nil, err
		}
		rec := &recorder{d: d, cb: *s.cb, pool: c.pool}
		if i == 0 {
			d.c.CmdResetQueryPool(rec.cb, r.queries, 0, 2)
			rec.barrier(shaderStage|transferStage, shaderStage|transferStage)
			d.c.CmdWriteTimestamp(rec.cb, vk.PipelineStageFlagBits(vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT), r.queries, 0)
		}
		for j := i; j < n; j++ {
			if err := step(rec, j); err != nil {
				return nil, err
			}
			if apart {
				break
			}
		}
		if i == buffers-1 {
			rec.barrier(shaderStage|transferStage, shaderStage|transferStage|hostStage)
			d.c.CmdWriteTimestamp(rec.cb, vk.PipelineStageFlagBits(vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT), r.queries, 1)
		}
		if err := d.check(d.c.EndCommandBuffer(rec.cb), "vkEndCommandBuffer", s.what); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run submits the commands and waits for them. It gives the seconds between the
// timestamps around them, and from the first submission to the end of the wait.
func (c *RawCommands) Run() (device, host float64, err error) {
	d := c.r.d
	begin := time.Now()
	for _, s := range c.parts {
		if err := s.submit(); err != nil {
			return 0, 0, err
		}
	}
	for _, s := range c.parts {
		if err := s.wait(); err != nil {
			return 0, 0, err
		}
	}
	host = time.Since(begin).Seconds()
	var stamps [2]uint64
	q := d.c.GetQueryPoolResults(d.handle, c.r.queries, 0, 2, unsafe.Sizeof(stamps), unsafe.Pointer(&stamps[0]), 8,
		vk.QueryResultFlags(vk.VK_QUERY_RESULT_64_BIT|vk.VK_QUERY_RESULT_WAIT_BIT))
	if err := d.check(q, "vkGetQueryPoolResults", "a benchmark"); err != nil {
		return 0, 0, err
	}
	return float64(stamps[1]-stamps[0]) * float64(d.p.limits.TimestampPeriod) * 1e-9, host, nil
}

// Close gives the recording back.
func (c *RawCommands) Close() error {
	var errs []error
	for _, s := range c.parts {
		errs = append(errs, s.close())
	}
	if c.pool != 0 {
		c.r.d.c.DestroyDescriptorPool(c.r.d.handle, c.pool, nil)
	}
	c.parts, c.pool = nil, 0
	return errlist.Join(errs...)
}
