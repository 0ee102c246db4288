#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: check-series.sh [--no-build] [--patches DIR]
#
# What a reviewer's scripts would find in patches/*.patch, patch by patch:
# each applies in order, checkpatch.pl --strict, whitespace, spelling, width
# of the changelog, form of Fixes:, no Signed-off-by, figures that are not in
# bench-results/, then W=1 and sparse on the objects concerned, none of which
# may warn of what it did not warn of before. And the selftest sources in
# tools-testing-selftests-mm/ are those of the series.
# Silent and exit 0 if there is nothing to say.
#
#   --no-build     leave out compiler and sparse
#   --patches DIR  other patches than ours, for the tests
#   --help         this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build=1 patches=$TOP/patches
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--no-build) build=0 ;;
	--patches) patches=${2:?}; shift ;;
	*) usage_error "unknown option '$1'" ;;
	esac
	shift
done

need git perl codespell make gcc sparse ccache
[ -e "$LINUX/.git" ] || die "no kernel tree; run scripts/kernel-tree.sh"
lock check-series

found=0
complain()
{
	printf '%s\n' "$*"
	found=$((found + 1))
}

tree=$BUILD/src/check-series
obj=$BUILD/obj/check-series
export GIT_CONFIG_GLOBAL=/dev/null
export GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check@localhost

if [ ! -e "$tree/.git" ]; then
	rm -rf "$tree"
	git -C "$LINUX" worktree prune
	git -C "$LINUX" worktree add -q --detach "$tree" base
fi
git -C "$tree" am --abort >/dev/null 2>&1 || true
git -C "$tree" checkout -q -f --detach base

# Objects whose sources the series touches, or whose headers it does.
objects=(mm/mprotect.o mm/memory.o mm/mapping_dirty_helpers.o
	 fs/proc/task_mmu.o arch/x86/kernel/paravirt.o arch/x86/xen/mmu_pv.o)

warnings()
{
	grep -E '(warning|error):' "$1" | sed -E 's/:[0-9]+(:[0-9]+)?:/:/' |
		sort -u || true
}

# compile NAME: all objects with W=1 and sparse; new warnings are findings.
compile()
{
	local name=$1 log=$BUILD/log/check-series-$1.log

	if ! make -C "$tree" O="$obj" -j"$(nproc)" CC='ccache gcc' W=1 C=1 \
		CHECK='sparse -D__typeof_unqual__=__typeof__' \
		"${objects[@]}" >"$log" 2>&1; then
		complain "$name: does not build: $(grep -m 1 -E 'error|Error' "$log") (log: $log)"
		return
	fi
	warnings "$log" >"$log.warn"
	[ "$name" != base ] || return 0
	while IFS= read -r w; do
		complain "$name: $w"
	done < <(comm -13 "$BUILD/log/check-series-base.log.warn" "$log.warn")
}

if [ "$build" = 1 ]; then
	mkdir -p "$obj"
	step "check-series: configuring"
	make -s -C "$tree" O="$obj" tinyconfig >/dev/null
	"$tree/scripts/kconfig/merge_config.sh" -m -O "$obj" "$obj/.config" \
		"$TOP/scripts/configs/bench.config" \
		"$TOP/scripts/configs/distro.config" >/dev/null
	make -s -C "$tree" O="$obj" olddefconfig
	step "check-series: base"
	rm -f "$BUILD"/log/check-series-*.log
	compile base
fi

# Where each figure of a changelog has to be found, if rounded.
figures=$(find "$TOP/bench-results" -name 'summary.*' -exec cat {} + |
	  { grep -oE '[0-9]+\.[0-9]+' || true; } |
	  awk '{ print; printf "%.2f\n", $1 }' | sort -u)

check_changelog()
{
	local p=$1 name=$2 line nr=0 body=1

	while IFS= read -r line; do
		nr=$((nr + 1))
		case $line in
		---) break ;;
		'Signed-off-by: '*)
			complain "$name:$nr: Signed-off-by is the submitter's to add" ;;
		'Fixes: '*)
			grep -qE '^Fixes: [0-9a-f]{12} \(".+"\)$' <<<"$line" ||
				complain "$name:$nr: Fixes: wants 12 digits of the hash and (\"subject\")" ;;
		esac
		# Tables and quotes (indented), trailers and the mail's own header.
		case $line in
		' '*|'	'*|[A-Z]*-by:*|Link:*|Closes:*|Fixes:*|From*|Subject:*|Date:*|MIME*|Content*) ;;
		*) [ ${#line} -le 75 ] ||
			complain "$name:$nr: ${#line} columns, 75 at most" ;;
		esac
		[ "$body" = 1 ] || continue
		case $line in From*|Date:*|Subject:*|Fixes:*|Closes:*|Link:*) continue ;; esac
		for f in $(grep -oE '(^|[^v0-9.])[0-9]+\.[0-9]+($|[^0-9.])' <<<"$line" |
			   grep -oE '[0-9]+\.[0-9]+' || true); do
			grep -qxF "$f" <<<"$figures" ||
				complain "$name:$nr: $f is in no summary of bench-results/"
		done
	done <"$p"
}

count=0
for p in "$patches"/[0-9]*.patch; do
	[ -e "$p" ] || die "no patches in $patches"
	name=$(basename "$p")
	count=$((count + 1))
	step "check-series: $name"
	check_changelog "$p" "$name"
	while IFS= read -r w; do
		complain "$name: $w"
	done < <(cd "$tree" && git apply --check --whitespace=error-all "$p" 2>&1)
	if ! git -C "$tree" am -q "$p" >"$BUILD/log/check-series-am.log" 2>&1; then
		complain "$name: does not apply: $(head -n 3 "$BUILD/log/check-series-am.log" | tr '\n' ' ')"
		git -C "$tree" am --abort
		break
	fi
	# No findings: a new file in a directory that MAINTAINERS covers, the
	# sign-off that only the submitter can give, commits that a tree without
	# history does not know.
	while IFS= read -r w; do
		complain "$name: $w"
	done < <(cd "$tree" && perl scripts/checkpatch.pl --strict --terse \
			--no-summary --no-tree --codespell --showfile \
			--ignore FILE_PATH_CHANGES,MISSING_SIGN_OFF,UNKNOWN_COMMIT_ID "$p" 2>/dev/null)
	while IFS= read -r w; do
		complain "$name: spelling: $w"
	done < <(cd "$patches" && { codespell -L "fro,ro" "$name" || true; })
	if [ "$build" = 1 ] && grep -qE '^\+\+\+ b/(mm|arch|include)/' "$p"; then
		compile "$name"
	fi
done

# The selftests that are read and built here are those that the series adds.
while IFS= read -r f; do
	cmp -s "$TOP/tools-testing-selftests-mm/$(basename "$f")" "$tree/$f" ||
		complain "tools-testing-selftests-mm/$(basename "$f") is not what the series adds as $f"
done < <(git -C "$tree" diff --name-only --diff-filter=A base HEAD -- tools/testing/selftests/mm)

git -C "$tree" checkout -q -f --detach base
[ "$found" -eq 0 ] || die "$found findings in $count patches"
