// SPDX-License-Identifier: Apache-2.0

package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

// table is a database that knows the statements of fencing.SQL, and Exec's in its doc. It has one writer at a time, as SQLite
// does: a transaction has the lock from its first write to its end, and a rollback undoes what it wrote.
type table struct {
	writer chan struct{} // has an element while there is none
	mu     sync.Mutex
	rows   map[string]int64
	// raced is called before an INSERT.
	raced func()
}

func newTable() *table {
	d := &table{writer: make(chan struct{}, 1), rows: map[string]int64{}}
	d.writer <- struct{}{}
	return d
}

func (d *table) Connect(context.Context) (driver.Conn, error) { return &conn{d: d}, nil }
func (d *table) Driver() driver.Driver                        { return nil }

// conn is a connection with at most one transaction.
type conn struct {
	d     *table
	inTx  bool
	wrote bool
	undo  map[string]*int64
}

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not needed") }
func (c *conn) Close() error                        { return nil }
func (c *conn) Begin() (driver.Tx, error)           { c.inTx, c.undo = true, map[string]*int64{}; return c, nil }
func (c *conn) Commit() error                       { c.end(); return nil }

func (c *conn) Rollback() error {
	c.d.mu.Lock()
	for name, was := range c.undo {
		if was == nil {
			delete(c.d.rows, name)
		} else {
			c.d.rows[name] = *was
		}
	}
	c.d.mu.Unlock()
	c.end()
	return nil
}

func (c *conn) end() {
	if c.wrote {
		c.wrote = false
		c.d.writer <- struct{}{}
	}
	c.inTx = false
}

func (c *conn) put(name string, token int64) {
	if _, noted := c.undo[name]; !noted && c.inTx {
		c.undo[name] = nil
		if was, ok := c.d.rows[name]; ok {
			c.undo[name] = &was
		}
	}
	c.d.rows[name] = token
}

func (c *conn) ExecContext(_ context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	q = strings.NewReplacer("$1", "?", "$2", "?", "$3", "?").Replace(q)
	if c.inTx && !c.wrote {
		<-c.d.writer
		c.wrote = true
	}
	if strings.HasPrefix(q, "INSERT") && c.d.raced != nil {
		c.d.raced()
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	switch q {
	case "CREATE TABLE IF NOT EXISTS holdfast_fences (name VARCHAR(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, writes BIGINT NOT NULL)":
		return driver.RowsAffected(0), nil
	case "UPDATE holdfast_fences SET token = ?, writes = writes + 1 WHERE name = ? AND token <= ?", "UPDATE jobs SET fence = ? WHERE id = ? AND fence <= ?":
		name := args[1].Value.(string)
		if was, ok := c.d.rows[name]; !ok || was > args[2].Value.(int64) {
			return driver.RowsAffected(0), nil
		}
		c.put(name, args[0].Value.(int64))
		return driver.RowsAffected(1), nil
	case "INSERT INTO holdfast_fences (name, token, writes) VALUES (?, ?, 1)":
		name := args[0].Value.(string)
		if _, ok := c.d.rows[name]; ok {
			return nil, errors.New("unique constraint failed")
		}
		c.put(name, args[1].Value.(int64))
		return driver.RowsAffected(1), nil
	}
	return nil, fmt.Errorf("syntax error: %s", q)
}

func (c *conn) QueryContext(_ context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.ReplaceAll(q, "$1", "?") != "SELECT token FROM holdfast_fences WHERE name = ?" {
		return nil, fmt.Errorf("syntax error: %s", q)
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	token, ok := c.d.rows[args[0].Value.(string)]
	return &rows{token: token, left: ok}, nil
}

type rows struct {
	token int64
	left  bool
}

func (r *rows) Columns() []string { return []string{"token"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(to []driver.Value) error {
	if !r.left {
		return io.EOF
	}
	r.left, to[0] = false, r.token
	return nil
}

func openTable(t *testing.T, d *table) *sql.DB {
	db := sql.OpenDB(d)
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // it is in memory
	return db
}

// A transaction goes on under the highest token that was seen, and a rollback forgets a token.
func TestSQL(t *testing.T) {
	for name, g := range map[string]fencing.SQL{"?": {}, "$1": {Placeholder: fencing.Dollar}} {
		t.Run(name, func(t *testing.T) {
			db := openTable(t, newTable())
			if err := g.Create(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			for i, x := range []struct {
				key   string
				token fencing.Token
				fails error // of the function
				want  error
			}{
				{"a", 5, nil, nil}, {"a", 5, nil, nil}, {"a", 4, nil, fencing.ErrStale}, {"b", 4, nil, nil},
				{"a", 9, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF}, {"a", 6, nil, nil}, {"a", 5, nil, fencing.ErrStale},
			} {
				called := 0
				err := g.Do(t.Context(), db, x.key, x.token, func(*sql.Tx) error { called++; return x.fails })
				if !errors.Is(err, x.want) || (called == 1) != (x.want == x.fails) { //nolint:errorlint // the very error
					t.Errorf("%d: %+v: %v, called %d times", i, x, err, called)
				}
				if e, ok := errors.AsType[*fencing.StaleError](err); ok && (e.Seen <= e.Token || e.Key != x.key) {
					t.Errorf("%d: %+v", i, e)
				}
			}
			for _, token := range []fencing.Token{0, math.MaxInt64 + 1} {
				if err := g.Do(t.Context(), db, "a", token, func(*sql.Tx) error { return nil }); err == nil || errors.Is(err, fencing.ErrStale) {
					t.Errorf("token %d: %v", token, err)
				}
			}
		})
	}
}

// Of two transactions that are the first ones of a key, the second one begins anew, and is judged by what the first one wrote.
func TestSQLFirstOnesRace(t *testing.T) {
	for other, want := range map[int64]error{4: nil, 6: fencing.ErrStale} {
		d := newTable()
		races := 0
		d.raced = func() {
			if races++; races == 1 {
				d.mu.Lock()
				d.rows["a"] = other
				d.mu.Unlock()
			}
		}
		err := fencing.SQL{}.Do(t.Context(), openTable(t, d), "a", 5, func(*sql.Tx) error { return nil })
		if !errors.Is(err, want) {
			t.Errorf("after token %d: %v", other, err)
		}
		if seen := d.rows["a"]; seen != max(other, 5) {
			t.Errorf("after token %d the fence is %d", other, seen)
		}
	}
}

// Transactions of many holders at once: each commits only what no higher token came before.
func TestSQLManyAtOnce(t *testing.T) {
	d := newTable()
	db := openTable(t, d)
	var all sync.WaitGroup
	var done []fencing.Token // by commits, as one writes at a time
	for token := range fencing.Token(50) {
		all.Go(func() {
			err := fencing.SQL{}.Do(t.Context(), db, "a", token+1, func(*sql.Tx) error {
				done = append(done, token+1)
				return nil
			})
			if err != nil && !errors.Is(err, fencing.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := 1; i < len(done); i++ {
		if done[i] < done[i-1] {
			t.Fatalf("token %d committed after %d", done[i], done[i-1])
		}
	}
	if done[len(done)-1] != 50 {
		t.Errorf("the last one is %d", done[len(done)-1])
	}
}

// Exec is for fences in rows.
func TestExec(t *testing.T) {
	d := newTable()
	d.rows["17"] = 5
	db := openTable(t, d)
	for _, x := range []struct {
		id    string
		token fencing.Token
		want  error
	}{{"17", 5, nil}, {"17", 4, fencing.ErrStale}, {"17", 9, nil}, {"17", 8, fencing.ErrStale}, {"none", 10, fencing.ErrStale}} {
		err := fencing.Exec(t.Context(), db, "jobs", x.token, "UPDATE jobs SET fence = ? WHERE id = ? AND fence <= ?", int64(x.token), x.id, int64(x.token))
		if !errors.Is(err, x.want) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if err := fencing.Exec(t.Context(), db, "jobs", 1, "DROP TABLE jobs"); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("a wrong statement: %v", err)
	}
}
