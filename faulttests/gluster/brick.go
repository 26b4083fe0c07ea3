// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cut is a client that does not reach a brick.
type cut struct{ client, brick int }

// brickStatus is what glusterd says of a brick.
type brickStatus struct {
	Path   string `xml:"path"`
	Online int    `xml:"status"` // 1 = the brick's process is connected
	Port   string `xml:"port"`
	PID    int    `xml:"pid"` // in the storage host's namespace
}

// brick is the directory of a brick.
func (v *Volume) brick(i int) string { return filepath.Join(v.dir, fmt.Sprintf("brick-%d", i)) }

// status asks glusterd for a brick.
func (v *Volume) status(i int) (brickStatus, error) {
	out, err := v.storage.run("gluster", "--mode=script", "--xml", "volume", "status", Name)
	if err != nil {
		return brickStatus{}, err
	}
	var answer struct {
		Bricks []brickStatus `xml:"volStatus>volumes>volume>node"`
	}
	if err := xml.Unmarshal([]byte(out), &answer); err != nil {
		return brickStatus{}, fmt.Errorf("gluster volume status: %w: %s", err, out)
	}
	for _, b := range answer.Bricks {
		if b.Path == v.brick(i) {
			return b, nil
		}
	}
	return brickStatus{}, fmt.Errorf("gluster volume status: no brick %s: %s", v.brick(i), out)
}

// awaitBricks waits until every brick runs.
func (v *Volume) awaitBricks() error {
	for i := range Replicas {
		if err := v.awaitBrick(i, true); err != nil {
			return err
		}
	}
	return nil
}

func (v *Volume) awaitBrick(i int, online bool) error {
	return v.await(fmt.Sprintf("brick %d to be online: %v", i, online), func() error {
		b, err := v.status(i)
		if err == nil && (b.Online == 1) != online {
			err = fmt.Errorf("brick %d: %+v", i, b)
		}
		return err
	})
}

// StopBrick ends the process of a brick as kill -9 does. The volume continues
// with the two others.
func (v *Volume) StopBrick(i int) error {
	b, err := v.status(i)
	if err != nil {
		return err
	}
	if b.Online != 1 || b.PID <= 1 {
		return fmt.Errorf("brick %d does not run: %+v", i, b)
	}
	if _, err := v.storage.run("kill", "-9", fmt.Sprint(b.PID)); err != nil {
		return err
	}
	return v.awaitBrick(i, false)
}

// StartBrick starts a stopped brick. It does not wait until the brick has got the writes that it
// missed: AwaitHealed does.
func (v *Volume) StartBrick(i int) error {
	if err := v.gluster("volume", "start", Name, "force"); err != nil {
		return err
	}
	return v.awaitBrick(i, true)
}

// AwaitHealed waits until every brick has all data. Before that, the loss of another
// brick may leave the volume without a majority that has it.
func (v *Volume) AwaitHealed() error {
	return v.await("the bricks to be healed", func() error {
		// By itself the daemon looks when a brick comes back, else every ten minutes.
		if err := v.gluster("volume", "heal", Name); err != nil {
			return err
		}
		out, err := v.storage.run("gluster", "--mode=script", "volume", "heal", Name, "info")
		if err != nil {
			return err
		}
		if n := strings.Count(out, "Number of entries: 0\n"); n != Replicas {
			return fmt.Errorf("%d of %d bricks have nothing to heal: %s", n, Replicas, out)
		}
		return nil
	})
}

// CutBrick drops all packets between a client and a brick. The client notices
// after network.ping-timeout and continues with the two others.
func (v *Volume) CutBrick(client, brick int) error {
	b, err := v.status(brick)
	if err != nil {
		return err
	}
	v.cuts[cut{client, brick}] = b.Port
	return v.filter("-I", client, b.Port)
}

// JoinBrick ends CutBrick and waits until the client is connected to the brick.
func (v *Volume) JoinBrick(client, brick int) error {
	at := cut{client, brick}
	port, is := v.cuts[at]
	if !is {
		return fmt.Errorf("client %d is not cut from brick %d", client, brick)
	}
	delete(v.cuts, at)
	if err := v.filter("-D", client, port); err != nil {
		return err
	}
	// Every mount shows the state of its parts in a directory that no listing has.
	state := filepath.Join(v.Mounts()[client], ".meta/graphs/active", fmt.Sprintf("%s-client-%d", Name, brick), "private")
	return v.await(fmt.Sprintf("client %d to be connected to brick %d", client, brick), func() error {
		b, err := os.ReadFile(state)
		if err == nil && !strings.Contains(string(b), "connected = 1\n") {
			err = fmt.Errorf("%s: %s", state, b)
		}
		return err
	})
}

// filter inserts or deletes the rules for one client and one port, both ways.
func (v *Volume) filter(verb string, client int, port string) error {
	address := clientNet(client) + ".2"
	for _, rule := range [][]string{
		{"INPUT", "-s", address, "-p", "tcp", "--dport", port, "-j", "DROP"},
		{"OUTPUT", "-d", address, "-p", "tcp", "--sport", port, "-j", "DROP"},
	} {
		if err := v.storage.network("iptables", append([]string{"-w", verb}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}
