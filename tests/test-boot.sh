#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-boot.sh [--patches] [--distro]
#
# Base and series: each builds, boots, and passes the selftest without a splat.
#
#   --patches  every patch of the series, too: five minutes for each that
#              touches a header
#   --distro   with the options of distributions (scripts/configs/distro.config)

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

config=bench
patches=
for arg; do
	case $arg in
	-h|--help) help_exit ;;
	--patches) patches=1 ;;
	--distro) config=distro ;;
	*) usage_error "unknown argument '$arg'" ;;
	esac
done

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

variants=(base)
if [ -n "$patches" ]; then
	n_patches=$(git -C "$LINUX" rev-list --count base..series)
	for ((i = 1; i < n_patches; i++)); do
		# Only those that make another kernel than the one before, and
		# than the whole series.
		at=series~$((n_patches - i))
		git -C "$LINUX" diff --quiet "$at~1" "$at" -- . ':!tools' ||
			git -C "$LINUX" diff --quiet "$at" series -- . ':!tools' ||
			variants+=("series-$i")
	done
fi
variants+=(series)
for variant in "${variants[@]}"; do
	t "$variant ($config) builds, boots and passes the selftest" t_boot
done
finish
