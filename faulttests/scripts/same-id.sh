#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a second process under an ID that is taken. It refuses, and the first
# one does not mind.
. "$(dirname "$0")/lib.sh"
cluster
write_lines 1 3
code=0
timeout 20 holdfast server --id "$primary" --volume "$volume" >"$work/second.log" 2>&1 || code=$?
say "the second server $primary ended with exit code $code: $(tail -1 "$work/second.log")"
[ $code != 0 ] && [ $code != 124 ] || fail "a second process under one ID was not refused"
grep -q "is this server running already" "$work/second.log" || fail "the message does not say why"
has_role "$primary" primary || fail "the first process is no longer primary"
write_lines 4 6
expect_lines 6
verify
pass
