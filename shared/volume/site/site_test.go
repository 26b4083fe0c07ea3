// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/site"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// plan is a site of two cells and a third one with a pinned prefix only, on a volume elsewhere.
func plan(t *testing.T, id byte) site.Plan {
	t.Helper()
	d, err := cluster.Divide(2, []cluster.Pin{{Prefix: "billing/", Cell: 2}})
	if err != nil {
		t.Fatal(err)
	}
	p := site.Plan{Format: site.Format, Site: cluster.ID{id}, Division: d}
	for k := range 3 {
		p.Servers = append(p.Servers, cluster.Members{{ID: 1, Client: fmt.Sprintf("h:%d", 1+k), Peer: fmt.Sprintf("h:%d", 11+k)}})
	}
	p.Paths = map[cluster.CellID]string{2: "/fast/2"}
	return p
}

func host(d *volumetest.Disk, id int) *volumetest.Host {
	return d.Host(id, volumetest.ProfileLocal())
}

// initialise does what the command does, but for the volumes.
func initialise(h *volumetest.Host, p site.Plan) (site.Plan, error) {
	begun, err := site.Begin(h, p)
	if err != nil {
		return begun, err
	}
	for _, c := range begun.Division.Cells() {
		_ = h.Mkdir(site.CellPath(c)) //nolint:errcheck // it may be there
	}
	return begun, site.Finish(h, begun)
}

func TestSiteIsMadeAndRead(t *testing.T) {
	d := volumetest.New(1)
	if _, err := site.Read(host(d, 1)); !errors.Is(err, site.ErrNoSite) {
		t.Errorf("an empty directory: %v", err)
	}
	p, err := initialise(host(d, 1), plan(t, 7))
	if err != nil {
		t.Fatal(err)
	}
	s, err := site.Read(host(d.DurableClone(nil), 2))
	if err != nil || s.ID != (cluster.ID{7}) || len(s.Cells) != 3 || s.Cells[1] != (site.Cell{Cell: 1, Path: "cells/1"}) || s.Cells[2] != (site.Cell{Cell: 2, Path: "/fast/2"}) {
		t.Errorf("after a power loss: %+v, %v", s, err)
	}
	m := new(cluster.SiteMap)
	for _, c := range s.Cells {
		if err := m.Learn(p.Own(c.Cell)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if _, err := initialise(host(d, 3), plan(t, 8)); !errors.Is(err, site.ErrExists) {
		t.Errorf("a second init: %v", err)
	}
}

// TestInterruptedSiteInit: wherever an init stops, the next one goes on with its site, or begins one; SITE is there only at the end.
func TestInterruptedSiteInit(t *testing.T) {
	for what, action := range map[string]volumetest.Action{
		"crash before": volumetest.Crash(), "crash after": volumetest.CrashAfter(), "torn write": volumetest.CrashTorn(100),
		"EIO, not done": volumetest.FailBefore(syscall.EIO), "EIO, but done": volumetest.FailAfter(syscall.EIO),
	} {
		t.Run(what, func(t *testing.T) {
			for n := 1; ; n++ {
				d := volumetest.New(1)
				h := host(d, 1)
				h.SetHook(volumetest.At(n, action))
				first, firstErr := initialise(h, plan(t, 7))
				if h.Calls() < n {
					return
				}
				h.Kill()
				d.Crash(rand.New(rand.NewPCG(uint64(n), 5)))
				s, err := site.Read(host(d, 2))
				there := err == nil
				if !there && !errors.Is(err, site.ErrNoSite) {
					t.Errorf("call %d: %v", n, err)
				}
				if firstErr == nil && !there {
					t.Errorf("call %d: %+v is made and not there", n, first)
				}
				second, err := initialise(host(d, 3), plan(t, 8))
				if there != errors.Is(err, site.ErrExists) || !there && err != nil {
					t.Errorf("call %d (%v): the second init: %v, SITE was there %t", n, firstErr, err, there)
				}
				if now, err := site.Read(host(d, 4)); err != nil || there && now.ID != s.ID || !there && now.ID != second.Site {
					t.Errorf("call %d: SITE is that of %v, %v", n, now.ID, err)
				} else if made := planned(t, d); made != now.ID {
					t.Errorf("call %d: SITE.init is that of %v, SITE of %v", n, made, now.ID)
				}
			}
		})
	}
}

// planned is the site of SITE.init, which the volumes are made for.
func planned(t *testing.T, d *volumetest.Disk) cluster.ID {
	t.Helper()
	var p site.Plan
	b, err := d.ReadFile(site.PlanName)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Error(err)
	}
	return p.Site
}

// TestTwoSiteInitsAtOnce make the same site.
func TestTwoSiteInitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; ; n++ {
			d, gate := volumetest.New(1), volumetest.NewGate()
			h := host(d, 1)
			h.SetHook(volumetest.At(n, volumetest.Pause(gate)))
			type result struct {
				p   site.Plan
				err error
			}
			done := make(chan result, 1)
			go func() {
				p, err := initialise(h, plan(t, 7))
				done <- result{p, err}
			}()
			synctest.Wait()
			p, err := initialise(host(d, 2), plan(t, 8))
			gate.Resume()
			first := <-done
			s, readErr := site.Read(host(d, 3))
			for _, x := range []result{first, {p, err}} {
				if x.err == nil && x.p.Site != s.ID || x.err != nil && !errors.Is(x.err, site.ErrExists) {
					t.Errorf("call %d: %v made %v, SITE is that of %v, %v", n, x.err, x.p.Site, s.ID, readErr)
				}
			}
			if h.Calls() < n {
				return
			}
		}
	})
}

func TestSiteInitRefuses(t *testing.T) {
	other := plan(t, 8)
	other.Servers[1][0].Client = "elsewhere:1"
	d := volumetest.New(1)
	if _, err := site.Begin(host(d, 1), plan(t, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := site.Begin(host(d, 1), other); err == nil || !strings.Contains(err.Error(), "another init began here with other cells, pins, paths or servers") {
		t.Errorf("other servers: %v", err)
	}
	other = plan(t, 8)
	other.Paths = map[cluster.CellID]string{1: "/fast/1"}
	if _, err := site.Begin(host(d, 1), other); err == nil || !strings.Contains(err.Error(), "another init began here with other cells, pins, paths or servers") {
		t.Errorf("another path: %v", err)
	}
	for _, name := range []string{"thesis.tex", "cells/0/CLUSTER"} {
		d := volumetest.New(1)
		if err := d.Write(name, 0, []byte("mine")); err != nil {
			t.Fatal(err)
		}
		if _, err := site.Begin(host(d, 1), plan(t, 7)); err == nil || !strings.Contains(err.Error(), "the directory is not empty") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for what, change := range map[string]func(p *site.Plan){
		"no format":        func(p *site.Plan) { p.Format = 0 },
		"too few servers":  func(p *site.Plan) { p.Servers = p.Servers[:2] },
		"no servers":       func(p *site.Plan) { p.Servers[1] = nil },
		"a shared address": func(p *site.Plan) { p.Servers[2][0].Peer = p.Servers[0][0].Client },
		"no division":      func(p *site.Plan) { p.Division.Ranges = nil },
		"a relative path":  func(p *site.Plan) { p.Paths = map[cluster.CellID]string{1: "fast"} },
		"a path with ..":   func(p *site.Plan) { p.Paths = map[cluster.CellID]string{1: "/fast/../1"} },
		"the root":         func(p *site.Plan) { p.Paths = map[cluster.CellID]string{1: "/"} },
		"one path for two": func(p *site.Plan) { p.Paths = map[cluster.CellID]string{1: "/fast", 2: "/fast"} },
		"a path in one":    func(p *site.Plan) { p.Paths = map[cluster.CellID]string{1: "/fast/1", 2: "/fast"} },
		"a path of no one": func(p *site.Plan) { p.Paths = map[cluster.CellID]string{3: "/fast"} },
	} {
		p := plan(t, 7)
		if change(&p); p.Validate() == nil {
			t.Errorf("%s: it is a plan", what)
		}
	}
	for what, text := range map[string]string{"no JSON": "{", "another format": `{"format":2,"cells":[{"cell":0,"path":"x"}]}`, "no cells": `{"format":1}`} {
		d := volumetest.New(1)
		if err := d.Write(site.Name, 0, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if s, err := site.Read(host(d, 1)); err == nil {
			t.Errorf("%s: it is read as %+v", what, s)
		}
	}
}
