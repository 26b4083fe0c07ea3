// SPDX-License-Identifier: Apache-2.0

package mutants

// clientMutants break rules of the client library, its keep-alives and the identity of what it talks to.
var clientMutants = []Mutant{}
