// Pages of lists: limit, after and before.

package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// listed has a name by which a page goes on.
type listed interface{ listID() string }

func (i inputItem) listID() string   { return i.ID }
func (o modelObject) listID() string { return o.ID }

// mostListed is how much one page has at most.
const mostListed = 1000

// listPage writes what of a list a request asks for: limit, and after or before a name, as OpenAI (after, before) and
// Anthropic (after_id, before_id) call them. A page has one end to go on from: both are refused.
// Without a request it is the whole list.
func listPage[T listed](w http.ResponseWriter, r *http.Request, all []T) error {
	var q url.Values
	if r != nil {
		q = r.URL.Query()
	}
	limit := len(all)
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostListed {
			return badRequest("limit", fmt.Sprintf("limit must be between 1 and %d, it is %q", mostListed, clip(text, 50)))
		}
		limit = n
	}
	page, more, cursor := all[:min(limit, len(all))], len(all) > limit, ""
	for _, name := range []string{"after", "after_id", "before", "before_id"} {
		id := q.Get(name)
		if id == "" {
			continue
		}
		if cursor != "" {
			return badRequest(name, fmt.Sprintf("%s and %s exclude each other", cursor, name))
		}
		cursor = name
		at := slices.IndexFunc(all, func(x T) bool { return x.listID() == id })
		switch {
		case at < 0:
			return badRequest(name, fmt.Sprintf("%s: there is no %q in this list", name, clip(id, 100)))
		case strings.HasPrefix(name, "after"):
			rest := all[at+1:]
			page, more = rest[:min(limit, len(rest))], len(rest) > limit
		default: // the page that ends there
			page, more = all[max(0, at-limit):at], at > limit
		}
	}
	out := struct {
		Object string  `json:"object"`
		Data   []T     `json:"data"`
		First  *string `json:"first_id"`
		Last   *string `json:"last_id"`
		More   bool    `json:"has_more"`
	}{Object: "list", Data: page, More: more}
	if n := len(page); n > 0 {
		first, last := page[0].listID(), page[n-1].listID()
		out.First, out.Last = &first, &last
	} else {
		out.Data = []T{}
	}
	writeJSON(w, 200, out)
	return nil
}
