#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-stress.sh [OPTION]...
#
# Threads write while the protection changes: no write and no Dirty bit is lost,
# be it in memory, in swap or on disk (tests/stress/mprotect_stress.c), with
# four CPUs and two NUMA nodes. And the test does fail on a kernel that is
# broken in one of four ways (tests/stress/broken.diff).
#
#   --seconds N    for each variant of the test (default: 3)
#   --config NAME  of the kernels (default: bench; selftests has zram, too)
#   --base         with the kernel without the series, too
#   --tries N      boots for each way to be broken; all must fail (default: 1)
#   --logs DIR     keep what the test prints there
#   --help         this text

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

seconds=3
config=bench
kernels=(series)
break=
tries=1
logs=$tmp/logs
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--base) kernels=(base series); shift ;;
	--seconds|--config|--tries|--logs)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		declare "${1#--}=$2"
		shift 2 ;;
	*) usage_error "unknown option '$1'" ;;
	esac
done
[[ $seconds =~ ^[1-9][0-9]{0,4}$ && $tries =~ ^[1-9][0-9]{0,4}$ ]] ||
	usage_error "--seconds and --tries want a number from 1"

"$TOP/scripts/kernel-tree.sh"
need gcc git
mkdir -p "$BUILD/stress" "$logs"
prog=$BUILD/stress/mprotect_stress
gcc -O2 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror \
	-static -pthread -o "$prog.tmp$$" "$TOP/tests/stress/mprotect_stress.c"
mv "$prog.tmp$$" "$prog"

# The broken kernel is a commit that is on no branch; the same series gives the
# same commit.
broken=$(derive series broken git -C "$LINUX" apply --cached \
	"$TOP/tests/stress/broken.diff") ||
	die "the series has changed where tests/stress/broken.diff breaks it"
git -C "$LINUX" update-ref refs/stress/broken "$broken"

# vm RC LOG KERNEL [OPTION]... -- [ARGUMENT]...: boot KERNEL, run the test there.
vm()
{
	local rc=$1 log=$logs/$2.ktap kernel=$3 options=()
	shift 3

	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	# A variant may take 30 s more, if little happens.
	run "$rc" "$TOP/scripts/vm-run.sh" "$kernel" --config "$config" --smp 4 --numa 2 \
		--timeout $((1200 + seconds * 40)) --file "$prog" \
		--file "$TOP/tests/stress/guest.sh" \
		--append "${break:+mprotect_break=$break}" "${options[@]}" -- guest.sh "$@"
	cp "$tmp/out" "$log"
	grep -E '^# ' "$log" || :
}

# passes LOG [ARGUMENT]...
passes()
{
	run 0 "$TOP/scripts/kernel-build.sh" "$kernel" --config "$config"
	[ -z "$bad" ] || return 0
	vm 0 "$1" "$kernel" -- -s "$seconds" "${@:2}"
	out_has '^# Totals: pass:[1-9][0-9]* fail:0 '
}

t_loses_nothing() { passes "$kernel"; }

# The parameter is all that makes it fail.
t_not_broken() { passes not-broken anon tmpfs disk anon-fork; }

t_fails()
{
	local i deaths=0

	for ((i = 1; i <= tries; i++)); do
		# What else it breaks is of no interest. It ends when it fails,
		# which takes one or two seconds.
		vm 1 "broken-$break-$variant-$i" stress/broken --timeout 300 --allow-splat -- \
			-s 60 -r "$((i + deaths))" "$variant"
		# Who writes to pages that are free may break anything, the test too.
		if [[ $status =~ ^12[1-5]$ ]] && [ "$deaths" -lt 3 ]; then
			deaths=$((deaths + 1))
			i=$((i - 1))
			bad=
			echo "# the guest died of it; again"
			continue
		fi
		out_has '^not ok 1 '
		[ -z "$bad" ] || return 0
	done
}

for kernel in "${kernels[@]}"; do
	t "$kernel: no write and no Dirty bit is lost" t_loses_nothing
done
kernel=stress/broken
t 'a kernel that can be broken passes, too' t_not_broken
while read -r break variant; do
	t "broken ($break): $variant fails" t_fails
done <<-'EOF'
	plain anon
	plain anon-swap
	flush anon
	notify disk
	upgrade anon-fork
EOF
echo "1..$n"
finish
