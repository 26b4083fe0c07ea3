// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// audited keeps what it is told.
type audited struct {
	mu  sync.Mutex
	all []audit.Event
}

func (x *audited) Record(e audit.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, e)
}

// take returns what it was told since the last call.
func (x *audited) take() []audit.Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.all
	x.all = nil
	return all
}

// acquire returns a request for the lock l.
func acquire(client cluster.ClientID, id int) *locktable.Request {
	return &locktable.Request{Op: locktable.OpAcquire, Client: client, ID: cluster.RequestID(id), Lock: "l", TTL: time.Minute}
}

func executed(t *testing.T, b serving.Backend, q *locktable.Request) {
	t.Helper()
	if out, err := b.Do(t.Context(), q); err != nil || out.Status != cluster.StatusOK {
		t.Fatal(out, err)
	}
}

// Whoever takes something from somebody is told of, whichever way he comes.
func TestBreaksAreToldThroughEveryDoor(t *testing.T) {
	d := newDoors(t)
	for name, ask := range map[string]func(string, *ops.Operation) (cluster.Status, bool){
		"gRPC": d.gRPC, "calls": d.calls, "session": d.session, "HTTP": d.postedBreak,
	} {
		d.n++
		executed(t, d.b, acquire("holder", d.n))
		d.told.take()
		if got, has := ask("alice", ops.Named("break")); !has || got != cluster.StatusOK {
			t.Fatalf("%s: %v %v", name, got, has)
		}
		told := d.told.take()
		if len(told) != 1 {
			t.Fatalf("%s: the audit has %+v", name, told)
		}
		e := told[0]
		if e.From == "" {
			t.Errorf("%s: from %q", name, e.From)
		}
		e.From, e.Token, e.GraceMs, e.Message = "", 0, 0, ""
		want := audit.Event{Kind: audit.KindBreak, Identity: "user:alice", Via: "ticket", Lock: "l", Actor: "a", Reason: "r", Status: "OK"}
		if !equalEvents(e, want) {
			t.Errorf("%s: the audit has %+v, want %+v", name, e, want)
		}
	}
}

// postedBreak breaks the lock l over HTTP.
func (d *doors) postedBreak(who string, _ *ops.Operation) (cluster.Status, bool) {
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.http.URL+"/v1/break", strings.NewReader(`{"lock":"l","actor":"a","reason":"r"}`))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+who)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return cluster.StatusError, true
	}
	return cluster.StatusOK, true
}

func equalEvents(a, b audit.Event) bool {
	return string(a.AppendLine(nil)) == string(b.AppendLine(nil))
}

// loggedIn is what logins come to.
type loggedIn struct {
	c   *access.Caller
	err error
}

func (l loggedIn) Begin() (string, string, error) { return "nonce", "challenge", nil }
func (l loggedIn) Finish(context.Context, string, time.Duration) (string, *access.Caller, error) {
	return "hft_" + strings.Repeat("secret", 9), l.c, l.err
}

// handingOver is a server that hands over as it is told.
type handingOver struct {
	serving.Backend
	err error
}

func (b handingOver) Handover(context.Context, cluster.ServerID) (cluster.ServerID, error) {
	return 2, b.err
}

// What each kind of event says, by the service that every front end uses.
func TestEventsOfTheAudit(t *testing.T) {
	g, b, told := newCredentials(t), startPrimary(t), &audited{}
	until := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	from := &serving.KnownAddr{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 77}, TLS: true}
	as := func(who string) context.Context {
		return serving.WithRemote(serving.WithCaller(t.Context(), g.callers[who]), from)
	}
	for name, test := range map[string]struct {
		logins loggedIn
		b      serving.Backend
		do     func(*service.Service) error
		want   []audit.Event
	}{
		"a login": {logins: loggedIn{c: &access.Caller{Identity: "user:carol", Via: "filesystem", Expires: until}}, do: func(s *service.Service) error {
			_, err := s.Login(as(""), &pb.LoginRequest{})
			_, finishErr := s.Login(as(""), &pb.LoginRequest{Challenge: "challenge"})
			return errors.Join(err, finishErr)
		}, want: []audit.Event{{Kind: audit.KindLogin, Identity: "user:carol", Via: "filesystem", Status: "OK", Expires: &until}}},
		"a login that failed": {logins: loggedIn{err: &wire.Error{Status: cluster.StatusUnauthenticated, Message: "no directory"}}, do: func(s *service.Service) error {
			_, err := s.Login(as(""), &pb.LoginRequest{Challenge: "challenge"})
			return err
		}, want: []audit.Event{{Kind: audit.KindLoginFailed, Status: "UNAUTHENTICATED", Message: "no directory"}}},
		"a bad credential": {do: func(s *service.Service) error {
			_, err := s.Authenticate("hfk_"+strings.Repeat("secret", 9), from)
			return asOnly(err, cluster.StatusUnauthenticated)
		}, want: []audit.Event{{Kind: audit.KindCredential, Status: "UNAUTHENTICATED", Message: "no such credential"}}},
		"a revoked credential": {do: func(s *service.Service) error {
			_, err := s.Authenticate("fired", from)
			return asOnly(err, cluster.StatusUnauthenticated)
		}, want: []audit.Event{{Kind: audit.KindCredential, Identity: "service:fired", Via: "key", Status: "UNAUTHENTICATED", Message: "the key of service:fired was revoked"}}},
		"a handover": {b: handingOver{b, nil}, do: func(s *service.Service) error {
			_, err := s.Handover(as("root"), &pb.HandoverRequest{})
			return err
		}, want: []audit.Event{{Kind: audit.KindHandover, Identity: "user:root", To: 2, Status: "OK"}}},
		"a handover that failed": {b: handingOver{b, errors.New("nobody listens")}, do: func(s *service.Service) error {
			_, err := s.Handover(as("root"), &pb.HandoverRequest{})
			return err
		}, want: []audit.Event{{Kind: audit.KindHandover, Identity: "user:root", To: 2, Status: "ERROR", Message: "nobody listens"}}},
		"who asks what he may": {do: func(s *service.Service) error {
			r, err := s.WhoAmI(as("bob"), &pb.WhoAmIRequest{Verb: "break", Lock: "l"})
			if r.GetAllowed() {
				return errors.New("he may")
			}
			return err
		}},
		"whether strangers may do anything": {do: func(s *service.Service) error {
			if !s.DemandsIdentity() {
				return errors.New("they may")
			}
			return nil
		}},
		"a list, which leaves out what he may not read": {do: func(s *service.Service) error {
			_, err := s.ListLocks(as("bob"), &pb.ListLocksRequest{})
			return err
		}},
	} {
		s := service.New(cmpBackend(test.b, b), service.Options{Authenticator: g, Auditor: told, Logins: test.logins})
		told.take()
		if err := test.do(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := told.take()
		for i := range test.want {
			test.want[i].From = "10.0.0.9:77"
		}
		if !slices.EqualFunc(got, test.want, equalEvents) {
			t.Errorf("%s: the audit has %+v, want %+v", name, got, test.want)
		}
	}
}

// Who permitted a server to take over, or wanted to, is told.
func TestTakeoversAreAudited(t *testing.T) {
	g, told := newCredentials(t), &audited{}
	s := service.New(startPrimary(t), service.Options{Authenticator: g, Auditor: told})
	ctx := serving.WithCaller(t.Context(), g.callers["root"])
	for _, c := range []struct {
		server uint32
		want   audit.Event
	}{
		{0, audit.Event{Kind: audit.KindTakeover, Identity: "user:root", To: 1, Reason: "h2 and h3 burned", Status: "ERROR", Message: "refused: server 1 is primary"}},
		{2, audit.Event{Kind: audit.KindTakeover, Identity: "user:root", To: 1, Reason: "h2 and h3 burned", Status: "INVALID_ARGUMENT", Message: "this is server 1, and server 2 is to take over: ask that one, at its own address"}},
	} {
		told.take()
		a, err := s.Takeover(ctx, &pb.TakeoverRequest{Server: c.server, Reason: c.want.Reason})
		if err != nil || a.Message != c.want.Message {
			t.Errorf("takeover of server %d: %v, %v", c.server, a, err)
		}
		if got := told.take(); !slices.EqualFunc(got, []audit.Event{c.want}, equalEvents) {
			t.Errorf("the audit has %+v, want %+v", got, c.want)
		}
	}
}

// Who wanted to raise the feature level of the cluster is told, also where that was refused.
func TestUpgradesAreAudited(t *testing.T) {
	g, told := newCredentials(t), &audited{}
	s := service.New(startPrimary(t), service.Options{Authenticator: g, Auditor: told})
	told.take()
	if a, err := s.Upgrade(serving.WithCaller(t.Context(), g.callers["root"]), &pb.UpgradeRequest{Level: 4}); err != nil || a.Status != pb.Status_STATUS_ERROR {
		t.Errorf("upgraded: %v, %v", a, err)
	}
	want := []audit.Event{{Kind: audit.KindUpgrade, Identity: "user:root", Level: 4, Status: "ERROR", Message: "not yet: level 4"}}
	if got := told.take(); !slices.EqualFunc(got, want, equalEvents) {
		t.Errorf("the audit has %+v, want %+v", got, want)
	}
}

func cmpBackend(b, otherwise serving.Backend) serving.Backend {
	if b == nil {
		return otherwise
	}
	return b
}

// asOnly returns nil for an error with this status.
func asOnly(err error, want cluster.Status) error {
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Status == want {
		return nil
	}
	return errors.Join(errors.New("it was not refused"), err)
}

// Who uses what belongs to another identity is told of, though the rules let him: the primary refuses it.
func TestForeignGrantsAreTold(t *testing.T) {
	d := newDoors(t)
	d.g.set(t, &access.File{
		Admins: []access.AdminRule{{Who: []string{"user:admin"}}},
		Rules:  []access.Rule{{Who: []string{"user:alice", "user:bob"}, May: []access.Verb{access.Acquire, access.Read, access.Append}, Locks: []string{"**"}}},
	})
	as := func(who string) context.Context { return serving.WithCaller(t.Context(), d.g.callers[who]) }
	a, err := d.s.Execute(as("alice"), acquire("hers", 1))
	if err != nil || a.GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(a, err)
	}
	for name, do := range map[string]func() pb.Status{
		"release": func() pb.Status {
			a, _ := d.s.Execute(as("bob"), &locktable.Request{Op: locktable.OpRelease, Client: "his", ID: 1, Lock: "l", Token: cluster.Token(a.GetToken())})
			return a.GetStatus()
		},
		"renew": func() pb.Status {
			a, _ := d.s.Renew(as("bob"), &pb.RenewLeaseRequest{Lock: "l", Token: a.GetToken()})
			return a.GetStatus()
		},
		"keep alive": func() pb.Status {
			r, _ := d.s.KeepAlive(as("bob"), &pb.KeepAliveRequest{ClientId: "hers"})
			return r.GetStatus()
		},
	} {
		d.told.take()
		status := do()
		told := d.told.take()
		if status != pb.Status_STATUS_PERMISSION_DENIED || len(told) != 1 || told[0].Kind != audit.KindDenied || told[0].Identity != "user:bob" || told[0].Verb != string(access.Keep) {
			t.Errorf("%s: %v; the audit has %+v", name, status, told)
		}
	}
}
