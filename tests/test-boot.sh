#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-boot.sh
#
# Base, every patch of the series, and all of it as distributions configure
# kernels: each builds, boots, and passes the selftest without a splat.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

"$TOP/scripts/kernel-tree.sh"
make -s -C "$TOP/tools-testing-selftests-mm"

t_boot()
{
	run 0 "$TOP/scripts/kernel-build.sh" "$variant" --config "$config"
	[ -z "$bad" ] || return 0
	run 0 "$TOP/scripts/vm-run.sh" "$variant" --config "$config" \
		--mem 768 --smp 2 \
		--file "$BUILD/selftest/mprotect_toggle" -- mprotect_toggle
	# Root in a guest of our own: no excuse for a skip.
	out_has '^# Totals: pass:[1-9][0-9]* fail:0 .*skip:0 '
}

n_patches=$(git -C "$LINUX" rev-list --count base..series)
config=bench
variants=(base)
for ((i = 1; i <= n_patches; i++)); do
	# The same kernel as the one before: only tools are touched.
	if git -C "$LINUX" diff --quiet "series~$((n_patches - i + 1))" \
		"series~$((n_patches - i))" -- . ':!tools'; then
		continue
	fi
	variants+=("series-$i")
done
# The last of them is the kernel of the whole series.
variants[-1]=series
for variant in "${variants[@]}"; do
	t "$variant builds, boots and passes the selftest" t_boot
done
config=distro
variant=series
t 'series with the options of distributions' t_boot
finish
