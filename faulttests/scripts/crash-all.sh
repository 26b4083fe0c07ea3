#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills all three servers at once, as a power cut does. What was acknowledged is
# there when they are back: lines, and a lock under its old token.
. "$(dirname "$0")/lib.sh"
cluster
write_lines 1 8
TOKEN=$(holdfast acquire held/over --ttl 60s)
say "8 lines are in; the lock held/over is held under token $TOKEN"
crash 1 2 3
say "all three are dead"
if echo x | timeout 2 holdfast append reports/daily daily.txt >/dev/null 2>&1; then
	fail "an append was acknowledged by nobody"
fi
start 1
start 2
start 3
await_primary
say "server $primary is primary"
holdfast renew held/over --token "$TOKEN" >/dev/null || fail "the lock did not survive"
holdfast release held/over --token "$TOKEN" >/dev/null
say "the lock survived under its token"
write_lines 9 12
expect_lines 12
verify
pass
