// SPDX-License-Identifier: Apache-2.0

package mutants

const simulation = "faulttests/sim"

// everyCall pauses, kills and fails one reign at each of its calls.
func everyCall() Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCall$", Flags: "-sim.stride 3"}
}

// calls is everyCall with the one variant whose name holds this word.
func calls(variant string) Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCall$", Flags: "-sim.stride 2 -sim.variant " + variant}
}

// everyOne is calls at each of them.
func everyOne(variant string) Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCall$", Flags: "-sim.stride 1 -sim.variant " + variant}
}

// schedules are faults drawn by seed.
func schedules() Killer {
	return Killer{Pkg: simulation, Run: "^TestRandomSchedules$", Flags: "-sim.seeds 400"}
}

// staleCaches does so on a filesystem whose caches lie.
func staleCaches() Killer {
	return Killer{Pkg: simulation, Run: "^TestEveryCallOnStaleCaches$", Flags: "-sim.stride 3"}
}

// clusters are whole servers under faults drawn by seed, and a client's mirror.
func clusters() Killer {
	return Killer{Pkg: simulation, Run: "^TestClusterSchedules$", Flags: "-sim.clusters 100"}
}

// staleClusters are whole servers under faults drawn by seed, where caches lie.
func staleClusters() Killer {
	return Killer{Pkg: simulation, Run: "^TestClusterSchedulesOnStaleCaches$", Flags: "-sim.clusters 300"}
}

// unit are a package's own tests.
func unit(pkg, run string) Killer { return Killer{Pkg: pkg, Run: run} }
