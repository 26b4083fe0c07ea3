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

	// Vouched is how long an authority vouches for the next one.
	Vouched = 365 * 24 * time.Hour
	// mostVouchers bounds the certificates that servers show beside their own and the authority's.
	mostVouchers = 16
)

// ErrCannotVouch means that clients who know the authority that there is cannot recognize a new one.
var ErrCannotVouch = errors.New("the authority cannot vouch for a new one")

// Draw makes the first certificate authority of a cluster: a key on P-256, since browsers take no Ed25519.
func Draw(id cluster.ID) (a volume.Authority, err error) { return draw(id, 1) }

func draw(id cluster.ID, number uint64) (a volume.Authority, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, fmt.Errorf("draw a key: %w", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return a, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: volume.AuthorityCommonName(id, number)},
		NotBefore: always(), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, private.Public(), private)
	if err != nil {
		return a, fmt.Errorf("make the certificate of the authority: %w", err)
	}
	return volume.Authority{
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), Certificate: certificatePEM(der), Number: number,
	}, nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Replace makes the authority that comes after old, without anything that vouches for it.
func Replace(id cluster.ID, old volume.Authority) (volume.Authority, error) {
	return draw(id, old.Number+1)
}

// Succeed makes the authority that comes after old. For Vouched from now on, who knows old, or one that old was vouched for by, recognizes
// its servers, too. It returns an error that wraps ErrCannotVouch if old cannot do that.
func Succeed(id cluster.ID, old volume.Authority, now time.Time) (a volume.Authority, err error) {
	before, err := NewIssuer(id, old)
	if err != nil {
		return a, err
	}
	if before.ca.MaxPathLenZero {
		return a, fmt.Errorf("%w: a version of Holdfast made it that did not know of later ones", ErrCannotVouch)
	}
	kept := before.vouchersAt(now)
	if len(kept) >= mostVouchers {
		return a, fmt.Errorf("%w: clients of %d authorities before it are vouched for already, each for a year", ErrCannotVouch, len(kept)/2)
	}
	if a, err = draw(id, old.Number+1); err != nil {
		return a, err
	}
	own, err := join.ParseCertificate(a.Certificate)
	if err != nil {
		return a, err
	}
	cross := &x509.Certificate{
		SerialNumber: new(big.Int).SetUint64(a.Number), Subject: own.Subject, SubjectKeyId: own.SubjectKeyId,
		NotBefore: always(), NotAfter: now.Add(Vouched),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cross, before.ca, own.PublicKey, before.key)
	if err != nil {
		return a, fmt.Errorf("make the certificate by which the old authority vouches for the new one: %w", err)
	}
	a.Vouchers = slices.Concat(certificatePEM(der), certificatePEM(before.ca.Raw))
	for _, c := range kept {
		a.Vouchers = append(a.Vouchers, certificatePEM(c.Raw)...)
	}
	return a, nil
}

// Issuer signs certificates of servers. It is safe for use by several goroutines.
type Issuer struct {
	id  cluster.ID
	ca  *x509.Certificate
	key crypto.Signer
	// vouchers are those of volume.Authority: pairs.
	vouchers []*x509.Certificate
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
	i := &Issuer{id: id, ca: ca, key: signer}
	for text := a.Vouchers; len(text) > 0; {
		var c *pem.Block
		if c, text = pem.Decode(text); c == nil {
			return nil, errors.New("what vouches for the certificate authority is no PEM")
		}
		v, err := x509.ParseCertificate(c.Bytes)
		if err != nil {
			return nil, fmt.Errorf("what vouches for the certificate authority: %w", err)
		}
		i.vouchers = append(i.vouchers, v)
	}
	if len(i.vouchers)%2 != 0 {
		return nil, errors.New("what vouches for the certificate authority is incomplete")
	}
	return i, nil
}

// always is before any clock.
func always() time.Time { return time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) }

// Certificate returns the authority's.
func (i *Issuer) Certificate() *x509.Certificate { return i.ca }

// vouchersAt returns the vouchers that are good at a time: the newest come first, and each is good for as long as the others were.
func (i *Issuer) vouchersAt(now time.Time) []*x509.Certificate {
	for n := 0; n < len(i.vouchers); n += 2 {
		if !i.vouchers[n].NotAfter.After(now) {
			return i.vouchers[:n]
		}
	}
	return i.vouchers
}

// VouchedUntil returns until when the authority before this one vouches for it, zero = it does not.
func (i *Issuer) VouchedUntil() time.Time {
	if len(i.vouchers) == 0 {
		return time.Time{}
	}
	return i.vouchers[0].NotAfter
}

// Issue returns a new key with a certificate for a server that is reached by these hosts, names or addresses. Behind it
// come the authority's and those that vouch for it: who has only a pin needs them. now is this machine's time of day.
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
	c = tls.Certificate{Certificate: [][]byte{der, i.ca.Raw}, PrivateKey: private}
	if c.Leaf, err = x509.ParseCertificate(der); err != nil {
		return tls.Certificate{}, err
	}
	for _, v := range i.vouchers {
		c.Certificate = append(c.Certificate, v.Raw)
	}
	return c, nil
}
