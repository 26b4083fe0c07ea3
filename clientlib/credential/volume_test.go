// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/login"
)

func ticketUntil(end time.Time) string {
	return "hft_e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix())) + ".x"
}

// A login is made once for many connections, again near the end of its ticket, and after a failure not at once.
func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		made := 0
		l := &logins{ask: func(context.Context, string, time.Duration) (*login.Ticket, error) {
			time.Sleep(time.Second)
			made++
			return &login.Ticket{Text: fmt.Sprint("hft_", made), Cluster: "c", Expires: time.Now().Add(time.Hour)}, fails
		}}
		wants := func(ctx context.Context, cluster, want string) {
			t.Helper()
			if text, err := l.get(ctx, cluster); text != want || (err != nil) != (ctx.Err() != nil) {
				t.Errorf("got %q, %v; want %q", text, err, want)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wants(short, "c", "") // and it goes on
		for range 3 {
			go l.get(t.Context(), "c") //nolint:errcheck // they wait for the same
		}
		wants(t.Context(), "c", "hft_1")
		wants(t.Context(), "c", "hft_1")
		time.Sleep(time.Hour - nearEnd)
		wants(t.Context(), "c", "hft_2")
		wants(t.Context(), "other", "") // which it cannot get
		fails = errors.New("off")
		time.Sleep(time.Hour)
		before := made
		wants(t.Context(), "c", "")
		wants(t.Context(), "c", "")
		if made != before+1 {
			t.Errorf("%d logins", made-before)
		}
		time.Sleep(againAfter)
		fails = nil
		if text, err := l.get(t.Context(), "c"); text == "" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
	if text, err := (*logins)(nil).get(t.Context(), "c"); text != "" || err != nil {
		t.Error(text, err)
	}
}

// A ticket in the file counts until its end is near; then a login gets a new one, which is to be kept.
func TestFileBeforeLogin(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string { return map[string]string{"HOME": home}[name] }
	name := TicketFile(env, "c")
	fresh, over := ticketUntil(time.Now().Add(time.Hour)), ticketUntil(time.Now().Add(-time.Hour))
	var fails error
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	kept := ""
	l := &logins{keep: func(t *login.Ticket) { kept = t.Text }, ask: func(context.Context, string, time.Duration) (*login.Ticket, error) {
		return &login.Ticket{Text: fresh, Cluster: "c", Expires: time.Now().Add(time.Hour)}, fails
	}}
	s := FromEnvironment(env, nil)
	at := Source(func(ctx context.Context, cluster string) (string, error) {
		return s(context.WithValue(ctx, volumeKey{}, l), cluster)
	})
	wants := func(s Source, cluster, want string) {
		t.Helper()
		if text, err := s(t.Context(), cluster); text != want || err != nil {
			t.Errorf("got %q, %v; want %q", text, err, want)
		}
	}
	wants(at, "", "")
	write(over)
	wants(s, "c", over)
	fails = errors.New("off")
	wants(at, "c", over) // it still proves whose a lock is
	fails, l.failed = nil, time.Time{}
	wants(at, "c", fresh)
	if kept != fresh {
		t.Errorf("%q is to be kept", kept)
	}
	write(fresh)
	wants(s, "c", fresh)
}
