#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# bigheap.sh [--runs N] [--seconds N] [--dry-run]
#
# stress-ng's bigheap on base and on the series: realloc() calls per second, in
# the form of LKP's reports. realloc() moves page tables by mremap(), which got
# 37 % slower by the mistake that mprotect() still had.
#
# --runs N     boots of each kernel, in turn (default: 3)
# --seconds N  of guest time (default: 2)
# --dry-run    say what would run
#
# The guest counts instructions (vm-run.sh --icount): its second is 10^9
# guest instructions, whatever the machine. Result: bench-results/bigheap/

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

runs=3
seconds=2
dry=
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--dry-run) dry=1; shift ;;
	--runs|--seconds)
		[[ ${2:-} =~ ^[1-9][0-9]{0,2}$ ]] || usage_error "$1 wants a number from 1"
		declare "${1#--}=$2"
		shift 2 ;;
	*) usage_error "unknown option '$1'" ;;
	esac
done
# Without a limit it runs until the OOM killer comes.
cmd="ulimit -v 600000; stress-ng --bigheap 1 --no-rand-seed --timeout ${seconds}s --metrics --temp-path /tmp"
if [ -n "$dry" ]; then
	echo "$runs times, with base and series in turn: $cmd"
	exit 0
fi

need qemu-system-x86_64 stress-ng
lock bigheap
"$TOP/scripts/kernel-tree.sh"
for kernel in base series; do
	"$TOP/scripts/kernel-build.sh" "$kernel" >/dev/null
done
out=$BUILD/bigheap
rm -rf "$out"
mkdir -p "$out"
echo "kernel,boot,realloc_calls_per_sec,bogo_ops" >"$out/raw.csv"
for ((i = 1; i <= runs; i++)); do
	for kernel in base series; do
		step "$kernel, boot $i of $runs"
		setpriv --pdeathsig TERM "$TOP/scripts/vm-run.sh" "$kernel" --icount --mem 1024 --timeout $((300 + seconds * 200)) \
			--log "$out/$kernel-$i.console" --file "$(command -v stress-ng)" \
			-- sh -c "exec 2>&1; $cmd" >"$out/$kernel-$i.out" ||
			{ tail -n 20 "$out/$kernel-$i.out" >&2; die "stress-ng failed on $kernel"; }
		# In the table, the figure is in the last but several columns.
		rate=$(sed -nE 's/.* ([0-9.]+) realloc calls per sec.*/\1/p' "$out/$kernel-$i.out")
		ops=$(awk '/ metrc:.* bigheap +[0-9]/ { for (i = 1; i <= NF; i++) if ($i == "bigheap") { print $(i + 1); exit } }' "$out/$kernel-$i.out")
		[ -n "$rate" ] || die "stress-ng printed no realloc calls per sec: $out/$kernel-$i.out"
		echo "$kernel,$i,$rate,$ops" >>"$out/raw.csv"
	done
done

awk -F, -v runs="$runs" -v seconds="$seconds" '
	function sd(k) {
		return runs > 1 ? sqrt((sq[k] - sum[k] ^ 2 / runs > 0 ? sq[k] - sum[k] ^ 2 / runs : 0) / (runs - 1)) : 0
	}
	NR > 1 { sum[$1] += $3; sq[$1] += $3 ^ 2 }
	END {
		b = sum["base"] / runs; s = sum["series"] / runs
		print "       base             series"
		print "-----------  -----------------"
		print "    %stddev  %change   %stddev"
		print "          \\      |          \\"
		printf "%7.0f ±%.0f%% %+7.2f%% %7.0f ±%.0f%%  stress-ng.bigheap.realloc_calls_per_sec\n", b, 100 * sd("base") / b, 100 * (s / b - 1), s, 100 * sd("series") / s
		printf "\n%d boots of each kernel, in turn, %d s of guest time each. A second of\n", runs, seconds
		print "this guest is 10^9 of its instructions (QEMU -icount shift=0): the rate"
		print "compares the code of two kernels, it is no speed of a machine."
	}' "$out/raw.csv" | tee "$out/summary.txt"
to=$TOP/bench-results/bigheap
rm -rf "$to.tmp"
mkdir -p "$to.tmp"
cp "$out"/{raw.csv,summary.txt} "$to.tmp/"
{
	for kernel in base series; do
		grep -E '^(commit|compiler|release|config_sha256):' "$BUILD/kernels/bench-$kernel/build.txt" |
			sed "s/^/kernel.$kernel./"
	done
	echo "qemu: $(qemu-system-x86_64 --version | head -n 1)"
	echo "stress_ng: $(stress-ng --version 2>&1 | sed -nE 's/.*version ([0-9.]+).*/\1/p')"
	echo "command: $cmd"
} >"$to.tmp/env.txt"
rm -rf "$to"
mv "$to.tmp" "$to"
step "results in bench-results/bigheap"
