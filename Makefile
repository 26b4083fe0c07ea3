# SPDX-License-Identifier: Apache-2.0

.PHONY: build test race lint faults torture fuzz

build: ## the one binary, in bin/
	go build -o bin/holdfast ./cmd/holdfast

test:
	go test ./...

race:
	go test -race -short ./...

lint:
	gofmt -l .
	go vet ./...
	go tool staticcheck ./...

# Real processes on loopback, killed and paused; some minutes.
faults:
	go test ./faulttests/fault -count=1 -timeout 20m -faults

# The same for as long as you like: make torture DURATION=2h
DURATION ?= 1h
torture:
	go test ./faulttests/sim -count=1 -timeout 0 -sim.seeds 20000 -sim.clusters 5000
	go test ./faulttests/fault -count=1 -timeout 0 -v -faults -faults.duration $(DURATION)

fuzz:
	go test ./wal -fuzz FuzzDecodeFrame -fuzztime 30s
	go test ./shared/locktable -fuzz FuzzDecodeHeader -fuzztime 30s
