// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"

	"github.com/holdfast-lock/holdfast/clientlib/clientconfig"
	"github.com/holdfast-lock/holdfast/clientlib/join"
)

// CertificateFromEnvironment returns the Certificate in the files that are named
//
//	HOLDFAST_CERT, HOLDFAST_CERT_KEY              in the environment, or
//	cert, cert-key in a configuration of clients  see package clientconfig
//
// There is none where nothing is named. One of the two alone is an error.
func CertificateFromEnvironment(getenv func(string) string) join.Certificate {
	return func() (*tls.Certificate, error) {
		config, err := clientconfig.Read(getenv)
		if err != nil {
			return nil, err
		}
		cert, key := cmp.Or(getenv("HOLDFAST_CERT"), config.Cert), cmp.Or(getenv("HOLDFAST_CERT_KEY"), config.CertKey)
		switch {
		case cert == "" && key == "":
			return nil, nil
		case cert == "":
			return nil, errors.New("HOLDFAST_CERT_KEY, or cert-key, is set, and HOLDFAST_CERT, or cert, is not: name both files, or none")
		case key == "":
			return nil, errors.New("HOLDFAST_CERT, or cert, is set, and HOLDFAST_CERT_KEY, or cert-key, is not: name both files, or none")
		}
		return join.CertificateFiles(cert, key)()
	}
}

type certificateKey struct{}

// Beside returns the Source of a client that shows this certificate, nil for none: FromEnvironment makes no ticket beside one, since a
// credential that is shown counts instead of the certificate. One that is named counts.
func (s Source) Beside(c join.Certificate) Source {
	if s == nil || c == nil {
		return s
	}
	return func(ctx context.Context, cluster string) (string, error) {
		return s(context.WithValue(ctx, certificateKey{}, c), cluster)
	}
}

// hasCertificate reports whether the client whose Source is asked shows a certificate.
func hasCertificate(ctx context.Context) (bool, error) {
	c, _ := ctx.Value(certificateKey{}).(join.Certificate)
	if c == nil {
		return false, nil
	}
	pair, err := c()
	return pair != nil, err
}
