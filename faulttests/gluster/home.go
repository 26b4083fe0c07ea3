// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// homePrefix begins the names of the directories that Start makes.
const homePrefix = "holdfast-gluster-"

// makeHome makes the directory of a volume and locks it while the test lives.
func makeHome(parent string) (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp(parent, homePrefix); err != nil {
		return "", nil, err
	}
	lock, err = lockHome(dir)
	return dir, lock, err
}

// lockHome takes a directory whose test has ended.
func lockHome(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes what tests left that were killed. Their hosts ended with them,
// but mounts and the processes behind them stay.
func sweep(parent string) error {
	homes, err := filepath.Glob(filepath.Join(parent, homePrefix+"*"))
	if err != nil {
		return err
	}
	var all []error
	for _, dir := range homes {
		lock, err := lockHome(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // its test runs, or it is gone this moment
		}
		if err != nil {
			all = append(all, err)
			continue
		}
		mounts, err := filepath.Glob(filepath.Join(dir, "mount-*"))
		all = append(all, err)
		for _, m := range mounts {
			all = append(all, unmount(m))
		}
		all = append(all, removeHome(dir), lock.Close())
	}
	return errors.Join(all...)
}

// removeHome removes the directory of a volume, if nothing is mounted there: a
// mount that could not be ended is no place to remove files from.
func removeHome(dir string) error {
	mounted, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return fmt.Errorf("%v are still mounted", mounted)
	}
	// Without an option for it, a mount's log is named by its path.
	logs, err := filepath.Glob("/var/log/glusterfs/" + strings.ReplaceAll(strings.TrimPrefix(dir, "/"), "/", "-") + "-*.log")
	for _, l := range logs {
		err = errors.Join(err, os.Remove(l))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// unmount ends the mount of a client.
func (v *Volume) unmount(client int) error { return unmount(v.Mounts()[client]) }

// unmount ends a mount and its process. A mount that is in use is
// taken out of the tree, and its process killed.
func unmount(dir string) error {
	pids, err := processesOf(dir)
	if err != nil {
		return err
	}
	err = unix.Unmount(dir, 0)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(dir, unix.MNT_DETACH)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended this moment
		}
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing is mounted there
	case err != nil:
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return endAll(dir, pids)
}

// endAll waits for processes that end by themselves when their mount does, and
// kills those that do not.
func endAll(dir string, pids []int) error {
	gone := func() bool {
		left, err := processesOf(dir)
		return err == nil && len(left) == 0
	}
	if cluster.Poll(context.Background(), patience/10, gone) {
		return nil
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended this moment
	}
	if !cluster.Poll(context.Background(), patience, gone) {
		return fmt.Errorf("the processes %v of %s do not end", pids, dir)
	}
	return nil
}

// processesOf are the glusterfs processes that serve a mount: its path is
// their last argument.
func processesOf(dir string) (pids []int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		args := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
		if filepath.Base(string(args[0])) != "glusterfs" || string(args[len(args)-1]) != dir {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// mountsBelow are the mount points below a directory.
func mountsBelow(dir string) (points []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			points = append(points, f[4])
		}
	}
	return points, nil
}
