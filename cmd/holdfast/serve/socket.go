// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/accounts"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/conns"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// socketMode lets every user of the host connect: the kernel says who it is.
	socketMode = 0o666
	// maxIdentifying bounds the connections whose user is being found out.
	maxIdentifying = 64
	// maxGroups is the most groups that a process has.
	maxGroups = 1 << 16
	// socketPause is the pause after the system had no connection for an Accept.
	socketPause = 100 * time.Millisecond
)

// listenSocket listens on a Unix socket. One that a process left which is gone is replaced.
func listenSocket(path string) (*net.UnixListener, error) {
	at := &net.UnixAddr{Name: path, Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		c, dialErr := net.DialUnix("unix", nil, at)
		if dialErr == nil {
			c.Close() //nolint:errcheck // nothing was said
		}
		info, statErr := os.Lstat(path)
		if errors.Is(dialErr, syscall.ECONNREFUSED) && statErr == nil && info.Mode().Type() == fs.ModeSocket && os.Remove(path) == nil {
			l, err = net.ListenUnix("unix", at)
		}
	}
	if err != nil {
		return nil, listenError("socket", path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("let users connect to the socket: %w", err), l.Close())
	}
	return l, nil
}

// namesOf finds out the account of a process with this user and these groups.
type namesOf func(ctx context.Context, uid uint32, groups []uint32) (accounts.Account, error)

// socketListener accepts connections of a Unix socket, and finds out whose they are. Their addresses say it.
type socketListener struct {
	*conns.Listener
	socket *net.UnixListener
	names  namesOf
	log    zerolog.Logger
	places chan struct{}
	failed conns.Refusals
}

func newSocketListener(l *net.UnixListener, names namesOf, log zerolog.Logger) *socketListener {
	s := &socketListener{Listener: conns.NewListener(), socket: l, names: names, log: log, places: make(chan struct{}, maxIdentifying)}
	go s.run()
	return s
}

// Addr implements net.Listener.
func (s *socketListener) Addr() net.Addr { return s.socket.Addr() }

// Close implements net.Listener.
func (s *socketListener) Close() error { return errors.Join(s.Listener.Close(), s.socket.Close()) }

// run accepts until the socket is closed.
func (s *socketListener) run() {
	for {
		c, err := s.socket.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			s.log.Warn().Err(err).Stringer("address", s.Addr()).Msg("a connection was not taken")
			<-time.After(socketPause)
			continue
		}
		s.places <- struct{}{}
		go func() {
			known := s.identify(c)
			<-s.places
			s.Put(known)
		}()
	}
}

// identify returns a connection whose address says whose it is. It is nobody's where that cannot be found out.
func (s *socketListener) identify(c *net.UnixConn) net.Conn {
	x := &socketConn{c, &serving.KnownAddr{Addr: s.socket.Addr()}}
	uid, groups, err := peerOf(c)
	if err == nil {
		var a accounts.Account
		if a, err = s.names(context.Background(), uid, groups); err == nil {
			x.from.Caller = &access.Caller{Identity: a.Identity, Groups: a.Groups, Via: "socket", Issued: time.Now()}
		}
	}
	if err != nil {
		if n := s.failed.Count(refusedEvery); n > 0 {
			s.log.Warn().Err(err).Uint32("user", uid).Int("connections", n).Msg("it is not known whose a connection to the socket is: it needs a credential")
		}
	}
	return x
}

// socketConn is a connection whose user is known, if Caller is not nil.
type socketConn struct {
	*net.UnixConn
	from *serving.KnownAddr
}

// RemoteAddr implements net.Conn.
func (c *socketConn) RemoteAddr() net.Addr { return c.from }

// peerOf returns the user and groups of the process that connected, as they were then.
func peerOf(c *net.UnixConn) (uid uint32, groups []uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var of *unix.Ucred
		if of, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed != nil {
			return
		}
		uid = of.Uid
		groups, failed = peerGroups(fd)
		groups = append(groups, of.Gid)
	})
	return uid, groups, errors.Join(err, failed)
}

// peerGroups returns the groups of the process beside its first one.
func peerGroups(fd uintptr) ([]uint32, error) {
	for n := 64; ; n = maxGroups {
		groups := make([]uint32, n)
		size := uint32(n) * uint32(unsafe.Sizeof(groups[0]))
		_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case e == 0:
			return groups[:size/uint32(unsafe.Sizeof(groups[0]))], nil
		case e != unix.ERANGE || n == maxGroups:
			return nil, fmt.Errorf("groups of the other side of the socket: %w", e)
		}
	}
}
