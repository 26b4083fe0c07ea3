// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
	return name
}

// The first that is there counts, and a file of tickets that others may read is refused.
func TestFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "credentials", "holdfast.key"), "hfk_service\n", 0o440)
	write(t, filepath.Join(dir, ".config", "holdfast", "c1.ticket"), "hft_ticket\n", 0o600)
	write(t, filepath.Join(dir, ".config", "holdfast", "c2.ticket"), "hft_ticket\n", 0o644)
	write(t, filepath.Join(dir, "xdg", "holdfast", "c1.ticket"), "hft_xdg", 0o600)
	file := write(t, filepath.Join(dir, "file"), " hfk_file \n", 0o644)
	bad := write(t, filepath.Join(dir, "bad"), "verysecret", 0o600)
	config := write(t, filepath.Join(dir, "config.toml"), fmt.Sprintf("key-file = %q\n", file), 0o600)
	type env = map[string]string
	for name, x := range map[string]struct {
		env     env
		cluster string
		want    string
		err     string
	}{
		"nothing":                  {env{}, "c1", "", ""},
		"a key":                    {env{"HOLDFAST_KEY": "hfk_env", "HOLDFAST_KEY_FILE": bad}, "c1", "hfk_env", ""},
		"a key file":               {env{"HOLDFAST_KEY_FILE": file, "CREDENTIALS_DIRECTORY": dir}, "c1", "hfk_file", ""},
		"no key file":              {env{"HOLDFAST_KEY_FILE": dir + "/none"}, "c1", "", "no such file"},
		"a service's":              {env{"CREDENTIALS_DIRECTORY": dir + "/credentials", "HOME": dir}, "c1", "hfk_service", ""},
		"a service's without":      {env{"CREDENTIALS_DIRECTORY": dir, "HOME": dir}, "c1", "hft_ticket", ""},
		"a configured key file":    {env{"HOLDFAST_CLIENT_CONFIG": config, "HOME": dir}, "c1", "hfk_file", ""},
		"a key over it":            {env{"HOLDFAST_CLIENT_CONFIG": config, "CREDENTIALS_DIRECTORY": dir + "/credentials"}, "c1", "hfk_service", ""},
		"a mistake in the file":    {env{"HOLDFAST_CLIENT_CONFIG": file, "HOME": dir}, "c1", "", "file:1:"},
		"a ticket":                 {env{"HOME": dir}, "c1", "hft_ticket", ""},
		"a ticket elsewhere":       {env{"HOME": dir, "XDG_CONFIG_HOME": dir + "/xdg"}, "c1", "hft_xdg", ""},
		"another cluster's ticket": {env{"HOME": dir}, "c3", "", ""},
		"of no known cluster":      {env{"HOME": dir}, "", "", ""},
		"one that others may read": {env{"HOME": dir}, "c2", "", "others may read it"},
		"no credential":            {env{"HOLDFAST_KEY_FILE": bad}, "c1", "", "has no credential"},
		"two words":                {env{"HOLDFAST_KEY": "hfk_a verysecret"}, "c1", "", "HOLDFAST_KEY has no credential"},
		"too long":                 {env{"HOLDFAST_KEY": "hfk_" + strings.Repeat("verysecret", 1000)}, "c1", "", "has no credential"},
	} {
		got, err := credential.FromEnvironment(func(k string) string { return x.env[k] }, nil)(t.Context(), x.cluster)
		if got != x.want || (err == nil) != (x.err == "") || err != nil && (!strings.Contains(err.Error(), x.err) || strings.Contains(err.Error(), "verysecret")) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, x.want, x.err)
		}
	}
}

// Beside a certificate no ticket is made, or taken; a key that is named counts. A certificate that cannot be read is told.
func TestBesideACertificate(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".config", "holdfast", "c1.ticket"), "hft_ticket\n", 0o600)
	own := func(context.Context, string) (string, error) { return "hft_own", nil }
	there := func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	none := func() (*tls.Certificate, error) { return nil, nil }
	broken := func() (*tls.Certificate, error) { return nil, errors.New("it is broken") }
	for name, x := range map[string]struct {
		key    string
		before credential.Source
		c      func() (*tls.Certificate, error)
		want   string
		err    string
	}{
		"a ticket":               {"", nil, nil, "hft_ticket", ""},
		"beside none":            {"", nil, none, "hft_ticket", ""},
		"beside one":             {"", nil, there, "", ""},
		"one's own":              {"", own, none, "hft_own", ""},
		"one's own, beside one":  {"", own, there, "", ""},
		"a key, beside one":      {"hfk_key", own, there, "hfk_key", ""},
		"beside one that is bad": {"", own, broken, "", "it is broken"},
	} {
		env := map[string]string{"HOME": dir, "HOLDFAST_KEY": x.key}
		got, err := credential.FromEnvironment(func(k string) string { return env[k] }, x.before).Beside(x.c)(t.Context(), "c1")
		if got != x.want || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, x.want)
		}
	}
	if credential.Source(nil).Beside(there) != nil {
		t.Error("who shows no credential shows one")
	}
}

// addressed is a connection with this other end.
type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }
func (a addressed) Close() error         { return nil }

// In plain text, a credential goes to this host only.
func TestPlainText(t *testing.T) {
	s := credential.Source(func(context.Context, string) (string, error) { return "hfk_verysecret", nil })
	none := credential.Source(func(context.Context, string) (string, error) { return "", nil })
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7601} }
	for own, all := range map[bool][]net.Addr{
		true:  {tcp("127.0.0.1"), tcp("::1"), tcp("127.3.2.1"), &net.UnixAddr{Name: "/x", Net: "unix"}},
		false: {tcp("10.0.0.1"), tcp("fe80::1"), tcp("0.0.0.0"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil},
	} {
		for _, a := range all {
			c := addressed{remote: a}
			text, err := s.For(t.Context(), c)
			if own != (text == "hfk_verysecret") || own != (err == nil) || !own && (!errors.Is(err, credential.ErrPlainText) || strings.Contains(err.Error(), "verysecret")) {
				t.Errorf("%v: %q, %v", a, text, err)
			}
			dial := func(context.Context, string) (net.Conn, error) { return c, nil }
			b := s.Bearer()
			_, err = b.Dialer(dial)(t.Context(), "x")
			m, _ := b.GetRequestMetadata(t.Context())
			if own != (err == nil) || own != (m["authorization"] == "Bearer hfk_verysecret") {
				t.Errorf("%v: %v, %v", a, m, err)
			}
			if text, err := none.For(t.Context(), c); text != "" || err != nil {
				t.Errorf("no credential: %q, %v", text, err)
			}
		}
	}
	if text, err := credential.Source(nil).For(t.Context(), addressed{remote: tcp("10.0.0.1")}); text != "" || err != nil {
		t.Error(text, err)
	}
}

func TestExpiry(t *testing.T) {
	for text, want := range map[string]time.Time{
		"hft_e30.eyJleHAiOjEwMH0.x": time.Unix(100, 0), "hft_e30.e30.x": {}, "hft_x": {}, "hfk_e30.eyJleHAiOjEwMH0.x": {}, "": {}, "hft_e30.!.x": {},
	} {
		if got := credential.Expiry(text); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
