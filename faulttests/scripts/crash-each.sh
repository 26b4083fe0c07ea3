#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills each server in turn and starts it again. Clients hardly notice.
. "$(dirname "$0")/lib.sh"
cluster
n=0
for id in 1 2 3; do
	write_lines $((n + 1)) $((n + 4))
	say "killing server $id ($(role $id))"
	crash $id
	write_lines $((n + 5)) $((n + 8))
	n=$((n + 8))
	await_primary
	say "server $primary is primary; $n lines are in; starting server $id again"
	start $id
	await "server $id to be a replica" has_role $id replica
done
expect_lines $n
verify
pass
