// Browsers: what a page of somebody else may not make a server do that asks for no key.

package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// fromElsewhere refuses what a page of another origin asks for without a key: its answers browsers do not
// show the page, but a model would work for it. Programs that are no browsers say nothing of an origin.
func (s *Server) fromElsewhere(r *http.Request, key *Key) error {
	if key != nil {
		return nil
	}
	if err := s.otherName(r); err != nil || s.sameOrigin.Check(r) == nil {
		return err
	}
	origin := r.Header.Get("Origin")
	if s.allows(origin) >= 0 {
		return nil
	}
	return &Error{Status: 403, Type: "permission_error", Code: "origin_not_allowed",
		Message: fmt.Sprintf("a page of %s may not ask here; to let it, start the server with --allowed-origin %s",
			clip(origin, 200), clip(origin, 200))}
}

// allows gives which of the allowed origins lets one ask; -1: none does.
func (s *Server) allows(origin string) int {
	return slices.IndexFunc(s.opt.Origins, func(o string) bool { return o == "*" || strings.EqualFold(o, origin) })
}

// otherName refuses a request by a name that is not the server's. A page whose name leads to 127.0.0.1 after it was
// loaded (DNS rebinding) is of the same origin for a browser, and could read answers; it cannot choose the name that is
// asked for. Behind TLS the certificate proves the name; a unix socket no browser reaches; on addresses of a network
// any name may lead here, and is checked only where names are given.
func (s *Server) otherName(r *http.Request) error {
	if len(s.opt.Hosts) == 0 && !s.ownNames.Load() || r.TLS != nil {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".internal") {
		return nil // names that no public name server answers for
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil // an address leads to one machine
	}
	if own, err := os.Hostname(); err == nil && (strings.EqualFold(name, own) || strings.EqualFold(name, own+".local")) {
		return nil
	}
	for _, h := range s.opt.Hosts {
		h = strings.ToLower(h)
		if h == "*" || h == name || strings.HasPrefix(h, ".") && strings.HasSuffix(name, h) {
			return nil
		}
	}
	if slices.Contains(s.opt.Origins, "*") { // pages may ask from everywhere
		return nil
	}
	return &Error{Status: 403, Type: "permission_error", Code: "host_not_allowed",
		Message: fmt.Sprintf("the request is for the host %s, which is not a name of this server; if it is, start it with "+
			"--allowed-host %s", clip(name, 200), clip(name, 200))}
}

// forThisMachine says whether nobody else reaches an address.
func forThisMachine(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
