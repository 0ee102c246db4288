#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-behaviour.sh [--config NAME]
#
# Runs mprotect_test on base and series, in guests with two NUMA nodes, a disk
# and swap space. Nothing may fail, nothing may differ, and what is skipped is
# only what such a machine cannot have.
#
# --config NAME  the kernels' config (default: bench); with selftests there is
#                idle page tracking, too

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

config=bench
case ${1:-} in
'') ;;
--config)
	[ $# -eq 2 ] || usage_error "--config needs a value"
	config=$2 ;;
*) help_exit ;;
esac

# What may be skipped: a pfn map that is read only, a file where anonymous memory
# is wanted, and what the kernel has not been configured with.
may_skip="mapping can't be written to|MADV_FREE: Invalid argument"
[ "$config" != bench ] ||
	may_skip+="|/sys/kernel/mm/page_idle/bitmap: No such file or directory"

"$TOP/scripts/kernel-tree.sh"
make -s -C "$TOP/tools-testing-selftests-mm" KSRC="$LINUX" OUTPUT="$BUILD/selftest"

# TAP result lines, the numbers left out.
results()
{
	sed -nE 's/^((not )?ok) [0-9]+ /\1 /p' "$1"
}

t_passes()
{
	local skipped

	run 0 "$TOP/scripts/kernel-build.sh" "$variant" --config "$config"
	[ -z "$bad" ] || return 0
	run 0 "$TOP/scripts/vm-run.sh" "$variant" --config "$config" \
		--numa 2 --log "$BUILD/log/vm-behaviour-$variant.log" \
		--file "$BUILD/selftest/mprotect_test" \
		--file "$TOP/tests/guest-behaviour.sh" -- sh guest-behaviour.sh
	cp "$tmp/out" "$tmp/$variant"
	grep -B 8 '^not ok' "$tmp/out" | sed 's/^/# /' || :
	out_has '^# Totals: pass:[1-9][0-9]* fail:0 '
	skipped=$(results "$tmp/out" | grep ' # SKIP ' | grep -vE "# SKIP ($may_skip)\$") || :
	[ -z "$skipped" ] || why "skipped, but need not be: $skipped"
	results "$tmp/out" | sed -nE 's/.* # SKIP (.*)/\1/p' | sort | uniq -c |
		sed 's/^ */# skipped: /'
	grep '^# Totals' "$tmp/out" || :
}

t_same()
{
	diff <(results "$tmp/base") <(results "$tmp/series") >"$tmp/diff" ||
		why "$(cat "$tmp/diff")"
}

for variant in base series; do
	t "mprotect_test passes on $variant ($config)" t_passes
done
t 'and does so test by test' t_same
finish
