#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-selftests.sh
#
# The core of the existing selftests of mm/ gives the same results on base and
# on the series; and the comparison does see what differs.

# shellcheck disable=SC2016,SC2317 # sed programs; the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

report=$TOP/scripts/selftests-report.py

# write KERNEL: what its guest might have printed
write()
{
	cat >"$tmp/$1-1.out" <<-'EOT'
	### begin cow 1.0
	TAP version 13
	1..1
	# overriding timeout to 900
	# selftests: mm: cow
	# TAP version 13
	# # [INFO] detected THP size: 2048 KiB
	# 1..3
	# # [RUN] fork
	# ok 1 base page
	# ok 2 # SKIP swapped out base page
	# ok 3 THP
	# # Totals: pass:2 fail:0 xfail:0 xpass:0 skip:1 error:0
	ok 1 selftests: mm: cow
	# Totals: pass:1 fail:0 xfail:0 xpass:0 skip:0 error:0
	### end cow 2.0
	### begin plain 2.0
	TAP version 13
	1..1
	# selftests: mm: plain
	# no KTAP in here
	ok 1 selftests: mm: plain
	### end plain 3.0
	EOT
}

# compare RC WANTED [OPTION]...: base against series
compare()
{
	run "$1" "$report" --kunit "$LINUX/tools/testing/kunit" --known "$tmp/known" \
		--tests "cow plain" --dir "$tmp" --wrong "$tmp/wrong" "${@:3}" base series
	out_has "$2"
}

reset()
{
	write base
	write series
	printf 'cow\tskip\tswapped\tno swap here\n' >"$tmp/known"
}

t_same()
{
	reset
	compare 0 '^cow  +2 +0 +1 +2 +0 +1 +pass$'
	out_has '^plain  +1 +0 +0 +1 +0 +0 +pass$'
	out_has '^  cow: 1 skip: no swap here$'
}

# differs SED: series is doctored with it
differs()
{
	reset
	sed -i "$1" "$tmp/series-1.out"
	! cmp -s "$tmp/base-1.out" "$tmp/series-1.out" || why "'$1' changed nothing"
	compare 1 "$2"
}

t_case()	{ differs 's/^# ok 3/# not ok 3/' '^cow .* DIFFERS'; out_has 'case 3: base pass, series fail: THP'; }
t_skip()	{ differs 's/^# ok 1 base/# ok 1 # SKIP base/' '^cow .* DIFFERS'; }
t_missing()	{ differs '/^# ok 3/d' '^cow .* DIFFERS'; }
t_exit()	{ differs 's/^ok 1 selftests: mm: plain/not & # exit=1/' '^plain .* DIFFERS'; }
t_timeout()	{ differs 's/^ok 1 selftests: mm: plain/not & # TIMEOUT 45 seconds/' 'series timeout'; }
t_died()	{ differs '/^ok 1 selftests: mm: plain/,$d' 'series lost'; }
t_not_run()	{ differs '/^### begin plain/,$d' 'series lost'; }

t_unlisted()
{
	reset
	: >"$tmp/known"
	compare 1 '^cow .* UNLISTED'
	reset
	sed -i 's/^# ok 3/# not ok 3/' "$tmp/base-1.out" "$tmp/series-1.out"
	compare 1 '^cow .* UNLISTED'
	printf 'cow\tfail\tTHP\tbroken here\n' >>"$tmp/known"
	compare 0 '^  cow: 1 fail: broken here'
}

t_bad_list()
{
	reset
	echo "cow skip swapped" >"$tmp/known"
	run 1 "$report" --kunit "$LINUX/tools/testing/kunit" --known "$tmp/known" \
		--tests cow --dir "$tmp" base series
	err_has 'bad line'
}

# What differs runs again. That counts, unless a guest did not run it then.
t_again()
{
	reset
	sed -i 's/^# ok 3/# not ok 3/' "$tmp/series-1.out"
	mkdir -p "$tmp/again"
	cp "$tmp/base-1.out" "$tmp/again/base-1.out"
	cp "$tmp/base-1.out" "$tmp/again/series-1.out"
	compare 0 '^cow .* pass \(again\)$' --dir "$tmp/again"
	out_has '^  cow: case 3: base pass, series fail: THP$'
	cp "$tmp/series-1.out" "$tmp/again/series-1.out"
	compare 1 '^cow .* DIFFERS \(again\)$' --dir "$tmp/again"
	sed '/^### begin plain/,$d' "$tmp/base-1.out" >"$tmp/again/series-1.out"
	compare 1 '^plain .* DIFFERS \(again\)$' --dir "$tmp/again"
	[ "$(cat "$tmp/wrong")" = plain ] || why "wrong: $(cat "$tmp/wrong")"
}

t_core()
{
	run 0 "$TOP/scripts/selftests.sh" --core
	sed 's/^/# /' "$tmp/out"
}

"$TOP/scripts/kernel-tree.sh"
t "the same on both" t_same
t "one case differs" t_case
t "one case is skipped" t_skip
t "one case is missing" t_missing
t "the exit code differs" t_exit
t "a time-out" t_timeout
t "a guest that died" t_died
t "a test that did not run" t_not_run
t "an unlisted skip or failure" t_unlisted
t "what runs again" t_again
t "a bad line in the list" t_bad_list
t "base and series: the core of the selftests of mm/" t_core
finish
