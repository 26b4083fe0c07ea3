// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

// maxValue is the length of the longest value, in bytes.
const maxValue = 1 << 20

// store keeps one file for each key: the token under which the value was written, a newline,
// and the value. So a reader always sees the two together.
type store struct {
	dir   string
	guard *fencing.Guard
	keys  *fencing.Keys
	// sync makes the names in a directory durable.
	sync func(dir string) error
}

func newStore(dir string, keys *fencing.Keys) (*store, error) {
	s := &store{dir: filepath.Join(dir, "values"), keys: keys, sync: syncDir}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	s.guard, err = fencing.Open(filepath.Join(dir, "tokens")) // it also makes the names of and above dir durable
	return s, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *store) close() error { return s.guard.Close() }

// proofHeader has the proof with which a value comes.
const proofHeader = "Holdfast-Proof"

// ServeHTTP answers GET /KEY and PUT /KEY; the lock of a key has its name.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path[1:]
	switch {
	case key == "" || len(key) > 128:
		http.Error(w, "name a key of 1 to 128 bytes: /KEY", http.StatusNotFound)
	case r.Method == http.MethodGet:
		s.get(w, key)
	case r.Method == http.MethodPut:
		s.put(w, r, key)
	default:
		http.Error(w, "use GET or PUT", http.StatusMethodNotAllowed)
	}
}

func (s *store) path(key string) string {
	return filepath.Join(s.dir, base64.RawURLEncoding.EncodeToString([]byte(key)))
}

func (s *store) get(w http.ResponseWriter, key string) {
	b, err := os.ReadFile(s.path(key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "there is no value", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		token, value, _ := bytes.Cut(b, []byte("\n"))
		w.Header().Set("Holdfast-Token", string(token))
		_, _ = w.Write(value) // a reader that is gone needs none
	}
}

// write replaces the value of a key, durably: after it returned, a power loss does not bring
// the previous value back.
func (s *store) write(key string, token fencing.Token, value []byte) error {
	b := append(strconv.AppendUint(nil, uint64(token), 10), '\n')
	if err := renameio.WriteFile(s.path(key), append(b, value...), 0o600); err != nil {
		return err
	}
	return s.sync(s.dir)
}

// put answers a PUT. It writes under the guard: no write of an older holder is in progress at
// that time, and none is admitted later.
func (s *store) put(w http.ResponseWriter, r *http.Request, key string) {
	proof := r.Header.Get(proofHeader)
	if proof == "" {
		http.Error(w, "bring a proof that you hold the lock, in the header "+proofHeader+": see holdfast proof", http.StatusUnauthorized)
		return
	}
	// The whole value is read first, so that the guard is never held while a client is slow.
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var p fencing.Proof
	err = s.guard.DoProof(s.keys, key, proof, func(said fencing.Proof) error {
		p = said
		return s.write(key, p.Token, value)
	})
	switch {
	case errors.Is(err, fencing.ErrStale):
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	case errors.Is(err, fencing.ErrForged), errors.Is(err, fencing.ErrExpired), errors.Is(err, fencing.ErrOtherLock), errors.Is(err, fencing.ErrShared):
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		fmt.Fprintf(w, "%d bytes written under token %d\n", len(value), p.Token)
	}
}
