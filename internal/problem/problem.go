// Package problem writes HTTP errors as application/problem+json (RFC 9457).
package problem

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// Details describes an error, as a JSON object with "problem details".
type Details struct {
	Type     string   `json:"type,omitempty"` // "" if the status code describes the problem
	Title    string   `json:"title"`          // "" for the text of the status
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Reason   string   `json:"reason,omitempty"`            // a word for programs, such as BADLIMIT
	Lost     bool     `json:"outcome_unknown,omitempty"`   // whether the call may have been executed despite the error
	Violated []string `json:"violated-policies,omitempty"` // names of the limits that denied
}

// Write sends p as the response.
func (p Details) Write(w http.ResponseWriter) {
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	body, _ := json.Marshal(p) // cannot fail, because every field has a JSON form
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may have hung up
}
