// SPDX-License-Identifier: Apache-2.0

package check

import "slices"

// LockSet is the result of the negative control: clients add elements, each one
// once, to a set in a plain file that only the lock protects, by reading it and
// writing all of it again; then they append the element to a protected file
// under their token. Some are frozen between the two, for longer than their lease.
type LockSet struct {
	// Added are the elements whose client wrote the set without an error.
	Added []string
	// Accepted and Refused are the elements whose append had that answer. The rest of
	// Added had no answer and may be in the file once or not.
	Accepted, Refused []string
	// Set is the plain file in the end, and File the protected one, in order.
	Set, File []string
}

// LockSetVerdict is the result of the comparison.
type LockSetVerdict struct {
	// Lost are elements that were added to the set and are not there, which a lock
	// without tokens does not prevent.
	Lost []string
	// Missing, Doubled, Late and Foreign are elements of the protected file that
	// were accepted and are not there, are there twice, are there though they were
	// refused, and that no client appended.
	Missing, Doubled, Late, Foreign []string
}

// Judge compares the two files with what the clients added.
func (s LockSet) Judge() (v LockSetVerdict) {
	for _, e := range s.Added {
		if !slices.Contains(s.Set, e) {
			v.Lost = append(v.Lost, e)
		}
	}
	for _, e := range s.Accepted {
		if !slices.Contains(s.File, e) {
			v.Missing = append(v.Missing, e)
		}
	}
	seen := map[string]bool{}
	for _, e := range s.File {
		switch {
		case seen[e]:
			v.Doubled = append(v.Doubled, e)
		case slices.Contains(s.Refused, e):
			v.Late = append(v.Late, e)
		case !slices.Contains(s.Added, e):
			v.Foreign = append(v.Foreign, e)
		}
		seen[e] = true
	}
	return v
}

// Check adds the verdict to a report. The set must have lost something: if it
// did not, the freezing was no fault, and the protected file's order proves nothing.
func (s LockSet) Check(r *Report) LockSetVerdict {
	v := s.Judge()
	if len(v.Lost) == 0 {
		r.Violation(Run, "lock-set: all %d elements are in the set that only the lock protects: this control controls nothing", len(s.Added))
	}
	r.Checked(I5, len(s.Accepted))
	r.Checked(I1, len(s.Refused))
	for _, x := range []struct {
		number   Number
		what     string
		elements []string
	}{
		{I5, "were accepted and are not in the protected file", v.Missing},
		{I5, "are in the protected file twice", v.Doubled},
		{I1, "were refused and are in the protected file", v.Late},
		{I5, "are in the protected file and nobody appended them", v.Foreign},
	} {
		if len(x.elements) > 0 {
			r.Violation(x.number, "lock-set: %d elements %s: %.5q", len(x.elements), x.what, x.elements)
		}
	}
	r.Figure("lock-set", "%d elements: %d lost by the set without tokens; %d accepted and %d refused by the protected file, which lost %d",
		len(s.Added), len(v.Lost), len(s.Accepted), len(s.Refused), len(v.Missing))
	return v
}
