#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-harness.sh
#
# scripts/harness: its two jobs must see what is wrong. Needs build/linux.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit
[ -d "$LINUX/.git" ] || die "build/linux is not there; run scripts/kernel-tree.sh"

h=$TOP/scripts/harness/harness.sh
quick=(--kinds anon-exclusive --orders "0,9" --rounds 1)

usage()
{
	local args

	for args in "" "bogus" "bench --bogus" "bench --rounds" \
		    "difftest --cases x" "mutants no-such-mutant"; do
		# shellcheck disable=SC2086 # words
		run 2 "$h" $args
	done
	run 0 "$h" --help
	out_has 'harness.sh difftest'
	run 1 "$h" bench --kernels no-such-revision
	err_has "no revision 'no-such-revision'"
	run 1 "$h" bench --kernels base --kinds no-such-kind
	err_has "unknown kind"
}

times_base()
{
	run 0 "$h" bench --kernels base,base "${quick[@]}" --csv "$tmp/raw.csv"
	out_has '^anon-exclusive +9 +restore +[0-9.]+ +[0-9.]+ \([0-9.]+\)'
	[ "$(head -n 1 "$tmp/raw.csv")" = kernel,boot,config,scenario,pages,order,phase,round,ns_per_page,layout ] ||
		why "raw.csv starts with: $(head -n 1 "$tmp/raw.csv")"
	# base, base' and the bare loop, 2 orders, 2 phases.
	[ "$(grep -c ^ "$tmp/raw.csv")" -eq 13 ] ||
		why "raw.csv has $(grep -c ^ "$tmp/raw.csv") lines"
}

# A tree with a change that is not committed, and a wrong one.
no_number_for_wrong_results()
{
	local t=$BUILD/wt-test-harness

	git -C "$LINUX" worktree add -q -f --detach "$t" base
	sed -i 's/^\t\t\tpages += nr_ptes;/\t\t\tpages++;/' "$t/mm/mprotect.c"
	run 1 "$h" bench --kernels base --tree "$t" "${quick[@]}"
	err_has 'order 9 .* returned a wrong count; no number is given'
	git -C "$t" checkout -q mm/mprotect.c
	sed -i 's/^\t\tptent = pte_mkwrite(ptent, vma);/\t\t;/' "$t/mm/mprotect.c"
	run 1 "$h" bench --kernels base --tree "$t" "${quick[@]}"
	err_has 'entry 0 is .*; no number is given'
	git -C "$LINUX" worktree remove --force "$t"
}

judges()
{
	run 0 "$h" difftest --kernels base,base --cases 200000
	out_has '^no difference$'
	out_has '^ +200000 same$'
	run 0 "$h" difftest --kernels base,base --case 12345
	cp "$tmp/out" "$tmp/first"
	run 0 "$h" difftest --kernels base,base --case 12345
	cmp -s "$tmp/first" "$tmp/out" || why "case 12345 is another one now"
}

catches_a_mutant()
{
	run 0 "$h" mutants --cases 100000 softleaf-skipped
	out_has '^softleaf-skipped +case [0-9]+ of seed 1: DIFFERENT$'
	out_has '^1 of 1 caught$'
}

# The target fails if a mutant survives: one that changes nothing does.
tells_of_a_survivor()
{
	local m=$TOP/scripts/harness/mutants/zz-test-$$

	printf '%s\n' 'file: mm/mprotect.c' 'find:' 'long pages = 0, ret;' \
		'replace:' 'long ret, pages = 0;' >"$m"
	# There are three such lines, so it does not apply.
	run 1 "$h" mutants --cases 100000 "$(basename "$m")"
	out_has 'CANNOT BE BUILT'
	printf '%s\n' 'file: mm/mprotect.c' 'find:' 'BUG_ON(addr >= end);' \
		'replace:' 'BUG_ON(end <= addr);' >"$m"
	run 1 "$h" mutants --cases 100000 "$(basename "$m")"
	out_has 'SURVIVED'
	out_has '^0 of 1 caught$'
	rm -f "$m"
}

t "wrong command lines" usage
t "times base" times_base
t "no number for a wrong count or entry" no_number_for_wrong_results
t "judges base the same as base, replays" judges
t "catches a mutant" catches_a_mutant
t "tells of a mutant that survives" tells_of_a_survivor
finish
