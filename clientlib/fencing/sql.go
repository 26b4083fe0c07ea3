// SPDX-License-Identifier: Apache-2.0

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// SQL is a guard whose memory is a table of the database that it protects: token and data are in one transaction, and any
// number of processes may use it. The zero value is for databases with "?" as the placeholder, such as SQLite and MySQL.
type SQL struct {
	// Table is the name of the table, as it stands in statements; "" = holdfast_fences. Create makes it.
	Table string
	// Placeholder returns the placeholder of the n-th argument of a statement, from 1; nil = "?". Dollar is one.
	Placeholder func(n int) string
}

// Dollar is the Placeholder of PostgreSQL: $1, $2 and so on.
func Dollar(n int) string { return "$" + strconv.Itoa(n) }

// Execer executes a statement: a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// tries is how often Do begins a transaction: of two that are the first ones for a key, one fails.
const tries = 3

// errRaced means that another transaction changed the fence at the same time.
var errRaced = errors.New("another transaction has changed the fence at the same time: try again")

func (g SQL) table() string {
	if g.Table == "" {
		return "holdfast_fences"
	}
	return g.Table
}

// place returns the n-th placeholder.
func (g SQL) place(n int) string {
	if g.Placeholder == nil {
		return "?"
	}
	return g.Placeholder(n)
}

// Create makes the table if it is not there.
func (g SQL) Create(ctx context.Context, db Execer) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+g.table()+
		" (name VARCHAR(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, writes BIGINT NOT NULL)")
	if err != nil {
		return fmt.Errorf("make the table of fences: %w", err)
	}
	return nil
}

// Admit has a transaction go on only under the highest token that was seen for the key. It returns a *StaleError if a higher
// one was: roll back then. When it returns nil, no transaction with a lower token commits any more, and none is under way. Call it
// first in the transaction. It may return another error where transactions are the first ones for a key at the same time.
//
// What counts is one statement, UPDATE ... WHERE name = ? AND token <= ?, which keeps the row locked until the end of the
// transaction; that is so in SQLite, MySQL (InnoDB) and PostgreSQL, at every level of isolation from READ COMMITTED up.
func (g SQL) Admit(ctx context.Context, tx *sql.Tx, key string, token Token) error {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("token %d for %q: bring the token of the lock", token, key)
	}
	t := g.table()
	// It always changes something: some databases count only rows that are different afterwards.
	r, err := tx.ExecContext(ctx, "UPDATE "+t+" SET token = "+g.place(1)+", writes = writes + 1 WHERE name = "+g.place(2)+" AND token <= "+g.place(3),
		int64(token), key, int64(token))
	if err != nil {
		return fmt.Errorf("raise the fence %q: %w", key, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return fmt.Errorf("raise the fence %q: %w", key, err)
	}
	if n > 0 {
		return nil
	}
	var seen int64
	err = tx.QueryRowContext(ctx, "SELECT token FROM "+t+" WHERE name = "+g.place(1), key).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err = tx.ExecContext(ctx, "INSERT INTO "+t+" (name, token, writes) VALUES ("+g.place(1)+", "+g.place(2)+", 1)", key, int64(token))
		if err != nil {
			return fmt.Errorf("begin the fence %q: %w: %w", key, errRaced, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the fence %q: %w", key, err)
	case Token(seen) > token:
		return &StaleError{Key: key, Token: token, Seen: Token(seen)}
	}
	return fmt.Errorf("raise the fence %q: %w", key, errRaced)
}

// Do calls f in a transaction that Admit has admitted, and commits it if f returns nil. Else it rolls back, and returns the
// error of f as it is, or a *StaleError. An f that calls Admit itself, for another key, may be called again after a rollback.
func (g SQL) Do(ctx context.Context, db *sql.DB, key string, token Token, f func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := g.once(ctx, db, key, token, f)
		if try == tries || !errors.Is(err, errRaced) {
			return err
		}
	}
}

func (g SQL) once(ctx context.Context, db *sql.DB, key string, token Token, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing, and before it there is an error already
	if err := g.Admit(ctx, tx, key, token); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Exec is for a table that has a fence of its own in each row. It executes a statement that ends with a condition on it,
//
//	UPDATE jobs SET state = ?, fence = ? WHERE id = ? AND fence <= ?
//
// and returns a *StaleError if it changed no row: a row with this id has a higher fence, or there is none. The arguments are those
// of the statement, the token among them.
//
// The driver has to count the rows that the condition matches. That of MySQL counts those that the statement changes, and a
// repeated statement changes none: set clientFoundRows=true in its data source name.
func Exec(ctx context.Context, db Execer, key string, token Token, query string, args ...any) error {
	r, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return &StaleError{Key: key, Token: token}
	}
	return nil
}
