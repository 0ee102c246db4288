#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-gate.sh
#
# Counts instructions on base and series again, as make bench does, and holds
# the result against the limits; and the tables are those of bench-results/.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

t_bench()
{
	run 0 env RESULTS="$BUILD/test-gate" "$TOP/scripts/bench.sh" --gate
	cat "$tmp/out"
}

t_tables()
{
	run 0 "$TOP/scripts/report.py" check
	cat "$tmp/out"
}

t 'the series needs as few instructions as it says' t_bench
t 'the tables are what bench-results/ has' t_tables
finish
