// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is the product with one rule broken.
type Mutant struct {
	// Name is a short description of what is missing or wrong.
	Name string
	// Also has other names of it; those in capitals are mutants of the models in docs/model.
	Also string
	// Rule states the broken rule, and where it is written: PROTOCOL 7.2 is a section of
	// docs/PROTOCOL.md, H13 a hazard of docs/ARCHITECTURE.md, else it is a package and a name there.
	Rule  string
	Edits []Edit
	// By is the test that must notice.
	By Killer
	// Dies is a regular expression that the output of the failure must match; its dot matches
	// newlines, too. Empty = any failure.
	Dies string
	// Fast is true if CI runs it.
	Fast bool
}

// Edit replaces one piece of one file.
type Edit struct {
	File     string // relative to the module's root
	Old, New string // Old stands there exactly once
}

// Killer is one run of one package's tests.
type Killer struct {
	Pkg   string // relative to the module's root
	Run   string // -test.run
	Flags string // further flags of the test binary, separated by spaces
}

// String returns the command that runs the killer.
func (k Killer) String() string {
	s := fmt.Sprintf("go test ./%s -run '%s'", k.Pkg, k.Run)
	if k.Flags != "" {
		s += " " + k.Flags
	}
	return s
}

// patch returns the mutated files by name. An edit that does not fit exactly
// once has gone stale.
func (m *Mutant) patch(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %s has gone stale: %s holds this %d times, not once:\n%s", m.Name, e.File, n, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// overlay writes the mutated files and the overlay that names them below dir,
// and returns the overlay's name.
func (m *Mutant) overlay(root, dir string) (string, error) {
	files, err := m.patch(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}

const simulation = "faulttests/sim"

// everyCall pauses, kills and fails one term at each of its calls.
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

// List is every mutant, in the order of the protocol.
func List() []Mutant {
	return slices.Concat(
		takeoverMutants, adoptMutants, warmMutants, commitMutants, orderMutants, logMutants, fileMutants, contentMutants,
		tableMutants, leaseMutants, askMutants, sharedMutants, sessionMutants, frameMutants, historyMutants, electionMutants,
		watchMutants, portMutants, gateMutants, auditMutants, metricsMutants, traceMutants, deployMutants, clientTLSMutants, accessMutants, wayMutants, textMutants, clientMutants, bindingMutants, offlineMutants, childMutants, cliMutants, nodeMutants, peertlsMutants, credentialMutants, loginMutants, proofMutants, quotaMutants, goMutants, doorMutants, secretsMutants, crowdMutants, limitMutants, holdMutants, nameMutants,
		coreMutants, frontMutants, judgeMutants, judgePermitMutants, leftoverMutants, harnessMutants, strangerMutants, glusterMutants,
		sweepVolumeMutants, sweepPrimaryMutants, sweepElectionMutants, lateMutants, sweepFrontMutants, toldMutants, sweepRestMutants, delegationMutants,
		madeMutants, smallMutants, nfsMutants, pendingMutants, timingMutants, identityMutants, pageMutants, configMutants, backupMutants, packageMutants, flockMutants, levelMutants, newerMutants, wordsMutants, descriptorMutants, hourMutants, moduleMutants, twoMutants, memberMutants, leanMutants, memberLossMutants, joinMutants, terraformMutants, markMutants, semaphoreMutants, kubernetesMutants, cellMutants, routingMutants, siteServerMutants, siteMutants, gatewayMutants,
	)
}
