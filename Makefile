# SPDX-License-Identifier: Apache-2.0

.PHONY: build test race lint faults gluster vmlab smoke mutants torture fuzz model bench compare

# A failure in the middle of a pipe is a failure.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

build: ## the one binary, in bin/
	go build -ldflags "-X main.linked=$$(git describe --tags --always --dirty)" -o bin/holdfast ./cmd/holdfast

test:
	go test work

race:
	go test -race -short work

lint:
	gofmt -l .
	go vet work
	go tool staticcheck work

# Real processes: killed, paused, cut off, struck at single system calls, on a
# broken disk; some minutes. What cannot run here says so and skips.
faults:
	go test ./faulttests/fault ./faulttests/fuse -p 1 -count=1 -timeout 30m -faults

# What GlusterFS shows to its clients, and what the doctor says of it.
gluster:
	go test ./faulttests/gluster -count=1 -timeout 30m -faults -v

# Servers on virtual machines that mount real NFS, whose hosts die, freeze and are cut off; a
# half an hour. Needs root, QEMU and an apt that brings Debian's kernel.
vmlab:
	go test ./faulttests/vmlab -count=1 -timeout 90m -vmlab -v

# Every fault of the campaigns once, under load.
smoke:
	go test ./faulttests/torture -count=1 -timeout 20m -torture -torture.site 'stale' -v
	go test ./faulttests/torture -count=1 -timeout 20m -torture -torture.site gluster -torture.fault brick -v

# Every mutant: who killed it, and how long that took. Hours.
mutants:
	go test ./faulttests/mutants -count=1 -timeout 0 -mutants -mutants.parallel 2 -v | grep -v '^=== '

# The simulation, every mutant, doctor's verdicts, then campaigns on a share of our
# own and on GlusterFS, each for as long as you like: make torture DURATION=2h. The
# report is torture/report.md and grows while it runs.
DURATION ?= 1h
SEEDS ?= 20000
torture:
	mkdir -p torture
	go test ./faulttests/sim -count=1 -timeout 0 -sim.stride 1 -sim.first $$(date +%s)000000 -sim.seeds $(SEEDS) -sim.clusters 2000 -v | grep -v '^=== ' | tee torture/1-simulation.txt
	$(MAKE) --no-print-directory mutants | tee torture/2-mutants.txt
	go test ./faulttests/torture -count=1 -timeout 0 -torture -torture.for $(DURATION) -torture.report $(CURDIR)/torture -v

# What it costs: three servers on loopback, their volume under .holdfast. Leave the machine alone meanwhile.
bench: build
	go build -o bin/holdfast-bench ./cmd/holdfast-bench
	bin/holdfast-bench run

# The same work with the peers whose binaries are here: etcd, Redis, PostgreSQL. ETCD=path names an etcd.
ETCD ?= etcd
compare: build
	go build -o bin/holdfast-bench ./cmd/holdfast-bench
	go build -o bin/holdfast-bench-compare ./cmd/holdfast-bench/compare
	bin/holdfast-bench compare --etcd $(ETCD)

# The models of the protocol and their mutants: two minutes and 2.5 GB. Needs spin and a C compiler, or says so.
model:
	docs/model/run.sh

fuzz:
	go test ./wal -fuzz FuzzDecodeFrame -fuzztime 30s
	go test ./shared/locktable -fuzz FuzzDecodeHeader -fuzztime 30s
	go test ./shared/wire/convert -fuzz FuzzOperationFrames -fuzztime 30s
	go test ./shared/wire/convert -fuzz FuzzAnswerFrames -fuzztime 30s
	go test ./shared/volume -fuzz FuzzSnapshot -fuzztime 30s
	go test ./shared/cluster -fuzz FuzzPlainPath -fuzztime 30s
	go test ./shared/frontend/clientport -fuzz FuzzFirstBytes -fuzztime 30s
	go test ./cmd/holdfast/settings -fuzz FuzzLoad -fuzztime 30s
	go test ./clientlib/clientconfig -fuzz FuzzParse -fuzztime 30s
