#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: check-series.sh [--no-build] [--signed WHO] [--patches DIR]
#
# What a reviewer's scripts would find in patches/*.patch, patch by patch:
# each applies in order, checkpatch.pl --strict, whitespace, spelling, width
# of the changelog, Fixes:, no Signed-off-by, figures that are not in
# bench-results/. Then W=1 and sparse on the objects concerned (x86-64), and
# mm/mprotect.o for i386 with PAE, arm64 with 4K and 64K pages, and riscv64;
# kernel-doc and coccicheck on the files concerned. None of these may warn of
# what it did not warn of before the series. And the selftest sources in
# tools-testing-selftests-mm/ are those of the series.
# Silent and exit 0 if there is nothing to say.
#
#   --no-build     leave out compilers, sparse and coccicheck
#   --targets LIST compile for these only, of x86_64,i386-pae,... (the default
#                  is all of them)
#   --signed WHO   each patch has to be signed off by WHO ("Name <address>")
#   --patches DIR  other patches than ours, or mails (*.eml)
#   --help         this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build=1 compiles=1 patches=$TOP/patches signed=
targets=(x86_64 i386-pae arm64-4k arm64-64k riscv64)
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--no-build) build=0 ;;
	--patches) patches=$(realpath "${2:?}"); shift ;;
	--targets) IFS=, read -ra targets <<<"${2:?}"; shift ;;
	--signed) signed=${2:?}; shift ;;
	*) usage_error "unknown option '$1'" ;;
	esac
	shift
done

need git perl codespell python3
[ "$build" = 0 ] || need make gcc sparse ccache spatch \
	i686-linux-gnu-gcc aarch64-linux-gnu-gcc riscv64-linux-gnu-gcc
[ -e "$LINUX/.git" ] || die "no kernel tree; run scripts/kernel-tree.sh"
lock check-series

found=0
complain()
{
	printf '%s\n' "$*"
	found=$((found + 1))
}

tree=$BUILD/src/check-series
log=$BUILD/log/check-series
mkdir -p "$BUILD/log"
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


# kernel_make TARGET ARGS...
kernel_make()
{
	local target=$1 arch=${1%%-*} cross=''
	shift

	case $arch in
	i386) cross=i686-linux-gnu- ;;
	arm64) cross=aarch64-linux-gnu- ;;
	riscv64) cross=riscv64-linux-gnu- arch=riscv ;;
	esac
	make -s -C "$tree" O="$BUILD/obj/check-$target" ARCH="$arch" \
		CROSS_COMPILE="$cross" CC="ccache ${cross}gcc" -j"$(nproc)" "$@"
}

configure()
{
	local target=$1 obj=$BUILD/obj/check-$1 fragments=("$1.fragment") stamp

	mkdir -p "$obj"
	[ "$target" != x86_64 ] ||
		fragments=("$TOP"/scripts/configs/{bench,distro}.config)
	{
		printf 'CONFIG_%s=y\n' MMU SMP PROC_FS SHMEM TRANSPARENT_HUGEPAGE \
			USERFAULTFD NUMA NUMA_BALANCING MEM_SOFT_DIRTY
		case $target in
		i386-pae) printf 'CONFIG_%s=y\n' HIGHMEM64G X86_PAE ;;
		arm64-64k) echo CONFIG_ARM64_64K_PAGES=y ;;
		riscv64) echo CONFIG_64BIT=y ;;
		esac
	} >"$obj/$target.fragment"
	stamp=$(cd "$obj" && { git -C "$LINUX" rev-parse base; cat "${fragments[@]}"; } | sha256sum)
	[ "$stamp" != "$(cat "$obj/stamp" 2>/dev/null)" ] || return 0
	rm -f "$obj/stamp"
	step "check-series: configuring $target"
	kernel_make "$target" tinyconfig
	(cd "$obj" && "$tree/scripts/kconfig/merge_config.sh" -m -O . .config \
		"${fragments[@]}") >"$log-config.log"
	kernel_make "$target" olddefconfig
	echo "$stamp" >"$obj/stamp"
}

# new_only WHAT BASE NOW: messages in NOW that BASE has not, on any line.
new_only()
{
	while IFS= read -r w; do
		complain "$1: $w"
	done < <(awk -v tree="$tree/" '
		{
			sub(tree, "")
			key = $0
			gsub(/:[0-9]+(-[0-9]+)?(:[0-9]+)?(-[0-9]+)?/, "", key)
		}
		NR == FNR { old[key] = 1; next }
		!(key in old) && !seen[$0]++' "$2" "$3")
}

# compile NAME: objects with W=1, on x86-64 with sparse.
compile()
{
	local name=$1 target out goals

	for target in "${targets[@]}"; do
		out=$log-$name-$target.log
		goals=(mm/mprotect.o)
		[ "$target" != x86_64 ] ||
			goals=("${objects[@]}" C=1 CHECK='sparse -D__typeof_unqual__=__typeof__')
		if ! kernel_make "$target" W=1 "${goals[@]}" >"$out" 2>&1; then
			complain "$name: does not build for $target: $(grep -m 1 -E 'error|Error' "$out" | sed "s,$tree/,,") (log: $out)"
			# Nor will what comes after it.
			compiles=0
			return
		fi
		grep -E '(warning|error):' "$out" >"$out.warn" || true
		[ "$name" = base ] ||
			new_only "$name, $target" "$log-base-$target.log.warn" "$out.warn"
	done
}

if [ "$build" = 1 ]; then
	rm -f "$log"-*
	for target in "${targets[@]}"; do
		configure "$target"
	done
	step "check-series: base"
	# All of it, so that all its warnings are seen.
	for target in "${targets[@]}"; do
		(cd "$BUILD/obj/check-$target" && rm -f "${objects[@]}")
	done
	compile base
	[ "$compiles" = 1 ] || die "the base does not build"
fi

kernel_doc()
{
	(cd "$tree" && scripts/kernel-doc -none "${touched[@]}") 2>&1 | grep -E ':[0-9]+' || true
}

# cocci [RULES...]: what each says of the files that the series touches; the
# names of those that say something go to $log-cocci.rules. Rules that need
# OCaml are left out, Debian has no compiler for them beside coccinelle.
cocci()
{
	[ $# -gt 0 ] || mapfile -t set < <(cd "$tree" && grep -rlE 'virtual[[:space:]]+report' scripts/coccinelle |
		xargs grep -L 'script:ocaml' | sort)
	[ $# -eq 0 ] || set=("$@")
	# shellcheck disable=SC2016 # the inner shell's
	(export log; cd "$tree" && printf '%s\n' "${set[@]}" | xargs -P "$(nproc)" -I{} bash -c '
		rule=$1; shift
		spatch -D report --no-show-diff --very-quiet --cocci-file "$rule" \
			$(sed -n "s/^.*Options: *//p" "$rule") "$@" 2>>"$log-cocci.err" |
			grep -E ":[0-9]+" | sed "s,\$, ($rule)," || true' _ {} "${touched[@]}" | sort)
}

# Where each figure of a changelog has to be found, if rounded.
figures=$(find "$TOP/bench-results" -name 'summary.*' -exec cat {} + |
	  { grep -oE '[0-9]+\.[0-9]+' || true; } |
	  awk '{ print; printf "%.2f\n", $1 }' | sort -u)

check_changelog()
{
	local p=$1 name=$2 line nr=0 header=1 signatures=0 hash subject f

	while IFS= read -r line; do
		nr=$((nr + 1))
		if [ "$header" = 1 ]; then
			[ -n "$line" ] || header=0
			continue
		fi
		case $line in
		---) break ;;
		'Signed-off-by: '*)
			signatures=$((signatures + 1))
			[ "${line#*: }" = "$signed" ] ||
				complain "$name:$nr: Signed-off-by is the submitter's to add" ;;
		'Fixes: '*)
			if ! grep -qE '^Fixes: [0-9a-f]{12} \(".+"\)$' <<<"$line"; then
				complain "$name:$nr: Fixes: wants 12 digits of the hash and (\"subject\")"
			elif [ "$(git -C "$LINUX" rev-list --count --max-count=2 base)" -gt 1 ]; then
				# A base with its history knows the commit.
				hash=${line#Fixes: } hash=${hash%% *}
				subject=$(git -C "$LINUX" log -1 --format=%s "$hash" -- 2>/dev/null || true)
				[ "Fixes: $hash (\"$subject\")" = "$line" ] ||
					complain "$name:$nr: $hash is \"$subject\" in the base's history"
			fi ;;
		esac
		# Tables and quotes (indented), and trailers.
		case $line in
		' '*|'	'*|[A-Z]*-by:*|Link:*|Closes:*|Fixes:*) continue ;;
		esac
		[ ${#line} -le 75 ] ||
			complain "$name:$nr: ${#line} columns, 75 at most"
	done <"$p"
	[ -z "$signed" ] || [ "$signatures" = 1 ] ||
		complain "$name: $signatures lines 'Signed-off-by: $signed', wanted 1"

	while IFS=: read -r nr f; do
		grep -qxF "$f" <<<"$figures" ||
			complain "$name:$nr: $f is in no summary of bench-results/"
	done < <(awk '/^---$/ { exit }
		body && !/^(Fixes|Closes|Link): / {
			n = split($0, word, /[^v0-9.]+/)
			for (i = 1; i <= n; i++) {
				sub(/\.$/, "", word[i])
				if (word[i] ~ /^[0-9]+\.[0-9]+$/)
					print NR ":" word[i]
			}
		}
		/^$/ { body = 1 }' "$p")
}

count=0
# No findings: a new file in a directory that MAINTAINERS covers, commits that
# a tree without history does not know, and the sign-off that is to come.
ignore=FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID
[ -n "$signed" ] || ignore+=,MISSING_SIGN_OFF
for p in "$patches"/0[0-9]*; do
	name=$(basename "$p")
	case $name in
	0000*) continue ;;
	*.patch|*.eml) ;;
	*) continue ;;
	esac
	count=$((count + 1))
	step "check-series: $name"
	check_changelog "$p" "$name"
	if ! git -C "$tree" am -q "$p" >"$log-am.log" 2>&1; then
		complain "$name: does not apply: $(grep -m 1 '^error' "$log-am.log" || head -n 1 "$log-am.log")"
		git -C "$tree" am --abort
		break
	fi
	while IFS= read -r w; do
		complain "$name: $w"
	done < <(git -C "$tree" diff --check HEAD~1 HEAD | grep -v '^[+-]')
	while IFS= read -r w; do
		complain "${w#"$patches/"}"
	done < <(cd "$tree" && perl scripts/checkpatch.pl --strict --terse \
			--no-summary --no-tree --codespell \
			--ignore "$ignore" "$p" 2>/dev/null)
	while IFS= read -r w; do
		complain "spelling: $w"
	done < <(cd "$patches" && { codespell -L "fro,ro" "$name" || true; })
	if [ "$build$compiles" = 11 ] && grep -qE '^\+\+\+ b/(mm|arch|include)/' "$p"; then
		compile "$name"
	fi
done
[ "$count" -gt 0 ] || die "no patches in $patches"

# The files concerned, before and after.
mapfile -t touched < <(git -C "$tree" diff --name-only --diff-filter=AM base HEAD -- '*.[ch]')
kernel_doc >"$log-doc.now"
if [ "$build" = 1 ]; then
	step "check-series: coccicheck"
	cocci >"$log-cocci.now"
	! grep -q 'Py\.' "$log-cocci.err" ||
		die "spatch has no Python; run scripts/setup-deps.sh"
fi

# The selftests that are read and built here are those that the series adds.
while IFS= read -r f; do
	cmp -s "$TOP/tools-testing-selftests-mm/$(basename "$f")" "$tree/$f" ||
		complain "tools-testing-selftests-mm/$(basename "$f") is not what the series adds as $f"
done < <(git -C "$tree" diff --name-only --diff-filter=A base HEAD -- tools/testing/selftests/mm)

git -C "$tree" checkout -q -f --detach base
mapfile -t touched < <(cd "$tree" && ls -d "${touched[@]}" 2>/dev/null)
kernel_doc >"$log-doc.base"
new_only kernel-doc "$log-doc.base" "$log-doc.now"
if [ "$build" = 1 ] && [ -s "$log-cocci.now" ]; then
	mapfile -t rules < <(sed -n 's/.*(\(.*\.cocci\))$/\1/p' "$log-cocci.now" | sort -u)
	cocci "${rules[@]}" >"$log-cocci.base"
	new_only coccicheck "$log-cocci.base" "$log-cocci.now"
fi
[ "$found" -eq 0 ] || die "$found findings in $count patches"
