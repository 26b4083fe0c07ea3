// SPDX-License-Identifier: Apache-2.0

package mutants

// glusterMutants break how options of GlusterFS are judged, and what keeps a process from ending.
var glusterMutants = []Mutant{
	{
		Name: "gluster-caches-accepted", Also: "",
		Rule: "a GlusterFS client that runs a cache which showed old data is refused",
		Edits: []Edit{{"cmd/holdfast/doctor/gluster.go",
			`		case kinds[i].stale != "":`, `		case false:`}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterOptions$"),
		Dies: `quick-read is on.*want refuse`,
	},
	{
		Name: "gluster-mount-defaults-believed", Also: "",
		Rule: "an option that a GlusterFS mount does not name has its default, which may show old data",
		Edits: []Edit{{"cmd/holdfast/doctor/gluster.go",
			`			value = x.unset`, `			value = "0"`}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterOptions$"),
		Dies: `names_in_the_kernel.*want refuse`,
	},
	{
		Name: "gluster-first-option-counts", Also: "",
		Rule: "of an option of a GlusterFS mount that is repeated the last counts",
		Edits: []Edit{{"cmd/holdfast/doctor/gluster.go",
			`			options[name], last = value, ""`, `			if _, set := options[name]; !set {
				options[name] = value
			}
			last = ""`}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterOptions$"),
		Dies: `spelled_otherwise`,
	},
	{
		Name: "gluster-minority-accepted", Also: "",
		Rule: "a GlusterFS volume whose minority of bricks takes writes is refused",
		Edits: []Edit{{"cmd/holdfast/doctor/gluster.go",
			`	case quorum <= n/2:`, `	case quorum == 0:`}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterOptions$"),
		Dies: `a_quorum_of_one.*want refuse`,
	},
	{
		Name: "gluster-untold-accepted", Also: "",
		Rule: "a GlusterFS mount that does not show what its client runs gets a warning that status repeats",
		Edits: []Edit{{"cmd/holdfast/doctor/gluster.go",
			"	r.Doubts = append(r.Doubts, glusterCheck+\": \"+detail)\n", ""}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterWithoutMeta$"),
		Dies: `status shows \[\]`,
	},
	{
		Name: "gluster-options-unjudged", Also: "",
		Rule: "the doctor, and with it each server that starts, judges the options of a GlusterFS mount",
		Edits: []Edit{{"cmd/holdfast/doctor/profiles.go",
			`	if p.look != nil {`, `	if false {`}},
		By:   unit("cmd/holdfast/doctor", "^TestGlusterWithoutMeta$"),
		Dies: `nothing is said about the options`,
	},
	{
		Name: "doubts-unsaid", Also: "",
		Rule: "what cannot be told of the filesystem is shown by status for as long as the server runs",
		Edits: []Edit{{"cmd/holdfast/serve/filesystem.go",
			`		return doubts, nil`, `		return nil, nil`}},
		By:   unit("cmd/holdfast/serve", "^TestDoubtsAboutTheFilesystem$"),
		Dies: `status is told \[\]`,
	},
	{
		Name: "failure-waits-for-its-reader", Also: "",
		Rule: "a server that ends says why, and waits for no reader of that (package cli, logqueue)",
		Edits: []Edit{{"cmd/holdfast/cli/logqueue.go",
			"	a.Stdout, a.Stderr = logSink{q, a.Stdout}, logSink{q, a.Stderr}\n", ""}},
		By:   unit("cmd/holdfast/cli", "^TestFailureWaitsForNoReader$"),
		Dies: "waits for the reader of its words",
	},
}
