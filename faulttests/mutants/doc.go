// SPDX-License-Identifier: Apache-2.0

// Package mutants breaks one rule of the product at a time and requires that a test
// notices. A mutant is a patch of the source that exists only in the overlay of
// one compilation (go test -overlay), so that none can reach a release build.
//
//	go test ./faulttests/mutants                               every patch still fits
//	go test ./faulttests/mutants -mutants.fast                 some quick ones
//	go test ./faulttests/mutants -mutants -timeout 0 -v        all of them
//	go test ./faulttests/mutants -mutants.run 'fence|start' -v some by name
//
// In a run, every killer must first pass on the product as it is; then it must fail on each of its
// mutants, but not because of a compile error or a timeout. Killers are the
// simulation if it can show the damage, else a package's own tests.
package mutants
