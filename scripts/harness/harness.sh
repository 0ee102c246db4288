#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: harness.sh COMMAND [OPTION...]
#
# The kernel's own change_protection(), in user space.
#
# harness.sh bench [--kernels LIST] [--tree DIR]... [--rounds N] [FILTER...]
#   Prints the ns per page of every kernel side by side, and in brackets the
#   ratio to the first one.
#   --kernels LIST  base, series, series-N (its first N patches), any other
#                   revision in build/linux, or one of alternatives/ (hint);
#                   default base,series
#   --tree DIR      a work tree, with its changes that are not committed
#   --rounds N      processes per kernel, interleaved (default 9)
#   --cold          evict the struct pages between calls
#   --full          the whole matrix instead of 16384 pages, rising frames
#   --csv FILE      raw samples
#   --gate          hold the second kernel against the first as "run" does;
#                   what misses is measured again, 3 times with ever more
#                   rounds. Exit code 1 if it still misses.
#   FILTER          --kinds LIST, --orders LIST, --layouts LIST, --sizes LIST
#
# harness.sh run [--peers] [--rounds N] [--out DIR]
#   The whole matrix for base, the known alternatives, every patch of the
#   series and with --peers older kernels, into bench-results/. Exit code 1
#   if the series misses its gate, for which noise is measured again.
#
# harness.sh report [RUN]
#   Writes the summaries of a run anew, from its raw samples.
#
# harness.sh difftest [--kernels A,B] [--cases N] [--seed N] [--case N]
#                     [--jobs N] [--either]
#   Runs both kernels (default base,series) on the same random page tables
#   and compares everything. --case replays one. --either is for a patch
#   that changes some entries in batches and others not.
#
# harness.sh difftest-each [--cases N]
#   The same for each patch of the series (default 100000000 cases, which
#   takes minutes), into bench-results/difftest/.
#
# harness.sh mutants [--on REV] [--cases N] [NAME...]
#   Builds every wrong version in mutants/ (of series, or REV) and demands
#   that difftest tells it from base within N cases (default 10000000).
#
# harness.sh coverage [--on REV] [--cases N]
#   Line coverage of mm/mprotect.c by difftest (default 1000000 cases).
#
# harness.sh fuzz [--on REV] [--seconds N]
#   libFuzzer on the same generator, after new edges in mm/mprotect.o
#   (default 60 seconds; needs clang). Its corpus is kept in build/harness.
#
#   --help          this text

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=scripts/harness/lib-harness.sh
. "$TOP/scripts/harness/lib-harness.sh"

# kernel_dir NAME: prints the directory of its kernel.o.
kernel_dir()
{
	local diff=$HARNESS/alternatives/$1.diff commit

	if [ -e "$diff" ]; then
		commit=$(commit_of_patch "$(commit_of base)" "$diff") ||
			die "$1.diff does not apply to base"
	else
		commit=$(commit_of "$1")
	fi
	kernel_of_commit "$commit"
}

# bench_spec NAME DIR: for stopwatch.py.
bench_spec()
{
	program "$2/bench" "$2" bench.c machine.c
	specs+=("$1=$2/bench")
}

bench()
{
	local revs=base,series trees=() args=() specs=() rev dir list t

	while [ $# -gt 0 ]; do
		case $1 in
		--kernels|--tree|--rounds|--kinds|--orders|--layouts|--sizes|--csv)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--kernels) revs=$2; shift ;;
		--tree) trees+=("$2"); shift ;;
		--rounds|--kinds|--orders|--layouts|--sizes|--csv)
			args+=("$1" "$2"); shift ;;
		--cold|--full|--gate) args+=("$1") ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	mkdir -p "$HBUILD/kernels"
	lock harness
	IFS=, read -ra list <<<"$revs"
	for rev in "${list[@]}"; do
		dir=$(kernel_dir "$rev")
		bench_spec "$rev" "$dir"
	done
	for t in "${trees[@]}"; do
		dir=$(kernel_of_commit "$(commit_of_tree "$t")")
		bench_spec "$(basename "$t")" "$dir"
	done
	exec 9>&-	# the lock is for building
	exec python3 "$HARNESS/stopwatch.py" "${args[@]}" "${specs[@]}"
}

# Every patch that changes kernel code; after the last it is "series".
patches_with_code()
{
	local code=(mm arch include kernel) d i n

	n=$(git -C "$LINUX" rev-list --count base..series)
	for ((i = 1; i < n; i++)); do
		d=$(commit_of "series-$i")
		git -C "$LINUX" diff --quiet "$d^" "$d" -- "${code[@]}" ||
			git -C "$LINUX" diff --quiet "$d" series -- "${code[@]}" ||
			echo "series-$i"
	done
	echo series
}

# What a reader must know to judge the numbers.
environment()
{
	local f cpu=/sys/devices/system/cpu

	echo "date: $(date -u +%FT%TZ)"
	echo "command: $*"
	echo "commit: $(git -C "$TOP" rev-parse HEAD 2>/dev/null || echo none)"
	echo "base: $(git -C "$LINUX" rev-parse base)"
	echo "series: $(git -C "$LINUX" rev-parse series)"
	sed -n 's/^\(model name\|microcode\)[ \t]*: /\1: /p' /proc/cpuinfo |
		sort -u
	echo "cpus: $(nproc)"
	echo "shadow stacks: $(grep -qw user_shstk /proc/cpuinfo && echo yes || echo no)"
	echo "hypervisor: $(lscpu | sed -n 's/^Hypervisor vendor: *//p')"
	for f in "$cpu"/cpu0/cpufreq/scaling_governor \
		 "$cpu"/intel_pstate/no_turbo "$cpu"/cpufreq/boost \
		 /sys/kernel/mm/transparent_hugepage/enabled; do
		[ -r "$f" ] && echo "${f#/sys/}: $(cat "$f")"
	done
	for f in "$cpu"/vulnerabilities/*; do
		[ -r "$f" ] && echo "mitigation $(basename "$f"): $(cat "$f")"
	done
	echo "host kernel: $(uname -r)"
	echo "load average: $(cut -d' ' -f1-3 /proc/loadavg)"
	echo "compiler: $(gcc --version | head -n 1)"
	echo "config: scripts/harness/config $(sha256sum <"$HARNESS/config" | cut -c1-16)"
}

run()
{
	local command="harness.sh run $*" peers=0 rounds=15 out='' args=()
	local specs=() dir d i list peer_versions=''

	while [ $# -gt 0 ]; do
		case $1 in
		--rounds|--out)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--peers) peers=1 ;;
		--rounds) rounds=$2; shift ;;
		--out) out=$2; shift ;;
		--cold) args+=("$1") ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	mkdir -p "$HBUILD/kernels"
	out=${out:-$TOP/bench-results/harness}
	lock harness
	bench_spec base "$(kernel_dir base)"
	for d in "$HARNESS"/alternatives/*.diff; do
		d=$(basename "$d" .diff)
		bench_spec "$d" "$(kernel_dir "$d")"
	done
	list=$(patches_with_code)
	while read -r d; do
		bench_spec "$d" "$(kernel_dir "$d")"
	done <<<"$list"
	if [ $peers = 1 ]; then
		list=$("$HARNESS/peer-tree.sh" 6.12 6.17 6.18 7.1) || die "no peers"
		while read -r dir; do
			d=$(basename "$dir")
			d=${d#linux-}
			peer_versions+=" $d"
			bench_spec "v${d%.*}" "$(kernel_of_peer "$dir")"
		done <<<"$list"
	fi
	exec 9>&-
	rm -rf "$out.tmp"
	mkdir -p "$out.tmp/raw"
	{
		environment "$command"
		[ -z "$peer_versions" ] || echo "peers:$peer_versions"
	} >"$out.tmp/env.txt"
	i=0
	python3 "$HARNESS/stopwatch.py" --full --rounds "$rounds" \
		--out "$out.tmp" "${args[@]}" "${specs[@]}" || i=$?
	# 1: the gate is missed, which the summary tells.
	[ -e "$out.tmp/summary.txt" ] || die "no result; see above"
	if command -v gnuplot >/dev/null; then
		plot "$out.tmp" || warn "no plot"
	fi
	gzip -9 -n "$out.tmp/raw/harness.csv"
	rm -rf "$out"
	mv "$out.tmp" "$out"
	say "written: $out"
	exit $i
}

# plot RESULT: ladder.svg, the cells of the summary's table.
plot()
{
	local r=$1 kinds=(shared-dirty anon-exclusive) phases=(protect restore)
	local k p

	for k in "${kinds[@]}"; do
		for p in "${phases[@]}"; do
			awk -F, -v k="$k" -v p="$p" '
			$2 == k && $3 == "rising" && $4 == 16384 && $6 == p {
				if (!($1 in seen)) { seen[$1]; name[n++] = $1 }
				ns[$1, $5] = $9
			}
			END {
				for (i = 0; i < n; i++)
					print name[i], ns[name[i], 0], ns[name[i], 2],
						ns[name[i], 4], ns[name[i], 9]
			}' "$r/summary.csv" >"$r/$k-$p.dat"
		done
	done
	gnuplot -e "dir='$r'" "$HARNESS/ladder.gp" && rm "$r"/*.dat
}

difftest()
{
	local pair=base,series args=() a b out

	while [ $# -gt 0 ]; do
		case $1 in
		--kernels|--seed|--cases|--case|--jobs)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--kernels) pair=$2; shift ;;
		--seed|--cases|--case|--jobs)
			args+=("$1" "$2"); shift ;;
		--either) args+=("$1") ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	mkdir -p "$HBUILD/kernels"
	lock harness
	a=$(kernel_dir "${pair%,*}")
	b=$(kernel_dir "${pair#*,}")
	out=$b/difftest-$(basename "$a")
	judge_program "$out" "$a/kernel.o" "$b/kernel.o"
	exec 9>&-
	exec "$out" "${args[@]}"
}

difftest_each()
{
	local cases=100000000 out=$TOP/bench-results/difftest list patch rc=0
	local either

	while [ $# -gt 0 ]; do
		case $1 in
		--cases)
			[ $# -ge 2 ] || usage_error "$1 needs a value"
			cases=$2; shift ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	rm -rf "$out.tmp"
	mkdir -p "$out.tmp"
	environment "harness.sh difftest-each --cases $cases" >"$out.tmp/env.txt"
	list=$(patches_with_code)
	while read -r patch; do
		step "difftest base,$patch"
		# Only the whole series has to be rid of batches.
		either=(--either)
		[ "$patch" != series ] || either=()
		# In a process of its own: it ends by exec.
		"$HARNESS/harness.sh" difftest --kernels "base,$patch" \
			--cases "$cases" "${either[@]}" </dev/null |
			tee "$out.tmp/$patch.txt" || rc=1
	done <<<"$list"
	[ $rc -eq 0 ] || die "they differ; what was found is in $out.tmp"
	rm -rf "$out"
	mv "$out.tmp" "$out"
	say "written: $out"
}

# mutant_program NAME COMMIT DIR BASE OUT: difftest of base and the mutant.
mutant_program()
{
	local mutant=$HARNESS/mutants/$1 commit=$2 dir=$3 base=$4 out=$5
	local file new=mprotect.c source=$HBUILD/src/mm/mprotect.c

	rm -rf "$out"
	mkdir -p "$out"
	file=$(python3 "$HARNESS/mutate.py" --file "$mutant") || return 1
	case $file in
	*include/*) new=include/${file#*include/} ;;
	*) source=$out/$new ;;
	esac
	mkdir -p "$(dirname "$out/$new")"
	git -C "$LINUX" show "$commit:$file" |
		python3 "$HARNESS/mutate.py" "$mutant" >"$out/$new" || return 1
	recompiled "$commit" "$dir" "$out" "$source" || return 1
	judge_program "$out/difftest" "$base/kernel.o" "$out/kernel.o"
}

mutants()
{
	local on=series cases=10000000 names=() name commit base dir out log
	local rc=0 caught=0 result

	while [ $# -gt 0 ]; do
		case $1 in
		--on|--cases)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--on) on=$2; shift ;;
		--cases) cases=$2; shift ;;
		-*) usage_error "unknown option '$1'" ;;
		*) names+=("$1") ;;
		esac
		shift
	done
	if [ ${#names[@]} -eq 0 ]; then
		mapfile -t names < <(cd "$HARNESS/mutants" && ls)
	fi
	for name in "${names[@]}"; do
		[ -e "$HARNESS/mutants/$name" ] || usage_error "no mutant '$name'"
	done
	mkdir -p "$HBUILD/kernels" "$HBUILD/mutants"
	lock harness
	commit=$(commit_of "$on")
	base=$(kernel_dir base)
	dir=$(kernel_of_commit "$commit")
	exec 9>&-
	out=$HBUILD/mutants/program
	for name in "${names[@]}"; do
		log=$HBUILD/mutants/$name.log
		lock harness
		if ! mutant_program "$name" "$commit" "$dir" "$base" "$out" \
				>"$log" 2>&1; then
			cat "$log" >&2
			result="CANNOT BE BUILT"
			rc=1
		else
			exec 9>&-
			if nice "$out/difftest" --cases "$cases" >"$log" 2>&1; then
				result=SURVIVED
				rc=1
			elif result=$(grep -m1 -oE '^race: [^:]*: entry [0-9]*: .* is lost|^case [0-9]+ of.*' "$log"); then
				caught=$((caught + 1))
			else
				result="FAILED, see $log"
				rc=1
			fi
		fi
		printf '%-31s %s\n' "$name" "${result:0:44}"
	done
	printf '%d of %d caught\n' "$caught" "${#names[@]}"
	exit $rc
}

# What change_protection() never calls.
readonly NOT_CHANGE_PROTECTION='mprotect_fixup|do_mprotect_pkey|prot_none_.*|.*do_sys_.*|.*sys_mprotect|.*sys_pkey_.*'

coverage()
{
	local on=series cases=1000000 commit base dir out=$HBUILD/coverage

	while [ $# -gt 0 ]; do
		case $1 in
		--on|--cases)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--on) on=$2; shift ;;
		--cases) cases=$2; shift ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	lock harness
	commit=$(commit_of "$on")
	base=$(kernel_dir base)
	dir=$(kernel_of_commit "$commit")
	rm -rf "$out"
	mkdir -p "$out"
	recompiled "$commit" "$dir" "$out" "$HBUILD/src/mm/mprotect.c" \
		--coverage
	judge_program "$out/difftest" "$base/kernel.o" "$out/kernel.o" \
		gcc -static difftest.c --coverage
	"$out/difftest" --cases "$cases"
	(cd "$out" && gcov --json-format --stdout mprotect.gcda) |
		python3 "$HARNESS/coverage.py" mm/mprotect.c "$NOT_CHANGE_PROTECTION"
}

fuzz()
{
	local on=series seconds=60 commit base dir out=$HBUILD/fuzz

	while [ $# -gt 0 ]; do
		case $1 in
		--on|--seconds)
			[ $# -ge 2 ] || usage_error "$1 needs a value" ;;&
		--on) on=$2; shift ;;
		--seconds) seconds=$2; shift ;;
		*) usage_error "unknown option '$1'" ;;
		esac
		shift
	done
	command -v clang >/dev/null || die "fuzz needs clang: apt-get install clang"
	lock harness
	commit=$(commit_of "$on")
	base=$(kernel_dir base)
	dir=$(kernel_of_commit "$commit")
	mkdir -p "$out"
	recompiled "$commit" "$dir" "$out" "$HBUILD/src/mm/mprotect.c" \
		-fsanitize-coverage=trace-pc
	judge_program "$out/fuzz" "$base/kernel.o" "$out/kernel.o" \
		clang -fsanitize=fuzzer fuzz.c
	mkdir -p "$out/corpus"
	cd "$out"
	exec 9>&-
	exec ./fuzz -max_total_time="$seconds" -max_len=256 \
		-print_final_stats=1 corpus
}

[ $# -gt 0 ] || usage_error "no command"
command=$1
shift
case $command in
-h|--help) help_exit ;;
bench) bench "$@" ;;
run) run "$@" ;;
report) exec python3 "$HARNESS/stopwatch.py" --again "${1:-$TOP/bench-results/harness}" ;;
difftest) difftest "$@" ;;
difftest-each) difftest_each "$@" ;;
mutants) mutants "$@" ;;
coverage) coverage "$@" ;;
fuzz) fuzz "$@" ;;
*) usage_error "unknown command '$command'" ;;
esac
