#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks the models of the protocol with Spin (Debian: apt-get install spin gcc), and that each
# mutant of theirs is found wanting. Says so and ends well where spin or a C compiler is missing.
# Usage: docs/model/run.sh [SERVERS]   servers in fence.pml: 2 by default; 3 takes some ten minutes and some GB,
# and has each server of members.pml claim twice.
# segments.pml needs 2.5 GB of memory; CC names the compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for tool in spin "${CC:=cc}"; do
	if ! command -v "$tool" >/dev/null; then
		echo "docs/model: skipped: $tool is not installed (apt-get install spin gcc)"
		exit 0
	fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

# explore MODEL FLAGS...: sets errors and states.
explore() {
	model=$1
	shift
	spin -a "$@" "$here/$model.pml" >spin.txt 2>&1 || { cat spin.txt; exit 1; }
	"$CC" -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c 2>cc.txt || { cat cc.txt; exit 1; }
	./pan -m1000000 -w26 >pan.txt 2>&1 || true
	if grep -q 'max search depth too small\|out of memory\|reached -D' pan.txt; then
		grep 'max search depth too small\|out of memory\|reached -D' pan.txt
		exit 1
	fi
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.txt)
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.txt)
	[ -n "$errors" ] || { cat pan.txt; exit 1; }
}

# clean MODEL FLAGS...: the model has no error.
clean() {
	explore "$@"
	if [ "$errors" = 0 ]; then
		echo "$*: clean, $states states"
	else
		echo "$*: FAILED, a run breaks it:"
		cat pan.txt
		failed=1
	fi
}

# mutants MODEL "FLAGS" NAMES...: each has an error, and it is an assertion.
mutants() {
	model=$1 flags=$2
	shift 2
	for name in "$@"; do
		# shellcheck disable=SC2086 # flags are several
		explore "$model" $flags "-DMUT_$name"
		if [ "$errors" != 0 ] && grep -q 'assertion violated' pan.txt; then
			echo "$model, mutant $name: found"
		else
			echo "$model, mutant $name: FAILED, nobody noticed"
			failed=1
		fi
	done
}

clean fence "-DNS=${1:-2}"
mutants fence -DNS=2 NO_CHECK CHECK_FIRST READ_BEFORE_FENCE PWRITE_EARLY FREE_NAME
clean durability -DNS=2
mutants durability -DNS=2 NO_EPOCHS_FSYNC REDO_FIRST ADOPT_NOSYNC START_NOSYNC READ_EARLY
clean segments -DNC=2
mutants segments -DNC=2 READ_BEFORE_FENCE LINK_OPEN CLOSED_AT_LINK CLOSE_FIRST UNLINK_FIRST BASE_FROM_START REMOVE_SOURCE_EARLY NO_CHECK
mutants segments "-DNC=2 -DCRASH -DSMALL" LINK_BY_CLOSE
clean members -DTURNS=1
[ "${1:-2}" = 2 ] || clean members -DTURNS=2 -DME=4
mutants members "-DTURNS=2 -DME=4" NO_CHECK ADOPTS_UNLISTED SHOWN_EARLY BLAMES_THE_LOG ID_AGAIN
exit $failed
