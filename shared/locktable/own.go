// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// owned is what a KindOwn said that this cell of a site owns. It is never changed, so that others may keep it.
type owned struct {
	own  *cluster.Own
	text string // of own
}

// Own returns what this cell owns of the names of its site. It is nil where there is no site: then the table has all names. What it points
// to must not be changed.
func (t *Table) Own() *cluster.Own {
	if t.owned == nil {
		return nil
	}
	return t.owned.own
}

// DecideOwn logs what the cell owns that the volume was made as, unless it is logged already; nothing for nil. It comes before everything
// else of a term, so that no request is decided without it.
func (t *Table) DecideOwn(born *cluster.Own, epoch cluster.Epoch, recs []Record) []Record {
	if born == nil || t.owned != nil {
		return recs
	}
	d := t.draft(epoch, recs)
	d.add(Record{Kind: KindOwn, Own: born.Text()})
	return d.recs
}

// refuseForeign refuses a request for names that another cell owns.
func (t *Table) refuseForeign(q *Request) (Decision, bool) {
	why, has := t.Own().Refuses(q.Lock, q.File)
	if why == "" {
		return Decision{}, false
	}
	dec := refuse(q, cluster.StatusWrongCell, why)
	dec.Outcome.Cell = has
	return dec, true
}

// legalOwn: what a cell owns is said once, before there is anything that it might not own.
func (t *Table) legalOwn(r *Record) error {
	own, err := cluster.ParseOwn(r.Own)
	switch {
	case err != nil:
		return err
	case t.owned != nil:
		return fmt.Errorf("%v owns what version %d says, which does not change", t.owned.own.Cell, t.owned.own.Version)
	case own.Version != 1:
		return fmt.Errorf("version %d of what a cell owns is not the first one", own.Version)
	case t.HasNames():
		return errors.New("the table has locks or files already: a volume becomes a cell when it is made, and not later")
	}
	return nil
}

// HasNames reports whether the table knows any lock or file, or remembers something of one.
func (t *Table) HasNames() bool { return t.locks.len() > 0 || len(t.files) > 0 || t.MarkCount() > 0 }

// legalName: whatever a lock or a file comes into the table by, the cell owns its name.
func (t *Table) legalName(r *Record) error {
	if why, _ := t.Own().Refuses(r.Lock, r.File); why != "" {
		return errors.New(why)
	}
	return nil
}

// setOwn takes what the cell owns by this text, which is valid.
func (t *Table) setOwn(text string) {
	own, err := cluster.ParseOwn(text)
	if err != nil {
		return // legal and import have parsed it
	}
	t.hash -= t.sumOwn()
	t.owned = &owned{own: own, text: text}
	t.hash += t.sumOwn()
}

// sumOwn returns the part of the hash that what the cell owns has, 0 without a site: other states keep their hash.
func (t *Table) sumOwn() uint64 {
	if t.owned == nil {
		return 0
	}
	return t.sum(t.owned.appendTo)
}

func (o *owned) appendTo(b []byte) []byte { return appendText(append(b, tagOwn), o.text) }

func (t *Table) importOwn(own *cluster.Own) error {
	text := own.Text()
	if _, err := cluster.ParseOwn(text); err != nil {
		return err
	}
	if t.owned != nil {
		return errors.New("what the cell owns comes twice")
	}
	t.setOwn(text)
	return nil
}

// owned checks what the cell owns, and that everything in the table has a name of its own.
func (ck *checker) owned() error {
	o := ck.t.owned
	if o == nil {
		return nil
	}
	ck.sum(o.appendTo)
	if o.own.Validate() != nil || o.own.Text() != o.text {
		return fmt.Errorf("invariant 15: what the cell owns is %s", o.text)
	}
	for name := range ck.t.lockNames.all() {
		if !o.own.Owns(string(name)) {
			return fmt.Errorf("invariant 15: lock %q is of %v, and this is %v", name, o.own.Route(string(name)), o.own.Cell)
		}
	}
	for name := range ck.t.fileNames.all() {
		if !o.own.Owns(string(name)) {
			return fmt.Errorf("invariant 15: file %q is of %v, and this is %v", name, o.own.Route(string(name)), o.own.Cell)
		}
	}
	return nil
}
