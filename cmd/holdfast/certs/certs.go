// SPDX-License-Identifier: Apache-2.0

// Package certs makes the certificates by which clients know the servers of a volume: that of the volume's
// certificate authority, once, and those of servers' processes, which are good for a year and made anew each day. The
// key of such a one never leaves its process.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// before and after are how long a server's certificate is good, seen from when it is made: nothing expires unless
	// a clock is months off.
	before = 90 * 24 * time.Hour
	after  = 365 * 24 * time.Hour
)

// Draw makes the certificate authority of a cluster: a key on P-256, since browsers take no Ed25519.
func Draw(id cluster.ID) (a volume.Authority, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, fmt.Errorf("draw a key: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return a, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Holdfast cluster " + id.String()},
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, private.Public(), private)
	if err != nil {
		return a, fmt.Errorf("make the certificate of the authority: %w", err)
	}
	return volume.Authority{
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// Issuer signs certificates of servers. It is safe for use by several goroutines.
type Issuer struct {
	id  cluster.ID
	ca  *x509.Certificate
	key crypto.Signer
}

// NewIssuer returns the issuer of a cluster's authority. It returns an error if key and certificate do not match.
func NewIssuer(id cluster.ID, a volume.Authority) (*Issuer, error) {
	ca, err := join.ParseCertificate(a.Certificate)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.Key)
	if block == nil {
		return nil, errors.New("the key of the certificate authority is no PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key of the certificate authority: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the certificate authority cannot sign")
	}
	if public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(ca.PublicKey) {
		return nil, errors.New("the key of the certificate authority is not that of its certificate")
	}
	return &Issuer{id, ca, signer}, nil
}

// Certificate returns the authority's.
func (i *Issuer) Certificate() *x509.Certificate { return i.ca }

// Issue returns a new key with a certificate for a server that is reached by these hosts, names or addresses. Behind it
// comes the authority's: who has only its pin needs it. now is this machine's time of day.
func (i *Issuer) Issue(hosts []string, now time.Time) (c tls.Certificate, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, fmt.Errorf("draw a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return c, fmt.Errorf("draw a serial number: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: "Holdfast server"},
		NotBefore: now.Add(-before), NotAfter: now.Add(after),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: []string{join.ServerName(i.id.String())},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip == nil {
			leaf.DNSNames = append(leaf.DNSNames, h)
		} else if !ip.IsUnspecified() {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		}
	}
	slices.Sort(leaf.DNSNames)
	leaf.DNSNames = slices.Compact(leaf.DNSNames)
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.ca, private.Public(), i.key)
	if err != nil {
		return c, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der, i.ca.Raw}, PrivateKey: private}, nil
}
