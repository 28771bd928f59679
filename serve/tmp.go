package serve

import "net/http"

type store struct{}

func openStore(string, int) (*store, error) { return nil, nil }
func (s *store) close() error               { return nil }

func (s *Server) createResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) messages(w http.ResponseWriter, r *http.Request, rs *requestState) error { return nil }
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) responseItems(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	return nil
}
func (s *Server) pageRoutes()                   {}
func accepts(r *http.Request, what string) bool { return false }
