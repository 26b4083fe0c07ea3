// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// Name is the name of the volume, for gluster volume set.
	Name = "holdfast"
	// Replicas is the number of bricks, and of clients.
	Replicas = 3

	// storageAddress is the same in every storage host: each has a network of its own.
	storageAddress = "10.99.0.1"
	// patience bounds how long anything takes on a machine that is busy.
	patience = 60 * time.Second
	// askInterval is how often glusterd is asked; each question is a process or two.
	askInterval = 200 * time.Millisecond
)

// Options configure a volume.
type Options struct {
	Tuning Tuning
}

// Volume is a GlusterFS volume and its three mounts. Bricks and clients are
// numbered from 0. Its methods belong to one goroutine.
type Volume struct {
	t       testing.TB
	dir     string // of everything
	lock    *os.File
	options []string // of the mounts
	storage *host
	clients [Replicas]*host
	cuts    map[cut]string // to the brick's port at that time
}

// Start makes a volume and mounts it three times; it takes some seconds.
// Everything ends with the test.
func Start(t testing.TB, opt Options) *Volume {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	if err := sweep(os.TempDir()); err != nil {
		t.Logf("what an earlier test left: %v", err)
	}
	dir, lock, err := makeHome(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v := &Volume{t: t, dir: dir, lock: lock, cuts: map[cut]string{}}
	t.Cleanup(v.cleanup)
	if err := v.start(opt.Tuning); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *Volume) start(tuning Tuning) (err error) {
	for _, name := range []string{"lib", "log", "run"} {
		if err := os.Mkdir(filepath.Join(v.dir, name), 0o755); err != nil {
			return err
		}
	}
	if v.storage, err = startStorage(v.dir); err != nil {
		return err
	}
	if err := v.await("glusterd to answer", func() error { return v.gluster("pool", "list") }); err != nil {
		return err
	}
	create := []string{"volume", "create", Name, "replica", fmt.Sprint(Replicas)}
	for i := range Replicas {
		create = append(create, storageAddress+":"+v.brick(i))
	}
	if err := v.gluster(append(create, "force")...); err != nil {
		return err
	}
	if tuning == Ours {
		v.options = MountOptions()
		if err := v.set(); err != nil {
			return err
		}
	}
	if err := v.gluster("volume", "start", Name); err != nil {
		return err
	}
	if err := v.awaitBricks(); err != nil {
		return err
	}
	for i := range v.clients {
		if err := v.startClient(i); err != nil {
			return err
		}
	}
	return v.mountAll()
}

// startClient begins a client host and joins it to the storage host.
func (v *Volume) startClient(i int) (err error) {
	if v.clients[i], err = startClient(i); err != nil {
		return err
	}
	link, pid := fmt.Sprintf("client%d", i), fmt.Sprint(v.clients[i].cmd.Process.Pid)
	ends := []struct {
		on   *host
		args []string
	}{
		{v.storage, []string{"link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid}},
		{v.storage, []string{"addr", "add", clientNet(i) + ".1/24", "dev", link}},
		{v.storage, []string{"link", "set", link, "up"}},
		{v.clients[i], []string{"addr", "add", clientNet(i) + ".2/24", "dev", "eth0"}},
		{v.clients[i], []string{"link", "set", "eth0", "up"}},
		{v.clients[i], []string{"route", "add", "default", "via", clientNet(i) + ".1"}},
	}
	for _, e := range ends {
		if err := e.on.network("ip", e.args...); err != nil {
			return err
		}
	}
	return nil
}

// clientNet is the network between a client and the storage host.
func clientNet(i int) string { return fmt.Sprintf("10.99.%d", i+1) }

// Mounts returns the three mount points of the volume, one for each client.
func (v *Volume) Mounts() (all [Replicas]string) {
	for i := range all {
		all[i] = filepath.Join(v.dir, fmt.Sprintf("mount-%d", i))
	}
	return all
}

// Source returns the source of the mounts, as for mount(8).
func (v *Volume) Source() string { return storageAddress + ":/" + Name }

// Tune sets the options that Holdfast requires and mounts the volume again. The mounts must not be
// in use.
func (v *Volume) Tune() error {
	if err := v.set(); err != nil {
		return err
	}
	return v.Remount(MountOptions())
}

// Remount mounts the volume again with other options. The mounts must not be in use.
func (v *Volume) Remount(options []string) error {
	v.options = options
	for i := range v.clients {
		if err := v.unmount(i); err != nil {
			return err
		}
	}
	return v.mountAll()
}

func (v *Volume) set() error {
	for _, s := range Settings() {
		if err := v.gluster("volume", "set", Name, s.Name, s.Value); err != nil {
			return err
		}
	}
	return nil
}

func (v *Volume) mountAll() error {
	for i, dir := range v.Mounts() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		options := append([]string{fmt.Sprintf("log-file=%s/log/client-%d.log", v.dir, i)}, v.options...)
		if _, err := v.clients[i].run("mount", "-t", "glusterfs", "-o", strings.Join(options, ","), v.Source(), dir); err != nil {
			return err
		}
	}
	return v.await("every mount to show every brick's data", func() error {
		for _, dir := range v.Mounts() {
			if _, err := os.ReadDir(dir); err != nil {
				return err
			}
		}
		return nil
	})
}

// Shell runs an administrator's command line: on the storage
// host if it is a gluster command, else on the client's host.
func (v *Volume) Shell(client int, line string) (string, error) {
	if strings.Contains(line, "gluster volume ") {
		return v.storage.run("sh", "-c", line)
	}
	return v.clients[client].run("sh", "-c", line)
}

// gluster runs the tool of that name on the storage host.
func (v *Volume) gluster(args ...string) error {
	_, err := v.storage.run("gluster", append([]string{"--mode=script"}, args...)...)
	return err
}

// await asks again until there is no error.
func (v *Volume) await(what string, ask func() error) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	again := time.NewTicker(askInterval)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-limit.C:
			return fmt.Errorf("waited %v for %s: %w", patience, what, err)
		case <-again.C:
		}
	}
}

// cleanup ends all that was started. Users of a mount have ended before,
// since later cleanups run first.
func (v *Volume) cleanup() {
	v.keepLogs()
	for i := range v.clients {
		if err := v.unmount(i); err != nil {
			v.t.Error(err)
		}
	}
	for _, h := range append(v.clients[:], v.storage) {
		if h == nil {
			continue
		}
		if err := h.end(); err != nil {
			v.t.Error(err)
		}
	}
	if err := removeHome(v.dir); err != nil {
		v.t.Error(err)
	}
	v.lock.Close() //nolint:errcheck // it was only locked
}

// keepLogs saves what GlusterFS said of a test that failed.
func (v *Volume) keepLogs() {
	if !v.t.Failed() {
		return
	}
	to := filepath.Join(v.t.ArtifactDir(), "gluster")
	if err := os.CopyFS(to, os.DirFS(filepath.Join(v.dir, "log"))); err != nil {
		v.t.Logf("keep the logs of GlusterFS: %v", err)
		return
	}
	v.t.Logf("logs of GlusterFS: %s (go test -artifacts keeps them)", to)
}
