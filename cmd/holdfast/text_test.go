// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// talk is a connection to a server's line protocol.
type talk struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (w *world) talk(server uint32) *talk {
	w.t.Helper()
	c, err := net.DialTimeout("tcp", w.servers[server-1].Client, 5*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	return &talk{w.t, c, bufio.NewReader(c)}
}

func (c *talk) send(lines ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c, strings.Join(lines, "\n")+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// hear is the next answer, or "" where the connection is gone.
func (c *talk) hear() string {
	c.t.Helper()
	s, err := c.r.ReadString('\n')
	c.t.Logf("%s says %q, %v", c.RemoteAddr(), s, err)
	return strings.TrimSuffix(s, "\n")
}

// ask sends lines and compares the answers.
func (c *talk) ask(want string, lines ...string) {
	c.t.Helper()
	c.send(lines...)
	var got []string
	for range lines {
		got = append(got, c.hear())
	}
	equal(c.t, strings.Join(lines, " "), strings.Join(got, " "), want)
}

// until repeats a line, as a script does, until it is answered with something else than ERROR.
func (w *world) until(server uint32, line string) (word string) {
	w.t.Helper()
	await(w.t, "an answer to "+line, func() bool {
		c := w.talk(server)
		c.send(line, "QUIT")
		word = c.hear()
		return word != "ERROR" && word != ""
	})
	return word
}

// TestLineProtocol is what shells do: at any server, over a failover, and with the other tools.
func TestLineProtocol(t *testing.T) {
	w := startDev(t)
	first, _ := w.primary(0)
	replica := first%3 + 1
	c := w.talk(replica)
	c.ask("NONE SUCCESS alice FAIL alice SUCCESS NONE",
		"OWN,db", "LOCK,db,alice,1m", "OWN,db", "LOCK,db,bob", "OWN,db,bob", "UNLOCK,db,alice", "OWN,db")
	c.ask("SUCCESS SUCCESS", "LOCK,db,alice,1m", "LOCK,db,alice,1m")
	for id := range uint32(3) {
		await(t, fmt.Sprintf("the owner at server %d", id+1), func() bool { return w.until(id+1, "OWN,db") == "alice" })
		equal(t, "another client", w.until(id+1, "LOCK,db,bob"), "FAIL")
		equal(t, "its UNLOCK", w.until(id+1, "UNLOCK,db,bob"), "FAIL")
	}
	w.withOtherTools(c)
	w.waitsOverAFailover(first, replica)
}

// withOtherTools passes the token on, and meets holders that came another way.
func (w *world) withOtherTools(c *talk) {
	t := w.t
	t.Helper()
	c.send("TOKEN,db,alice")
	token := c.hear()
	if _, err := strconv.ParseUint(token, 10, 64); err != nil {
		t.Fatalf("token %q", token)
	}
	w.do("one\n", "append", "db", "db.log", "--token", token)
	w.do("", "verify", "db", "--token", token)
	if out := w.do("", "why", "db"); !strings.Contains(out, "~text/alice/") || !strings.Contains(out, "127.0.0.1") {
		t.Errorf("why: %s", out)
	}
	// Somebody else has it since: the token's owner does it no harm.
	w.do("", "break", "db", "--reason", "a test")
	theirs := strings.TrimSpace(w.do("", "acquire", "db", "--client-id", "ann", "--request-id", "1"))
	c.ask("FAIL FAIL FAIL NONE =ann", "UNLOCK,db,alice", "UNLOCK,db,alice,"+token, "RENEW,db,alice", "TOKEN,db,alice", "OWN,db")
	equal(t, "append under a broken lock", w.try("two\n", "append", "db", "db.log", "--token", token).code, 3)
	w.do("", "release", "db", "--token", theirs)
	c.ask("SUCCESS SUCCESS", "LOCK,db,alice,1m", "UNLOCK,db,alice")
}

// waitsOverAFailover kills the primary while lines wait, at itself and at a replica.
func (w *world) waitsOverAFailover(first, replica uint32) {
	t := w.t
	t.Helper()
	holder, waits, lost := w.talk(replica), w.talk(replica), w.talk(first)
	holder.ask("SUCCESS SUCCESS", "LOCK,q,alice,1m", "LOCK,other,alice,1m")
	queue := func(n int) {
		t.Helper()
		await(t, "the queue", func() bool {
			return strings.Contains(w.try("", "show", "q", "-o", "json").out, fmt.Sprintf(`"queue_length":%d`, n))
		})
	}
	lost.send("LOCK,q,bob,1m,5m", "OWN,q")
	queue(1)
	waits.send("OWN,other", "LOCK,q,carol,1m,5m", "OWN,q", "NO,q")
	equal(t, "the first of many lines", waits.hear(), "alice")
	queue(2)
	gone := w.talk(replica)
	gone.send("LOCK,q,dave,1m,5m")
	queue(3)
	gone.Close() //nolint:errcheck // what a client does that is killed
	queue(2)

	_, pid := w.primary(0)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	equal(t, "the answer of a server that was killed", lost.hear(), "")
	again := w.talk(replica) // the same line, to another server: it finds the place of the first
	await(t, "the return of the one who lost its server", func() bool {
		again.send("LOCK,q,bob,1m,5m")
		again.SetReadDeadline(time.Now().Add(3 * time.Second)) //nolint:errcheck // a socket
		s, err := again.r.ReadString('\n')
		if err == nil && s != "ERROR\n" {
			t.Fatalf("LOCK: %q", s)
		}
		return err != nil // it waits
	})
	again.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // a socket
	queue(2)
	equal(t, "LOCK of the one who has it", w.until(replica, "LOCK,q,alice,1m"), "SUCCESS")
	equal(t, "UNLOCK", w.until(replica, "UNLOCK,q,alice"), "SUCCESS")
	equal(t, "the first in line", again.hear(), "SUCCESS")
	equal(t, "its owner", w.until(replica, "OWN,q"), "bob")
	again.ask("SUCCESS", "UNLOCK,q,bob")
	for _, want := range []string{"SUCCESS", "carol", "INVALID_COMMAND"} {
		equal(t, "the lines behind", waits.hear(), want)
	}
	waits.ask("SUCCESS", "UNLOCK,q,carol") // not ahead: behind a failover it might be begun too late
	holder.ask("alice SUCCESS", "OWN,other", "UNLOCK,other,alice")
}
