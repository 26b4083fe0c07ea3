// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// maxKept bounds how many verified tickets are remembered, and how many of passed on callers.
	maxKept = 4096
	// passOnTime is how long a ticket of PassOn may be shown. It is used again for half of it.
	passOnTime = time.Minute
)

var (
	errNoCredential = errors.New("this is neither a key (hfk_...) nor a ticket (hft_...) of Holdfast")
	errUnknownKey   = errors.New("the key is not in the rules: it was revoked, or belongs to another cluster")
	errExpiredKey   = errors.New("the key expired more than 24 h ago: create a new one (holdfast key create)")
	errRevoked      = errors.New("the credential was revoked: get a new one")
	errNoTickets    = errors.New("this cluster takes no tickets: its volume has no signing key (holdfast secure offer makes one)")
)

// Authenticator implements access.Authenticator.
type Authenticator struct {
	id     cluster.ID
	rules  func() *access.Rules
	signer atomic.Pointer[signer] // never nil
	// refresh has rules be read anew, see RefreshBy. It is never nil.
	refresh func()
}

var _ access.Authenticator = (*Authenticator)(nil)

// signer is what a Authenticator does with one set of keys.
type signer struct {
	verifier
	known  []volume.SigningKey
	newest *volume.SigningKey // nil if there is none
	// Both are bounded, and begin empty with other keys.
	verified kept[[sha256.Size]byte, *access.Caller] // by the SHA-256 of the ticket
	passed   kept[passed, string]
}

// passed is a caller as a ticket describes it.
type passed struct {
	identity, groups, via, key string
	issued, expires            int64 // in seconds since 1970; 0 = none
	operator                   bool
}

// New returns the Authenticator of a cluster. rules returns the rules in force, nil if there are none; it is asked for each key. The
// Authenticator takes no tickets before SetKeys.
func New(id cluster.ID, rules func() *access.Rules) *Authenticator {
	g := &Authenticator{id: id, rules: rules, refresh: func() {}}
	g.SetKeys(nil)
	return g
}

// RefreshBy sets what is called before a credential is refused because its key is not in the rules, or is revoked by them:
// it returns when the rules are as new as can be seen in a moment. The rules of this server may be older than a key that was just
// created, and that another server has let in. Refresh bounds how often it reads the volume, for strangers cause
// it. RefreshBy is called before the Authenticator is used.
func (g *Authenticator) RefreshBy(refresh func()) { g.refresh = refresh }

// SetKeys sets the signing keys that count, first the one to sign with, see volume.KeysAt: tickets of other keys are refused from now on. The same keys again
// change nothing. It is called by one goroutine at a time.
func (g *Authenticator) SetKeys(keys []volume.SigningKey) {
	if s := g.signer.Load(); s != nil && slices.EqualFunc(s.known, keys, func(a, b volume.SigningKey) bool { return a.ID == b.ID }) {
		return
	}
	s := &signer{verifier: newVerifier(g.id, keys), known: keys}
	if len(keys) > 0 {
		s.newest = &keys[0]
	}
	g.signer.Store(s)
}

// Rules implements access.Authenticator.
func (g *Authenticator) Rules() *access.Rules { return g.rules() }

// Authenticate implements access.Authenticator. A credential that expired less than 24 h ago still proves its caller, whose
// Expires is then in the past: expiry takes no lock. One that was revoked proves nothing. The caller is nil for a ticket
// where there are neither keys nor rules.
func (g *Authenticator) Authenticate(credential string) (*access.Caller, error) {
	c, err := g.authenticate(credential)
	if !errors.Is(err, errUnknownKey) && !errors.Is(err, errRevoked) {
		return c, err
	}
	g.refresh()
	return g.authenticate(credential)
}

// authenticate is Authenticate by the rules in force.
func (g *Authenticator) authenticate(credential string) (c *access.Caller, err error) {
	switch now := time.Now(); {
	case len(credential) > access.MaxCredential:
		return nil, errNoCredential
	case strings.HasPrefix(credential, access.KeyPrefix):
		c, err = g.byKey(credential, now)
	case strings.HasPrefix(credential, access.TicketPrefix):
		s := g.signer.Load()
		if s.newest == nil && g.rules() == nil {
			// The volume has just got its key, and this server has not seen it. Nobody needs a credential here yet.
			return nil, nil
		}
		c, err = s.byTicket(credential, now)
	default:
		return nil, errNoCredential
	}
	if err == nil && g.rules().Revoked(c) {
		return nil, errRevoked
	}
	return c, err
}

// Known implements access.Authenticator.
func (g *Authenticator) Known(credential string) bool {
	if len(credential) > access.MaxCredential {
		return false
	}
	sum := sha256.Sum256([]byte(credential))
	if _, ok := g.rules().KeyOf(sum); ok {
		return true
	}
	_, ok := g.signer.Load().verified.get(sum, time.Now())
	return ok
}

func (g *Authenticator) byKey(text string, now time.Time) (*access.Caller, error) {
	k, ok := g.rules().KeyOf(sha256.Sum256([]byte(text)))
	switch {
	case !ok:
		return nil, errUnknownKey
	case !k.Expires.IsZero() && now.After(k.Expires.Add(afterExpiry)):
		return nil, errExpiredKey
	}
	return &access.Caller{Identity: "service:" + k.Name, Groups: k.Groups, Via: "key", Key: k.Name, Issued: k.Created, Expires: k.Expires}, nil
}

func (s *signer) byTicket(ticket string, now time.Time) (*access.Caller, error) {
	if s.newest == nil {
		return nil, errNoTickets
	}
	sum := sha256.Sum256([]byte(ticket))
	if c, ok := s.verified.get(sum, now); ok {
		return c, nil
	}
	c, until, err := s.verify(ticket, now)
	if err != nil {
		return nil, err
	}
	s.verified.put(sum, c, now, until)
	return c, nil
}

// PassOn implements access.Authenticator. The ticket says what the caller's own credential says, and has to be shown within a
// minute. It is "" where the volume has no signing key, too.
func (g *Authenticator) PassOn(c *access.Caller) string {
	s := g.signer.Load()
	if c == nil || s.newest == nil {
		return ""
	}
	who := passed{c.Identity, strings.Join(c.Groups, "\n"), c.Via, c.Key, seconds(c.Issued), seconds(c.Expires), c.Operator}
	now := time.Now()
	if text, ok := s.passed.get(who, now); ok {
		return text
	}
	issued := *c
	if issued.Issued.IsZero() {
		issued.Issued = now
	}
	text, err := signPassed(*s.newest, g.id, &issued, now.Add(passOnTime))
	if err != nil {
		return "" // only what proved the caller can be too long, and then it had been refused
	}
	s.passed.put(who, text, now, now.Add(passOnTime/2))
	return text
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// kept is a map of bounded size whose entries end. The zero value is empty. It is safe for use by several goroutines.
type kept[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

func (m *kept[K, V]) get(k K, now time.Time) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.all[k]
	if !ok || now.Before(e.until) {
		return e.value, ok
	}
	delete(m.all, k)
	return v, false
}

// put adds an entry. Where there is no room, all that have ended go, or else any one.
func (m *kept[K, V]) put(k K, v V, now, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[K]entry[V]{}
	}
	if len(m.all) >= maxKept {
		for old, e := range m.all {
			if !now.Before(e.until) {
				delete(m.all, old)
			}
		}
	}
	for old := range m.all {
		if len(m.all) < maxKept {
			break
		}
		delete(m.all, old)
	}
	m.all[k] = entry[V]{v, until}
}
