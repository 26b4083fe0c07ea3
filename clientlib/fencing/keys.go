// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Keys are the public keys of a cluster, by which proofs are verified. It is safe for use by several goroutines.
type Keys struct {
	cluster string
	read    func() ([]byte, error)
	// known are the keys by their IDs; the map is not changed.
	known atomic.Pointer[map[string]ed25519.PublicKey]

	// mu is held while the keys are read again. Proofs of known keys do not wait for that.
	mu sync.Mutex
	// last is when that was begun; zero if it never was.
	last time.Time
}

const (
	// reloadEvery bounds how often keys are read again because somebody shows a proof of an unknown one.
	reloadEvery = time.Minute
	// maxKeys bounds the text of keys, in bytes.
	maxKeys = 256 << 10
	// keysWait bounds how long a server may take to send them.
	keysWait = 5 * time.Second
	keysName = "keys.json"
)

// OpenKeys reads the keys of a cluster. Source is a file, such as a copy of keys.json on the volume; the directory of the volume
// itself; or a URL such as https://h1:7601/v1/keys. Plain http is taken for addresses of this host only, since whoever changes what
// is on the way could put in a key of his own; for a server whose certificate this host does not trust, use ReadKeys with a client
// of yours. Cluster is the ID of the cluster, as holdfast status shows it; "" accepts every cluster that signs with these keys.
//
// Proofs are verified without a server. For a proof of an unknown key the source is read again, at most once a minute.
func OpenKeys(source, cluster string) (*Keys, error) {
	if strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://") {
		u, err := url.Parse(source)
		if err == nil {
			err = trusted(u)
		}
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", source, err)
		}
		return ReadKeys(func() ([]byte, error) { return fetch(source) }, cluster)
	}
	return ReadKeys(func() ([]byte, error) {
		if info, err := os.Stat(source); err == nil && info.IsDir() {
			return os.ReadFile(filepath.Join(source, keysName))
		}
		return os.ReadFile(source)
	}, cluster)
}

// ReadKeys is OpenKeys for keys that a function returns: a JSON Web Key Set. One goroutine at a time calls it.
func ReadKeys(read func() ([]byte, error), cluster string) (*Keys, error) {
	k := &Keys{cluster: cluster, read: read}
	if err := k.load(); err != nil {
		return nil, fmt.Errorf("read the keys that verify proofs: %w", err)
	}
	return k, nil
}

// trusted returns an error for a URL whose answer others can change on its way.
func trusted(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s: use https, or a copy of keys.json", u.Redacted())
}

func fetch(source string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keysWait)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{CheckRedirect: func(q *http.Request, _ []*http.Request) error { return trusted(q.URL) }}
	r, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", source, r.Status)
	}
	return io.ReadAll(io.LimitReader(r.Body, maxKeys+1))
}

// load reads the keys.
func (k *Keys) load() error {
	b, err := k.read()
	if err != nil {
		return err
	}
	known, err := parseKeys(b)
	if err != nil {
		return err
	}
	k.known.Store(&known)
	return nil
}

// find returns the key with this ID. It reads the keys again if there is none, but not often: anybody can show an unknown ID.
func (k *Keys) find(id string) (ed25519.PublicKey, error) {
	if public, ok := (*k.known.Load())[id]; ok {
		return public, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	public, ok := (*k.known.Load())[id] // while this waited
	if now := time.Now(); !ok && (k.last.IsZero() || now.Sub(k.last) >= reloadEvery) {
		k.last = now
		if err := k.load(); err != nil {
			return nil, fmt.Errorf("%w: its key is not known, and the keys cannot be read again: %w", ErrForged, err)
		}
		public, ok = (*k.known.Load())[id]
	}
	if !ok {
		return nil, fmt.Errorf("%w: its key is not known", ErrForged)
	}
	return public, nil
}

// parseKeys reads a JSON Web Key Set (RFC 7517, RFC 8037). Keys of other kinds are left out.
func parseKeys(b []byte) (map[string]ed25519.PublicKey, error) {
	var set struct {
		Keys []struct {
			Type      string `json:"kty"`
			Curve     string `json:"crv"`
			Use       string `json:"use"`
			Algorithm string `json:"alg"`
			ID        string `json:"kid"`
			X         string `json:"x"`
		} `json:"keys"`
	}
	if len(b) > maxKeys {
		return nil, fmt.Errorf("more than %d bytes are no set of keys", maxKeys)
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, fmt.Errorf("no JSON Web Key Set: %w", err)
	}
	known := map[string]ed25519.PublicKey{}
	for _, x := range set.Keys {
		if x.Type != "OKP" || x.Curve != "Ed25519" || x.Use != "" && x.Use != "sig" || x.Algorithm != "" && x.Algorithm != "EdDSA" {
			continue
		}
		public, err := base64.RawURLEncoding.Strict().DecodeString(x.X)
		switch {
		case err != nil, len(public) != ed25519.PublicKeySize, x.ID == "":
			return nil, fmt.Errorf("key %q is no Ed25519 key with an ID", x.ID)
		case known[x.ID] != nil:
			return nil, fmt.Errorf("there are two keys %q", x.ID)
		}
		known[x.ID] = public
	}
	if len(known) == 0 {
		return nil, errors.New("there is no Ed25519 key in it (holdfast secure offer makes one)")
	}
	return known, nil
}
