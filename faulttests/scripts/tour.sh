#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tour of the README as it is written there, against holdfast dev. Only
# its ports may differ, so that it can run beside a dev that is up already.
. "$(dirname "$0")/lib.sh"
build
mkdir "$work/dev"
holdfast dev --dir "$work/dev" --base-port "$base" >"$work/dev.log" 2>&1 &
pids[1]=$!
disown
serves() {
	local id
	for id in 1 2 3; do
		[ "$(role $id)" = primary ] && return 0
	done
	return 1
}
await "holdfast dev to serve" serves

# The first sh block behind the marker, without its fences.
sed -n '/<!-- tour:/,/^```$/p' "$root/README.md" | sed '/^<!--/d; /^```/d' >"$work/tour.txt"
[ -s "$work/tour.txt" ] || fail "the README has no tour"
sed "s/localhost:7601/localhost:$base/g" "$work/tour.txt" >"$work/tour-here.sh"
echo "---"
cat "$work/tour.txt"
echo "---"
(cd "$work" && bash -euo pipefail tour-here.sh) || fail "a command of the tour failed"
echo "---"
daily=$(find "$work/dev" -name daily.txt)
[ "$(cat "$daily")" = "$(printf 'first line\nsecond line')" ] || fail "daily.txt is not the two lines: $(cat "$daily")"
say "daily.txt holds the two lines"
kill -TERM "${pids[1]}"
gone "${pids[1]}"
pids[1]=0
for id in 1 2 3; do
	[ -z "$(role $id)" ] || fail "server $id still answers after holdfast dev was stopped"
done
say "holdfast dev has stopped its servers"
pass
