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

// ExamineWith examines a directory, and tests what it and the same directory on
// another host, where Listen serves at addr, see of each other's changes.
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
	own := len(r.Findings)
	if r.oneClient(nfsClientOf(opt, r.at), w.Client) {
		return r, far.close(&Report{Findings: r.Findings[own:]})
	}
	near, err := enter(ctx, filepath.Join(r.Path, w.Dir), r.Path, opt)
	if err != nil {
		r.elsewhere(far.String(), err)
		return r, far.close(&Report{Findings: r.Findings[own:]})
	}
	err = r.trial(ctx, far, near, opt)
	told := *r
	told.Findings = r.Findings[own:] // of the trial only: faults of this host's mount do not concern the other host
	if err = errors.Join(err, near.close(), far.close(&told)); err != nil {
		return nil, err
	}
	return r, nil
}

// Listen examines a directory, serves one trial to the first doctor that calls, and returns
// what both found. It has no authentication: everyone who reaches the address
// meanwhile can make small files in one directory that it makes and removes
// again. It closes the listener.
func Listen(ctx context.Context, l net.Listener, dir string, opt Options) (r *Report, err error) {
	defer l.Close() //nolint:errcheck // no caller is waiting
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

// serveTrial serves one caller. served is false if it sent no valid hello: then another may come.
func serveTrial(ctx context.Context, conn net.Conn, r *Report, opt Options) (served bool, err error) {
	cut := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // it ends what is in flight
	defer cut()
	defer conn.Close() //nolint:errcheck // everything was said
	l := newLines(conn)
	line, err := l.read(helloWait)
	if err != nil {
		return false, nil //nolint:nilerr // a caller that sends nothing
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
	err = l.write(welcome{Protocol: protocol, Dir: filepath.Base(dir), Path: r.Path, Client: nfsClientOf(opt, r.at)})
	if err == nil {
		err = answerCalls(ctx, l, near, r, opt)
	}
	return true, errors.Join(err, near.close())
}

// answerCalls executes the calls of the caller until goodbye.
func answerCalls(ctx context.Context, l *lines, near mountAgent, r *Report, opt Options) error {
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
