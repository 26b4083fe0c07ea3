// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

const (
	// strangerBudget is how long a stranger repeats a request while no server is primary, each time
	// after strangerPause.
	strangerBudget = 15 * time.Second
	strangerPause  = 50 * time.Millisecond
	// strangerLeave is the lease of strangers that do not come back.
	strangerLeave = time.Second
)

// strangers speak HTTP, in turn to every server, each under an ID that is used once.
type strangers struct {
	http  http.Client
	hosts []string
	// scheme is "http" or "https".
	scheme string
	key    string // their credential; "" = none
	// lease is that of pairs.
	lease time.Duration
	// budget is how long a request is repeated while no server is primary; 0 = it is not.
	budget time.Duration
	came   atomic.Int64
}

// newStrangers has strangers ask the servers at these endpoints, over TLS where these say by what servers are recognized.
func newStrangers(endpoints []string) (*strangers, error) {
	hosts, trust, err := join.Resolve(endpoints)
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{MaxIdleConnsPerHost: acquirers, IdleConnTimeout: time.Minute}
	s := &strangers{hosts: hosts, scheme: "http", lease: churnTTL, budget: strangerBudget, http: http.Client{Transport: tr}}
	if !trust.Plain() {
		s.scheme = "https"
		dial := trust.Dialer("http/1.1", func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		})
		tr.DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }
	}
	return s, nil
}

func (s *strangers) close() { s.http.CloseIdleConnections() }

// acquireBody and releaseBody are what the strangers ask.
type acquireBody struct {
	Lock      string `json:"lock"`
	TTL       string `json:"ttl"`
	ClientID  string `json:"client_id"`
	RequestID uint64 `json:"request_id"`
}

type releaseBody struct {
	Lock      string `json:"lock"`
	Token     uint64 `json:"token"`
	ClientID  string `json:"client_id"`
	RequestID uint64 `json:"request_id"`
}

// pair is an acquire and a release.
func (s *strangers) pair(ctx context.Context, name clientlib.LockName) (bench.Timing, error) {
	host, id := s.next(name)
	began := time.Now()
	held, err := s.ask(ctx, host, "acquire", acquireBody{Lock: string(name), TTL: s.lease.String(), ClientID: id, RequestID: 1})
	if err != nil {
		return bench.Timing{}, err
	}
	t := bench.Timing{Op: time.Since(began)}
	began = time.Now()
	_, err = s.ask(ctx, host, "release", releaseBody{Lock: string(name), Token: held.Token, ClientID: id, RequestID: 2})
	t.Release = time.Since(began)
	return t, err
}

// leave is an acquire without a release: the lease has to end by itself.
func (s *strangers) leave(ctx context.Context, name clientlib.LockName) (bench.Timing, error) {
	host, id := s.next(name)
	began := time.Now()
	_, err := s.ask(ctx, host, "acquire", acquireBody{Lock: string(name), TTL: strangerLeave.String(), ClientID: id, RequestID: 1})
	return bench.Timing{Op: time.Since(began)}, err
}

// next is whom the next stranger asks, and under which ID.
func (s *strangers) next(name clientlib.LockName) (host, id string) {
	n := s.came.Add(1)
	return s.hosts[n%int64(len(s.hosts))], fmt.Sprintf("stranger-%d-of-%s", n, name)
}

// answerBody is what the benchmark reads of an answer over HTTP.
type answerBody struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Token   uint64 `json:"token"`
}

// ask repeats a request until a server executes it.
func (s *strangers) ask(ctx context.Context, host, what string, body any) (answer answerBody, err error) {
	asked, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	for end := time.Now().Add(s.budget); ; {
		code := 0
		if code, answer, err = s.once(ctx, host, what, asked); err == nil && code == http.StatusOK {
			return answer, nil
		}
		if err == nil {
			err = fmt.Errorf("%s over HTTP: %s: %s", what, answer.Status, answer.Message)
		}
		if !again(code) || !time.Now().Before(end) {
			return answer, err
		}
		if rest := bench.Rest(ctx, strangerPause); rest != nil {
			return answer, rest
		}
	}
}

// again reports whether to repeat, under the same request ID: no server is primary, or it is not
// known whether it was done.
func again(code int) bool {
	return code == 0 || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// once asks once. Code 0: there was no answer.
func (s *strangers) once(ctx context.Context, host, what string, body []byte) (code int, answer answerBody, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.scheme+"://"+host+"/v1/"+what, bytes.NewReader(body))
	if err != nil {
		return 0, answer, err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	x, err := s.http.Do(r)
	if err != nil {
		return 0, answer, err
	}
	err = json.NewDecoder(x.Body).Decode(&answer)
	_, rest := io.Copy(io.Discard, x.Body) // so that the connection is used again
	if err = errors.Join(err, rest, x.Body.Close()); err != nil {
		return 0, answer, err
	}
	return x.StatusCode, answer, nil
}
