#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Freezes the primary until another one is primary, then wakes it up. It finds out
# before it tells anybody anything, and harms nothing.
. "$(dirname "$0")/lib.sh"
cluster
write_lines 1 5
old=$primary
say "freezing server $old"
kill -STOP "${pids[$old]}"
write_lines 6 12
await_primary "$old"
say "server $primary is primary now; 7 more lines are in"
before=$(cd "$volume" && find files -type f -exec cksum {} + | sort)
# Asked while it sleeps, it answers when it wakes up: with the truth.
curl -s -m 20 -X POST "http://127.0.0.1:$((base + old - 1))/v1/append?lock=reports/daily&token=1&file=daily.txt" \
	--data-binary "from the past" >"$work/answer.json" &
asker=$!
sleep 0.5
say "waking server $old up"
kill -CONT "${pids[$old]}"
wait "$asker" || true
await "server $old to be a replica" has_role "$old" replica
say "it is a replica now, and answered: $(cut -c1-100 "$work/answer.json")"
grep -q '"status":"OK"' "$work/answer.json" && fail "the woken server acknowledged an append"
after=$(cd "$volume" && find files -type f -exec cksum {} + | sort)
[ "$before" = "$after" ] || fail "a protected file was changed"
write_lines 13 15
expect_lines 15
verify
pass
