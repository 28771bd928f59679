package hub

// One file: parts at once, resumed where it broke off, checked by its hash.

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/plainfile"
)

// file is one that is to be got.
type file struct {
	address string
	name    string // for messages
	path    string // where it goes
	lock    string // the file that is locked meanwhile
	size    int64  // -1: the server is to say
	sha256  string // "" : not known
	git     string // git's hash of the blob, where there is no sha256
	header  http.Header
}

// Lied says that a server sent something else than it said.
type Lied struct{ What string }

func (e *Lied) Error() string { return e.What }

// parts says which parts of an unfinished file are there.
type parts struct {
	Size int64  `json:"size"`
	Part int64  `json:"part"`
	ETag string `json:"etag,omitempty"`
	Done []bool `json:"done"`
}

const unfinished = ".greta-part"

// mostBytes is more than a file has. A server's number is not believed beyond.
const mostBytes = 1 << 46

// errChanged says that what comes belongs to another file than what came before.
var errChanged = errors.New("it changed on the server meanwhile")

// get brings a file to its path, unless it is there.
func (h *Hub) get(ctx context.Context, f file) error {
	if _, err := os.Stat(f.path); err == nil {
		return nil
	}
	if f.size > mostBytes {
		return &Lied{fmt.Sprintf("%s: the server says that it has %d bytes, which no file has", f.name, f.size)}
	}
	if h.Offline {
		return fmt.Errorf("%s is not here, and HF_HUB_OFFLINE forbids getting it", f.name)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	unlock, err := h.lock(ctx, f)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(f.path); err == nil {
		return nil // another got it meanwhile
	}
	if f.size < 0 {
		if err := h.ask(ctx, &f); err != nil {
			return err
		}
	}
	err = h.fetch(ctx, f)
	if errors.Is(err, errChanged) {
		h.note("%v; it is got anew", err)
		err = h.fetch(ctx, f)
	}
	if err != nil {
		return err
	}
	if err := h.check(f, f.path+unfinished); err != nil {
		return errlist.Join(fmt.Errorf("%w; it was thrown away", err), os.Remove(f.path+unfinished),
			ignoreMissing(os.Remove(f.path+unfinished+".json")))
	}
	if err := os.Rename(f.path+unfinished, f.path); err != nil {
		return err
	}
	return ignoreMissing(os.Remove(f.path + unfinished + ".json"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// lock waits until nobody else gets the same file.
func (h *Hub) lock(ctx context.Context, f file) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(f.lock), 0o755); err != nil {
		return nil, err
	}
	l, err := os.OpenFile(f.lock, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; {
		ok, err := tryLock(l)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("%s: %w", f.lock, err)
		}
		if ok {
			return func() { l.Close() }, nil
		}
		if !said {
			said = true
			h.note("%s is being got by another process; waiting", f.name)
		}
		select {
		case <-ctx.Done():
			l.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// ask finds a file's size.
func (h *Hub) ask(ctx context.Context, f *file) error {
	err := h.again(ctx, func() (bool, error) {
		r, err := h.request(ctx, http.MethodHead, f.address, f.header)
		if err != nil {
			return false, err
		}
		r.Body.Close()
		return false, f.sized(r, r.ContentLength)
	})
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status == http.StatusNotFound || refused.Status == http.StatusUnauthorized {
		return err
	}
	// Signed addresses are for GET alone: the range of one byte tells the length too.
	return h.again(ctx, func() (bool, error) {
		header := http.Header{"Range": {"bytes=0-0"}}
		maps.Copy(header, f.header)
		r, err := h.request(ctx, http.MethodGet, f.address, header)
		if err != nil {
			return false, err
		}
		r.Body.Close()
		size := r.ContentLength
		if whole, ok := strings.CutPrefix(r.Header.Get("Content-Range"), "bytes 0-0/"); ok {
			if size, err = strconv.ParseInt(whole, 10, 64); err != nil {
				size = -1
			}
		}
		return false, f.sized(r, size)
	})
}

// sized takes a length that a server gives.
func (f *file) sized(r *http.Response, size int64) error {
	if f.sha256 == "" && strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") &&
		!strings.Contains(path.Ext(f.path), "htm") {
		return &Lied{f.name + ": the server sends a page (text/html); is the address that of the file itself?"}
	}
	switch {
	case size < 0:
		return &Lied{f.name + ": the server does not say how long it is"}
	case size == 0 || size > mostBytes:
		return &Lied{fmt.Sprintf("%s: the server says that it has %d bytes, which no model has", f.name, size)}
	}
	f.size = size
	return nil
}

// fetch writes all parts beside the path.
func (h *Hub) fetch(ctx context.Context, f file) error {
	state, out, err := h.begin(f)
	if err != nil {
		return err
	}
	defer out.Close()
	d := &download{hub: h, file: f, out: out, state: state}
	d.count()
	if err := d.run(ctx); err != nil {
		if errors.Is(err, errChanged) { // the parts that are there are of no use
			err = errlist.Join(err, ignoreMissing(os.Remove(f.path+unfinished+".json")))
		}
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return out.Close()
}

// begin takes up what an earlier try left, or begins anew where the disk has room.
func (h *Hub) begin(f file) (*parts, *os.File, error) {
	path := f.path + unfinished
	state := &parts{}
	data, err := plainfile.Read(path + ".json")
	st, statErr := os.Stat(path)
	if err != nil || statErr != nil || json.Unmarshal(data, state) != nil || state.Size != f.size || state.Part <= 0 ||
		state.Part > mostBytes || st.Size() != f.size || len(state.Done) != int((f.size+state.Part-1)/state.Part) {
		if free, ok := h.free(filepath.Dir(path)); ok && free < f.size {
			return nil, nil, fmt.Errorf("%s has %d bytes, and %s only %d are free", f.name, f.size, filepath.Dir(path), free)
		}
		state = &parts{Size: f.size, Part: h.Part, Done: make([]bool, (f.size+h.Part-1)/h.Part)}
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := out.Truncate(f.size); err != nil {
		out.Close()
		return nil, nil, err
	}
	return state, out, nil
}

// download is one file on its way.
type download struct {
	hub   *Hub
	file  file
	out   *os.File
	mu    sync.Mutex
	state *parts
	bytes atomic.Int64
	whole atomic.Bool // the server gives no parts
}

func (d *download) count() {
	for i, done := range d.state.Done {
		if done {
			from, to := d.span(i)
			d.bytes.Add(to - from)
		}
	}
	d.told()
}

func (d *download) told() {
	if p := d.hub.Progress; p != nil {
		p(d.file.name, d.bytes.Load(), d.file.size)
	}
}

func (d *download) span(i int) (from, to int64) {
	from = int64(i) * d.state.Part
	return from, min(from+d.state.Part, d.state.Size)
}

// run gets the parts that are missing, several at once.
func (d *download) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	todo := make(chan int, len(d.state.Done))
	for i, done := range d.state.Done {
		if !done {
			todo <- i
		}
	}
	close(todo)
	errs := make(chan error, d.hub.Parallel)
	for range d.hub.Parallel {
		go func() {
			for i := range todo {
				if d.whole.Load() {
					break
				}
				if err := d.part(ctx, i); err != nil {
					stop()
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var first error
	for range d.hub.Parallel {
		if err := <-errs; err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	if first != nil || !d.whole.Load() {
		return first
	}
	return d.everything(ctx)
}

// errNoParts says that a server answers with everything where a part was asked for.
var errNoParts = errors.New("the server gives no parts")

// part gets one part; what came of it before it broke off is not asked for again.
func (d *download) part(ctx context.Context, i int) error {
	from, to := d.span(i)
	at := from
	err := d.hub.again(ctx, func() (bool, error) {
		before := at
		err := d.stream(ctx, &at, to, len(d.state.Done) > 1 || at > 0)
		return at > before, err
	})
	if errors.Is(err, errNoParts) {
		d.bytes.Add(from - at)
		d.whole.Store(true)
		return nil
	}
	if err != nil {
		return err
	}
	return d.done(i)
}

// done keeps that a part is there.
func (d *download) done(i int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state.Done[i] = true
	data, err := json.Marshal(d.state)
	if err != nil {
		return err
	}
	return writeWhole(d.file.path+unfinished+".json", data)
}

// writeWhole writes a small file that is there whole or as it was before.
func writeWhole(path string, data []byte) error {
	next := path + ".new"
	err := os.WriteFile(next, data, 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errlist.Join(err, ignoreMissing(os.Remove(next)))
	}
	return nil
}

// everything gets a file in one stream, from its beginning at each try.
func (d *download) everything(ctx context.Context) error {
	d.bytes.Store(0)
	err := d.hub.again(ctx, func() (bool, error) {
		at := int64(0)
		err := d.stream(ctx, &at, d.state.Size, false)
		if err != nil {
			d.bytes.Store(0)
		}
		return false, err
	})
	if err != nil {
		return err
	}
	for i := range d.state.Done {
		if err := d.done(i); err != nil {
			return err
		}
	}
	return nil
}

// stream reads bytes from *at up to to, and moves *at as they are written.
func (d *download) stream(ctx context.Context, at *int64, to int64, ranged bool) error {
	header := d.file.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if ranged {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", *at, to-1))
	}
	r, err := d.hub.request(ctx, http.MethodGet, d.file.address, header)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if err := d.agrees(r, *at, to, ranged); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for *at < to {
		n, err := r.Body.Read(buf[:min(int64(len(buf)), to-*at)])
		if n > 0 {
			if _, err := d.out.WriteAt(buf[:n], *at); err != nil {
				return fmt.Errorf("%s: %w", d.file.name, err)
			}
			*at += int64(n)
			d.bytes.Add(int64(n))
			d.told()
		}
		if *at < to && err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return &later{err: fmt.Errorf("%s: broke off at byte %d of %d: %w", d.file.name, *at, d.state.Size, err)}
		}
	}
	if !ranged {
		if n, _ := io.ReadFull(r.Body, buf[:1]); n > 0 {
			return &Lied{fmt.Sprintf("%s: more comes than the %d bytes that it has", d.file.name, d.state.Size)}
		}
	}
	return nil
}

// agrees checks that an answer is what was asked for.
func (d *download) agrees(r *http.Response, at, to int64, ranged bool) error {
	unknown := d.file.sha256 == "" && d.file.git == "" // what comes is compared with nothing
	if packed := r.Header.Get("Content-Encoding"); unknown && packed != "" && packed != "identity" {
		return &Lied{fmt.Sprintf("%s: the server sends it packed (%q), which was not asked for", d.file.name, packed)}
	}
	tag := r.Header.Get("ETag")
	d.mu.Lock()
	changed := tag != "" && d.state.ETag != "" && tag != d.state.ETag
	if d.state.ETag == "" {
		d.state.ETag = tag
	}
	d.mu.Unlock()
	if changed && unknown {
		return fmt.Errorf("%s: %w", d.file.name, errChanged)
	}
	if ranged && r.StatusCode == http.StatusOK {
		return errNoParts
	}
	if ranged {
		span := fmt.Sprintf("bytes %d-%d/", at, to-1)
		want := span + strconv.FormatInt(d.state.Size, 10)
		if got := r.Header.Get("Content-Range"); got != want && got != span+"*" {
			return &Lied{fmt.Sprintf("%s: the server answers with %q where %q was asked for", d.file.name, got, want)}
		}
	}
	if n := r.ContentLength; n >= 0 && n != to-at {
		return &Lied{fmt.Sprintf("%s: the server sends %d bytes where %d are expected", d.file.name, n, to-at)}
	}
	return nil
}

// check compares a file with its hash.
func (h *Hub) check(f file, path string) error {
	in, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	var sum hash.Hash
	want := f.sha256
	switch {
	case want != "":
		sum = sha256.New()
	case f.git != "":
		sum, want = sha1.New(), f.git
		fmt.Fprintf(sum, "blob %d\x00", f.size)
	default:
		return nil
	}
	if _, err := io.Copy(sum, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return &Lied{fmt.Sprintf("%s: it has the hash %s and should have %s", f.name, got, want)}
	}
	return nil
}
