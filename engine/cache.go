package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
)

// loadJob is a weight to be brought to the device in one layout.
type loadJob struct {
	key     weightKey
	value   *graph.Value
	packing *backends.Packing
}

// keeps says which jobs come out of the cache of packed weights, whole models
// of files only, and only where the device reads the cache's own pages; not those
// of a step that comes later and wants more.
func (e *Engine) keeps(jobs []loadJob) (packcache.Config, []loadJob, error) {
	src := e.opt.Source
	c, err := e.opt.Cache.FromEnvironment()
	if err != nil || src == nil || src.Format() == "synthetic" || e.mapper() == nil || e.kept != nil || e.empty {
		return c, nil, err
	}
	var packed []loadJob
	var bytes int64
	for _, j := range jobs {
		if j.packing != nil && j.value.Load != nil {
			packed = append(packed, j)
			bytes += int64(j.packing.Size(j.value.Type, j.value.Shape))
		}
	}
	if !c.Worth(bytes) {
		return c, nil, nil
	}
	return c, packed, nil
}

// loadKept maps the packed forms of the jobs, after writing them where they
// are not kept yet. Where the cache cannot help it leaves a note and the jobs undone.
func (e *Engine) loadKept(ctx context.Context, c packcache.Config, jobs []loadJob, each func(loadJob)) error {
	id, err := packcache.Identity(e.opt.Source.Path())
	if err != nil {
		e.notify(notKept(err))
		return nil
	}
	m := packcache.Model{Label: filepath.Base(e.opt.Source.Path()), Identity: id}
	for _, j := range jobs {
		v, l := j.value, j.value.Load
		m.Entries = append(m.Entries, packcache.Entry{
			Name: v.Name,
			Recipe: fmt.Sprintf("%s of %s%v from %s %q +%g transposed %v",
				j.packing.ID, v.Type, v.Shape, l.Type, strings.Join(l.Tensors, " "), l.Add, l.Transpose),
			Size: j.packing.Size(v.Type, v.Shape),
		})
	}
	var failed error // reading or packing, which would fail in memory too
	drop := packcache.NewDropper()
	pack := func(i int, dst []byte) error {
		v := jobs[i].value
		stored, err := e.asStored(v)
		if err == nil {
			err = e.pack(ctx, dst, v, stored, jobs[i].packing)
		}
		if err != nil {
			failed = fmt.Errorf("weight %s: %w", v.Name, err)
			return failed
		}
		e.dropSource(drop, v)
		each(jobs[i])
		return nil
	}
	var f *packcache.File
	err = e.aside(func() (err error) {
		f, err = packcache.Open(ctx, c, m, pack)
		return err
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return errlist.Join(ctx.Err(), f.Close())
	case err != nil:
		e.notify(notKept(err))
		return nil
	}
	e.kept = f
	if f.Damage != nil {
		e.notify(fmt.Sprintf("packed weights were damaged and are packed again: %v", f.Damage))
	}
	mapper := e.mapper()
	for i, j := range jobs {
		b, err := mapper.Map(f.Data(i))
		if err != nil {
			return fmt.Errorf("weight %s: %w", j.value.Name, err)
		}
		e.weights[j.key] = &loaded{b, fromCache}
		if !f.Built {
			each(j)
		}
	}
	return nil
}

func notKept(err error) string { return "packed weights are not kept on disk: " + err.Error() }

// dropSource gives back the file's pages that a weight was made of.
func (e *Engine) dropSource(d *packcache.Dropper, v *graph.Value) {
	if e.opt.Source == nil || v.Load == nil {
		return
	}
	for _, name := range v.Load.Tensors {
		if data, err := e.opt.Source.Data(name); err == nil {
			d.Drop(data)
		}
	}
}

func (e *Engine) notify(text string) {
	if e.opt.Notify != nil {
		e.tell(func() { e.opt.Notify(text) })
	}
}
