// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// requester is one request of one client.
type requester struct {
	client cluster.ClientID
	id     cluster.RequestID
}

// oracle knows in its own, simple way what a log may hold. It never forgets.
type oracle struct {
	holder   map[cluster.LockName]requester
	token    map[cluster.LockName]cluster.Token
	queue    map[cluster.LockName][]requester
	executed map[requester]locktable.Kind // how each request ended
	files    map[cluster.FileName]*oracleFile
	last     cluster.Token
}

type oracleFile struct {
	lock       cluster.LockName
	generation cluster.Generation
	end        int64
	stopped    bool
}

func newOracle() *oracle {
	return &oracle{
		holder: map[cluster.LockName]requester{}, token: map[cluster.LockName]cluster.Token{},
		queue: map[cluster.LockName][]requester{}, executed: map[requester]locktable.Kind{},
		files: map[cluster.FileName]*oracleFile{},
	}
}

// execute books the one time that a request may be executed.
func (o *oracle) execute(r *record) error {
	who := requester{r.Client, r.Request}
	if r.Request == 0 || r.Client.Anonymous() {
		return nil
	}
	if kind, done := o.executed[who]; done {
		return fmt.Errorf("request %v is executed by %v after %v", who, r.Kind, kind)
	}
	o.executed[who] = r.Kind
	return nil
}

// see checks one record against all before it.
func (o *oracle) see(r *record) error {
	switch r.Kind {
	case locktable.KindGrant:
		return o.grant(r)
	case locktable.KindEnqueue:
		if o.token[r.Lock] == 0 {
			return fmt.Errorf("queued at the free lock %q", r.Lock)
		}
		o.queue[r.Lock] = append(o.queue[r.Lock], requester{r.Client, r.Request})
		return nil
	case locktable.KindExpire, locktable.KindRelease, locktable.KindBreak:
		if o.token[r.Lock] != r.Token {
			return fmt.Errorf("%v of %q under token %d, live is %d", r.Kind, r.Lock, r.Token, o.token[r.Lock])
		}
		delete(o.token, r.Lock)
		delete(o.holder, r.Lock)
		return o.execute(r)
	case locktable.KindWaitTimeout, locktable.KindCancel:
		for lock, queue := range o.queue { // at most one queue has it
			for i, who := range queue {
				if who == (requester{r.Client, r.Request}) {
					o.queue[lock] = append(append([]requester{}, queue[:i]...), queue[i+1:]...)
					break
				}
			}
		}
		return o.execute(r)
	case locktable.KindForceClear:
		clear(o.holder)
		clear(o.token)
		clear(o.queue)
		return nil
	case locktable.KindForgetClient: // a self-chosen client may start anew
		for who := range o.executed {
			if who.client == r.Client && !r.Client.Opened() {
				delete(o.executed, who)
			}
		}
		return nil
	default:
		return o.file(r)
	}
}

func (o *oracle) grant(r *record) error {
	if o.token[r.Lock] != 0 {
		return fmt.Errorf("lock %q gets a second holder", r.Lock)
	}
	who := requester{r.Client, r.Request}
	if queue := o.queue[r.Lock]; len(queue) > 0 {
		if queue[0] != who {
			return fmt.Errorf("lock %q goes to %v, but %v is first", r.Lock, who, queue[0])
		}
		o.queue[r.Lock] = queue[1:]
	}
	token := cluster.Token(r.LSN)
	if token <= o.last {
		return fmt.Errorf("token %d after %d", token, o.last)
	}
	o.last, o.token[r.Lock], o.holder[r.Lock] = token, token, who
	return o.execute(r)
}

func (o *oracle) file(r *record) error {
	if r.Token != 0 && o.token[r.Lock] != r.Token {
		return fmt.Errorf("%v under token %d of %q, live is %d", r.Kind, r.Token, r.Lock, o.token[r.Lock])
	}
	f := o.files[r.File]
	switch {
	case r.Kind == locktable.KindBind && f == nil:
		o.files[r.File] = &oracleFile{r.Lock, r.Generation, r.Offset, false}
	case r.Kind == locktable.KindBind:
		return fmt.Errorf("file %q is bound twice", r.File)
	case r.File == "":
		return nil
	case f == nil || r.Kind != locktable.KindQuarantine && f.lock != r.Lock:
		return fmt.Errorf("%v of file %q under lock %q: %+v", r.Kind, r.File, r.Lock, f)
	case r.Kind == locktable.KindQuarantine:
		f.stopped = true
	case r.Kind == locktable.KindUnbind:
		delete(o.files, r.File)
	case r.Kind == locktable.KindRotate:
		*f = oracleFile{r.Lock, f.generation + 1, 0, false}
	case r.Kind == locktable.KindAppend:
		if f.stopped || r.Offset != f.end || r.Generation != f.generation {
			return fmt.Errorf("append at %d of generation %d to %+v", r.Offset, r.Generation, f)
		}
		f.end += r.Length
	}
	return o.execute(r)
}
