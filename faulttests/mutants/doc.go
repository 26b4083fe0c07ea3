// SPDX-License-Identifier: Apache-2.0

// Package mutants breaks one rule of the product at a time and wants a test to
// notice. A mutant is a patch of the source that exists only in the overlay of
// one compilation (go test -overlay), so that none can reach a release build.
//
//	go test ./faulttests/mutants                               every patch still fits
//	go test ./faulttests/mutants -mutants.fast                 some quick ones
//	go test ./faulttests/mutants -mutants -timeout 0 -v        all of them
//	go test ./faulttests/mutants -mutants.run 'fence|start' -v some by name
//
// A run first passes every killer on the product as it is; then each mutant's
// killer must fail, and not for want of compiling or of time. Killers are the
// simulation where it can see the damage, else a package's own tests.
package mutants
