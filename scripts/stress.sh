#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: stress.sh [OPTION]...
#
# The long version of tests/test-stress.sh: base and the series, 20 seconds for
# each variant of the test, and five boots for each way in which a kernel is
# broken on purpose; with the configuration "selftests", which has zram. What
# is printed is kept in bench-results/stress/.
#
#   --seconds N    for each variant of the test (default: 20)
#   --config NAME  of the kernels (default: selftests)
#   --tries N      boots for each way to be broken (default: 5)
#   --help         this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for arg; do
	case $arg in
	-h|--help) help_exit ;;
	--seconds|--config|--tries) ;;
	-*) usage_error "unknown option '$arg'" ;;
	esac
done

out=$TOP/bench-results/stress
rm -rf "$out.tmp"
mkdir -p "$out.tmp"
rc=0
"$TOP/tests/test-stress.sh" --base --config selftests --tries 5 --seconds 20 "$@" \
	--logs "$out.tmp" | sed -u "s|$TOP/||g" | tee "$out.tmp/summary.txt" || rc=$?
grep -q '^1\.\.' "$out.tmp/summary.txt" ||
	die "stopped before its end; what there is: $out.tmp"
{
	git -C "$LINUX" rev-parse base series | sed '1s/^/base: /;2s/^/series: /'
	echo "command: stress.sh $*"
} >"$out.tmp/env.txt"
rm -rf "$out"
mv "$out.tmp" "$out"
exit "$rc"
