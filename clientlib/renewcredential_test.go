// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/clientlib/credential"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// at is a connection whose other end has this address.
type at struct {
	net.Conn
	remote net.Addr
}

func (a at) RemoteAddr() net.Addr { return a.remote }

// shownTo notes what a client shows to a server, at connecting and later.
type shownTo struct {
	mu  sync.Mutex
	all []string
}

func (s *shownTo) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" {
		s.all = append(s.all, text)
	}
}

func (s *shownTo) texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// serve answers the settings of a client, and reads what comes then.
func (s *shownTo) serve(c net.Conn) {
	r := frames.NewReader(c, 1<<20)
	if r.Skip(frames.Preface) != nil {
		return
	}
	_, b, _, err := r.Next()
	settings := &pb.Settings{}
	if err != nil || proto.Unmarshal(b, settings) != nil {
		return
	}
	s.note(settings.GetCredential())
	b, _ = proto.Marshal(&pb.Settings{Version: 1, ServerId: 1, ClusterId: "c"})
	_, err = c.Write(frames.Append(nil, frames.Settings, b))
	for err == nil {
		var kind frames.Kind
		m := &pb.SessionRequest{}
		if kind, b, _, err = r.Next(); err == nil && kind == frames.Message && proto.Unmarshal(b, m) == nil {
			s.note(m.GetCredential())
		}
	}
}

// shownOver connects a client, over pipes that look like connections to this address, and returns what it shows.
func shownOver(t *testing.T, remote net.Addr, source func(context.Context, string) (string, error)) (*shownTo, *Client, error) {
	t.Helper()
	shown := &shownTo{}
	c, err := New(Options{Endpoints: []string{"s:1"}, ClientID: "me", Credential: source, Dialer: func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		go shown.serve(there)
		return at{here, remote}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.connect(t.Context(), c.servers.mu.all[0])
	return shown, c, err
}

// A credential goes with the settings, and to no other host in plain text.
func TestCredentialIsShown(t *testing.T) {
	for ip, want := range map[string]bool{"127.0.0.1": true, "10.0.0.1": false} {
		synctest.Test(t, func(t *testing.T) {
			shown, c, err := shownOver(t, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, func(context.Context, string) (string, error) { return "hfk_verysecret", nil })
			switch got := shown.texts(); {
			case want && (err != nil || !slices.Equal(got, []string{"hfk_verysecret"})):
				t.Errorf("%s: %v, %v", ip, got, err)
			case !want && (err == nil || len(got) > 0 || !strings.Contains(err.Error(), credential.ErrPlainText.Error()) || strings.Contains(err.Error(), "verysecret")):
				t.Errorf("%s: %v, %v", ip, got, err)
			}
			c.Close() //nolint:errcheck // the server answers nothing
		})
	}
}

// ticketUntil is a ticket that expires at a time, for who does not verify it.
func ticketUntil(end time.Time) string {
	return "hft_e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix())) + ".x"
}

// A ticket is replaced in the connection before it expires, by another one if there is one.
func TestCredentialIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now := ticketUntil(time.Now().Add(time.Hour))
		shown, c, err := shownOver(t, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, func(context.Context, string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return now, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{now}
		time.Sleep(31 * time.Minute) // it asks, and there is no other one
		synctest.Wait()
		mu.Lock()
		now = ticketUntil(time.Now().Add(time.Hour))
		mu.Unlock()
		want = append(want, now)
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		if got := shown.texts(); !slices.Equal(got, want) {
			t.Errorf("after 47 minutes: %v, want %v", got, want)
		}
		mu.Lock()
		now = "hfk_lasts"
		mu.Unlock()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := shown.texts(); !slices.Equal(got, append(want, "hfk_lasts")) {
			t.Errorf("after a day: %v", got)
		}
		c.Close() //nolint:errcheck // the server answers nothing
	})
}
