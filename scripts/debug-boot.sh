#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# debug-boot.sh [--seconds N] [--dry-run] [PART]...
#
# The series on kernels that check themselves. Any report of the kernel fails
# the run and is shown.
#
# PART         debug    KASAN, lockdep, DEBUG_VM, PAGE_TABLE_CHECK: the core of
#                       the selftests, the stress test, stress-ng
#              ubsan    the same with UBSAN, DEBUG_VM, PAGE_TABLE_CHECK
#              kcsan    the same with KCSAN, of whose reports those count that
#                       name a function which the series touches
#              planted  a kernel "debug" with tests/planted/shared-writable.diff
#                       in it must be caught
#              Default: debug, ubsan, planted.
# --seconds N  of each stress-ng stressor, and of each variant of the stress
#              test (default: 20)
# --dry-run    say what would run
#
# Table and logs: bench-results/debug-boot/PART/

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=()
seconds=20
dry=
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--dry-run) dry=1; shift ;;
	--seconds)
		[[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || usage_error "--seconds wants a number from 1"
		seconds=$2
		shift 2 ;;
	debug|ubsan|kcsan|planted) parts+=("$1"); shift ;;
	*) usage_error "unknown option or part '$1'" ;;
	esac
done
[ ${#parts[@]} -gt 0 ] || parts=(debug ubsan planted)

# NAME COMMAND...: the stress-ng runs. Memory is bounded, bigheap by a ulimit.
stressors()
{
	cat <<-'EOT'
	mprotect	stress-ng --mprotect 2
	bigheap		ulimit -v 600000; stress-ng --bigheap 1
	vm		stress-ng --vm 2 --vm-bytes 128M --vm-method all --verify
	EOT
}

if [ -n "$dry" ]; then
	for part in "${parts[@]}"; do
		echo "$part:"
		if [ "$part" = planted ]; then
			echo "  cow, to be caught"
		else
			"$TOP/scripts/selftests.sh" --core --kernel series --config "$part" --dry-run | sed 's/^/  /'
			echo "  tests/stress/mprotect_stress"
			stressors | sed 's/^.*\t/  /'
		fi
	done
	exit 0
fi

need qemu-system-x86_64 stress-ng gcc git
lock debug-boot
"$TOP/scripts/kernel-tree.sh"
failed=0

# verdict NAME RC [REMARK]
verdict()
{
	local text=ok

	[ "$2" -eq 0 ] || { text="FAILED, exit code $2"; failed=1; }
	printf '%-28s %s\n' "$1" "$text${3:+, $3}" | tee -a "$out/table.txt"
}

# kcsan_ours CONSOLE: the reports that are about the code which the series
# touches, or works beside.
kcsan_ours()
{
	! grep -aE 'BUG: KCSAN' "$1" | grep -E 'mprotect|change_p|modify_prot|pte_batch|softleaf_pte' >&2
}

# vm NAME CONFIG COMMAND...: boots it with $files
vm()
{
	local name=$1 config=$2 rc=0 opts=()
	shift 2

	step "$name"
	[ "$config" != kcsan ] || opts=(--allow-splat)
	setpriv --pdeathsig TERM "$TOP/scripts/vm-run.sh" series --config "$config" --mem 2560 --numa 2 --timeout $((1200 + seconds * 100)) \
		--log "$out/$name.console" "${opts[@]}" "${files[@]}" -- "$@" >"$out/$name.out" 2>"$out/$name.err" || rc=$?
	if [ "$config" = kcsan ] && [ "$rc" -eq 0 ]; then
		kcsan_ours "$out/$name.console" || rc=122
	fi
	[ "$rc" -eq 0 ] || { tail -n 15 "$out/$name.out"; cat "$out/$name.err"; } >&2
	verdict "$name" "$rc"
}

stress=$BUILD/stress/mprotect_stress
mkdir -p "${stress%/*}"
gcc -O2 -static -pthread -o "$stress.tmp$$" "$TOP/tests/stress/mprotect_stress.c"
mv "$stress.tmp$$" "$stress"

# publish: the results of a part, complete
publish()
{
	local to=$TOP/bench-results/debug-boot/$part p

	rm -rf "$to.tmp"
	mkdir -p "$to.tmp"
	{
		grep -E '^(commit|compiler|release|config_sha256):' \
			"$BUILD/kernels/$config-${kernel//\//_}/build.txt"
		echo "seconds: $seconds"
	} >"$to.tmp/env.txt"
	cp "$out/table.txt" "$to.tmp/"
	for p in "$out"/*.out "$out"/*.console; do
		gzip -9n <"$p" >"$to.tmp/${p##*/}.gz"
	done
	rm -rf "$to"
	mv "$to.tmp" "$to"
	step "results in bench-results/debug-boot/$part"
}

for part in "${parts[@]}"; do
	out=$BUILD/debug-boot/$part
	rm -rf "$out"
	mkdir -p "$out"
	kernel=series
	config=$part
	if [ "$part" = planted ]; then
		config=debug
		kernel=planted/shared-writable
		planted=$(derive series planted git -C "$LINUX" apply --cached \
			"$TOP/tests/planted/shared-writable.diff") ||
			die "tests/planted/shared-writable.diff does not apply to the series any more"
		git -C "$LINUX" update-ref "refs/$kernel" "$planted"
	fi
	"$TOP/scripts/kernel-build.sh" "$kernel" --config "$config" >/dev/null

	last=$BUILD/kselftest/last-$config
	name=$part-selftests
	step "$name"
	rc=0
	opts=(--core --kernel "$kernel" --config "$config")
	[ "$part" != planted ] || opts+=(--only cow)
	[ "$part" != kcsan ] || opts+=(--allow-splat)
	rm -rf "$last"
	setpriv --pdeathsig TERM "$TOP/scripts/selftests.sh" "${opts[@]}" >"$out/$name.out" 2>"$out/$name.err" || rc=$?
	for p in "$last"/{,again-*/}*.{console,out}; do
		to=${p#"$last"/}
		[ ! -e "$p" ] || cp "$p" "$out/$part-${to//\//-}"
	done
	case $part in
	planted)
		if grep -aqE 'kernel BUG at .*page_table_check' "$out/$part-"*.console && [ "$rc" -ne 0 ]; then
			verdict "$name" 0 "caught: $(grep -aohE 'kernel BUG at .*' "$out/$part-"*.console | head -n 1 | tr -d '\r')"
		else
			tail -n 30 "$out/$name.out" >&2
			verdict "$name" 1 "the planted bug was not seen"
		fi
		publish
		continue ;;
	kcsan)
		cat "$out/$part-"*.console >"$out/all"
		kcsan_ours "$out/all" || rc=122
		rm -f "$out/all" ;;
	esac
	[ "$rc" -eq 0 ] || cat "$out/$name.out" "$out/$name.err" >&2
	verdict "$name" "$rc" "$(tail -n 1 "$out/$name.out")"

	files=(--file "$stress" --file "$TOP/tests/stress/guest.sh")
	vm "$part-stress" "$config" guest.sh -s "$((seconds / 2 + 1))"
	files=(--file "$(command -v stress-ng)")
	while IFS=$'\t' read -r name cmd; do
		vm "$part-stress-ng-$name" "$config" sh -c "cd /tmp; exec 2>&1; $cmd --timeout ${seconds}s --metrics-brief" </dev/null
	done < <(stressors | tr -s '\t')
	publish
done

[ "$failed" -eq 0 ] || die "a run failed; logs: ${BUILD#"$TOP"/}/debug-boot"
