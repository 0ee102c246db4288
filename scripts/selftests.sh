#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# selftests.sh [OPTION]...
#
# The existing selftests of mm/ on base and on the series, in QEMU, through the
# kselftest runner; ends with a table of both. Fails if a test has not the same
# result on both, and if it fails or skips for no reason that is listed. Some
# tests race against the kernel, whatever kernel it is: what is wrong runs
# again, up to three times, and the table says so.
#
# --core            the core of them, on the kernels that the benchmark uses;
#                   else all, on kernels of the config "selftests"
# --shard N/M       the Nth of M parts of them
# --only NAME,...   those
# --config NAME     on kernels of another config
# --kernel VARIANT  on one kernel: all pass, fail or skip as listed
# --allow-splat     reports of the kernel are no failure
# --dry-run         say what would run
#
# scripts/selftests.list    the tests, their arguments and time-outs
# scripts/selftests-known   failures and skips with their reasons
# bench-results/selftests/  table and logs of the last run of all tests
#
# Both kernels run the tests of their own tree; what only the series has runs
# on base, too. When interrupted, the same command goes on with the next guest.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

set=full
shard=1/1
only=
config=
kernels=(base series)
dry=
splat=()
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--core) set=core; shift ;;
	--dry-run) dry=1; shift ;;
	--allow-splat) splat=(--allow-splat); shift ;;
	--shard|--only|--config|--kernel)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		case $1 in
		--shard) shard=$2 ;;
		--only) only=,$2, ;;
		--config) config=$2 ;;
		--kernel) kernels=("$2") ;;
		esac
		shift 2 ;;
	*) usage_error "unknown option $1" ;;
	esac
done
n=${shard%/*} m=${shard#*/}
if ! [[ $shard =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] || [ "$n" -gt "$m" ]; then
	usage_error "--shard wants N/M, N from 1 to M, not '$shard'"
fi
full=$set$shard$only$config${kernels[*]}
if [ "$set" = core ]; then : "${config:=bench}"; else : "${config:=selftests}"; fi
# Kernels that check themselves are slower still.
slow=1
[[ $config =~ ^(bench|selftests)$ ]] || slow=4

# What the tests are built from; what they need of it apart from makefiles.
paths=(Makefile Kbuild scripts tools include usr arch/x86 security
	mm/gup_test.h lib/test_hmm_uapi.h)
sources=(tools/testing/selftests tools/include include/uapi arch/x86/include/uapi
	arch/x86/entry/syscalls mm/gup_test.h lib/test_hmm_uapi.h)

# stage_tests NAME: build/kselftest/NAME/install
stage_tests()
{
	local dir=$BUILD/kselftest/$1 key p

	key=$(for p in "${sources[@]}"; do git -C "$LINUX" rev-parse "$1:$p"; done; gcc --version)
	[ "$(cat "$dir/install/.key" 2>/dev/null)" != "$key" ] || return 0
	step "$1: building the selftests, log build/log/kselftest-$1.log"
	need_space "$BUILD" 1000
	rm -rf "$dir"
	mkdir -p "$dir/src" "$dir/obj"
	git -C "$LINUX" archive "$1" "${paths[@]}" | tar -x -C "$dir/src"
	run_log "$BUILD/log/kselftest-$1.log" make -C "$dir/src" O="$dir/obj" headers ||
		die "make headers failed"
	run_log "$BUILD/log/kselftest-$1.log" make -C "$dir/src/tools/testing/selftests" -j"$(nproc)" \
		O="$dir/obj" TARGETS=mm FORCE_TARGETS=1 INSTALL_PATH="$dir/install" install ||
		die "the selftests of $1 do not build"
	ls "$dir/install/mm" >"$dir/install/.own"
	echo "$key" >"$dir/install/.key"
}

# Name and guest of the tests asked for.
tests=$(awk -v set="$set" -v n="$n" -v m="$m" -v only="$only" '
	/^#/ || NF == 0 { next }
	set == "core" && $4 != "core" { next }
	only != "" && !index(only, "," $1 ",") { next }
	$2 % m == n % m' "$TOP/scripts/selftests.list")
[ -n "$tests" ] || usage_error "no such tests"
for p in ${only//,/ }; do
	grep -q "^${p}[[:space:]]" <<<"$tests" || usage_error "--only $p: not in the list, or not asked for"
done
if [ -n "$dry" ]; then
	awk '{ print $2 }' <<<"$tests" | sort -nu | while read -r guest; do
		echo "guest $guest, kernels ${kernels[*]/#/$config-}:"
		awk -v g="$guest" '$2 == g { $2 = $3 = $4 = ""; print "  " $0 }' <<<"$tests"
	done
	exit 0
fi

need qemu-system-x86_64 git make gcc python3 stdbuf
lock selftests
"$TOP/scripts/kernel-tree.sh"
for kernel in base series; do
	stage_tests "$kernel"
done
for kernel in "${kernels[@]}"; do
	"$TOP/scripts/kernel-build.sh" "$kernel" --config "$config" >/dev/null
done
base=$BUILD/kselftest/base/install
series=$BUILD/kselftest/series/install
# Those of the series on base.
for p in "$series"/mm/*; do
	grep -qxF "${p##*/}" "$base/.own" || cp -a "$p" "$base/mm/"
done
cp "$series/mm/run_vmtests.sh" "$base/mm/"
while read -r name _ _ _ _ prog _; do
	[ -x "$series/mm/$prog" ] || die "$name: the series has no selftests/mm/$prog"
done <<<"$tests"

# One folder for one state of everything: an interrupted run is gone on with.
key=$( { echo "$tests"; cat "$base/.key" "$series/.key" "$TOP/scripts/"{guest-selftests,vm-run.sh,guest-init}
	for kernel in "${kernels[@]}"; do
		cat "$BUILD/kernels/$config-${kernel//\//_}/build.txt"
	done; } | sha256sum | cut -c 1-12)
out=$BUILD/kselftest/run-$key
for p in "$BUILD"/kselftest/run-*; do
	[ "$p" = "$out" ] || rm -rf "$p"
done
mkdir -p "$out"

# boot DIR KERNEL GUEST CPUS: the guest's output, complete, is in DIR/KERNEL-GUEST.out
boot()
{
	local to=$1/${2//\//_}-$3 list=$1/list-$3 from=$series limit rc=0 files=() file vm

	[ "$2" != base ] || from=$base
	limit=$(awk '{ sum += $2 } END { print sum + 300 }' "$list")
	for file in /usr/bin/timeout /usr/bin/stdbuf /usr/libexec/coreutils/libstdbuf.so /bin/bash; do
		files+=(--file "$file:$file")
	done
	# dlopen()ed by pthread_cancel()
	files+=(--file "$(gcc -print-file-name=libgcc_s.so.1):/lib/libgcc_s.so.1")
	"$TOP/scripts/vm-run.sh" "$2" --config "$config" "${splat[@]}" --smp "$4" --numa 2 --mem 2560 \
		--append "proc_mem.force_override=always" --timeout "$limit" --log "$to.console" \
		"${files[@]}" --file /usr/sbin/mkfs.ext4:/work/mkfs.ext4 --file "$from:/work/kselftest" \
		--file "$list:/work/list" --file "$TOP/scripts/guest-selftests" \
		-- sh /work/guest-selftests >"$to.tmp" 2>"$to.err" &
	vm=$!
	trap 'kill "$vm" 2>/dev/null; exit 143' TERM
	wait "$vm" || rc=$?
	case $rc in
	125|130|143)	# stopped by somebody
		cat "$to.err" >&2
		exit 1 ;;
	esac
	[ "$rc" -eq 0 ] || printf '\n### vm-run.sh: exit code %d\n' "$rc" >>"$to.tmp"
	mv "$to.tmp" "$to.out"
	step "$2, guest $3: done"
}

pids=()
trap 'kill "${pids[@]}" 2>/dev/null || :' EXIT
trap 'say "$SELF: interrupted; run again to go on"; exit 130' INT
trap 'say "$SELF: terminated; run again to go on"; exit 143' TERM HUP

# boot_all DIR TESTS: the guests of these tests
boot_all()
{
	local guests guest kernel pid cpus

	mkdir -p "$1"
	mapfile -t guests < <(awk '{ print $2 }' <<<"$2" | sort -nu)
	for guest in "${guests[@]}"; do
		awk -v g="$guest" -v slow="$slow" '$2 == g { $5 *= slow; $2 = $3 = $4 = ""; print }' \
			<<<"$2" >"$1/list-$guest"
		# A slow kernel does not get far with two: each waits for the other
		# to flush its TLB. Races are for the stress test.
		cpus=1
		[ "$slow" -ne 1 ] || cpus=$(awk -v g="$guest" '$2 == g { print $3; exit }' <<<"$2")
		pids=()
		for kernel in "${kernels[@]}"; do
			[ ! -e "$1/${kernel//\//_}-$guest.out" ] || continue
			step "$kernel, guest $guest: $(wc -l <"$1/list-$guest") tests"
			boot "$1" "$kernel" "$guest" "$cpus" &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do
			wait "$pid" || die "a guest of $guest gave no result; run again to go on"
		done
	done
	pids=()
}

# report DIR...: 0 if all is as it should be; table.txt, wrong
report()
{
	local dir opts=()

	for dir; do
		opts+=(--dir "$dir")
	done
	"$TOP/scripts/selftests-report.py" --kunit "$BUILD/kselftest/series/src/tools/testing/kunit" \
		--known "$TOP/scripts/selftests-known" "${opts[@]}" --wrong "$out/wrong" \
		--tests "$(awk '{ print $1 }' <<<"$tests" | tr '\n' ' ')" \
		"${kernels[@]//\//_}" >"$out/table.txt"
}

rc=0
boot_all "$out" "$tests"
report "$out" || rc=$?
dirs=("$out")
while [ "$rc" -ne 0 ] && [ -s "$out/wrong" ] && [ ${#dirs[@]} -le 3 ] &&
		! grep -q '^### vm-run.sh' "${dirs[-1]}"/*.out; do
	step "again: $(paste -sd' ' "$out/wrong")"
	dirs+=("$out/again-${#dirs[@]}")
	boot_all "${dirs[-1]}" "$(awk 'NR == FNR { wrong[$1]; next } $1 in wrong' "$out/wrong" - <<<"$tests")"
	rc=0
	report "${dirs[@]}" || rc=$?
done

splats=
for p in "$out"/*.out "$out"/again-*/*.out; do
	if [ -e "$p" ] && grep -q '^### vm-run.sh' "$p"; then
		splats=1
		step "$(basename "$p" .out): $(tail -n 1 "$p")"
		cat "${p%.out}.err" >&2
	fi
done
cat "$out/table.txt"
if [ "$full" = "full1/1base series" ]; then
	to=$TOP/bench-results/selftests
	rm -rf "$to.tmp"
	mkdir -p "$to.tmp"
	cp "$out/table.txt" "$to.tmp/"
	for kernel in base series; do
		grep -E '^(commit|compiler|release|config_sha256):' "$BUILD/kernels/$config-$kernel/build.txt" |
			sed "s/^/kernel.$kernel./"
	done >"$to.tmp/env.txt"
	for p in "$out"/{,again-*/}*.{out,console}; do
		name=${p#"$out"/}
		[ ! -e "$p" ] || gzip -9n <"$p" >"$to.tmp/${name//\//-}.gz"
	done
	rm -rf "$to"
	mv "$to.tmp" "$to"
	step "results in bench-results/selftests"
fi
last=$BUILD/kselftest/last-$config
rm -rf "$last"
mv "$out" "$last"
[ "$rc$splats" = 0 ] || die "something differs, or fails and is not listed; logs: ${last#"$TOP"/}"
