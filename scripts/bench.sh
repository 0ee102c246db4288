#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# bench.sh [OPTION]...
#
# What does the series do to mprotect()? Builds the kernels, boots them in turn
# in QEMU and counts guest instructions per page (-icount; times under
# emulation mean nothing and are not shown). The result is
# bench-results/RUN/summary.txt, which is also printed, with plot.svg.
#
# --kernels A,B[,C...]  as for kernel-build.sh; the first is compared against,
#                       and an ancestor of the others (default: base,series)
# --config NAME         kernel config (default: bench)
# --boots N             boots of each kernel, in turn (A B A B ...), and one
#                       more of the first at the end (default: 2)
# --quick               small sizes, one boot of each; for tests
# --run NAME            name of the result (default: icount-CONFIG or such)
# --jobs N              boots at a time (default: as CPUs and memory allow)
# --fresh               throw away what an interrupted run has measured;
#                       without it, the same command goes on from there
# --gate                fail if the series misses a limit (see the last lines
#                       of the summary)
# --dry-run             say what would be done
#
# RESULTS=   folder for the result instead of bench-results
# BENCHMARK= a static mprotect_toggle to use instead of building it

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Guest memory, and how much more it has from boot to boot. Two equal boots are
# equal to the instruction; so physical memory is laid out otherwise in each.
readonly MEM=1536 MEM_STEP=8

kernels=base,series
config=bench
boots=
quick=
run=
jobs=
fresh=
gate=
dry=
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--quick) quick=1; shift ;;
	--fresh) fresh=1; shift ;;
	--gate) gate=1; shift ;;
	--dry-run) dry=1; shift ;;
	--kernels|--config|--boots|--run|--jobs)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		declare "${1#--}=$2"
		shift 2 ;;
	*) usage_error "unknown option '$1'" ;;
	esac
done
: "${boots:=$((2 - ${quick:-0}))}"
[[ $boots =~ ^[1-9][0-9]?$ ]] || usage_error "--boots wants 1 to 99, not '$boots'"
[[ -z $jobs || $jobs =~ ^[1-9][0-9]?$ ]] || usage_error "--jobs wants 1 to 99, not '$jobs'"
IFS=, read -ra kernel <<<"$kernels"
[ ${#kernel[@]} -ge 2 ] || usage_error "--kernels wants two or more, not '$kernels'"
for k in "${kernel[@]}"; do
	[[ $k =~ ^[A-Za-z0-9._-]+$ ]] ||
		usage_error "--kernels: '$k' is no plain name or commit"
done
[ "$(printf '%s\n' "${kernel[@]}" | sort -u | wc -l)" -eq ${#kernel[@]} ] ||
	usage_error "--kernels: one is there twice"
if [ -z "$run" ]; then
	run=icount-$config${quick:+-quick}
	[ "$kernels" = base,series ] || run+=-$(IFS=-; echo "${kernel[*]}")
fi
[[ $run =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $run != public ]] ||
	usage_error "--run: '$run' is no name for a run"

# What is run in each boot, one call a line. Counts hardly vary, so a few
# rounds and iterations do; what takes time is to set up and check the pages.
if [ -n "$quick" ]; then
	plan=("--size 1p,400K,4M --rounds 3")
else
	plan=("--size 1p,400K,64M --rounds 5"
	      "--size 400M --rounds 3 --iterations 1 --scenario shared-dirty-toggle,anon-read-toggle,anon-none-toggle")
fi

# The order of boots.
sequence=()
for ((i = 0; i < boots; i++)); do
	sequence+=("${kernel[@]}")
done
sequence+=("${kernel[0]}")

results=${RESULTS:-$TOP/bench-results}
new=$results/.$run.new
stage=$BUILD/bench/$run
vm_run=${VM_RUN:-$TOP/scripts/vm-run.sh}
kernel_build=${KERNEL_BUILD:-$TOP/scripts/kernel-build.sh}

if [ -z "$jobs" ]; then
	jobs=$(nproc)
	fit=$(awk -v mem=$((MEM + 300)) '/^MemAvailable:/ { print int($2 / 1024 / mem) }' /proc/meminfo)
	[ "$jobs" -le "$fit" ] || jobs=$((fit > 0 ? fit : 1))
fi

if [ -n "$dry" ]; then
	echo "kernels:  ${kernel[*]}, config $config, built by kernel-build.sh"
	echo "boots:    ${sequence[*]}"
	echo "          $jobs at a time, $MEM MiB and $MEM_STEP more in each boot"
	echo "each:     vm-run.sh KERNEL --icount -- mprotect_toggle"
	printf '          %s --csv -\n' "${plan[@]}"
	echo "result:   $results/$run"
	echo "meantime: $stage"
	exit 0
fi

need git make gcc python3 gnuplot sha256sum setpriv
lock "bench-$run"
need_space "$BUILD" 1000
mkdir -p "$results"

pids=()
cleanup()
{
	local pid

	for pid in "${pids[@]}"; do
		kill -TERM "$pid" 2>/dev/null || :
	done
	wait
	rm -rf "$new" "${built_dir-}"
}
stopped()
{
	say "$SELF: $1; the same command goes on with the boots that are complete"
	exit "$2"
}
trap cleanup EXIT
trap 'stopped interrupted 130' INT
trap 'stopped terminated 143' TERM HUP

# ---- kernels and benchmark ---------------------------------------------------

built=()
mkdir -p "$BUILD/bench"
built_dir=$BUILD/bench/.$run.built
for k in "${kernel[@]}"; do
	# In the background, so that a signal is heeded at once.
	setpriv --pdeathsig TERM "$kernel_build" "$k" --config "$config" >"$built_dir" &
	pids=($!)
	wait "${pids[0]}" || die "no kernel $k"
	pids=()
	built+=("$(cat "$built_dir")")
done

# of KERNEL-NUMBER KEY: a line of its build.txt.
of()
{
	local v

	v=$(sed -n "s/^$2: //p" "${built[$1]}/build.txt")
	[ -n "$v" ] || die "${built[$1]}/build.txt has no line '$2:'"
	echo "$v"
}

for i in "${!kernel[@]}"; do
	[ "$i" -ne 0 ] || continue
	cmp -s "${built[0]}/config" "${built[i]}/config" ||
		die "the configs of ${kernel[0]} and ${kernel[i]} differ, so nothing can be said: diff ${built[0]}/config ${built[i]}/config"
	for key in compiler linker; do
		[ "$(of 0 $key)" = "$(of "$i" $key)" ] ||
			die "${kernel[0]} and ${kernel[i]} have not the same $key; remove ${built[i]} and ${built[0]}, then run again"
	done
	git -C "$LINUX" merge-base --is-ancestor "$(of 0 commit)" "$(of "$i" commit)" ||
		die "${kernel[i]} is not a series on top of ${kernel[0]}: they differ by more"
done

mkdir -p "$stage"
if [ -n "${BENCHMARK:-}" ]; then
	[ -x "$BENCHMARK" ] || die "BENCHMARK=$BENCHMARK is no program"
	program=$BENCHMARK
else
	program=$BUILD/selftest/mprotect_toggle
	run_log "$BUILD/log/selftest.log" make -C "$TOP/tools-testing-selftests-mm" \
		KSRC="$LINUX" OUTPUT="$BUILD/selftest" || die "the benchmark does not build"
fi

# What a measurement depends on. Boots of another key are not reused.
key()
{
	local i k

	echo "kind: icount"
	echo "unit: instructions_per_page"
	echo "kernels: ${kernel[*]}"
	echo "config: $config"
	echo "config_sha256: $(sha256sum <"${built[0]}/config" | cut -d' ' -f1)"
	for i in "${!kernel[@]}"; do
		for k in commit tree release bzImage_sha256 vmlinux_sha256; do
			echo "kernel.${kernel[i]}.$k: $(of "$i" $k)"
		done
	done
	echo "compiler: $(of 0 compiler)"
	echo "linker: $(of 0 linker)"
	echo "sequence: ${sequence[*]}"
	echo "memory_mib: $MEM, and $MEM_STEP more in each boot"
	echo "benchmark_sha256: $(sha256sum <"$program" | cut -d' ' -f1)"
	for k in "${plan[@]}"; do
		echo "benchmark_args: $k"
	done
	echo "qemu: $(qemu-system-x86_64 --version | head -n 1)"
	echo "guest_sha256: $(cat "$vm_run" "$TOP/scripts/guest-init" "$(command -v busybox)" | sha256sum | cut -d' ' -f1)"
}

want=$(key)
[ -z "$fresh" ] || rm -rf "$stage"
if [ -e "$stage/key" ] && [ "$want" != "$(cat "$stage/key")" ]; then
	step "an earlier run was not of the same, starting over:"
	diff <(cat "$stage/key") <(echo "$want") | grep '^[<>]' | cut -c 1-78 >&2 || :
	rm -rf "$stage"
fi
mkdir -p "$stage/raw" "$stage/out"
echo "$want" >"$stage/key.tmp"
mv "$stage/key.tmp" "$stage/key"
# One and the same, whatever is built meanwhile.
cp "$program" "$stage/mprotect_toggle"
[ "$(sha256sum <"$stage/mprotect_toggle" | cut -d' ' -f1)" = "$(sed -n 's/^benchmark_sha256: //p' "$stage/key")" ] ||
	die "$program changed meanwhile; run again"

# ---- boots -------------------------------------------------------------------

command=
for args in "${plan[@]}"; do
	command+="${command:+ && }./mprotect_toggle $args --csv -"
done

# boot N: in the background.
boot()
{
	local n=$1 k=${sequence[$1]} out=$stage/out/$1

	setpriv --pdeathsig TERM "$vm_run" "$k" --config "$config" --icount \
		--mem $((MEM + n * MEM_STEP)) --timeout 1800 --log "$out.console" \
		--file "$stage/mprotect_toggle" -- sh -c "$command" \
		>"$out.ktap" 2>"$out.err" &
	pids[n]=$!
}

# raw_of N: file of that boot's samples, without .gz
raw_of()
{
	printf '%s/raw/%02d-%s.csv' "$stage" "$1" "${sequence[$1]}"
}

# finish N: what the boot has to say for itself.
finish()
{
	local n=$1 rc=0 out=$stage/out/$1

	wait "${pids[$n]}" || rc=$?
	unset "pids[$n]"
	if [ "$rc" -ne 0 ]; then
		cat "$out.err" >&2
		grep -aE '^(not ok|Bail out|# first unexpected)' "$out.ktap" | head >&2 || :
		die "boot $n, ${sequence[$n]}: exit code $rc; its output: $out.ktap, console: $out.console"
	fi
	"$TOP/scripts/report.py" collect --kernel "${sequence[$n]}" --boot "$n" \
		--config "$config" --unit instructions_per_page \
		"$out.ktap" "$(raw_of "$n")" || die "boot $n is not taken"
	step "boot $n, ${sequence[$n]}: done"
}

todo=()
for n in "${!sequence[@]}"; do
	if [ -e "$(raw_of "$n")" ] || [ -e "$(raw_of "$n").gz" ]; then
		step "boot $n, ${sequence[$n]}: kept from the interrupted run"
	else
		todo+=("$n")
	fi
done
step "${#todo[@]} boots, $jobs at a time"
last=$SECONDS
while [ ${#todo[@]} -gt 0 ] || [ ${#pids[@]} -gt 0 ]; do
	while [ ${#todo[@]} -gt 0 ] && [ ${#pids[@]} -lt "$jobs" ]; do
		boot "${todo[0]}"
		todo=("${todo[@]:1}")
	done
	sleep 0.2
	for n in "${!pids[@]}"; do
		kill -0 "${pids[$n]}" 2>/dev/null || finish "$n"
	done
	if [ $((SECONDS - last)) -ge 20 ]; then
		last=$SECONDS
		for n in "${!pids[@]}"; do
			step "boot $n, ${sequence[$n]}: $(sed -nE 's/^ok [0-9]+ (# SKIP )?//p' "$stage/out/$n.ktap" | tail -n 1 | grep . || echo booting)"
		done
	fi
done

# ---- result ------------------------------------------------------------------

rm -rf "$new"
mkdir -p "$new"
{
	cat "$stage/key"
	echo "changed_files: $(git -C "$LINUX" diff --name-only "$(of 0 commit)" "$(of $((${#kernel[@]} - 1)) commit)" | paste -sd ' ')"
	sed -n 's/^# page_size: /page_size: /p; s/^# folio_orders_verified: /folio_orders_verified: /p' \
		"$stage/out/0.ktap" | sort -u
	# Anything else was refused above.
	echo "unexpected_results: 0"
	sed -nE 's/^ok [0-9]+ # SKIP (.*)/skipped: \1/p' "$stage/out/0.ktap" |
		grep -v 'no multiple of the folio size' || :
	"$TOP/scripts/env-record.sh" | grep -E '^machine\.(cpu_model|hypervisor):'
} >"$new/env.txt"
cp -r "$stage/raw" "$new/raw"
"$TOP/scripts/report.py" summary "$new/"
"$TOP/scripts/plot.sh" "$new/"
rm -rf "${results:?}/$run"
mv "$new" "$results/$run"
rm -rf "$stage/raw" "$stage/key"
cat "$results/$run/summary.txt"
step "done: $results/$run"
if [ -n "$gate" ]; then
	"$TOP/scripts/report.py" gate "$results/$run" >/dev/null ||
		die "the series misses a limit: see the last lines of the summary"
fi
