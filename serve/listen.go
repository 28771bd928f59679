// Listening: TCP with or without TLS, a socket of the file system, and how it ends.

package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/greta-project/greta/internal/errlist"
)

// ListenOptions say where a server listens.
type ListenOptions struct {
	Host      string
	Port      int    // 0: any free one
	Socket    string // path of a unix socket, instead of host and port
	Cert, Key string // files of TLS; read again when they change
	Drain     time.Duration
	Ready     func(addr string) // told where clients find it
	Log       *slog.Logger      // told of certificates that cannot be read again; nil: nobody is
}

// Listen opens what a server listens on, so that a port that is taken is told before a model is loaded.
func Listen(o ListenOptions) (net.Listener, error) {
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("TLS needs a certificate and its key, one of them is missing")
	}
	var l net.Listener
	var err error
	if o.Socket != "" {
		if st, e := os.Stat(o.Socket); e == nil && st.Mode()&fs.ModeSocket != 0 {
			if c, e := net.DialTimeout("unix", o.Socket, time.Second); e == nil {
				c.Close()
				return nil, fmt.Errorf("%s: another server listens there", o.Socket)
			}
			os.Remove(o.Socket) // of a server that was killed
		}
		l, err = net.Listen("unix", o.Socket)
	} else {
		l, err = net.Listen("tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)))
	}
	if err != nil || o.Cert == "" {
		return l, err
	}
	c := &certificate{files: [2]string{o.Cert, o.Key}, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler))}
	if _, err := c.get(nil); err != nil {
		return nil, errlist.Join(err, l.Close())
	}
	return tls.NewListener(l, &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}}), nil
}

// certificate is one that is read again when one of its files changes.
type certificate struct {
	files [2]string // certificate and key
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	stamps [2]stamp // of the files as they were tried last; zero: one could not be looked at
	pair   *tls.Certificate
}

// get gives the certificate. A new one that cannot be read is told once, and leaves the old one in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.looked) < time.Second {
		return c.pair, nil
	}
	c.looked = time.Now()
	var stamps [2]stamp
	var err error
	for i, path := range c.files {
		st, e := os.Stat(path)
		if err = cmp.Or(err, e); err != nil {
			stamps = [2]stamp{}
			break
		}
		stamps[i] = stamp{st.ModTime(), st.Size()}
	}
	if c.pair != nil && stamps == c.stamps {
		return c.pair, nil
	}
	c.stamps = stamps
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.files[0], c.files[1]); err == nil {
			c.pair = &pair
			return c.pair, nil
		}
	}
	if c.pair == nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	c.log.Warn("the certificate could not be read again, the old one stays", "error", err)
	return c.pair, nil
}

// Serve answers until ctx ends, then lets what is under way end, for as long as o.Drain says.
func (s *Server) Serve(ctx context.Context, l net.Listener, o ListenOptions) error {
	base, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          log.New(connectionLog{s.log}, "", 0),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	s.ownNames.Store(forThisMachine(l.Addr()))
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	sweep := time.NewTicker(time.Second)
	defer sweep.Stop()
	if o.Ready != nil {
		o.Ready(address(l, o))
	}
	for {
		select {
		case err := <-failed:
			return err
		case <-sweep.C:
			s.models.Sweep()
			continue
		case <-ctx.Done():
		}
		break
	}
	s.log.Info("draining", "under way", s.inside.Load())
	s.draining.Store(true)
	wait, stop := context.WithTimeout(context.Background(), max(o.Drain, time.Millisecond))
	defer stop()
	err := s.Drain(wait)
	cancel(&Error{Status: 503, Type: "server_error", Code: "draining", Message: "the server ended", After: time.Second})
	last, stopLast := context.WithTimeout(context.Background(), time.Second)
	defer stopLast()
	if h.Shutdown(last) != nil {
		h.Close()
	}
	if err != nil {
		s.log.Warn("ended with requests under way", "error", err)
	}
	s.work.Wait()
	return s.Close()
}

// address is what to give a client.
func address(l net.Listener, o ListenOptions) string {
	switch {
	case o.Socket != "":
		return "unix:" + o.Socket
	case o.Cert != "":
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// connectionLog takes what net/http says of connections, which is seldom of interest.
type connectionLog struct{ log *slog.Logger }

func (c connectionLog) Write(b []byte) (int, error) {
	c.log.Debug("connection", "text", string(b))
	return len(b), nil
}
