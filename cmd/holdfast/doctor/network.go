// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ExamineWith looks at a directory and tries what it and the same directory on
// another host, where Listen serves at addr, see of each other.
func ExamineWith(ctx context.Context, dir, addr string, opt Options) (*Report, error) {
	r, opt, err := examineAlone(dir, opt)
	if err != nil {
		return nil, err
	}
	far, w, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(ctx, func() { far.lines.conn.Close() }) //nolint:errcheck // it ends what is in flight
	defer cut()
	near, err := enter(ctx, filepath.Join(r.Path, w.Dir), r.Path, opt)
	if err != nil {
		r.elsewhere(far.String(), err)
		return r, far.close(&Report{Findings: r.Findings[len(r.Findings)-1:]})
	}
	own := len(r.Findings)
	err = r.trial(ctx, far, near, opt)
	told := *r
	told.Findings = r.Findings[own:] // of the trial: what is wrong with this host's mount alone is not the other's
	if err = errors.Join(err, near.close(), far.close(&told)); err != nil {
		return nil, err
	}
	return r, nil
}

// Listen looks at a directory, serves one trial to whoever calls, and returns
// what both found. It has no authentication: whoever reaches the address
// meanwhile can make small files in one directory that it makes and removes
// again. It closes the listener.
func Listen(ctx context.Context, l net.Listener, dir string, opt Options) (r *Report, err error) {
	defer l.Close() //nolint:errcheck // nobody is waiting
	r, opt, err = examineAlone(dir, opt)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // it ends Accept
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
		served, err := serveTrial(ctx, conn, r, opt)
		if served {
			return r, err
		}
	}
}

// serveTrial answers one caller. Without a proper hello nothing was served, and another may come.
func serveTrial(ctx context.Context, conn net.Conn, r *Report, opt Options) (served bool, err error) {
	cut := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // it ends what is in flight
	defer cut()
	defer conn.Close() //nolint:errcheck // everything was said
	l := newLines(conn)
	line, err := l.read(helloWait)
	if err != nil {
		return false, nil //nolint:nilerr // somebody who says nothing
	}
	var h hello
	if err := json.Unmarshal(line, &h); err != nil || h.Protocol != protocol {
		text := fmt.Sprintf("this doctor speaks version %d of its protocol, the caller %d: use the same binary on both hosts", protocol, h.Protocol)
		l.write(welcome{Protocol: protocol, Error: text}) //nolint:errcheck // another may come
		return false, nil
	}
	dir, err := os.MkdirTemp(r.Path, probePrefix)
	if err != nil {
		l.write(welcome{Protocol: protocol, Error: err.Error()}) //nolint:errcheck // it is returned here
		return true, err
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil {
			r.add("clean up", Warn, e.Error(), "rm -r "+dir)
		}
	}()
	near, err := enter(ctx, dir, r.Path, opt)
	if err != nil {
		return true, err
	}
	err = l.write(welcome{Protocol: protocol, Dir: filepath.Base(dir), Path: r.Path})
	if err == nil {
		err = answerCalls(ctx, l, near, r, opt)
	}
	return true, errors.Join(err, near.close())
}

// answerCalls does what the caller says until goodbye.
func answerCalls(ctx context.Context, l *lines, near hand, r *Report, opt Options) error {
	for n := 0; ; n++ {
		line, err := l.read(callWait)
		if err != nil {
			return fmt.Errorf("the other doctor has gone: %w", err)
		}
		q, err := decodeRequest(line)
		if err != nil {
			return fmt.Errorf("the other doctor: %w", err)
		}
		if q.Goodbye != nil {
			for _, f := range q.Goodbye.Findings {
				r.record(f)
			}
			r.Rounds, r.Staleness = q.Goodbye.Rounds, q.Goodbye.Staleness
			return nil
		}
		opt.Progress(Progress{Check: string(q.Call.Op), Round: n})
		answer, err := near.do(ctx, *q.Call)
		if err == nil {
			err = l.write(answer)
		}
		if err != nil {
			return err
		}
	}
}
