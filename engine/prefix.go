package engine

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/packcache"
	"github.com/greta-project/greta/engine/prefixcache"
	"github.com/greta-project/greta/engine/schedule"
)

// Pages on disk: what a request's prompt begins with is read by whoever adds it, before the scheduler sees it, so that
// no step waits for a disk; what steps have computed is read from the device behind them and written by the cache's
// own goroutine.

// prefixDisk is a scheduler's side of a prefix cache.
type prefixDisk struct {
	cache   *prefixcache.Cache
	loads   [][]byte // pages that the next step's moves bring to the device
	learned []learned
	told    bool // that something cannot be kept
}

type learned struct {
	page int32
	hash schedule.Hash
}

// kvIdentity names what a page's bytes depend on beside its tokens: the weights, what is computed with them, and the
// form of the caches. The context's size is not in it, but what depends on it is.
func (e *Engine) kvIdentity(page int) (string, error) {
	id := []byte(fmt.Sprint("seed ", e.opt.Seed))
	if src := e.opt.Source; src != nil {
		var err error
		if id, err = packcache.Identity(src.Path()); err != nil {
			return "", fmt.Errorf("prefix cache: the weights cannot be told from others: %w", err)
		}
	}
	context := regexp.MustCompile(`\b` + strconv.Itoa(e.opt.Context) + `\b`)
	h := sha256.New()
	h.Write(id)
	fmt.Fprint(h, context.ReplaceAllString(e.first.Text(), "C"), e.opt.DType, e.opt.MixName, e.dev.Info().Backend,
		e.dev.Info().Level, page, backends.Invariant(e.dev))
	return string(h.Sum(nil)), nil
}

// keepOnDisk opens the folder that the options name, if they do.
func (s *Scheduler) keepOnDisk(opt *SchedulerOptions, po *schedule.Options) (err error) {
	s.identity = s.engine.opt.Model.Name()
	if opt.PrefixDir == "" {
		return nil
	}
	if s.engine.slotBytes() > 0 {
		return fmt.Errorf("prefix cache: %s keeps a recurrence's state, which is kept in memory only: name no folder",
			s.identity)
	}
	if opt.NoPrefix {
		return fmt.Errorf("prefix cache: %s is named, and prefixes are not to be shared", opt.PrefixDir)
	}
	if s.identity, err = s.engine.kvIdentity(opt.Page); err != nil {
		return err
	}
	if s.disk.cache, err = prefixcache.Open(prefixcache.Options{Dir: opt.PrefixDir, Limit: opt.PrefixLimit}); err != nil {
		return err
	}
	po.Fetch = func(q *schedule.Seq, h schedule.Hash) (int32, bool) {
		data, ok := q.User.(*Handle).staged[h]
		if ok {
			s.disk.loads = append(s.disk.loads, data)
		}
		return int32(len(s.disk.loads) - 1), ok
	}
	po.Learned = func(_ *schedule.Seq, page int32, h schedule.Hash) {
		s.disk.learned = append(s.disk.learned, learned{page, h})
	}
	return nil
}

// stage reads the pages that a prompt begins with and that are not in memory.
func (s *Scheduler) stage(h *Handle) {
	if s.disk.cache == nil {
		return
	}
	s.mu.Lock()
	hashes := schedule.Hashes(s.root(h.adapter, h.request.Salt), h.request.Prompt, s.batch.size.page)
	known := s.plan.Pool().Known(hashes)
	s.mu.Unlock()
	h.staged = map[schedule.Hash][]byte{}
	damage := false
	for _, hash := range hashes[known:] {
		data := make([]byte, s.batch.bytes)
		found, err := s.disk.cache.Get(prefixcache.Key(hash), data)
		switch damage = damage || err != nil; {
		case damage: // others may be damaged too: they are found now, and written anew
		case !found:
			return
		default:
			h.staged[hash] = data
		}
	}
}

// save hands the pages that the last step completed to the disk.
func (s *Scheduler) save() error {
	d := &s.disk
	clear(d.loads)
	d.loads = d.loads[:0]
	if len(d.learned) == 0 {
		return nil
	}
	s.sayUnkept(d.cache.Err())
	s.batch.mem.enter()
	defer s.batch.mem.leave()
	for _, l := range d.learned {
		if d.cache.Has(prefixcache.Key(l.hash)) {
			continue
		}
		data := make([]byte, s.batch.bytes)
		if err := s.batch.readPage(l.page, data); err != nil {
			return err
		}
		d.cache.Put(prefixcache.Key(l.hash), data)
	}
	d.learned = d.learned[:0]
	return nil
}

// readPage and writePage move a page of all pools between the device and the host.
func (b *batch) readPage(page int32, data []byte) error {
	return b.each(page, func(s *pagedState, at int) error {
		return b.mem.stream.Read(s.buffer, at, data[s.at:][:s.bytes])
	})
}

func (b *batch) writePage(page int32, data []byte) error {
	return b.each(page, func(s *pagedState, at int) error {
		return b.mem.stream.Write(s.buffer, at, data[s.at:][:s.bytes])
	})
}

// closeDisk waits for what is being written. What could not be kept is said, and is no failure.
func (s *Scheduler) closeDisk() {
	if s.disk.cache == nil {
		return
	}
	s.sayUnkept(s.disk.cache.Close())
}

// sayUnkept says once that pages cannot be kept, as on a disk that is full.
func (s *Scheduler) sayUnkept(err error) {
	if err != nil && !s.disk.told {
		s.disk.told = true
		s.engine.notify(err.Error())
	}
}
