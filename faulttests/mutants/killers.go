// SPDX-License-Identifier: Apache-2.0

package mutants

const simulation = "faulttests/sim"

// everyCall pauses, kills and fails one reign at each of its calls.
func everyCall() Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCall$", Flags: "-sim.stride 2"}
}

// schedules are faults drawn by seed.
func schedules() Killer {
	return Killer{Pkg: simulation, Run: "^TestRandomSchedules$", Flags: "-sim.seeds 400"}
}

// staleCaches does so on a filesystem whose caches lie.
func staleCaches() Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCallOnStaleCaches$"}
}

// clusters are whole servers under faults drawn by seed.
func clusters() Killer {
	return Killer{Pkg: simulation, Run: "^TestClusterSchedules$", Flags: "-sim.clusters 100"}
}

// unit are a package's own tests.
func unit(pkg, run string) Killer { return Killer{Pkg: pkg, Run: run} }
