// /v1/conversations: items that responses belong to, kept beside them.

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// conversation is what is kept of one.
type conversation struct {
	ID       string            `json:"id"`
	Created  int64             `json:"created_at"`
	Metadata map[string]string `json:"metadata"`
	Items    []inputItem       `json:"items"`
}

// conversationObject is OpenAI's.
type conversationObject struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"` // conversation
	Created  int64             `json:"created_at"`
	Metadata map[string]string `json:"metadata"`
}

func (c *conversation) object() conversationObject {
	return conversationObject{ID: c.ID, Object: "conversation", Created: c.Created, Metadata: c.Metadata}
}

// conversationRequest makes or changes one, or adds items.
type conversationRequest struct {
	Metadata json.RawMessage `json:"metadata"`
	Items    []inputItem     `json:"items"`
}

// mostAdded is how many items come at once.
const mostAdded = 20

// checkMetadata holds metadata to the protocol's bounds.
func checkMetadata(m map[string]string) error {
	if len(m) > 16 {
		return badRequest("metadata", fmt.Sprintf("metadata may have 16 pairs, it has %d", len(m)))
	}
	for k, v := range m {
		if utf8.RuneCountInString(k) > 64 || utf8.RuneCountInString(v) > 512 {
			return badRequest("metadata", fmt.Sprintf("metadata: names have 64 characters at most, values 512; %q has more",
				clip(k, 64)))
		}
	}
	return nil
}

// metadata reads a request's.
func (q *conversationRequest) metadata() (m map[string]string, err error) {
	var pairs map[string]*string
	if len(q.Metadata) > 0 && json.Unmarshal(q.Metadata, &pairs) != nil {
		return nil, badRequest("metadata", "metadata must be an object of strings")
	}
	m = map[string]string{}
	for k, v := range pairs {
		if v == nil {
			return nil, badRequest("metadata."+clip(k, 64), "each value in metadata must be a string, one is null")
		}
		m[k] = *v
	}
	return m, checkMetadata(m)
}

// add puts items behind those of a conversation, each with an id of its own.
func (s *Server) add(c *conversation, items []inputItem, param string) error {
	for i := range items {
		at := fmt.Sprintf("%s[%d].id", param, i)
		if slices.ContainsFunc(c.Items, func(x inputItem) bool { return x.ID == items[i].ID }) {
			return badRequest(at, fmt.Sprintf("Duplicate item found with id %s", clip(items[i].ID, 80)))
		}
		if !itemID(items[i].ID) {
			return badRequest(at, at+" must have letters, digits, - and _ only, 100 at most")
		}
		c.Items = append(c.Items, items[i])
	}
	if most := s.opt.MaxMessages; len(c.Items) > most {
		return badRequest(param, fmt.Sprintf("a conversation may have %d items, it would have %d", most, len(c.Items)))
	}
	return nil
}

// itemID says whether a name can stand in a path.
func itemID(id string) bool {
	return id != "" && len(id) <= 100 && strings.Trim(id,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// added reads and checks the items of a request.
func (q *conversationRequest) added() ([]inputItem, error) {
	if len(q.Items) > mostAdded {
		return nil, badRequest("items", fmt.Sprintf("%d items come at once at most, these are %d", mostAdded, len(q.Items)))
	}
	if err := complete(q.Items, "items"); err != nil {
		return nil, err
	}
	// What answers a call may stand in a conversation that has the call.
	_, err := itemMessages(q.Items, nil, "items")
	return q.Items, err
}

func (s *Server) createConversation(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q conversationRequest
	if r.ContentLength != 0 { // nothing is no metadata and no items
		if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
			return err
		}
	}
	c := &conversation{ID: newID("conv_"), Created: timeNow().Unix()}
	items, err := q.added()
	if err == nil {
		c.Metadata, err = q.metadata()
	}
	if err == nil {
		err = s.add(c, items, "items")
	}
	if err == nil {
		err = s.store.save(rs.key, c.ID, c)
	}
	if err != nil {
		return err
	}
	writeJSON(w, 200, c.object())
	return nil
}

// conversationOf finds the one that a path names.
func (s *Server) conversationOf(r *http.Request, rs *requestState) (*conversation, error) {
	var c conversation
	err := s.store.load(rs.key, conversationKind, r.PathValue("id"), &c)
	return &c, err
}

// change changes a conversation while nobody else does.
func (s *Server) change(rs *requestState, id string, f func(*conversation) error) (*conversation, error) {
	s.store.changing.Lock()
	defer s.store.changing.Unlock()
	var c conversation
	if err := s.store.load(rs.key, conversationKind, id, &c); err != nil {
		return nil, err
	}
	if err := f(&c); err != nil {
		return nil, err
	}
	return &c, s.store.save(rs.key, c.ID, &c)
}

func (s *Server) getConversation(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	c, err := s.conversationOf(r, rs)
	if err == nil {
		writeJSON(w, 200, c.object())
	}
	return err
}

func (s *Server) updateConversation(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q conversationRequest
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	if len(q.Metadata) == 0 {
		return badRequest("metadata", "metadata is missing")
	}
	m, err := q.metadata()
	if err != nil {
		return err
	}
	c, err := s.change(rs, r.PathValue("id"), func(c *conversation) error {
		c.Metadata = m
		return nil
	})
	if err == nil {
		writeJSON(w, 200, c.object())
	}
	return err
}

func (s *Server) deleteConversation(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	id := r.PathValue("id")
	s.store.changing.Lock()
	defer s.store.changing.Unlock()
	if err := s.store.remove(rs.key, conversationKind, id); err != nil {
		return err
	}
	writeJSON(w, 200, map[string]any{"id": id, "object": "conversation.deleted", "deleted": true})
	return nil
}

func (s *Server) listItems(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	c, err := s.conversationOf(r, rs)
	if err != nil {
		return err
	}
	return itemPage(w, r, c.Items)
}

func (s *Server) createItems(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	var q conversationRequest
	if err := readBody(w, r, s.opt.MaxBody, &q); err != nil {
		return err
	}
	if len(q.Items) == 0 {
		return badRequest("items", "items must have at least one item")
	}
	items, err := q.added()
	if err != nil {
		return err
	}
	_, err = s.change(rs, r.PathValue("id"), func(c *conversation) error { return s.add(c, items, "items") })
	if err != nil {
		return err
	}
	return listPage(w, nil, items)
}

// itemAt finds an item by the name in a request's path.
func itemAt(c *conversation, r *http.Request) (int, error) {
	id := r.PathValue("item")
	i := slices.IndexFunc(c.Items, func(x inputItem) bool { return x.ID == id })
	if i < 0 {
		return 0, &Error{Status: 404, Type: "invalid_request_error", Param: "item_id",
			Message: fmt.Sprintf("Item with id '%s' not found in the conversation.", clip(id, 80))}
	}
	return i, nil
}

func (s *Server) getItem(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	c, err := s.conversationOf(r, rs)
	if err != nil {
		return err
	}
	i, err := itemAt(c, r)
	if err == nil {
		writeJSON(w, 200, c.Items[i])
	}
	return err
}

func (s *Server) deleteItem(w http.ResponseWriter, r *http.Request, rs *requestState) error {
	c, err := s.change(rs, r.PathValue("id"), func(c *conversation) error {
		i, err := itemAt(c, r)
		if err == nil {
			c.Items = slices.Delete(c.Items, i, i+1)
		}
		return err
	})
	if err == nil {
		writeJSON(w, 200, c.object())
	}
	return err
}

// belongsTo reads a response's conversation, "": none.
func (q *responseRequest) belongsTo() (id string, err error) {
	if !given(q.Conversation) {
		return "", nil
	}
	var o struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(q.Conversation, &id) != nil && json.Unmarshal(q.Conversation, &o) == nil {
		id = o.ID
	}
	if id == "" {
		return "", badRequest("conversation", "conversation must be the id of one, or an object with id")
	}
	if q.Previous != nil && *q.Previous != "" {
		return "", badRequest("conversation", "conversation and previous_response_id exclude each other")
	}
	return id, nil
}

// earlier are the messages that a response goes on from, with these items.
func (q *responseRequest) earlier(s *Server, rs *requestState, items []inputItem) ([]Message, error) {
	id, err := q.belongsTo()
	if err != nil {
		return nil, err
	}
	var none *Error
	if id != "" {
		var c conversation
		err := s.store.load(rs.key, conversationKind, id, &c)
		if errors.As(err, &none) && none.Status == 404 {
			none.Param = "conversation"
		}
		if err != nil {
			return nil, err
		}
		before, err := itemMessages(c.Items, nil, "conversation")
		if err == nil {
			err = s.add(&c, items, "input") // so that what cannot be added is told before there is an answer
		}
		return before, err
	}
	if q.Previous == nil || *q.Previous == "" {
		return nil, nil
	}
	old, err := s.store.get(rs.key, *q.Previous)
	if errors.As(err, &none) && none.Status == 404 {
		none.Param, none.Code = "previous_response_id", "previous_response_not_found"
	}
	if err != nil {
		return nil, err
	}
	return old.Messages, nil
}

// remember adds what was asked and answered to the response's conversation.
func (s *Server) remember(rs *requestState, o *responseObject, items []inputItem) error {
	if o.Conversation == nil {
		return nil
	}
	made, err := outputItems(o.Output)
	if err != nil {
		return err
	}
	_, err = s.change(rs, o.Conversation.ID, func(c *conversation) error {
		return s.add(c, append(slices.Clone(items), made...), "input")
	})
	return err
}

// outputItems are an answer's items as those of a conversation.
func outputItems(out []*outputItem) ([]inputItem, error) {
	var items []inputItem
	raw, err := json.Marshal(out)
	if err == nil {
		err = json.Unmarshal(raw, &items)
	}
	return items, err
}
