// SPDX-License-Identifier: Apache-2.0

// Package accounts says which identity and groups a user of this host has, by its number. It asks getent and id, and not
// the Go library: a program without cgo sees /etc/passwd only, and no directory service.
package accounts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// askWait bounds all that is asked about one user.
	askWait = 3 * time.Second
	// maxAnswer bounds what a command may say, in bytes: groups come with all their members.
	maxAnswer = 4 << 20
	// keptTime is for how long an answer is used again, and maxKept how many are kept.
	keptTime = time.Minute
	maxKept  = 1024
	// notFound is the exit code of getent where some key is not there.
	notFound = 2
	// lastUID is the highest number of a user: the one after it means none.
	lastUID = 1<<32 - 3
)

// Account is what rules know of a user.
type Account struct {
	// Identity is user:NAME, or uid:NUMBER of a user without a name, or with one that is no name for rules.
	Identity string
	// Groups are group:NAME.
	Groups []string
}

// Names looks accounts up, and remembers them for a minute. It is safe for use by several goroutines.
type Names struct {
	ask func(ctx context.Context, name string, args ...string) (answer []byte, code int, err error)

	mu   sync.Mutex
	kept map[string]keptAccount
}

type keptAccount struct {
	Account
	until time.Time
}

// New returns Names that ask this host.
func New() *Names { return &Names{ask: run, kept: map[string]keptAccount{}} }

// errNobody is returned for a number that stands for users that are not known here.
var errNobody = errors.New("that is nobody: the user is not known on the file server, or on this host")

// Of returns the account of a user. It returns an error if that is nobody, or cannot be found out now.
func (n *Names) Of(ctx context.Context, uid uint32) (Account, error) { return n.of(ctx, uid, nil) }

// OfProcess is Of for a process that has these groups, which may be other ones than the user's.
func (n *Names) OfProcess(ctx context.Context, uid uint32, groups []uint32) (Account, error) {
	numbers := []string{}
	for _, g := range groups {
		numbers = append(numbers, strconv.FormatUint(uint64(g), 10))
	}
	return n.of(ctx, uid, numbers)
}

// of is Of with these numbers of groups; nil = those of the user.
func (n *Names) of(ctx context.Context, uid uint32, groups []string) (Account, error) {
	if isNobody(uid) {
		return Account{}, errNobody
	}
	key := fmt.Sprintln(uid, groups == nil, groups)
	n.mu.Lock()
	k, ok := n.kept[key]
	n.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.Account, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	a, err := n.find(ctx, uid, groups)
	if err != nil {
		return a, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) >= maxKept {
		clear(n.kept)
	}
	n.kept[key] = keptAccount{a, time.Now().Add(keptTime)}
	return a, nil
}

// isNobody reports whether a number is one that stands for many users: those that a file server or a namespace does not know.
func isNobody(uid uint32) bool {
	const usual = 65534
	if uid == usual || uid > lastUID {
		return true
	}
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	return err == nil && strings.TrimSpace(string(b)) == strconv.FormatUint(uint64(uid), 10)
}

func (n *Names) find(ctx context.Context, uid uint32, numbers []string) (Account, error) {
	number := strconv.FormatUint(uint64(uid), 10)
	nameless := Account{Identity: "uid:" + number}
	out, code, err := n.ask(ctx, "getent", "passwd", number)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nameless, nil // as in an image that has nothing but this program
	case err != nil:
		return Account{}, err
	case code == notFound:
		return nameless, nil
	case code != 0:
		return Account{}, fmt.Errorf("getent passwd %s: exit code %d", number, code)
	}
	fields := strings.Split(firstLine(out), ":")
	if len(fields) < 3 || fields[2] != number || !isName(fields[0]) {
		return nameless, nil
	}
	name := fields[0]
	if name == "nobody" || name == "nfsnobody" {
		return Account{}, errNobody
	}
	a := Account{Identity: "user:" + name}
	if numbers == nil {
		out, code, err = n.ask(ctx, "id", "-G", "--", name)
		if err != nil || code != 0 {
			return Account{}, errors.Join(fmt.Errorf("id -G %s: exit code %d", name, code), err)
		}
		numbers = slices.DeleteFunc(strings.Fields(string(out)), func(g string) bool { _, err := strconv.ParseUint(g, 10, 32); return err != nil })
	}
	if len(numbers) == 0 {
		return a, nil // without any, getent would list all groups there are
	}
	out, code, err = n.ask(ctx, "getent", append([]string{"group"}, numbers...)...)
	if err != nil || code != 0 && code != notFound {
		return Account{}, errors.Join(fmt.Errorf("getent group: exit code %d", code), err)
	}
	a.Groups = groupsOf(out, numbers)
	return a, nil
}

// groupsOf returns the groups with these numbers that getent lists.
func groupsOf(out []byte, numbers []string) (all []string) {
	for line := range bytes.Lines(out) {
		fields := strings.SplitN(string(line), ":", 4)
		if len(fields) < 3 || !slices.Contains(numbers, strings.TrimSpace(fields[2])) || !isName(fields[0]) {
			continue
		}
		if g := "group:" + fields[0]; !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// isName reports whether rules and messages can have a name as it is. A number could be mistaken for another user's or group's.
func isName(s string) bool {
	odd := strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' && c != ' ' || c == 0x7f || c == '*' || c == '�' })
	_, err := strconv.ParseUint(s, 10, 64)
	return s != "" && len(s) <= 256 && !odd && err != nil && strings.TrimSpace(s) == s
}

// run runs a command and returns what it wrote, and its exit code.
func run(ctx context.Context, name string, args ...string) ([]byte, int, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "LC_ALL=C")
	c.WaitDelay = time.Second
	out := &bounded{}
	c.Stdout = out
	err := c.Run()
	if ctx.Err() != nil {
		return nil, 0, fmt.Errorf("%s took longer than %v: try again", name, askWait)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return out.b.Bytes(), exit.ExitCode(), nil
	}
	return out.b.Bytes(), 0, err
}

// bounded takes maxAnswer bytes.
type bounded struct{ b bytes.Buffer }

func (w *bounded) Write(b []byte) (int, error) {
	if w.b.Len()+len(b) > maxAnswer {
		return 0, errors.New("the answer is too long")
	}
	return w.b.Write(b)
}
