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
	cert, key, ca string // names of files, "" for none
	log           zerolog.Logger

	leaf    *tls.Certificate // nil if there is none
	clients *x509.CertPool   // nil if there are none
	looked  time.Time
	last    [3][]byte // what the files had, of the last ones that were taken
	failed  string    // why they are not taken now
}

func newOutside(opt *Options) outside {
	return outside{cert: opt.TLSCert, key: opt.TLSKey, ca: opt.ClientCA, log: opt.Log}
}

// look reads the files, if it is time to, and reports whether there is something new. The error is of the first time: later
// it is logged, and what was taken stays.
func (o *outside) look(now time.Time) (changed bool, err error) {
	if o.cert == "" && o.ca == "" || !o.looked.IsZero() && now.Sub(o.looked) < outsideEvery {
		return false, nil
	}
	first := o.looked.IsZero()
	changed, err = o.read()
	switch {
	case err != nil && first:
		return false, err
	case err != nil && err.Error() != o.failed:
		o.log.Error().Err(err).Msg("the certificates from outside stay as they were")
	case changed && !first:
		o.log.Info().Msg("there are new certificates from outside")
	}
	o.looked, o.failed = now, ""
	if err != nil {
		o.failed = err.Error()
	}
	return changed, nil
}

// read takes what is in the files if it is good, all of it or nothing.
func (o *outside) read() (changed bool, err error) {
	var is [3][]byte
	for i, name := range []string{o.cert, o.key, o.ca} {
		if name == "" {
			continue
		}
		if is[i], err = os.ReadFile(name); err != nil {
			return false, fmt.Errorf("a certificate from outside: %w", err)
		}
		changed = changed || !bytes.Equal(is[i], o.last[i])
	}
	if !changed {
		return false, nil
	}
	leaf, clients := o.leaf, o.clients
	if o.cert != "" {
		pair, err := tls.X509KeyPair(is[0], is[1])
		if err != nil {
			return false, fmt.Errorf("%s and %s: %w", o.cert, o.key, err)
		}
		leaf = &pair
	}
	if o.ca != "" {
		if clients = x509.NewCertPool(); !clients.AppendCertsFromPEM(is[2]) {
			return false, fmt.Errorf("%s has no certificate in PEM", o.ca)
		}
	}
	o.leaf, o.clients, o.last = leaf, clients, is
	return true, nil
}
