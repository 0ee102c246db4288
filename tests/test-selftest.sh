#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-selftest.sh
#
# The selftest builds in tree and out of tree, passes on the running kernel,
# and fails when what it checks is broken.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

"$TOP/scripts/kernel-tree.sh"
dir=$TOP/tools-testing-selftests-mm
prog=$BUILD/selftest/mprotect_toggle
mm=$LINUX/tools/testing/selftests/mm

t_out_of_tree()
{
	run 0 make -s -C "$dir" KSRC="$LINUX" OUTPUT="$tmp/static"
	run 0 make -s -C "$dir" KSRC="$LINUX" OUTPUT="$tmp/dynamic" STATIC=0 \
		CFLAGS='-O2 -Werror'
	run 2 make -s -C "$dir" OUTPUT="$tmp/x" KSRC=/nonexistent
	err_has 'set KSRC='
	run 0 make -s -C "$dir" KSRC="$LINUX" OUTPUT="$BUILD/selftest"
}

t_compilers()
{
	run 0 make -s -C "$dir" KSRC="$LINUX" OUTPUT="$tmp/clang" CC=clang CFLAGS='-O2 -Werror'
	run 0 make -s -C "$dir" KSRC="$LINUX" OUTPUT="$tmp/32" CC=i686-linux-gnu-gcc \
		CFLAGS='-O2 -Werror'
}

t_in_tree()
{
	run 0 make -s -C "$LINUX" headers
	run 0 make -s -j"$(nproc)" -C "$mm"
	[ -x "$mm/mprotect_toggle" ] || why "no mprotect_toggle"
	! grep -q 'mprotect_toggle.*warning' "$tmp/err" || why "warnings"
	run 0 make -s -j"$(nproc)" -C "$LINUX/tools/testing/selftests" \
		TARGETS=mm INSTALL_PATH="$tmp/install" install
	run 0 grep -q '^mm:ksft_mprotect.sh$' "$tmp/install/kselftest-list.txt"
}

t_passes()
{
	# What this machine cannot have is a skip with a reason.
	run 0 "$prog" --rounds 2
	out_has '^# Totals: pass:[1-9][0-9]* fail:0'
	! grep '# SKIP' "$tmp/out" | grep -qvE '# SKIP .*: .+' || why "skip without a reason"
	grep -E '^# Totals' "$tmp/out" | sed 's/^/# /'
}

t_two_runs_diff()
{
	run 0 "$prog" --scenario shared-dirty-toggle --size 1p
	sed 's/[0-9.]*$//' "$tmp/out" >"$tmp/first"
	run 0 "$prog" --scenario shared-dirty-toggle --size 1p
	sed 's/[0-9.]*$//' "$tmp/out" | cmp - "$tmp/first" || why "the lines differ"
}

t_bad_usage()
{
	run 1 "$prog" --no-such-option
	run 1 "$prog" --size 0
	run 1 "$prog" --scenario no-such-scenario
	run 1 "$prog" --scenario mincore --csv /nonexistent/x
	run 1 "$prog" --scenario mincore --csv /dev/full
}

t_no_memory()
{
	run 1 "$BASH" -c "ulimit -v 40000; exec $prog --scenario mincore --size 64M"
	out_has 'Cannot allocate memory'
}

# broken WHAT SED-SCRIPT: the test must fail, and show no times.
broken()
{
	mkdir -p "$tmp/broken"
	cp "$dir/Makefile" "$tmp/broken/"
	sed "$2" "$dir/mprotect_toggle.c" >"$tmp/broken/mprotect_toggle.c"
	! cmp -s "$dir/mprotect_toggle.c" "$tmp/broken/mprotect_toggle.c" ||
		why "$1: '$2' changes nothing"
	run 0 make -s -C "$tmp/broken" KSRC="$LINUX" OUTPUT="$tmp/broken"
	run 1 "$tmp/broken/mprotect_toggle" --scenario shared-dirty-toggle,anon-read-toggle --size 10p
	out_has "^# $3: [1-9]"
	out_has '^not ok'
	! grep -q 'ns_per_page' "$tmp/out" || why "$1: it prints times all the same"
	rm -f "$tmp/broken/mprotect_toggle"
}

t_broken()
{
	broken 'a lost write' \
		's/^\tt->touches++;/&\n\tif (t->touches == 3) *first_word(t, 5) -= 1;/' data_mismatches
	broken 'a page overwritten after timing' \
		's/^\tcheck_data(t);/\t*last_word(t, 9) = 0;\n&/' data_mismatches
	broken 'a page lost and faulted in again' \
		's/^\trestored = now_ns();/\tmadvise(t->addr, psize(), MADV_DONTNEED);\n&/' minor_faults
	broken 'protection that is not set' \
		's/^\tset_prot(t->addr, bytes(t), t->sc->prot);/\t(void)0;/' access_mismatches
	broken 'protection that is not lifted from all' \
		's/^\tset_prot(t->addr, bytes(t), PROT_READ | PROT_WRITE);/\tset_prot(t->addr, bytes(t) - psize(), PROT_READ | PROT_WRITE);/' access_mismatches
}

t 'builds out of tree' t_out_of_tree
t 'builds with clang, and for 32 bits, without a warning' t_compilers
t 'builds in tree, with all of selftests/mm, and installs' t_in_tree
t 'passes on the running kernel' t_passes
t 'two runs print the same lines' t_two_runs_diff
t 'bad usage gives an error' t_bad_usage
t 'no memory gives an error' t_no_memory
t 'broken, it fails' t_broken
finish
