// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

var (
	torture   = flag.Bool("torture", false, "run campaigns; they take minutes to hours")
	siteNames = flag.String("torture.site", "", "run only at sites whose name matches this `regexp`")
	faultName = flag.String("torture.fault", "", "inject only faults whose name contains this")
	duration  = flag.Duration("torture.for", 0, "go on for this long at each site; 0 = each fault once")
	perRound  = flag.Duration("torture.round", 4*time.Minute, "begin a fresh volume after this long")
	firstSeed = flag.Uint64("torture.seed", 0, "the seed of the first round; 0 = from the time")
	reportTo  = flag.String("torture.report", "", "write results and report.md into this directory")
	binary    = flag.String("torture.binary", "", "the holdfast binary to test; empty = build it")
	textBytes = flag.Int("torture.text", 4<<20, "how much text the clients append, over and over, in bytes")
)

// patience is how many rounds may fail one after the other before a campaign
// ends: a long one is worth going on with.
const patience = 3

// TestCampaign is each fault at each site, or hours of them.
func TestCampaign(t *testing.T) {
	if !*torture {
		t.Skip("campaigns take minutes to hours: give -torture")
	}
	if !cluster.Inside(t) {
		return
	}
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	lines := text(t)
	report := &Report{Began: time.Now(), Skipped: map[string]map[string]string{}}
	defer save(t, report)
	bin := build(t)
	sites := regexp.MustCompile(*siteNames)
	for _, place := range Places() {
		if !sites.MatchString(place.Name) {
			continue
		}
		began, failures := time.Now(), 0
		for n := 0; n == 0 || time.Since(began) < *duration; n++ {
			seed++
			passed := t.Run(fmt.Sprintf("%s/%d", place.Name, n+1), func(t *testing.T) {
				if err := place.Available(); err != nil {
					t.Skip(err)
				}
				t.Logf("seed: -torture.seed %d", seed-1)
				site := place.Open(t, bin, seed)
				faults, why := choose(site, seed)
				for name, err := range why {
					note(report, site.Name, name, err)
				}
				report.Rounds = append(report.Rounds, RunRound(t, site, lines, faults, seed, roundLimit()))
				save(t, report)
			})
			failures++
			if passed {
				failures = 0
			}
			if failures == patience {
				t.Errorf("%d rounds in a row failed", failures)
				break
			}
		}
	}
}

// choose is what to inject at a site: each fault once, or many in random order.
func choose(site *Site, seed uint64) (faults []Fault, why map[string]error) {
	usable, why := Usable(All(), site)
	usable = slices.DeleteFunc(usable, func(f Fault) bool { return !strings.Contains(f.Name, *faultName) })
	if *duration == 0 {
		return usable, why
	}
	random := rand.New(rand.NewPCG(seed, 2))
	for range 20 {
		for _, i := range random.Perm(len(usable)) {
			faults = append(faults, usable[i])
		}
	}
	return faults, why
}

func roundLimit() time.Duration {
	if *duration == 0 {
		return time.Hour
	}
	return min(*perRound, *duration)
}

func note(r *Report, site, name string, err error) {
	if r.Skipped[site] == nil {
		r.Skipped[site] = map[string]string{}
	}
	r.Skipped[site][name] = err.Error()
}

// save writes the report so far, under the names of the sites that were asked for.
func save(t *testing.T, r *Report) {
	if *reportTo == "" {
		return
	}
	if err := r.Save(*reportTo, "torture-"+fileName(cmp.Or(*siteNames, "all"))); err != nil {
		t.Errorf("save the report: %v", err)
	}
}

// fileName is what is left of a pattern as a part of a file's name.
func fileName(pattern string) string {
	return regexp.MustCompile(`[^a-z]+`).ReplaceAllString(pattern, "")
}

func build(t *testing.T) string {
	t.Helper()
	if *binary != "" {
		return *binary
	}
	path, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func text(t *testing.T) [][]byte {
	t.Helper()
	lines, err := check.GoSource(*textBytes)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
