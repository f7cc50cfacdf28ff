package main

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// badBodies are requests to the plain API that no answer of Redis can make right, and the status of each.
var badBodies = map[string]int{
	``:        http.StatusBadRequest,
	`[]`:      http.StatusBadRequest,
	`{"keys"`: http.StatusBadRequest,
	`{"keys":["a"],"limits":["3/m"],"cost":1e3}`:                        http.StatusBadRequest,
	`{"keys":["a"],"limits":["3/m"],"cost":99999999999999999999}`:       http.StatusBadRequest,
	`{"keys":["a"],"limits":["3/m"],"costs":1}`:                         http.StatusBadRequest,
	"{\"keys\":[\"\xff\"],\"limits\":[\"3/m\"]}":                        http.StatusBadRequest,
	`{"keys":` + strings.Repeat("[", 12_000):                            http.StatusBadRequest,
	`{"keys":["` + strings.Repeat("a", 70_000) + `"],"limits":["3/m"]}`: http.StatusRequestEntityTooLarge,
}

// send sends an HTTP request, and returns the status of its answer.
func (s *storm) send(request *http.Request) int {
	began := time.Now()
	response, err := s.web.Do(request)
	if err != nil {
		s.Errorf("%s: %v", request.URL, err)
		return 0
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if err != nil {
		s.Errorf("%s: %v", request.URL, err)
	}
	s.took(began)
	if response.StatusCode == http.StatusServiceUnavailable {
		s.unavailable.Add(1)
	}
	return response.StatusCode
}

// knock asks by forward auth for a user of the policy door.
func (s *storm) knock(user int) (denied bool) {
	request := must[*http.Request](s)(http.NewRequest(http.MethodGet, "http://"+s.http+"/check/door/header:X-User", nil))
	request.Header.Set("X-User", strconv.Itoa(user))
	switch status := s.send(request); status {
	case http.StatusOK:
		s.entered[user].Add(1)
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		s.unknown[user].Add(1)
	default:
		s.Errorf("forward auth: the status %d", status)
	}
	return false
}

// nonsense sends all bad bodies, and a request for a policy that nobody has.
func (s *storm) nonsense() {
	for body, want := range badBodies {
		request := must[*http.Request](s)(http.NewRequest(http.MethodPost, "http://"+s.http+"/v1/take", bytes.NewReader([]byte(body))))
		if status := s.send(request); status != want {
			s.Errorf("%.60q: the status %d, want %d", body, status, want)
		}
	}
	request := must[*http.Request](s)(http.NewRequest(http.MethodGet, "http://"+s.http+"/check/none", nil))
	if status := s.send(request); status != http.StatusBadRequest && status != http.StatusServiceUnavailable {
		s.Errorf("forward auth without a policy: the status %d", status)
	}
}

// allKnocked checks that users got what is left of the policy door, and no more.
func (s *storm) allKnocked() {
	for user := range s.entered {
		if s.entered[user].Load() == 0 {
			continue
		}
		for n := 0; !s.knock(user); n++ {
			if n > 10*perUser {
				s.Fatalf("forward auth does not deny user %d", user)
			}
		}
		if got, unknown := s.entered[user].Load(), s.unknown[user].Load(); got > perUser || got+unknown < perUser {
			s.Errorf("forward auth, user %d: %d requests were allowed and %d were not decided; the limit is %d", user, got, unknown, perUser)
		}
	}
}
