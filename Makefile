# SPDX-License-Identifier: Apache-2.0

.PHONY: build test race lint faults gluster vmlab smoke smoke-stale smoke-gluster mutants torture fuzz model bench compare packages sbom image manual

# A failure in the middle of a pipe is a failure.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

build: ## the one binary, in bin/
	go build -ldflags "-X main.linked=$$(git describe --tags --always --dirty)" -o bin/holdfast ./cmd/holdfast

# What a release has, in bin/release: archives, packages for Debian and Red Hat, what the binaries were built of, and sums of all
# that. Nothing is published; goreleaser release does that, of a tag.
packages:
	go run github.com/goreleaser/goreleaser/v2@v2.15.1 release --snapshot --clean --skip docker

# The modules in the binary, in CycloneDX's JSON.
sbom: build
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -output bin/holdfast.cdx.json bin/holdfast

# An image for this machine's processor, with Docker.
image: PLATFORM = linux/$(shell go env GOARCH)
image:
	CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags "-s -w -X main.linked=$$(git describe --tags --always --dirty)" -o bin/image/$(PLATFORM)/holdfast ./cmd/holdfast
	cp LICENSE bin/image/
	docker build -f docs/deploy/Dockerfile --build-arg TARGETPLATFORM=$(PLATFORM) -t holdfast:$$(git describe --tags --always --dirty) bin/image

# The manual pages of all commands, and the completions of shells, in bin/manual.
manual:
	go run ./faulttests/deploy/manual -version "$$(git describe --tags --always --dirty)" bin/manual

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
	go test ./faulttests/deploy -run TestAlertsOfRealFaults -count=1 -faults -v

# What GlusterFS shows to its clients, and what the doctor says of it.
gluster:
	go test ./faulttests/gluster -count=1 -timeout 30m -faults -v

# Servers on virtual machines that mount real NFS, whose hosts die, freeze and are cut off; a
# half an hour. Needs root, QEMU and an apt that brings Debian's kernel.
vmlab:
	go test ./faulttests/vmlab -count=1 -timeout 90m -vmlab -v

# Every fault of the campaigns once, under load.
smoke: smoke-stale smoke-gluster

smoke-stale:
	go test ./faulttests/torture -count=1 -timeout 20m -torture -torture.site 'stale' -v

smoke-gluster:
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
	go test ./clients/kubernetes -fuzz FuzzRecordOf -fuzztime 30s
