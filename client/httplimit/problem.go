package httplimit

import (
	"encoding/json"
	"net/http"
)

// problem is a body of application/problem+json (RFC 9457).
type problem struct {
	Type     string   `json:"type,omitempty"` // empty: the status says everything
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

func (p problem) write(w http.ResponseWriter) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	body, err := json.Marshal(p)
	if err != nil { // impossible for strings and a number
		body = nil
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may have hung up
}
