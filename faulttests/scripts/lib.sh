# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts here share: three real servers on loopback over a volume in a
# temporary directory. They need bash, curl and Go, nothing else. HOLDFAST_BINARY
# names a binary that is built already.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-script.XXXXXX")
volume=$work/volume
declare -a pids=(0 0 0 0) # of servers 1 to 3; 0 = not running
verdict=FAIL

# Ends what was started here, by its process ID, and says how it went.
finish() {
	local code=$? id
	for id in 1 2 3; do
		if [ "${pids[$id]}" != 0 ]; then
			kill -KILL "${pids[$id]}" 2>/dev/null || true
			gone "${pids[$id]}"
		fi
	done
	if [ "$verdict" = PASS ] && [ $code = 0 ]; then
		rm -rf "$work"
		echo "PASS"
		exit 0
	fi
	echo "logs and volume: $work"
	echo "FAIL"
	exit 1
}
trap finish EXIT
trap 'exit 1' INT TERM

say() { echo "$(date +%H:%M:%S) $*"; }

fail() {
	echo "problem: $*" >&2
	exit 1
}

# A port of loopback that nobody listens on.
free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

choose_ports() {
	local try offset ok
	for try in {1..100}; do
		base=$((12000 + RANDOM % 18000))
		ok=yes
		for offset in 0 1 2 200 201 202; do
			free $((base + offset)) || ok=no
		done
		[ $ok = yes ] && return
	done
	fail "no free ports after $try tries"
}

build() {
	if [ -n "${HOLDFAST_BINARY:-}" ]; then
		mkdir "$work/bin"
		ln -s "$HOLDFAST_BINARY" "$work/bin/holdfast"
	else
		say "building holdfast"
		(cd "$root" && go build -o "$work/bin/holdfast" ./cmd/holdfast)
	fi
	PATH=$work/bin:$PATH
	choose_ports
	export HOLDFAST_ENDPOINTS=127.0.0.1:$base,127.0.0.1:$((base + 1)),127.0.0.1:$((base + 2))
}

# Builds, makes the volume and starts all three.
cluster() {
	build
	holdfast init --plain --volume "$volume" \
		--server "1=127.0.0.1:$base" --server "2=127.0.0.1:$((base + 1))" --server "3=127.0.0.1:$((base + 2))" >"$work/init.txt"
	start 1
	start 2
	start 3
	await_primary
	say "three servers on $HOLDFAST_ENDPOINTS over $volume; server $primary is primary"
}

start() {
	holdfast server --id "$1" --volume "$volume" >>"$work/server-$1.log" 2>&1 &
	pids[$1]=$!
	disown # or bash tells of every kill
}

# Waits until a process that was started here is no more.
gone() {
	while kill -0 "$1" 2>/dev/null; do
		sleep 0.02
	done
}

# Ends servers as a power cut does, all at once.
crash() {
	local id
	for id in "$@"; do
		kill -KILL "${pids[$id]}" 2>/dev/null || true
	done
	for id in "$@"; do
		gone "${pids[$id]}"
		pids[$id]=0
	done
}

# What server $1 says that it is: primary, replica, …; nothing where it does not answer.
role() {
	curl -s -m 1 "http://127.0.0.1:$((base + $1 - 1))/v1/status" |
		sed -n 's/"servers".*//; s/.*"role": *"\([a-z]*\)".*/\1/p' || true
}

# Waits up to 30 seconds until the words given are true.
await() {
	local what=$1 deadline=$((SECONDS + 30))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || fail "waited 30 s for $what"
		sleep 0.05
	done
}

# Sets primary to the server that is primary; $1, if given, is who must not be asked.
find_primary() {
	local id
	for id in 1 2 3; do
		if [ "$id" != "${1:-}" ] && [ "${pids[$id]}" != 0 ] && [ "$(role $id)" = primary ]; then
			primary=$id
			return 0
		fi
	done
	return 1
}

await_primary() { await "a primary" find_primary "${1:-}"; }

has_role() { [ "$(role "$1")" = "$2" ]; }

# Appends lines $1 to $2 to the protected file daily.txt, each by a command of its own.
write_lines() {
	local i
	for i in $(seq "$1" "$2"); do
		echo "line $i" | holdfast append reports/daily daily.txt >>"$work/receipts.txt" || fail "line $i was not appended"
	done
}

# Wants lines 1 to $1 in daily.txt, each once and in order.
expect_lines() {
	local wanted got
	wanted=$(for i in $(seq 1 "$1"); do echo "line $i"; done)
	got=$(cat "$volume/files/daily.txt")
	[ "$wanted" = "$got" ] || fail "daily.txt is not lines 1 to $1: $(diff <(echo "$wanted") <(echo "$got") | head -5)"
	say "daily.txt holds lines 1 to $1, each once, in order"
}

# Stops all servers in good order and verifies the volume.
verify() {
	local id
	for id in 1 2 3; do
		if [ "${pids[$id]}" != 0 ]; then
			kill -TERM "${pids[$id]}"
		fi
	done
	for id in 1 2 3; do
		if [ "${pids[$id]}" != 0 ]; then
			gone "${pids[$id]}"
			pids[$id]=0
		fi
	done
	holdfast fsck --volume "$volume" || fail "fsck found errors"
}

pass() { verdict=PASS; }
