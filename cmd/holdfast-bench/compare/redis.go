// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/servers"
)

const (
	redisDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`
	redisAppend = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("append", KEYS[2], ARGV[2]) else return 0 end`
)

// redisServer is one Redis that syncs each answer to disk.
type redisServer struct {
	process *servers.Process
	client  *redis.Client
	// Scripts go by their hashes.
	remove, append *redis.Script
}

func startRedis(ctx context.Context, o *options, dir string) (_ service, version string, err error) {
	binary, err := exec.LookPath(o.redis)
	if err != nil {
		return nil, "", &missingError{o.redis, "apt-get install redis-server, or give --redis"}
	}
	addrs, err := servers.FreeAddresses(1)
	if err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "redis")
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, "", err
	}
	r := &redisServer{
		remove: redis.NewScript(redisDelete), append: redis.NewScript(redisAppend),
		// The pool is never short: each worker keeps a connection.
		client: redis.NewClient(&redis.Options{Addr: addrs[0], PoolSize: 4096, MaxRetries: -1}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.process, err = servers.Command{
		Name: "redis", Log: filepath.Join(dir, "redis.log"),
		Args: []string{binary, "--bind", host, "--port", port, "--dir", data, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"},
	}.Start()
	if err != nil {
		return nil, "", err
	}
	if err := await(ctx, func(ctx context.Context) error { return r.client.Ping(ctx).Err() }); err != nil {
		return nil, "", fmt.Errorf("%w; the end of its log:\n%s", err, r.process.Tail())
	}
	// What it is set to, it says itself.
	set, err := r.client.ConfigGet(ctx, "appendfsync").Result()
	if err != nil || set["appendfsync"] != "always" {
		return nil, "", fmt.Errorf("appendfsync is %q (%w)", set["appendfsync"], err)
	}
	out, err := exec.Command(binary, "--version").Output()
	return r, string(out[:max(0, len(out)-1)]), err
}

func (r *redisServer) Name() string { return "redis" }
func (r *redisServer) PIDs() []int  { return []int{r.process.PID()} }

func (r *redisServer) Close() error {
	err := r.client.Close()
	if r.process != nil {
		err = errors.Join(err, servers.Stop([]*servers.Process{r.process}, syscall.SIGTERM))
	}
	return err
}

// Locker has a connection of its own.
func (r *redisServer) Locker(ctx context.Context, worker int, _ bench.Mode) (bench.Locker, error) {
	l := &redisLocker{server: r, conn: r.client.Conn(), token: fmt.Sprintf("%d-%d", worker, time.Now().UnixNano())}
	if err := errors.Join(r.remove.Load(ctx, l.conn).Err(), r.append.Load(ctx, l.conn).Err()); err != nil {
		return nil, errors.Join(err, l.conn.Close())
	}
	return l, nil
}

type redisLocker struct {
	server *redisServer
	conn   *redis.Conn
	token  string
	key    string // that is held
}

func (l *redisLocker) Acquire(ctx context.Context, key string) error {
	l.key = key
	return poll(ctx, func() (bool, error) { return l.conn.SetNX(ctx, key, l.token, leaseSeconds*time.Second).Result() })
}

func (l *redisLocker) Release(ctx context.Context) error {
	n, err := l.server.remove.EvalSha(ctx, l.conn, []string{l.key}, l.token).Int()
	if err == nil && n != 1 {
		err = errors.New("redis: the lock is lost")
	}
	return err
}

func (l *redisLocker) Append(ctx context.Context, file string, data []byte) error {
	n, err := l.server.append.EvalSha(ctx, l.conn, []string{l.key, "file/" + file}, l.token, data).Int()
	if err == nil && n == 0 {
		err = errors.New("redis: the lock is lost")
	}
	return err
}

func (l *redisLocker) Close() error { return l.conn.Close() }
