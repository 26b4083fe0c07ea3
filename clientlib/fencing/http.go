// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

const (
	// ProofHeader is the header of an HTTP request with a proof.
	ProofHeader = "Holdfast-Proof"
	// TokenHeader is the header with a token, where tokens are believed.
	TokenHeader = "Holdfast-Token"
	// DefaultMaxBody is Middleware.MaxBody where none is given, in bytes.
	DefaultMaxBody = 1 << 20
)

// Middleware admits HTTP requests by the proofs of those who hold a lock. What comes from a former holder is refused
// with 412, however late it comes.
type Middleware struct {
	// Guard remembers the tokens, by the names of locks. It is needed.
	Guard *Guard
	// Keys verify proofs, which requests have in ProofHeader. Without Keys, tokens in TokenHeader are believed: only where
	// every client is trusted, since whoever makes up a huge one locks out all others.
	Keys *Keys
	// Lock returns the name of the lock that protects what a request is for; "" lets the request pass without a proof, such
	// as one that only reads. It is needed.
	Lock func(r *http.Request) string
	// MaxBody bounds the body of a request, which is read before it is admitted; 0 = DefaultMaxBody. So the guard does not
	// wait for a slow client.
	MaxBody int64
}

// Wrap returns a handler that passes admitted requests on to next. While next serves one, no other under the same lock is
// served: so no request of an old holder is under way when the first one of a new holder begins. Admitted returns, for the
// context of an admitted request, what its proof says.
//
// A request without a proof gets 401; one with a proof that is forged, has expired, or is of another lock or a shared grant
// gets 403; one with a lower token than one that was seen gets 412, and next is not called. A body that is too long gets 413, and
// 503 says that the guard is closed.
//
// What next writes beyond the server's buffer it writes while others wait for the lock's turn: set http.Server.WriteTimeout, so that a
// client that does not read its answer cannot hold them up for ever.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock := m.Lock(r)
		if lock == "" {
			next.ServeHTTP(w, r)
			return
		}
		limit := m.MaxBody
		if limit == 0 {
			limit = DefaultMaxBody
		}
		shown, err := m.shown(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if err != nil {
			code := http.StatusBadRequest
			if _, long := errors.AsType[*http.MaxBytesError](err); long {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		err = m.admit(lock, shown, func(p Proof) error {
			r = r.WithContext(context.WithValue(r.Context(), admittedKey{}, p))
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			return nil
		})
		if err != nil { // next was not called
			http.Error(w, err.Error(), statusOf(err))
		}
	})
}

// shown returns the proof, or the token, that a request has.
func (m *Middleware) shown(r *http.Request) (string, error) {
	header, advice := ProofHeader, "a proof that you hold the lock, in the header %s: see clientlib.Lock.Proof, or holdfast proof"
	if m.Keys == nil {
		header, advice = TokenHeader, "the token of the lock, in the header %s: see clientlib.Lock.Token"
	}
	text := r.Header.Get(header)
	if text == "" {
		return "", fmt.Errorf("bring "+advice, header)
	}
	return text, nil
}

// admit calls f under the guard.
func (m *Middleware) admit(lock, shown string, f func(Proof) error) error {
	if m.Keys != nil {
		return m.Guard.DoProof(m.Keys, lock, shown, f)
	}
	token, err := strconv.ParseUint(shown, 10, 64)
	if err != nil || token == 0 {
		return fmt.Errorf("%w: %s is no token: a token is a number, from 1", ErrForged, strconv.Quote(shown))
	}
	p := Proof{Lock: lock, Token: Token(token)}
	return m.Guard.Do(lock, p.Token, func() error { return f(p) })
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrStale):
		return http.StatusPreconditionFailed
	case errors.Is(err, ErrForged), errors.Is(err, ErrExpired), errors.Is(err, ErrOtherLock), errors.Is(err, ErrShared):
		return http.StatusForbidden
	default:
		return http.StatusServiceUnavailable
	}
}

// admittedKey is the key of a Proof in the context of a request.
type admittedKey struct{}

// Admitted returns what the proof of a request says that a Middleware has admitted, from the context of the request. Where tokens
// are believed it has the lock and the token only.
func Admitted(ctx context.Context) (Proof, bool) {
	p, ok := ctx.Value(admittedKey{}).(Proof)
	return p, ok
}
