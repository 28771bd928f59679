// The page at /: a chat with the live view of the batch. It has no outside resource and no build step.

package serve

import (
	"bytes"
	"embed"
	"net/http"
	"path"
	"time"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page load its own files and ask this server, and nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) pageRoutes() {
	for route, name := range map[string]string{"/{$}": "index.html", "/page.js": "page.js", "/markdown.js": "markdown.js",
		"/page.css": "page.css"} {
		data, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		kind := map[string]string{".html": "text/html", ".js": "text/javascript", ".css": "text/css"}[path.Ext(name)]
		s.mux.HandleFunc("GET "+route, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Type", kind+"; charset=utf-8")
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cache-Control", "no-cache")
			http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
		})
	}
}
