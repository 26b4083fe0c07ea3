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
