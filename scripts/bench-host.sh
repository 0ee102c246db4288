#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# bench-host.sh [OPTION]...
#
# Times mprotect() on the running kernel, in nanoseconds, for bare metal. Run
# it on both kernels, with a reboot between, best base, series, base; then
#
#	scripts/report.py compare RUN-OF-BASE RUN-OF-SERIES RUN-OF-BASE
#
# --label NAME    base, series, or what the kernel is (default: its release)
# --cpu N         run on this CPU (default: the last one allowed)
# --processes N   fresh processes, each measures everything (default: 5)
# --quick         small sizes only
# --run NAME      name of the result (default: host-CPU-LABEL-1, -2, ...)
# --dry-run       say what would be done
#
# A machine whose times are not worth much (a hypervisor, turbo, a governor
# that scales, other work) is measured all the same; the result says so. Run
# as root to have large folios, whose settings are put back at the end.
#
# RESULTS=   folder for the result instead of bench-results
# BENCHMARK= the mprotect_toggle to use instead of building it

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

label=
cpu=
processes=5
quick=
run=
dry=
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--quick) quick=1; shift ;;
	--dry-run) dry=1; shift ;;
	--label|--cpu|--processes|--run)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		declare "${1#--}=$2"
		shift 2 ;;
	*) usage_error "unknown option '$1'" ;;
	esac
done
: "${label:=$(uname -r | tr -c 'A-Za-z0-9._\n-' _)}"
[[ $label =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || usage_error "--label: '$label' is no plain name"
[[ $processes =~ ^[1-9][0-9]{0,2}$ ]] || usage_error "--processes wants 1 to 999, not '$processes'"
allowed=$(taskset -cp $$ | sed 's/.*: //; s/.*[,-]//')
: "${cpu:=$allowed}"
[[ $cpu =~ ^[0-9]+$ ]] || usage_error "--cpu wants a number, not '$cpu'"
taskset -c "$cpu" true 2>/dev/null || usage_error "--cpu $cpu: not a CPU that may be used here"

plan=("--size 1p,400K --rounds 15")
[ -n "$quick" ] || plan+=("--size 64M --rounds 9" "--size 400M --rounds 5 --iterations 2")

results=${RESULTS:-$TOP/bench-results}
model=$(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo |
	sed -E 's/\((R|TM)\)//g; s/ (CPU|Processor|[0-9]+-Core).*//; s/[^A-Za-z0-9]+/-/g; s/-+$//' |
	tr '[:upper:]' '[:lower:]')
if [ -z "$run" ]; then
	n=1
	while [ -e "$results/host-${model:-cpu}-$label-$n" ]; do
		n=$((n + 1))
	done
	run=host-${model:-cpu}-$label-$n
fi
[[ $run =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $run != public ]] ||
	usage_error "--run: '$run' is no name for a run"
[ ! -e "$results/$run" ] || die "$results/$run is there already; --run NAME takes another"

if [ -n "$dry" ]; then
	echo "kernel:    $(uname -r), as '$label'"
	echo "processes: $processes, on CPU $cpu"
	printf 'each:      mprotect_toggle %s\n' "${plan[@]}"
	echo "result:    $results/$run"
	exit 0
fi

need python3 taskset sha256sum
lock bench-host
mkdir -p "$results"
work=$(mktemp -d "$BUILD/bench-host.XXXXXX")
new=$results/.$run.new
trap 'rm -rf "$work" "$new"' EXIT
trap 'say "$SELF: interrupted, nothing is kept"; exit 130' INT
trap 'say "$SELF: terminated, nothing is kept"; exit 143' TERM HUP

program=${BENCHMARK:-$BUILD/selftest/mprotect_toggle}
if [ -z "${BENCHMARK:-}" ]; then
	need make gcc
	run_log "$BUILD/log/selftest.log" make -C "$TOP/tools-testing-selftests-mm" \
		KSRC="$LINUX" OUTPUT="$BUILD/selftest" ||
		die "the benchmark does not build; BENCHMARK=path takes one from another machine"
fi
cp "$program" "$work/mprotect_toggle"
mkdir "$work/raw"

# Before it makes a load of its own.
"$TOP/scripts/env-record.sh" --cpu "$cpu" >"$work/machine"
for ((p = 0; p < processes; p++)); do
	step "process $((p + 1)) of $processes on CPU $cpu"
	for args in "${plan[@]}"; do
		rc=0
		# shellcheck disable=SC2086 # options
		taskset -c "$cpu" "$work/mprotect_toggle" $args --cpu "$cpu" \
			--csv - >>"$work/$p.ktap" 2>&1 || rc=$?
		[ "$rc" -eq 0 ] || {
			grep -aE '^(not ok|Bail out|# first unexpected)|mprotect_toggle:' "$work/$p.ktap" | head >&2 || :
			die "mprotect_toggle $args: exit code $rc; no number is given"
		}
	done
	"$TOP/scripts/report.py" collect --kernel "$label" --boot "$p" \
		--config host --unit ns_per_page \
		"$work/$p.ktap" "$work/raw/$(printf %03d "$p").csv" || die "process $p is not taken"
done

{
	echo "kind: host"
	echo "unit: ns_per_page"
	echo "kernels: $label"
	echo "config: host"
	echo "processes: $processes, in one boot"
	echo "cpu: $cpu"
	echo "benchmark_sha256: $(sha256sum <"$work/mprotect_toggle" | cut -d' ' -f1)"
	# One line, so that two runs can be held against each other.
	echo "benchmark_args: $(IFS=';'; echo "${plan[*]}")"
	! command -v gcc >/dev/null || echo "compiler: $(gcc --version | head -n 1)"
	sed -n 's/^# page_size: /page_size: /p; s/^# clock_overhead_ns: /clock_overhead_ns: /p; s/^# folio_orders_verified: /folio_orders_verified: /p' \
		"$work/0.ktap" | awk -F: '!seen[$1]++'
	echo "unexpected_results: 0"
	sed -nE 's/^ok [0-9]+ # SKIP (.*)/skipped: \1/p' "$work/0.ktap" |
		grep -v 'no multiple of the folio size' || :
	cat "$work/machine"
} >"$work/env.txt"
rm -rf "$new"
mkdir "$new"
cp -r "$work/env.txt" "$work/raw" "$new/"
"$TOP/scripts/report.py" summary "$new/"
mv "$new" "$results/$run"
cat "$results/$run/summary.txt"
step "done: $results/$run"
