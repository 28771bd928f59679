// Pages of lists: limit, after and before.

package serve

import (
	"fmt"
	"net/http"
	"strconv"
)

// listed has a name by which a page goes on.
type listed interface{ listID() string }

func (i inputItem) listID() string   { return i.ID }
func (o modelObject) listID() string { return o.ID }

// mostListed is how much one page has at most.
const mostListed = 1000

// listPage writes what of a list a request asks for: limit, and after or before a name, as OpenAI (after) and Anthropic
// (after_id, before_id) call them.
func listPage[T listed](w http.ResponseWriter, r *http.Request, all []T) error {
	q := r.URL.Query()
	limit := len(all)
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostListed {
			return badRequest("limit", fmt.Sprintf("limit must be between 1 and %d, it is %q", mostListed, clip(text, 50)))
		}
		limit = n
	}
	at := func(names ...string) (int, error) {
		for _, name := range names {
			id := q.Get(name)
			if id == "" {
				continue
			}
			for i, x := range all {
				if x.listID() == id {
					return i, nil
				}
			}
			return 0, badRequest(name, fmt.Sprintf("%s: there is no %q in this list", name, clip(id, 100)))
		}
		return -1, nil
	}
	after, err := at("after", "after_id")
	if err != nil {
		return err
	}
	before, err := at("before_id")
	if err != nil {
		return err
	}
	page := all[after+1:]
	more := len(page) > limit
	page = page[:min(limit, len(page))]
	if before >= 0 { // the page that ends there
		page = all[max(0, before-limit):before]
		more = before > limit
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
