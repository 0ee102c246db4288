#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-harness.sh
#
# scripts/harness: its two jobs must see what is wrong, and nothing is wrong
# with the series. Needs build/linux.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit
[ -d "$LINUX/.git" ] || die "build/linux is not there; run scripts/kernel-tree.sh"

h=$TOP/scripts/harness/harness.sh
# A mutant of our own; gone even after ^C.
survivor=$TOP/scripts/harness/mutants/zz-test-$$
trap 'rm -rf "$tmp" "$survivor"' EXIT
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

	rm -rf "$t"	# of a run that was stopped
	git -C "$LINUX" worktree add -q -f --detach --no-checkout "$t" base
	# Of all the files only this one, which takes no time.
	git -C "$t" read-tree HEAD
	git -C "$t" ls-files -z |
		git -C "$t" update-index -z --skip-worktree --stdin
	git -C "$t" update-index --no-skip-worktree mm/mprotect.c
	git -C "$t" checkout -q mm/mprotect.c
	sed -i 's/^\t\t\tpages += nr_ptes;/\t\t\tpages++;/' "$t/mm/mprotect.c"
	run 1 "$h" bench --kernels base --tree "$t" "${quick[@]}"
	err_has 'order 9 .* returned a wrong count; no number is given'
	git -C "$t" checkout -q mm/mprotect.c
	sed -i 's/^\t\tptent = pte_mkwrite(ptent, vma);/\t\t;/' "$t/mm/mprotect.c"
	run 1 "$h" bench --kernels base --tree "$t" "${quick[@]}"
	err_has 'entry 0 is .*; no number is given'
	git -C "$LINUX" worktree remove --force "$t"
}

# Nothing waits for an idle machine: the ratios are of kernels that take
# turns, and what misses is measured again.
series_is_faster()
{
	run 0 "$h" bench --gate
	out_has '^gate: met$'
	cat "$tmp/out"
}

# base is not twice as fast as base, however often it is asked.
gate_can_be_missed()
{
	run 1 "$h" bench --gate --kernels base,base --kinds shared-dirty \
		--orders 0 --rounds 1
	out_has '^missed: shared-dirty order 0 rising 16384 pages restore: .*, once more$'
	out_has '^gate: MISSED$'
	run 1 "$h" bench --gate --kernels base "${quick[@]}"
	err_has 'compares two kernels'
}

# Samples that are what they say, so that the limits themselves are tested.
gate_has_room()
{
	cat >"$tmp/limits.py" <<-'EOF'
		import sys
		sys.path.insert(0, sys.argv[1])
		from stopwatch import PHASES, ROOM, gate

		def missed(ns, kind, exceptions=(), room=1.00):
		    cell = (kind, 0, "rising", 16384)
		    samples = {(name, cell, phase): [value] * 9 for phase in PHASES
		               for name, value in (("base", 100), ("series", ns))}
		    return bool(gate([cell], samples, exceptions, room=room)[0])

		may = ["uffd-wp", "*", "rising", "16384", "*", "1.10", "reason"]
		for text, is_so in {
		        "1.00 is met": not missed(100, "uffd-wp"),
		        "1.04 is not": missed(104, "uffd-wp"),
		        "1.04 is, with room": not missed(104, "uffd-wp", room=ROOM),
		        "1.06 is not": missed(106, "uffd-wp", room=ROOM),
		        "1.09 may be": not missed(109, "uffd-wp", [may]),
		        "but not 1.11": missed(111, "uffd-wp", [may], ROOM),
		        "and no other": missed(109, "pfnmap", [may], ROOM),
		        "0.15 is met": not missed(15, "shared-dirty"),
		        "0.16 is not": missed(16, "shared-dirty", room=ROOM),
		}.items():
		    print(f"{text}: {is_so}")
	EOF
	run 0 python3 -B "$tmp/limits.py" "${h%/*}"
	if [ "$(grep -c ': True$' "$tmp/out")" -ne 9 ]; then
		why "$(cat "$tmp/out")"
	fi
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

series_is_the_same()
{
	run 0 "$h" difftest --cases 10000000
	out_has '^10000000 cases, '
	out_has '^no difference$'
	cat "$tmp/out"
}

# One by its result, the other one by the race against hardware.
catches_a_mutant()
{
	run 0 "$h" mutants --cases 1000000 softleaf-skipped race-accessed-dropped
	out_has '^softleaf-skipped +case [0-9]+ of seed 1: DIFFERENT$'
	out_has '^race-accessed-dropped +race: other: entry .*: A is lost'
	out_has '^2 of 2 caught$'
}

# The target fails if a mutant survives: one that changes nothing does.
tells_of_a_survivor()
{
	local m=$survivor

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
}

t "wrong command lines" usage
t "times base" times_base
t "no number for a wrong count or entry" no_number_for_wrong_results
t "the series is faster everywhere, twice at order 0" series_is_faster
t "the gate can be missed" gate_can_be_missed
t "the gate has room, and exceptions a limit" gate_has_room
t "judges base the same as base, replays" judges
t "the series leaves what base leaves, 10^7 times" series_is_the_same
t "catches a mutant" catches_a_mutant
t "tells of a mutant that survives" tells_of_a_survivor
finish
