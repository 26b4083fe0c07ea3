// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	postgresConnections = 600
	postgresAdvice      = "apt-get install postgresql, or give --postgres"

	postgresTables = `
create table locks (name text primary key, token text not null, until timestamptz not null);
create table records (file text not null, data bytea not null)`
	// An acquire takes over a row whose lease has run out.
	postgresAcquire = `insert into locks values ($1, $2, now() + $3) on conflict (name) do update
set token = excluded.token, until = excluded.until where locks.until < now()`
	postgresRelease = `delete from locks where name = $1 and token = $2`
	postgresAppend  = `insert into records select $1, $2 from locks where name = $3 and token = $4 for share`
)

// postgres is one server with a table of locks.
type postgres struct {
	process *servers.Process
	url     string
}

func startPostgres(ctx context.Context, o *options, dir string) (_ service, version string, err error) {
	bin, err := postgresDir(o.pg)
	if err != nil {
		return nil, "", err
	}
	as, data, err := postgresUser(dir)
	if err != nil {
		return nil, "", err
	}
	addrs, err := servers.FreeAddresses(1)
	if err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		return nil, "", err
	}
	cluster := filepath.Join(data, "cluster")
	initdb := servers.Command{Dir: data, User: as, Args: []string{filepath.Join(bin, "initdb"), "-D", cluster, "-U", "bench", "-A", "trust", "-E", "UTF8"}}
	if err := initdb.Run(); err != nil {
		return nil, "", fmt.Errorf("%w: can that user get to %s? Give another --dir", err, data)
	}
	p := &postgres{url: fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", addrs[0])}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	args := []string{filepath.Join(bin, "postgres"), "-D", cluster}
	for _, s := range []string{
		"listen_addresses=" + host, "port=" + port, "unix_socket_directories=", "fsync=on", "synchronous_commit=on",
		"shared_buffers=256MB", fmt.Sprintf("max_connections=%d", postgresConnections),
	} {
		args = append(args, "-c", s)
	}
	if p.process, err = (servers.Command{Name: "postgres", Args: args, Dir: data, User: as, Log: filepath.Join(dir, "postgres.log")}).Start(); err != nil {
		return nil, "", err
	}
	if err := await(ctx, func(ctx context.Context) (err error) {
		version, err = p.prepare(ctx)
		return err
	}); err != nil {
		return nil, "", fmt.Errorf("%w; the end of its log:\n%s", err, p.process.Tail())
	}
	return p, version, nil
}

// postgresDir is where the binaries are: Debian has them out of the way of PATH.
func postgresDir(asked string) (string, error) {
	candidates := []string{asked}
	if asked == "" {
		candidates = nil
		if path, err := exec.LookPath("postgres"); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				candidates = append(candidates, filepath.Dir(path))
			}
		}
		found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
		if err != nil {
			return "", err
		}
		for i := range found { // the newest first
			candidates = append(candidates, found[len(found)-1-i])
		}
	}
	for _, dir := range candidates {
		_, err1 := exec.LookPath(filepath.Join(dir, "initdb"))
		_, err2 := exec.LookPath(filepath.Join(dir, "postgres"))
		if err1 == nil && err2 == nil {
			return filepath.Abs(dir)
		}
	}
	return "", &missingError{"postgres with initdb", postgresAdvice}
}

// postgresUser makes a directory for the server, and returns the user to run it: it refuses root.
func postgresUser(dir string) (as *syscall.Credential, data string, err error) {
	data = filepath.Join(dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, "", err
	}
	if os.Geteuid() != 0 {
		return nil, data, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, "", &missingError{"a user postgres or nobody", "PostgreSQL refuses to run as root: run this program as somebody else"}
		}
	}
	uid, err1 := strconv.ParseUint(who.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(err1, err2, os.Chmod(dir, 0o755), os.Chown(data, int(uid), int(gid))); err != nil {
		return nil, "", err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, data, nil
}

// prepare makes the tables and asks whether what is committed is synced.
func (p *postgres) prepare(ctx context.Context) (version string, err error) {
	c, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	var fsync, commit string
	err = c.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit'), version()").Scan(&fsync, &commit, &version)
	if err != nil {
		return "", err
	}
	if fsync != "on" || commit != "on" {
		return "", fmt.Errorf("fsync is %s and synchronous_commit %s", fsync, commit)
	}
	_, err = c.Exec(ctx, postgresTables)
	return version, err
}

func (p *postgres) Name() string { return "postgres" }
func (p *postgres) PIDs() []int  { return []int{p.process.PID()} }

// Close ends it without waiting for clients.
func (p *postgres) Close() error {
	if p.process == nil {
		return nil
	}
	return servers.Stop([]*servers.Process{p.process}, syscall.SIGINT)
}

// Locker has a connection of its own.
func (p *postgres) Locker(ctx context.Context, worker int, _ bench.Mode) (bench.Locker, error) {
	c, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	return &postgresLocker{conn: c, token: fmt.Sprintf("%d-%d", worker, time.Now().UnixNano())}, nil
}

type postgresLocker struct {
	conn  *pgx.Conn
	token string
	key   string // that is held
}

func (l *postgresLocker) Acquire(ctx context.Context, key string) error {
	l.key = key
	return poll(ctx, func() (bool, error) {
		done, err := l.conn.Exec(ctx, postgresAcquire, key, l.token, leaseSeconds*time.Second)
		return done.RowsAffected() == 1, err
	})
}

func (l *postgresLocker) Release(ctx context.Context) error {
	return l.one(ctx, postgresRelease, l.key, l.token)
}

func (l *postgresLocker) Append(ctx context.Context, file string, data []byte) error {
	return l.one(ctx, postgresAppend, file, data, l.key, l.token)
}

// one executes a statement, and returns an error unless it concerns exactly one row.
func (l *postgresLocker) one(ctx context.Context, sql string, args ...any) error {
	done, err := l.conn.Exec(ctx, sql, args...)
	if err == nil && done.RowsAffected() != 1 {
		err = errors.New("postgres: the lock is lost")
	}
	return err
}

func (l *postgresLocker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return l.conn.Close(ctx)
}
