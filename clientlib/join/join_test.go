// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
)

const somePin = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// site is a cluster with an authority, on a volume for clients.
type site struct {
	t      *testing.T
	id     cluster.ID
	a      volume.Authority
	issuer *certs.Issuer
	dir    string
}

func newSite(t *testing.T, n byte) *site {
	t.Helper()
	s := &site{t: t, id: cluster.ID{n}, dir: t.TempDir()}
	var err error
	if s.a, err = certs.Draw(s.id); err != nil {
		t.Fatal(err)
	}
	if s.issuer, err = certs.NewIssuer(s.id, s.a); err != nil {
		t.Fatal(err)
	}
	s.file("CLUSTER", `{"cluster_id":"`+s.id.String()+`","servers":[{"id":1,"client":"h1:7601","peer":"h1:7801"},{"id":2,"client":"h2:7601","peer":"h2:7801"}]}`)
	return s
}

func (s *site) file(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// resolve is join.Resolve without an error.
func resolve(t *testing.T, endpoints ...string) ([]string, *join.Trust) {
	t.Helper()
	addresses, trust, err := join.Resolve(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	return addresses, trust
}

// joinText is the join string of the site.
func (s *site) joinText() string {
	return join.Text([]string{"h1:7601"}, join.Pin(s.issuer.Certificate()))
}

// server returns a connection to a server that has this certificate, and what it does.
func server(t *testing.T, c tls.Certificate, protocols ...string) join.Dialer {
	return func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			s := tls.Server(there, &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: protocols})
			_ = s.Handshake()                                                 // the client has the error
			io.WriteString(s, s.ConnectionState().NegotiatedProtocol+"hello") //nolint:errcheck // the reader would miss it
			s.Close()                                                         //nolint:errcheck // a pipe
		}()
		return here, nil
	}
}

func (s *site) leaf(now time.Time) tls.Certificate {
	s.t.Helper()
	c, err := s.issuer.Issue([]string{"other.name", "10.0.0.1", "::", "0.0.0.0"}, now)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// asked returns what a server says to a client that trusts, over TLS.
func asked(t *testing.T, trust *join.Trust, d join.Dialer) (string, error) {
	t.Helper()
	c, err := trust.Dialer(frames.Protocol, d)(t.Context(), "h1:7601")
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // a pipe
	b, err := io.ReadAll(c)
	return string(b), err
}

// A path and a join string lead to the cluster's servers and to no others.
func TestTrust(t *testing.T) {
	s, other := newSite(t, 1), newSite(t, 2)
	s.file("ca.crt", string(s.a.Certificate))
	addresses, byPath := resolve(t, s.dir)
	if !slices.Equal(addresses, []string{"h1:7601", "h2:7601"}) {
		t.Error(addresses)
	}
	addresses, byPin := resolve(t, s.joinText())
	if !slices.Equal(addresses, []string{"h1:7601"}) {
		t.Error(addresses)
	}
	// The other cluster's servers under this authority: it has been copied, with the volume.
	copied, err := certs.NewIssuer(other.id, s.a)
	if err != nil {
		t.Fatal(err)
	}
	stolen := *s
	stolen.issuer = copied
	alone := s.leaf(time.Now())
	alone.Certificate = alone.Certificate[:1]
	hidden := other.leaf(time.Now()) // a foreign leaf with the right authority behind it
	hidden.Certificate[1] = s.leaf(time.Now()).Certificate[1]
	for name, x := range map[string]struct {
		c            tls.Certificate
		path, pinned string // part of the error, "" = none
	}{
		"a server":                      {s.leaf(time.Now()), "", ""},
		"months later":                  {s.leaf(time.Now().Add(-360 * 24 * time.Hour)), "", ""},
		"its clock is ahead":            {s.leaf(time.Now().Add(80 * 24 * time.Hour)), "", ""},
		"expired":                       {s.leaf(time.Now().Add(-370 * 24 * time.Hour)), "expired", "expired"},
		"another cluster's":             {other.leaf(time.Now()), "not signed by the authority in " + s.dir, "has the pin of the join string"},
		"another cluster's, ours shown": {hidden, "not signed by", "signed by unknown authority"},
		"without the authority behind":  {alone, "", "has the pin of the join string"},
		"another cluster's name":        {stolen.leaf(time.Now()), "not " + join.ServerName(s.id.String()), ""},
		"the authority itself":          {authorityAsServer(t, s), "not valid for any names", "not valid for any names"},
	} {
		for trust, want := range map[*join.Trust]string{byPath: x.path, byPin: x.pinned} {
			said, err := asked(t, trust, server(t, x.c, join.HTTP, frames.Protocol))
			switch {
			case want == "" && (err != nil || said != "holdfast/1hello"):
				t.Errorf("%s: %q, %v", name, said, err)
			case want != "" && (!errors.Is(err, join.ErrUntrusted) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "TLS with h1:7601: ")):
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// authorityAsServer is the authority's own certificate, used as a server's.
func authorityAsServer(t *testing.T, s *site) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(s.a.Certificate, s.a.Key)
	if err != nil {
		t.Fatal(err)
	}
	c.Certificate = append(c.Certificate, c.Certificate[0])
	return c
}

// Clients that know an earlier authority recognize the servers of later ones, for a year, and not after a leak.
func TestAuthoritySucceeds(t *testing.T) {
	s := newSite(t, 1)
	s.file("ca.crt", string(s.a.Certificate))
	_, byPath := resolve(t, s.dir)
	_, byPin := resolve(t, s.joinText())
	first := x509.NewCertPool()
	first.AppendCertsFromPEM(s.a.Certificate)
	long := time.Now().Add(-certs.Vouched)
	grow := func(when time.Time) {
		t.Helper()
		next, err := certs.Succeed(s.id, s.a, when)
		if err != nil {
			t.Fatal(err)
		}
		if s.issuer, err = certs.NewIssuer(s.id, next); err != nil {
			t.Fatal(err)
		}
		s.a = next
	}
	for range 2 {
		grow(time.Now())
		_, newPin := resolve(t, s.joinText())
		for name, trust := range map[string]*join.Trust{"path": byPath, "pin": byPin, "new pin": newPin} {
			if said, err := asked(t, trust, server(t, s.leaf(time.Now()), frames.Protocol)); said != "holdfast/1hello" || err != nil {
				t.Errorf("by %s: %q, %v", name, said, err)
			}
		}
		here, _ := server(t, s.leaf(time.Now()))(t.Context(), "")
		other := tls.Client(here, &tls.Config{RootCAs: first, ServerName: "other.name"})
		if err := other.HandshakeContext(t.Context()); err != nil {
			t.Errorf("another program with the old ca.crt: %v", err)
		}
		here.Close() //nolint:errcheck // a pipe
	}
	s.a.Vouchers = nil // what a leak leads to
	var err error
	if s.issuer, err = certs.NewIssuer(s.id, s.a); err != nil {
		t.Fatal(err)
	}
	for name, trust := range map[string]*join.Trust{"path": byPath, "pin": byPin} {
		if _, err := asked(t, trust, server(t, s.leaf(time.Now()), frames.Protocol)); !errors.Is(err, join.ErrUntrusted) {
			t.Errorf("by %s, after a leak: %v", name, err)
		}
	}
	_, before := resolve(t, s.joinText())
	grow(long)
	if _, err := asked(t, before, server(t, s.leaf(time.Now()), frames.Protocol)); !errors.Is(err, join.ErrUntrusted) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after a year: %v", err)
	}
	last := s.a
	for range 20 {
		var next volume.Authority
		if next, err = certs.Succeed(s.id, last, time.Now()); err != nil {
			break
		}
		last = next
	}
	if !errors.Is(err, certs.ErrCannotVouch) {
		t.Errorf("rotated without end: %v", err)
	}
	if _, err := certs.Succeed(s.id, last, time.Now().Add(certs.Vouched+time.Hour)); err != nil {
		t.Errorf("rotated as often, and then not for a year: %v", err)
	}
	if replaced, err := certs.Replace(s.id, s.a); err != nil || replaced.Vouchers != nil {
		t.Errorf("%+v, %v", replaced, err)
	}
}

// A client by path finds the authority that replaced a leaked one with its next connection.
func TestVolumeGetsAnotherAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.file("ca.crt", string(s.a.Certificate))
		_, trust := resolve(t, s.dir)
		next, err := certs.Replace(s.id, s.a)
		if err != nil {
			t.Fatal(err)
		}
		if s.issuer, err = certs.NewIssuer(s.id, next); err != nil {
			t.Fatal(err)
		}
		s.file("ca.crt", string(next.Certificate))
		if _, err := asked(t, trust, server(t, s.leaf(time.Now()), frames.Protocol)); !errors.Is(err, join.ErrUntrusted) {
			t.Errorf("by the old authority: %v", err)
		}
		synctest.Wait()
		if said, err := asked(t, trust, server(t, s.leaf(time.Now()), frames.Protocol)); said != "holdfast/1hello" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
}

// A server that serves no TLS is told by what it does, and no error looks like the end of a connection.
func TestNoTLSThere(t *testing.T) {
	s := newSite(t, 1)
	_, trust := resolve(t, s.joinText())
	for name, f := range map[string]func(net.Conn){
		"closed": func(c net.Conn) { c.Close() }, //nolint:errcheck // a pipe
		"plain text": func(c net.Conn) {
			io.CopyN(io.Discard, c, 5)
			go io.Copy(io.Discard, c)
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}, //nolint:errcheck // a pipe
	} {
		_, err := asked(t, trust, func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go f(there)
			return here, nil
		})
		if err == nil || !strings.Contains(err.Error(), "TLS with h1:7601: it serves none") || !errors.Is(err, join.ErrNoTLS) || errors.Is(err, io.EOF) || errors.Is(err, join.ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that began before the volume had an authority speaks TLS as soon as it has one, and never plain text again.
func TestVolumeGetsAnAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		_, trust := resolve(t, s.dir)
		plain := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { io.WriteString(there, "plain"); there.Close() }() //nolint:errcheck // a pipe
			return here, nil
		}
		for range 2 {
			if said, err := asked(t, trust, plain); said != "plain" || err != nil {
				t.Fatalf("%q, %v", said, err)
			}
			synctest.Wait()
		}
		s.file("ca.crt", "half of a certif")
		if _, err := asked(t, trust, plain); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.file("ca.crt", string(s.a.Certificate))
		trust.Plain() // it looks
		synctest.Wait()
		if err := os.Remove(filepath.Join(s.dir, "ca.crt")); err != nil {
			t.Fatal(err)
		}
		if trust.Plain() {
			t.Error("plain text, and there was an authority")
		}
		if said, err := asked(t, trust, server(t, s.leaf(time.Now()), frames.Protocol)); said != "holdfast/1hello" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
}

func TestResolve(t *testing.T) {
	if addresses, trust := resolve(t, "h1:1", "h2:2"); len(addresses) != 2 || trust != nil || !trust.Plain() {
		t.Error(addresses, trust)
	}
	s := newSite(t, 1)
	for name, x := range map[string]struct {
		endpoints []string
		want      string
	}{
		"two":             {[]string{s.dir, "h1:1"}, "give it alone"},
		"a join string":   {[]string{"h1:1", s.joinText()}, "give it alone"},
		"nothing there":   {[]string{s.dir + "/none"}, "is the share mounted?"},
		"no pin":          {[]string{"holdfast://h1:1"}, "it has no pin"},
		"a relative path": {[]string{"./none"}, "no volume is there"},
	} {
		if _, _, err := join.Resolve(x.endpoints); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.file("ca.crt", "garbage")
	if _, _, err := join.Resolve([]string{s.dir}); err == nil || !strings.Contains(err.Error(), "not one certificate") {
		t.Errorf("a damaged ca.crt is no reason for plain text: %v", err)
	}
	leaf, err := x509.ParseCertificate(s.leaf(time.Now()).Certificate[0])
	if err != nil || leaf.NotAfter.Sub(leaf.NotBefore) != 455*24*time.Hour || len(leaf.IPAddresses) != 1 {
		t.Errorf("%v: %+v", err, leaf)
	}
	for _, text := range []string{`{}`, `{"servers":[]}`, `nonsense`} {
		s.file("CLUSTER", text)
		if _, _, err := join.Resolve([]string{s.dir}); err == nil {
			t.Errorf("CLUSTER is %s, and that is no error", text)
		}
	}
}

// FuzzParse: what is read is what was written, and what is written is read.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"holdfast://h1:7601,h2:7601/?pin=" + somePin, "holdfast://[::1]:7601/?pin=" + somePin, "holdfast://h1/?pin=" + somePin,
		"holdfast://h1:7601/?pin=" + somePin + "&x=1", "holdfast://u@h1:7601/?pin=" + somePin, "holdfast://h1:7601/?pin=" + somePin[:42] + "B", "holdfast:///?pin=" + somePin,
		"holdfast://h1:7601?pin=" + somePin, "holdfast://h1:0/?pin=" + somePin, "holdfast://h1:7601,/?pin=" + somePin, "h1:7601", "holdfast://h1:7601/?pin=\n" + somePin,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		addresses, pin, err := join.Parse(text)
		if err != nil {
			return
		}
		if len(pin) != 43 || len(addresses) == 0 || join.Text(addresses, pin) != text || !join.Whole(text) {
			t.Errorf("%q: %q, %q", text, addresses, pin)
		}
		for _, a := range addresses {
			if host, _, err := net.SplitHostPort(a); err != nil || host == "" || strings.ContainsAny(a, " /?@") {
				t.Errorf("%q: address %q", text, a)
			}
		}
	})
}

// TestServersOfTheVolumeNow: where the list of servers has changed, MEMBERS on the volume has it, without those that only join. What is of
// another cluster, or damaged by as little as a digit of an address, is as if it were missing.
func TestServersOfTheVolumeNow(t *testing.T) {
	s := newSite(t, 3)
	list := cluster.Membership{Version: 3, HighestID: 4, Servers: cluster.Members{
		{ID: 2, Client: "h2:7601", Peer: "h2:7801"}, {ID: 3, Client: "h3:7601", Peer: "h3:7801"}, {ID: 4, Client: "h4:7601", Peer: "h4:7801", Joining: true},
	}}
	text := cluster.MembersText(s.id, 4, list)
	for members, want := range map[string]string{
		text: "h2:7601 h3:7601", "": "h1:7601 h2:7601", "{": "h1:7601 h2:7601", cluster.MembersText(cluster.ID{4}, 4, list): "h1:7601 h2:7601",
		strings.Replace(text, "h2:7601", "h5:7601", 1): "h1:7601 h2:7601",
	} {
		s.file("MEMBERS", members)
		if got, _ := resolve(t, s.dir); strings.Join(got, " ") != want {
			t.Errorf("MEMBERS is %.60q: %v, want %s", members, got, want)
		}
		r, err := os.OpenRoot(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		s.file("ca.crt", string(s.a.Certificate))
		if _, got, _, err := join.InRoot(r); err != nil || strings.Join(got, " ") != want {
			t.Errorf("opened, MEMBERS is %.60q: %v, %v, want %s", members, got, err, want)
		}
		if err := errors.Join(r.Close(), os.Remove(filepath.Join(s.dir, "ca.crt"))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndpointsOfAnotherCluster have a server that is told over TLS asked over TLS.
func TestEndpointsOfAnotherCluster(t *testing.T) {
	_, secure := resolve(t, join.Text([]string{"h1:1"}, somePin))
	_, outside := resolve(t, "https://h1:1")
	addresses := []string{"h1:2", "h2:2"}
	for _, x := range []struct {
		name  string
		trust *join.Trust
		pin   string
		want  []string // nil = an error
	}{
		{"in plain text", nil, "", addresses},
		{"a pin", secure, somePin, []string{join.Text(addresses, somePin)}},
		{"a pin, told in plain text", nil, somePin, []string{join.Text(addresses, somePin)}},
		{"no pin", secure, "", nil},
		{"a bad pin", secure, "short", nil},
		{"certificates from outside", outside, "", []string{"https://h1:2", "https://h2:2"}},
	} {
		got, err := x.trust.Endpoints(addresses, x.pin)
		if (err != nil) != (x.want == nil) || err == nil && !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, error %v; want %v", x.name, got, err, x.want)
		}
	}
}

func TestIsSite(t *testing.T) {
	dir := t.TempDir()
	if join.IsSite([]string{dir}) {
		t.Error("an empty directory is a site")
	}
	if err := os.WriteFile(filepath.Join(dir, "SITE"), []byte(`{"cells":[{"path":"cells/0"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/cells/0": dir, "/cells/0/": dir, "/cells/1": "", "/cells/0/deeper": "", "/cells": ""} {
		if got := join.SiteDirectory([]string{dir + path}); got != want {
			t.Errorf("%s is of the site %q, want %q", path, got, want)
		}
	}
	t.Chdir(filepath.Dir(dir))
	if name := "./" + filepath.Base(dir); join.SiteDirectory([]string{name + "/cells/0"}) != name {
		t.Errorf("a relative path is of the site %q", join.SiteDirectory([]string{name + "/cells/0"}))
	}
	if !join.IsSite([]string{dir}) || join.IsSite([]string{dir, dir}) || join.IsSite([]string{"h1:7601"}) {
		t.Error("what is a site is not told from what is none")
	}
}
