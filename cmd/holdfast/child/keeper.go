// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Role is what a process of this program has an open file for, when it is not one of those for which
// a lock is held. It is the name that ps(1) shows of the process, of at most 15 bytes: so others see
// it without a word, and it ends with the process.
type Role string

const (
	// Waits is for whoever waits for a lock for the file: the keeper until it has the lock, and
	// the process that waits for the keeper.
	Waits Role = "holdfast-waits"
	// Holds and Shares are for a keeper that has the lock.
	Holds  Role = "holdfast-holds"
	Shares Role = "holdfast-shares"
	// Lost is for a keeper that has lost the lock, and ends the users of the file.
	Lost Role = "holdfast-lost"
	// Guards is for the guard of a keeper.
	Guards Role = "holdfast-guards"
)

func (r Role) known() bool { return r == Waits || r == Guards || r.keeps() }

// keeps reports whether it is the role of a keeper that has, or had, the lock.
func (r Role) keeps() bool { return r == Holds || r == Shares || r == Lost }

// As gives this process a role. It needs no descriptor that might not be left.
func (o *OpenFile) As(r Role) error {
	_, err := o.name.WriteString(string(r))
	return err
}

// Announce gives this process the role of a keeper, and makes its report on the lock its standard
// input, where Keeper.Report of another process of this user reads it.
func (o *OpenFile) Announce(r Role, report []byte) error {
	fd, err := unix.MemfdCreate("holdfast-report", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3, which does not ask for the second flag
		fd, err = unix.MemfdCreate("holdfast-report", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("keep the report on the lock: %w", err)
	}
	f := os.NewFile(uintptr(fd), "the report")
	_, err = f.Write(report)
	if err = errors.Join(err, unix.Dup3(fd, 0, 0), f.Close()); err != nil {
		return fmt.Errorf("keep the report on the lock: %w", err)
	}
	return o.As(r)
}

// Keeper is another process that holds a lock for the open file, or has lost it.
type Keeper struct{ p process }

// Keepers lists them.
func (o *OpenFile) Keepers() (all []Keeper) {
	for _, p := range processes() {
		if p.ended || !Role(p.name).keeps() {
			continue
		}
		if _, has, _ := o.descriptor(p.pid); has {
			all = append(all, Keeper{p})
		}
	}
	return all
}

// Role returns what it does.
func (k Keeper) Role() Role { return Role(k.p.name) }

// PID returns its number.
func (k Keeper) PID() int { return k.p.pid }

// maxReport bounds what is read of a report, in bytes.
const maxReport = 64 << 10

// Report returns what the keeper said of its lock in Announce, or os.ErrNotExist if it has ended.
func (k Keeper) Report() ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", k.p.pid))
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	report, err := io.ReadAll(io.LimitReader(f, maxReport))
	if err != nil {
		return nil, err
	}
	if !k.p.lives() { // it may be the input of another process with this number
		return nil, os.ErrNotExist
	}
	return report, nil
}

// ReleaseSignal has a Keeper release its lock, and end.
const ReleaseSignal = syscall.SIGUSR1

const releasePoll = 5 * time.Millisecond

// Release has the keeper release its lock, and waits at most limit for its end.
func (k Keeper) Release(limit time.Duration) error {
	k.p.signal(ReleaseSignal)
	for end := time.Now().Add(limit); time.Now().Before(end); <-time.After(releasePoll) {
		if !k.p.lives() {
			return nil
		}
	}
	return fmt.Errorf("process %d, which holds the lock for this descriptor, has not released it in %v", k.p.pid, limit)
}
