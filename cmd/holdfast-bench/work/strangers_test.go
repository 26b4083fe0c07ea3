// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
)

// TestStrangers: each is asked under an ID of its own, asks again under the same request
// where nobody serves, and takes a refusal as it is.
func TestStrangers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codes []int // of the answers, in turn; then 200
		want  string
	}{
		{"served", nil, ""},
		{"nobody serves for a moment", []int{503, 503}, ""},
		{"not known whether it was done", []int{504}, ""},
		{"refused", []int{400}, "no such thing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []acquireBody
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var b acquireBody
				if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
					t.Error(err)
				}
				asked = append(asked, b)
				if len(asked) <= len(tt.codes) {
					w.WriteHeader(tt.codes[len(asked)-1])
				}
				if err := json.NewEncoder(w).Encode(answerBody{Message: "no such thing", Token: 7}); err != nil {
					t.Error(err)
				}
			}))
			defer s.Close()
			x, err := newStrangers([]string{strings.TrimPrefix(s.URL, "http://")})
			if err != nil {
				t.Fatal(err)
			}
			defer x.close()
			_, err = x.pair(t.Context(), "a")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			for i := range len(tt.codes) + 1 {
				if i < len(asked) && (asked[i].ClientID != asked[0].ClientID || asked[i].RequestID != 1) {
					t.Errorf("try %d: %+v after %+v", i, asked[i], asked[0])
				}
			}
			if tt.want != "" {
				return
			}
			if _, err := x.leave(t.Context(), "b"); err != nil || asked[len(asked)-1].ClientID == asked[0].ClientID {
				t.Errorf("%v, two strangers are %s", err, asked[0].ClientID)
			}
		})
	}
}

func TestStrangersEndWithTheirContext(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer s.Close()
	x, err := newStrangers([]string{strings.TrimPrefix(s.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := x.leave(ctx, "a"); err == nil {
		t.Error("served by one that does not")
	}
}

// TestStrangersRecognizeServers by a join string, and ask nobody else.
func TestStrangersRecognizeServers(t *testing.T) {
	issuer := func(id [16]byte) *certs.Issuer {
		a, err := certs.Draw(id)
		if err != nil {
			t.Fatal(err)
		}
		i, err := certs.NewIssuer(id, a)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	ours, other := issuer([16]byte{1}), issuer([16]byte{2})
	leaf, err := ours.Issue([]string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"token":7}`)) //nolint:errcheck // the client would say so
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not believe it says so itself
	s.StartTLS()
	defer s.Close()
	for _, by := range []*certs.Issuer{ours, other} {
		x, err := newStrangers(join.Split(join.Text([]string{strings.TrimPrefix(s.URL, "https://")}, join.Pin(by.Certificate()))))
		if err != nil {
			t.Fatal(err)
		}
		x.budget = 0
		if _, err := x.pair(t.Context(), "a"); (err == nil) != (by == ours) {
			t.Errorf("believed %v: %v", by == ours, err)
		}
		x.close()
	}
}
