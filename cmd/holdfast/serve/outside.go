// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// outsideEvery is how often a server reads certificates from outside again.
const outsideEvery = 10 * time.Second

// outside is a certificate that somebody else issues and renews, and the authorities of clients' certificates. Their files
// are compared by content: some are links to directories that are swapped. It belongs to one goroutine.
type outside struct {
	files func() TLSFiles
	log   zerolog.Logger

	leaf    *tls.Certificate // nil if there is none
	clients *x509.CertPool   // nil if there are none
	looked  time.Time
	named   TLSFiles  // the files at the last look
	last    [3][]byte // what the files had, of the last ones that were taken
	failed  string    // why they are not taken now
}

func newOutside(opt *Options) outside {
	return outside{files: opt.Live.tlsFiles, log: opt.Log}
}

// look reads the files, if it is time to, and reports whether there is something new. The error is of the first time: later
// it is logged, and what was taken stays.
func (o *outside) look(now time.Time) (changed bool, err error) {
	files := o.files()
	if files == o.named && (files == TLSFiles{} || !o.looked.IsZero() && now.Sub(o.looked) < outsideEvery) {
		return false, nil
	}
	first := o.looked.IsZero()
	changed, err = o.read(files)
	switch {
	case err != nil && first:
		return false, err
	case err != nil && err.Error() != o.failed:
		o.log.Error().Err(err).Msg("the certificates from outside stay as they were")
	case changed && !first:
		o.log.Info().Msg("there are new certificates from outside")
	}
	o.looked, o.named, o.failed = now, files, ""
	if err != nil {
		o.failed = err.Error()
	}
	return changed, nil
}

// read takes what is in the files if it is good, all of it or nothing.
func (o *outside) read(files TLSFiles) (changed bool, err error) {
	var is [3][]byte
	for i, name := range []string{files.Cert, files.Key, files.ClientCA} {
		if name != "" {
			if is[i], err = os.ReadFile(name); err != nil {
				return false, fmt.Errorf("a certificate from outside: %w", err)
			}
		}
		changed = changed || !bytes.Equal(is[i], o.last[i])
	}
	if !changed {
		return false, nil
	}
	var leaf *tls.Certificate
	var clients *x509.CertPool
	if files.Cert != "" {
		pair, err := tls.X509KeyPair(is[0], is[1])
		if err != nil {
			return false, fmt.Errorf("%s and %s: %w", files.Cert, files.Key, err)
		}
		leaf = &pair
	}
	if files.ClientCA != "" {
		if clients = x509.NewCertPool(); !clients.AppendCertsFromPEM(is[2]) {
			return false, fmt.Errorf("%s has no certificate in PEM", files.ClientCA)
		}
	}
	o.leaf, o.clients, o.last = leaf, clients, is
	return true, nil
}
