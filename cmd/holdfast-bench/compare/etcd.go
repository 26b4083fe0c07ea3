// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	etcdMembers = 3
	// leaseSeconds is the lease of peers' locks, the default of ours.
	leaseSeconds = 30
	// startLimit is how long a peer may take to serve, and startPoll how often it is asked.
	startLimit = 30 * time.Second
	startPoll  = 50 * time.Millisecond
	// connectors is how many clients are closed at a time.
	connectors = 64
	// patientAttempt and hastyAttempt bound one call of a locker.
	patientAttempt = 10 * time.Second
	hastyAttempt   = 300 * time.Millisecond
)

const etcdAdvice = "apt-get install etcd-server has an old one; a new one is built with " +
	"mkdir e && cd e && go mod init e && go get go.etcd.io/etcd/server/v3@latest && go build -o etcd go.etcd.io/etcd/server/v3, then --etcd e/etcd"

// etcd is three members.
type etcd struct {
	members []*etcdMember
	client  *clientv3.Client
	name    string
	attempt time.Duration // 0 = as long as the load lasts
}

type etcdMember struct {
	*servers.Process
	command  servers.Command
	endpoint string
}

func startEtcd(ctx context.Context, o *options, dir string) (_ service, version string, err error) {
	binary, err := exec.LookPath(o.etcd)
	if err != nil {
		return nil, "", &missingError{o.etcd, etcdAdvice}
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, "", err
	}
	addrs, err := servers.FreeAddresses(2 * etcdMembers)
	if err != nil {
		return nil, "", err
	}
	e := &etcd{name: "etcd"}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	var all []string
	for i := range etcdMembers {
		all = append(all, fmt.Sprintf("m%d=http://%s", i, addrs[etcdMembers+i]))
	}
	for i := range etcdMembers {
		client, peer := "http://"+addrs[i], "http://"+addrs[etcdMembers+i]
		m := &etcdMember{endpoint: addrs[i], command: servers.Command{
			Name: fmt.Sprintf("etcd m%d", i), Log: filepath.Join(dir, fmt.Sprintf("etcd-%d.log", i)),
			Args: []string{
				binary, "--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(dir, fmt.Sprintf("etcd-%d", i)),
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
				"--quota-backend-bytes", fmt.Sprint(int64(4) << 30),
				"--auto-compaction-mode", "periodic", "--auto-compaction-retention", "5m", "--log-level", "warn",
			},
		}}
		if m.Process, err = m.command.Start(); err != nil {
			return nil, "", err
		}
		e.members = append(e.members, m)
	}
	if e.client, err = e.newClient(); err != nil {
		return nil, "", err
	}
	_, version, err = e.awaitHealthy(ctx)
	return e, version, err
}

func (e *etcd) Name() string { return e.name }

func (e *etcd) PIDs() (all []int) {
	for _, m := range e.members {
		all = append(all, m.PID())
	}
	return all
}

func (e *etcd) Close() error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	var all []*servers.Process
	for _, m := range e.members {
		all = append(all, m.Process)
	}
	return errors.Join(err, servers.Stop(all, syscall.SIGTERM))
}

// hasty is the same service for clients that soon give a call up.
func (e *etcd) hasty() *etcd {
	h := *e
	h.name, h.attempt = "etcd-hasty", hastyAttempt
	return &h
}

// awaitHealthy waits until all members agree on a leader, and returns its place.
func (e *etcd) awaitHealthy(ctx context.Context) (leader int, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if leader, version, err = e.leader(ctx); err == nil {
			return leader, version, nil
		}
		if bench.Rest(ctx, startPoll) != nil {
			return 0, "", fmt.Errorf("etcd is not well after %v: %w; the end of a log:\n%s", startLimit, err, e.members[0].Tail())
		}
	}
}

func (e *etcd) leader(ctx context.Context) (place int, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	place, leads := -1, map[uint64]bool{}
	for i, m := range e.members {
		s, err := e.client.Status(ctx, m.endpoint)
		if err != nil {
			return 0, "", err
		}
		leads[s.Leader], version = true, s.Version
		if s.Leader == s.Header.MemberId {
			place = i
		}
	}
	if place < 0 || len(leads) != 1 {
		return 0, "", errors.New("the members know no leader, or several")
	}
	return place, version, nil
}

func (e *etcd) Kill(ctx context.Context) (bench.Strike, func() error, error) {
	leader, _, err := e.awaitHealthy(ctx)
	if err != nil {
		return nil, nil, err
	}
	m := e.members[leader]
	strike := func(context.Context) (time.Time, error) { return time.Now(), m.Signal(syscall.SIGKILL) }
	mend := func() error {
		err := m.Kill()
		p, startErr := m.command.Start()
		if startErr == nil {
			m.Process = p
		}
		return errors.Join(err, startErr)
	}
	return strike, mend, nil
}

// Handover moves the leadership to the next member.
func (e *etcd) Handover(ctx context.Context) (bench.Strike, error) {
	leader, _, err := e.awaitHealthy(ctx)
	if err != nil {
		return nil, err
	}
	next := e.members[(leader+1)%etcdMembers]
	s, err := e.client.Status(ctx, next.endpoint)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (_ time.Time, err error) {
		// MoveLeader goes to whichever member the client talks to; it must be the leader.
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.members[leader].endpoint}, DialTimeout: startLimit, Logger: zap.NewNop()})
		if err != nil {
			return time.Time{}, err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		began := time.Now()
		_, err = c.MoveLeader(ctx, s.Header.MemberId)
		return began, err
	}, nil
}

// etcdClients are the clients of one load.
type etcdClients struct {
	*etcd
	clients []*clientv3.Client
}

// Clients makes clients that know all members. Its mutexes wait in any case.
func (e *etcd) Clients(_ context.Context, n int, _ time.Duration) (service, error) {
	all := &etcdClients{etcd: e}
	for range n {
		c, err := e.newClient()
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all.clients = append(all.clients, c)
	}
	return all, nil
}

func (e *etcd) newClient() (*clientv3.Client, error) {
	var endpoints []string
	for _, m := range e.members {
		endpoints = append(endpoints, m.endpoint)
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: startLimit, Logger: zap.NewNop()})
}

// Locker has a session of its own, and its share of the clients.
func (e *etcdClients) Locker(_ context.Context, worker int, _ bench.Mode) (bench.Locker, error) {
	return e.locker(e.clients[worker%len(e.clients)])
}

// Close closes the clients; the members go on.
func (e *etcdClients) Close() error {
	return bench.Each(len(e.clients), connectors, func(i int) error { return e.clients[i].Close() })
}

// Locker has a session of its own, and the client of all.
func (e *etcd) Locker(_ context.Context, _ int, _ bench.Mode) (bench.Locker, error) {
	return e.locker(e.client)
}

func (e *etcd) locker(c *clientv3.Client) (bench.Locker, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(leaseSeconds))
	if err != nil {
		return nil, err
	}
	l := &etcdLocker{client: c, session: s, attempt: e.attempt}
	if l.attempt == 0 {
		l.attempt = patientAttempt
	}
	return l, nil
}

// Watch watches the keys that mutexes make and remove: below each name, one for each
// session.
func (e *etcd) Watch(ctx context.Context, v bench.View, seen func(bench.Seen)) (func() error, error) {
	below := "/" + v.Prefix + "/"
	if v.Key != "" {
		below = "/" + v.Key + "/"
	}
	events := e.client.Watch(clientv3.WithRequireLeader(ctx), below, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r, ok := <-events; !ok || r.Err() != nil {
		return nil, fmt.Errorf("watch: %w", errors.Join(r.Err(), context.Cause(ctx)))
	}
	ended := make(chan error, 1)
	go func() {
		var err error
		for r := range events {
			now := time.Now()
			err = errors.Join(err, r.Err())
			for _, v := range r.Events {
				key := strings.TrimPrefix(string(v.Kv.Key), "/")
				seen(bench.Seen{Key: key[:strings.LastIndexByte(key, '/')], At: now, Order: uint64(v.Kv.ModRevision)})
			}
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	return func() error { return <-ended }, nil
}

type etcdLocker struct {
	client  *clientv3.Client
	session *concurrency.Session
	attempt time.Duration
	mutex   *concurrency.Mutex // that is held
	records int
}

func (l *etcdLocker) Acquire(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, l.attempt)
	defer cancel()
	l.mutex = concurrency.NewMutex(l.session, "/"+key)
	return l.mutex.Lock(ctx)
}

func (l *etcdLocker) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.attempt)
	defer cancel()
	return l.mutex.Unlock(ctx)
}

func (l *etcdLocker) Append(ctx context.Context, file string, data []byte) error {
	key := fmt.Sprintf("/files/%s/%010d", file, l.records)
	l.records++
	r, err := l.client.Txn(ctx).If(l.mutex.IsOwner()).Then(clientv3.OpPut(key, string(data))).Commit()
	if err == nil && !r.Succeeded {
		err = errors.New("etcd: the lock is lost")
	}
	return err
}

func (l *etcdLocker) Close() error { return l.session.Close() }
