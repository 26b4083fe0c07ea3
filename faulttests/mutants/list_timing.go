// SPDX-License-Identifier: Apache-2.0

package mutants

// timingMutants break what is measured of a share, and what servers are to be told then.
var timingMutants = []Mutant{
	{
		Name: "claim-not-covered",
		Rule: "a claim has to fit into Suspicion: who yields to a claimant claims itself after that (shared/cluster, PROTOCOL 2.2)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `t.Suspicion = raised(t.Suspicion, claimCalls*pair)`, `_ = claimCalls`},
		},
		By: unit("shared/cluster", "^TestTimingCoversALatency$"), Dies: `a claim does not fit: got ""`,
	},
	{
		Name: "renewals-not-covered",
		Rule: "a lease is long enough for a renewal that is lost and one that waits for two slow commits (shared/cluster)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `t.MinTTL = min(raised(t.MinTTL, renewals*pair), t.MaxTTL)`, `_ = renewals`},
		},
		By: unit("shared/cluster", "^TestTimingCoversALatency$"), Dies: `a slow share: got "--suspicion 900ms", want`,
	},
	{
		Name: "probes-half-covered",
		Rule: "half of StorageTimeout covers the interval of the probes and some slow ones: a peer with an older probe proves nothing (shared/cluster, election)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `raised(t.StorageTimeout, 2*(probeInterval+probeCalls*pair))`, `raised(t.StorageTimeout, probeInterval+probeCalls*pair)`},
		},
		By: unit("shared/cluster", "^TestTimingThatCoversIsValid$"), Dies: `does not cover`,
	},
	{
		Name: "proposal-outgrows-max-ttl",
		Rule: "what is proposed can be told to a server: no rule of Validate is broken (shared/cluster)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `t.MinTTL = min(raised(t.MinTTL, renewals*pair), t.MaxTTL)`, `t.MinTTL = raised(t.MinTTL, renewals*pair)`},
		},
		By: unit("shared/cluster", "^TestTimingThatCoversIsValid$"), Dies: `max-ttl is .* must be at least`,
	},
	{
		Name: "proposal-breaks-inequalities",
		Rule: "a longer suspicion takes along what has to be longer than it (shared/cluster)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `	t.MajorityWindow = max(t.MajorityWindow, t.Suspicion)
`, ``},
		},
		By: unit("shared/cluster", "^TestTimingThatCoversIsValid$"), Dies: `majority-window is .* must be at least`,
	},
	{
		Name: "share-slows-heartbeats",
		Rule: "heartbeats do not touch the volume: a slow share is no reason for slow ones (shared/cluster)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `raised(t.Heartbeat, believed(l.Late)/2)`, `raised(t.Heartbeat, max(pair, believed(l.Late))/2)`},
		},
		By: unit("shared/cluster", "^TestTimingCoversALatency$"), Dies: `a claim does not fit: got "--heartbeat`,
	},
	{
		Name: "proposal-without-margin",
		Rule: "a server does not contradict the proposal that it was started with, where it measures a little more (shared/cluster)",
		Edits: []Edit{
			{"shared/cluster/latency.go", `Latency{Check: l.Check / 2, Write: l.Write / 2, Late: l.Late / 2}`, `l`},
		},
		By: unit("shared/cluster", "^TestTimingSuffices$"), Dies: `within the margin: got false`,
	},
	{
		Name: "one-slow-call-decides",
		Rule: "a single outlier is no latency (cmd/holdfast/doctor)",
		Edits: []Edit{
			{"cmd/holdfast/doctor/timing.go", `all[len(all)-1-len(all)/20]`, `all[len(all)-1]`},
		},
		By: unit("cmd/holdfast/doctor", "^TestMeasuredTiming$"), Dies: `one_outlier`,
	},
	{
		Name: "slow-share-measured-for-ever",
		Rule: "a slow share is measured for some seconds at most (cmd/holdfast/doctor)",
		Edits: []Edit{
			{"cmd/holdfast/doctor/timing.go", `(n < e.least || time.Since(began) < e.most)`, `(n < e.least || began.Before(time.Now().Add(e.most)))`},
		},
		By: unit("cmd/holdfast/doctor", "^TestMeasuredTiming$"), Dies: `a_slow_one`,
	},
	{
		Name: "tight-timing-unsaid",
		Rule: "a server whose timing is too tight for its volume says so in its log and in status (cmd/holdfast/serve)",
		Edits: []Edit{
			{"cmd/holdfast/serve/filesystem.go", `append(slices.Clone(r.Doubts), opt.tight(r.Timing)...)`, `slices.Clone(r.Doubts)`},
		},
		By: unit("cmd/holdfast/serve", "^TestTimingTooTightForTheVolume$"), Dies: `the defaults: status says ""`,
	},
	{
		Name: "timing-changed-by-itself",
		Rule: "no server changes its timing for what it measured: all need the same (cmd/holdfast/serve)",
		Edits: []Edit{
			{"cmd/holdfast/serve/filesystem.go", `	flags := opt.Timing.Flags(opt.Timing.Covering(t.Latency))
`, `	flags := opt.Timing.Flags(opt.Timing.Covering(t.Latency))
	opt.Timing = opt.Timing.Covering(t.Latency)
`},
		},
		By: unit("cmd/holdfast/serve", "^TestTimingTooTightForTheVolume$"), Dies: `the defaults: `,
	},
	{
		Name: "init-proposes-nothing",
		Rule: "init prints the flags that all servers need on a slow share (cmd/holdfast/cli)",
		Edits: []Edit{
			{"cmd/holdfast/cli/volume.go", `t != nil && len(t.Flags) > 0 {`, `t != nil && len(t.Flags) > 99 {`},
		},
		By: unit("cmd/holdfast/cli", "^TestInitOfASlowShare$"), Dies: `slow: 0, .*want "the default timing`,
	},
}
