// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// mountTmpfs mounts a small filesystem of its own, or skips the test.
func mountTmpfs(t *testing.T, sizeBytes int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("holdfast-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", sizeBytes)); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// quick is a client that gives up soon.
func quick(t *testing.T, c *cluster.Cluster) *clientlib.Client {
	t.Helper()
	client, err := clientlib.New(clientlib.Options{Endpoints: c.Endpoints(), Budget: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the servers may be gone
	return client
}

// tmpfsBytes has room for prepared claims, reserves and two later segments.
const tmpfsBytes = 256 << 20

// TestFullDisk fills the volume's filesystem. Appends are refused with a word
// that says so, nobody is deposed for it, locks can still be released, a takeover
// works, and with room again everything goes on; all that was acknowledged is there.
func TestFullDisk(t *testing.T) {
	needFaults(t)
	opt := options()
	opt.Dir = filepath.Join(mountTmpfs(t, tmpfsBytes), "volume")
	c := cluster.Start(t, opt)
	c.AwaitReplicas(cluster.Patience)
	client := newClient(t, c)
	full, released := hold(t, client, "full"), hold(t, client, "released")
	a := &appender{holding: full, ledger: &check.Ledger{}}
	a.mustAppend(t, cluster.Patience)

	ballast := filepath.Join(filepath.Dir(opt.Dir), "ballast")
	fillDisk(t, ballast)
	p, epoch := c.Primary(t.Context())
	refusal := rawUntilRefused(t, dial(t, p), full, a)
	t.Logf("after %d appends to a full disk: %v", a.chunks, refusal)
	if wire.FromStatus(refusal.GetStatus()) != hf.StatusStorageUnavailable {
		t.Errorf("the refusal is %v, want STORAGE_UNAVAILABLE", refusal)
	}
	if err := a.append(t.Context(), 3*time.Second); err == nil {
		t.Errorf("the client library appended to a full disk")
	} else {
		t.Logf("the client library says: %v", err)
	}
	if err := released.lock.Release(t.Context()); err != nil {
		t.Errorf("release on a full disk: %v", err)
	}
	if now, at := c.Primary(t.Context()); now != p || at != epoch {
		t.Errorf("a full disk ended the term")
	}
	p.Kill()
	next := c.AwaitTerm(cluster.Patience, epoch)
	t.Logf("server %d took over on the full disk", next.Member.ID)
	p.Start()

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if a.mustAppend(t, cluster.Patience); t.Failed() {
			return
		}
	}
	c.AwaitReplicas(cluster.Patience)
	c.TermAll()
	if _, err := c.Fsck(); err != nil {
		t.Error(err)
	}
	v := check.Judge(a.ledger, func(name hf.FileName) ([]byte, error) { return os.ReadFile(c.File(string(name))) })
	for _, bad := range v.Bad {
		t.Error(bad)
	}
}

// rawUntilRefused appends without the client library until the disk is really full.
func rawUntilRefused(t *testing.T, stub pb.LockServiceClient, h *holding, a *appender) *pb.Answer {
	t.Helper()
	for i := range 2000 {
		chunk, sent, after := a.next(), time.Now(), a.ledger.High()
		ctx, cancel := context.WithTimeout(wire.PassedOn(t.Context()), 5*time.Second)
		reply, err := stub.FileAppend(ctx, &pb.FileAppendRequest{
			ClientId: "raw", RequestId: uint64(i + 1), Lock: string(h.lock.Name()), Token: uint64(h.lock.Token()), File: h.file(), Data: chunk.Data,
		})
		cancel()
		if detail, ok := errors.AsType[*wire.Error](wire.FromGRPC(err)); ok {
			reply, err = detail.Answer(), nil
		}
		if err != nil {
			t.Logf("append %d ends without an answer: %v", i, err)
		}
		status := wire.FromStatus(reply.GetStatus())
		refused := err == nil && status != hf.StatusOK && status != hf.StatusUnknown // which says that it waits for room
		a.ledger.Append(check.Append{
			Chunk: chunk, File: hf.FileName(h.file()), Lock: h.lock.Name(), Acked: err == nil && status == hf.StatusOK, Refused: refused, After: after,
			Receipt: orNone(reply), Sent: sent, Answered: time.Now(),
		})
		if refused {
			return reply
		}
	}
	t.Fatalf("a full disk takes everything")
	return nil
}

func orNone(a *pb.Answer) wire.Receipt {
	if r := wire.ReceiptOf(a.GetReceipt()); r != nil {
		return *r
	}
	return wire.Receipt{}
}

// appender appends chunks that the judge knows to one file.
type appender struct {
	*holding
	ledger *check.Ledger
	chunks int
	seq    int
}

// next is a chunk of some lines.
func (a *appender) next() check.Chunk {
	a.chunks++
	c := check.Chunk{First: a.seq + 1}
	for range 100 {
		a.seq++
		c.Data = append(c.Data, check.Tagged(0, a.seq, bytes.Repeat([]byte("x"), 80))...)
	}
	c.Last = a.seq
	return c
}

func (a *appender) append(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	x := check.Append{Chunk: a.next(), File: hf.FileName(a.file()), Lock: a.lock.Name(), After: a.ledger.High(), Sent: time.Now()}
	r, err := a.lock.Append(ctx, x.File, x.Data)
	x.Acked, x.Receipt, x.Answered = err == nil, traffic.ReceiptOf(r), time.Now()
	a.ledger.Append(x)
	return err
}

func (a *appender) mustAppend(t *testing.T, limit time.Duration) {
	t.Helper()
	if err := a.append(t.Context(), limit); err != nil {
		t.Errorf("append: %v", err)
	}
}

// fillDisk leaves no room at all.
func fillDisk(t *testing.T, ballast string) {
	t.Helper()
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(zeros)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReadOnlyVolume makes the filesystem read-only while no server runs (with
// open files the kernel refuses to). Servers say so and do not serve; writable
// again, all is there.
func TestReadOnlyVolume(t *testing.T) {
	needFaults(t)
	mount := mountTmpfs(t, tmpfsBytes)
	opt := options()
	opt.Dir = filepath.Join(mount, "volume")
	c := cluster.Start(t, opt)
	h := hold(t, newClient(t, c), "readonly")
	h.mustAppend(t, "first\n")
	if err := unix.Mount("", mount, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); !errors.Is(err, unix.EBUSY) {
		t.Errorf("remount a volume in use read-only: %v, want EBUSY", err)
	}
	h.mustAppend(t, "second\n")
	c.KillAll()
	remount(t, mount, unix.MS_RDONLY)
	c.StartAll()
	if cluster.Poll(t.Context(), 3*time.Second, func() bool { p, _ := c.Primary(t.Context()); return p != nil }) {
		t.Errorf("a server is primary on a read-only volume")
	}
	c.KillAll()
	if said := afterLastStart(c.Server(1).Log()); !strings.Contains(said, "read-only") {
		t.Errorf("server 1 does not say that the volume is read-only:\n%s", said)
	}
	remount(t, mount, 0)
	c.StartAll()
	c.AwaitPrimary(cluster.Patience)
	h.mustAppend(t, "third\n")
	if b, err := os.ReadFile(c.File("readonly.txt")); err != nil || string(b) != "first\nsecond\nthird\n" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

func remount(t *testing.T, mount string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", mount, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatalf("remount: %v", err)
	}
}

// TestReplacedVolume moves the volume away under running servers and puts another
// one in its place. Nobody may serve from the wrong one with the others' help.
func TestReplacedVolume(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	c.AwaitReplicas(cluster.Patience)
	h := hold(t, newClient(t, c), "moved")
	h.mustAppend(t, "first\n")
	away := c.Dir() + ".away"
	if err := os.Rename(c.Dir(), away); err != nil {
		t.Fatal(err)
	}
	args := []string{"init", "--plain", "--volume", c.Dir()}
	for _, s := range c.Servers() {
		args = append(args, "--server", fmt.Sprintf("%d=%s", s.Member.ID, s.Member.Client))
	}
	if out, err := c.Run(args...); err != nil {
		t.Fatalf("init another volume: %v\n%s", err, out)
	}
	// One server finds the new volume, with another cluster ID; alone it is nobody.
	c.Server(3).Kill()
	c.Server(3).Start()
	if cluster.Poll(t.Context(), 4*time.Second, func() bool {
		body, err := c.Server(3).Status(t.Context())
		return err == nil && body.Role == "primary"
	}) {
		t.Errorf("a server is primary alone over another volume")
	}
	_, err := quickAppend(t, c, h, "second\n")
	t.Logf("an append while the volume lies elsewhere: %v", err)
	// The old volume comes back, and with it everything that was acknowledged.
	c.KillAll()
	if err := errors.Join(os.Rename(c.Dir(), c.Dir()+".wrong"), os.Rename(away, c.Dir())); err != nil {
		t.Fatal(err)
	}
	want := "first\n"
	if err == nil {
		want += "second\n"
	}
	c.StartAll()
	c.AwaitPrimary(cluster.Patience)
	h.mustAppend(t, "third\n")
	if b, err := os.ReadFile(c.File("moved.txt")); err != nil || string(b) != want+"third\n" {
		t.Errorf("the file holds %q (%v), want %q and the third line", b, err, want)
	}
}

// quickAppend bounds the wait where nobody may ever answer.
func quickAppend(t *testing.T, c *cluster.Cluster, h *holding, data string) (clientlib.Receipt, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lock := quick(t, c).Attach(h.lock.Name(), h.lock.Token())
	return lock.Append(ctx, "moved.txt", []byte(data))
}

// TestRemovedVolume deletes everything under running servers. They may not go
// on as if nothing had happened.
func TestRemovedVolume(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	h := hold(t, quick(t, c), "removed")
	h.mustAppend(t, "first\n")
	cluster.Await(t, cluster.Patience, "the volume to be gone", func() bool { return os.RemoveAll(c.Dir()) == nil }) // servers make files in what is not empty yet
	cluster.Await(t, cluster.Patience, "the primary to notice", func() bool {
		p, _ := c.Primary(t.Context())
		return p == nil
	})
	if _, err := h.append(t.Context(), "second\n"); err == nil {
		t.Errorf("an append to a volume that was removed was acknowledged")
	} else {
		t.Logf("an append now: %v", err)
	}
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("somebody made the volume's directory again: %v", err)
	}
	for _, s := range c.Servers() {
		t.Logf("server %d, running %v: %s", s.Member.ID, s.Running(), s.Tail(1))
	}
}
