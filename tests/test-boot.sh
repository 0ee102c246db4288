#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-boot.sh [--distro]
#
# Base and every patch of the series: each builds, boots, and passes the
# selftest without a splat.
#
#   --distro  instead, base and series with the options of distributions
#             (scripts/configs/distro.config)

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

config=bench
case ${1:-} in
'') ;;
--distro) config=distro ;;
*) help_exit ;;
esac

"$TOP/scripts/kernel-tree.sh"
make -s -C "$TOP/tools-testing-selftests-mm" KSRC="$LINUX" OUTPUT="$BUILD/selftest"

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
[ "$config" = bench ] || variants=(base series)
for variant in "${variants[@]}"; do
	t "$variant ($config) builds, boots and passes the selftest" t_boot
done
finish
