#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-bench.sh
#
# Tests scripts/bench.sh and bench-host.sh with kernels, guests and a benchmark
# that are scripts of a few lines. Needs neither QEMU nor a kernel tree.

# shellcheck disable=SC2317,SC2016 # the tests are called by name; text, not variables
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/lib-bench.sh"

[ $# -eq 0 ] || help_exit
need git gnuplot python3
export BUILD=$tmp/build LINUX=$tmp/build/linux RESULTS=$tmp/results
export FAKE=$tmp/fake KERNEL_BUILD=$tmp/fake/kernel-build VM_RUN=$tmp/fake/vm-run
export BENCHMARK=$tmp/fake/mprotect_toggle
bench=$TOP/scripts/bench.sh
mkdir -p "$FAKE/bin" "$RESULTS" "$LINUX"
export PATH=$FAKE/bin:$PATH

program()
{
	cat >"$1"
	chmod +x "$1"
}

program "$FAKE/bin/qemu-system-x86_64" <<'END'
#!/bin/sh
echo QEMU emulator version 0
END
program "$FAKE/bin/busybox" </dev/null

# kernel-build VARIANT --config NAME; $FAKE/config-VARIANT is its config.
program "$KERNEL_BUILD" <<'END'
#!/usr/bin/env bash
set -e
[ ! -e "$FAKE/build-fails" ]
[ ! -e "$FAKE/build-hangs" ] || exec sleep 60
out=$BUILD/kernels/$3-$1
commit=$(git -C "$LINUX" rev-parse "$1")
mkdir -p "$out"
cat "$FAKE/config-$1" >"$out/config" 2>/dev/null || echo CONFIG_MMU=y >"$out/config"
{
	printf '%s: x\n' compiler linker release bzImage_sha256 vmlinux_sha256
	echo "commit: $commit"
	echo "tree: $(git -C "$LINUX" rev-parse "$commit^{tree}")"
} >"$out/build.txt"
echo "$out"
END

# The output of mprotect_toggle, $1 times as many ns.
program "$FAKE/ktap" <<'END'
#!/usr/bin/env bash
awk -v x="$1" -v bad="$(cat "$FAKE/unexpected" 2>/dev/null || echo 0)" 'BEGIN {
	print "TAP version 13\n1..3\n# page_size: 4096\n# csv: scenario,pages,order,phase,round,ns_per_page"
	for (r = 0; r < 2; r++) {
		printf "# csv: shared-dirty-toggle,16384,0,protect,%d,%.4f\n", r, 150 * x
		printf "# csv: shared-dirty-toggle,16384,0,restore,%d,%.4f\n", r, 150 * x
	}
	print "# unexpected_results: " bad
	print "ok 1 shared-dirty-toggle pages 16384 order 0"
	printf "# csv: mincore,1,0,mincore,0,300.0000\n# csv: mincore,1,0,mincore,1,300.0000\n"
	print "# unexpected_results: 0"
	print "ok 2 mincore pages 1 order 0"
	print "ok 3 # SKIP shmem-mthp-toggle pages 4 order 2: no folios of that order in this kernel"
}'
END

# vm-run VARIANT ...
program "$VM_RUN" <<'END'
#!/usr/bin/env bash
echo "$1" >>"$FAKE/boots"
if [ -e "$FAKE/hang-$1" ]; then
	echo $$ >"$FAKE/hanging"
	trap 'kill $!; exit 143' TERM
	sleep 60 &
	wait
fi
[ ! -e "$FAKE/fails-$1" ] || { echo "vm-run.sh: kernel panic" >&2; exit 121; }
case $1 in
base) exec "$FAKE/ktap" 1 ;;
*) exec "$FAKE/ktap" "$(cat "$FAKE/factor" 2>/dev/null || echo 0.5)" ;;
esac
END
printf '#!/bin/sh\nexec "$FAKE/ktap" 1\n' | program "$BENCHMARK"

git -C "$LINUX" init -q -b base
commit()
{
	git -C "$LINUX" -c user.name=t -c user.email=t@localhost \
		commit -q --allow-empty -m "$1"
}
commit base
git -C "$LINUX" checkout -q -b series
commit one

# A state as after nothing has happened.
clean()
{
	rm -rf "${RESULTS:?}"/* "$BUILD"/{bench,kernels} "$FAKE"/{boots,hang*,fails-*,build-*,unexpected,factor,config-*}
}
boots()
{
	wc -l <"$FAKE/boots"
}
no_result()
{
	[ -z "$(ls -A "$RESULTS")" ] || { ls -A "$RESULTS"; return 1; }
}

without()
{
	! grep -r -- "$1" "$2" || return 1
}

usage()
{
	local opt

	"$bench" --help >"$tmp/out"
	grep -q '^bench.sh' "$tmp/out"
	for opt in --bad --kernels "--kernels base" "--kernels base,base" \
		"--kernels base,a/b" "--boots 0" "--boots x" "--run ../x" \
		"--run public" "--jobs 0" extra; do
		echo "$opt"
		# shellcheck disable=SC2086 # two words
		fails "see bench.sh --help" "$bench" $opt
	done
}
t "--help and bad options" usage

dry_run()
{
	clean
	"$bench" --dry-run >"$tmp/out"
	grep -q 'base series base series base' "$tmp/out"
	no_result
	[ ! -e "$FAKE/boots" ] && [ ! -e "$BUILD/kernels" ]
}
t "--dry-run builds, boots and writes nothing" dry_run

whole()
{
	clean
	"$bench" --run x >"$tmp/out"
	[ "$(boots)" -eq 5 ]
	grep -q '64 MiB   0 protect           150.00     75.00  0.500' "$tmp/out"
	cmp "$tmp/out" "$RESULTS/x/summary.txt"
	[ -s "$RESULTS/x/plot.svg" ]
	[ "$(cd "$RESULTS/x/raw" && echo *)" = "00-base.csv 01-series.csv 02-base.csv 03-series.csv 04-base.csv" ]
	grep -q "^benchmark_sha256: $(sha256sum <"$BENCHMARK" | cut -d' ' -f1)$" "$RESULTS/x/env.txt"
	grep -q "^kernel.series.tree: $(git -C "$LINUX" rev-parse 'series^{tree}')$" "$RESULTS/x/env.txt"
	grep -q "^skipped: shmem-mthp-toggle pages 4 order 2: no folios" "$RESULTS/x/env.txt"
	without "$tmp\|\<$(uname -n)\>" "$RESULTS/x"
	"$TOP/scripts/report.py" check "$tmp/out"
}
t "a whole run" whole

again()
{
	cp -r "$RESULTS/x" "$tmp/x"
	"$bench" --run x
	[ "$(boots)" -eq 10 ]
	diff -r "$tmp/x" "$RESULTS/x"
}
t "run again: boots again, the same result" again

gate()
{
	clean
	echo 0.7 >"$FAKE/factor"
	fails "misses a limit" "$bench" --run x --gate
	[ -s "$RESULTS/x/summary.txt" ]
	"$bench" --run x
	echo 0.1 >"$FAKE/factor"
	"$bench" --run x --gate
}
t "--gate fails on a bad ratio only" gate

wait_for()
{
	local i

	for ((i = 0; i < 200; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	echo "never: $*"
	return 1
}

# interrupt SIGNAL: kill a run whose second boot hangs.
interrupt()
{
	local pid rc=0

	clean
	touch "$FAKE/hang-series"
	# In the background bash has SIGINT ignored.
	env --default-signal=INT "$bench" --run x --jobs 1 >"$tmp/out" 2>&1 &
	pid=$!
	wait_for test -e "$FAKE/hanging"
	kill "-$1" "$pid"
	wait "$pid" || rc=$?
	cat "$tmp/out"
	wait_for gone "$(cat "$FAKE/hanging")"
	no_result
	rm -f "$FAKE/hang-series"
	[ "$rc" -eq "$2" ]
}
gone()
{
	! kill -0 "$1" 2>/dev/null
}
resume()
{
	interrupt "$1" "$2"
	"$bench" --run x >"$tmp/out" 2>&1
	grep -q 'boot 0, base: kept' "$tmp/out"
	# One, the one killed, and the four that were missing.
	[ "$(boots)" -eq 6 ]
	[ "$(find "$RESULTS/x/raw" -name '*.csv' | wc -l)" -eq 5 ]
}
t "^C leaves no guest and no result; then it goes on from there" resume INT 130
t "the same with SIGTERM" resume TERM 143
t "the same with SIGKILL" resume KILL 137

while_building()
{
	local pid rc=0 start=$SECONDS

	clean
	touch "$FAKE/build-hangs"
	"$bench" --run x >"$tmp/out" 2>&1 &
	pid=$!
	sleep 1
	kill -TERM "$pid"
	wait "$pid" || rc=$?
	[ "$rc" -eq 143 ] && [ $((SECONDS - start)) -lt 30 ]
	no_result
}
t "SIGTERM while a kernel is built" while_building

not_mixed()
{
	interrupt INT 130
	commit two
	"$bench" --run x >"$tmp/out" 2>&1
	cat "$tmp/out"
	grep -q 'starting over' "$tmp/out"
	without kept "$tmp/out"
	[ "$(boots)" -eq 7 ]

	interrupt INT 130
	echo '# another' >>"$BENCHMARK"
	"$bench" --run x >"$tmp/out" 2>&1
	grep -q 'starting over' "$tmp/out"
	[ "$(boots)" -eq 7 ]

	interrupt INT 130
	"$bench" --run x --fresh >"$tmp/out" 2>&1
	without kept "$tmp/out"
	[ "$(boots)" -eq 7 ]
}
t "boots of another kernel or benchmark are not reused, nor with --fresh" not_mixed

refused()
{
	clean
	eval "$2"
	fails "$1" "$bench" --run x
	no_result
}
t "a boot that panics" refused "exit code 121" 'touch $FAKE/fails-series'
t "unexpected results" refused "unexpected_results: 2" 'echo 2 >$FAKE/unexpected'
t "a kernel that does not build" refused "no kernel base" 'touch $FAKE/build-fails'
t "configs that differ" refused "the configs of base and series differ" 'echo CONFIG_MMU=n >$FAKE/config-series'
unrelated()
{
	clean
	git -C "$LINUX" checkout -q --orphan other
	commit other
	git -C "$LINUX" checkout -q series
	fails "is not a series on top of base" "$bench" --kernels base,other
	no_result
}
t "kernels that differ by more than a series" unrelated
keeps_old()
{
	clean
	"$bench" --run x
	cp -r "$RESULTS/x" "$tmp/old"
	touch "$FAKE/fails-series"
	fails "exit code 121" "$bench" --run x
	diff -r "$tmp/old" "$RESULTS/x"
}
t "a run that fails leaves the last result as it was" keeps_old
three()
{
	clean
	"$bench" --kernels base,series~1,series >"$tmp/out" 2>&1 && return 1
	git -C "$LINUX" tag s1 series~1
	"$bench" --kernels base,s1,series >"$tmp/out"
	grep -q '^  64 MiB   0 protect  *150.0 *75.0 *75.0$' "$tmp/out"
	[ -d "$RESULTS/icount-bench-base-s1-series" ]
}
t "three kernels side by side" three

# ---- bench-host.sh -----------------------------------------------------------

host()
{
	clean
	"$TOP/scripts/bench-host.sh" --quick --label base --processes 2 >"$tmp/out"
	"$TOP/scripts/bench-host.sh" --quick --label base --processes 2 >"$tmp/out"
	set -- "$RESULTS"/host-*-base-[12]
	[ $# -eq 2 ]
	grep -q '^machine.clocksource: ' "$1/env.txt"
	grep '^unsuitable:' "$1/env.txt" >"$tmp/u" || :
	[ "$(grep -c '^unsuitable:' "$tmp/out")" -eq "$(wc -l <"$tmp/u")" ]
	[ "$(uname -n)" = localhost ] || without "\<$(uname -n)\>" "$1"
	"$TOP/scripts/bench-host.sh" --quick --label series --processes 2
	"$TOP/scripts/report.py" compare "$RESULTS"/host-*-{base-1,series-1,base-2}
}
t "bench-host: twice base, once series, compared" host
host_bad()
{
	clean
	fails "not a CPU that may be used" "$TOP/scripts/bench-host.sh" --cpu 9999
	fails "no plain name" "$TOP/scripts/bench-host.sh" --label a/b
	echo 1 >"$FAKE/unexpected"
	fails "unexpected_results: 1" "$TOP/scripts/bench-host.sh"
	printf '#!/bin/sh\necho not ok 1 - x\nexit 1\n' >"$BENCHMARK"
	fails "exit code 1" "$TOP/scripts/bench-host.sh"
	no_result
	[ -z "$(find "$BUILD" -maxdepth 1 -name 'bench-host.*')" ]
}
t "bench-host: what must be refused" host_bad

finish
