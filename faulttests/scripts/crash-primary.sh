#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills the primary between and during appends. Another server takes over, and
# nothing is lost or done twice.
. "$(dirname "$0")/lib.sh"
cluster
write_lines 1 5
old=$primary
TOKEN=$(holdfast acquire held/over --ttl 60s)
say "5 lines are in; the lock held/over is held under token $TOKEN"
(
	sleep 0.3
	kill -KILL "${pids[$old]}"
) &
killer=$!
write_lines 6 20 # the kill comes in the middle
wait "$killer"
crash "$old"
say "server $old was killed meanwhile; 15 more lines are in all the same"
await_primary
[ "$primary" != "$old" ] || fail "server $old is still primary"
say "server $primary is primary now"
holdfast renew held/over --token "$TOKEN" >/dev/null || fail "the lock did not survive"
holdfast release held/over --token "$TOKEN" >/dev/null
say "the lock survived under its token"
start "$old"
await "server $old to be a replica" has_role "$old" replica
expect_lines 20
verify
pass
