// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Main(map[string]Func{
		"echo": func(_ context.Context, args []string, in io.Reader, out io.Writer) error {
			for d, e := json.NewDecoder(in), json.NewEncoder(out); ; {
				var s string
				if d.Decode(&s) != nil {
					return nil
				}
				if err := e.Encode(args[0] + s); err != nil {
					return err
				}
			}
		},
		"broken": func(context.Context, []string, io.Reader, io.Writer) error { return errors.New("on purpose") },
		"silent": func(ctx context.Context, _ []string, in io.Reader, _ io.Writer) error {
			ctx, cancel := UntilEnd(ctx, in)
			defer cancel()
			<-ctx.Done()
			return nil
		},
	})
	os.Exit(m.Run())
}

func start(t *testing.T, kind string, args ...string) *Process {
	t.Helper()
	p, err := Start(kind, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestHelperAnswersUntilItIsClosed(t *testing.T) {
	p := start(t, "echo", "you said ")
	for _, s := range []string{"one", "two"} {
		var got string
		if err := errors.Join(p.Tell(s), p.Hear(t.Context(), &got)); err != nil || got != "you said "+s {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Tell("three"); err == nil {
		t.Error("one that has ended takes messages")
	}
}

func TestHelperThatEndsIsNoticed(t *testing.T) {
	for _, kind := range []string{"broken", "no such kind"} {
		var got string
		if err := start(t, kind).Hear(t.Context(), &got); err == nil {
			t.Errorf("%s: heard %q", kind, got)
		}
	}
}

func TestHearEndsWithItsContext(t *testing.T) {
	p := start(t, "silent")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	var got string
	if err := p.Hear(ctx, &got); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

func TestCloseAll(t *testing.T) {
	if err := CloseAll([]*Process{start(t, "silent"), start(t, "silent")}); err != nil {
		t.Error(err)
	}
}
