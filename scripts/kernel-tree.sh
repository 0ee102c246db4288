#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: [KDIR=path] kernel-tree.sh [--export | --force | --status]
#
# Make build/linux: a git tree with the branch "base" (Linux v7.3) and the
# branch "series" (base and patches/*.patch by git am), "series" checked out.
# With everything in place it says so within a second.
#
# The base is the package linux-source-7.3 of this machine's Debian mirror,
# or with KDIR= the HEAD of a kernel checkout of yours, of which it makes a
# clone that shares its objects: nothing in KDIR is changed.
#
#   --export  the other way round: write the branch "series", as you edited
#             it in build/linux, to patches/
#   --force   throw away what was committed or edited in build/linux
#   --status  say what is there, change nothing
#   --help    this text

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/lib-debian.sh"

# mm/mprotect.c of v7.3.4, that the series is made against.
readonly BASE_BLOB=2888ee638d872a279e9d24c54b99931837963791

mode=make force=0
for arg; do
	case $arg in
	-h|--help) help_exit ;;
	--export|--status) mode=${arg#--} ;;
	--force) force=1 ;;
	*) usage_error "unknown option '$arg'" ;;
	esac
done

need git flock sha256sum

# The same input gives the same commit ids for everybody, whatever is in the
# user's git configuration.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_COMMITTER_NAME='mprotect series' GIT_COMMITTER_EMAIL='mprotect-series@localhost'
export GIT_AUTHOR_NAME=$GIT_COMMITTER_NAME GIT_AUTHOR_EMAIL=$GIT_COMMITTER_EMAIL

g()
{
	git -C "$LINUX" "$@"
}

patches=()
for p in "$TOP"/patches/*.patch; do
	[ -e "$p" ] && patches+=("$p")
done

# What "series" was made from: says whether there is anything to do.
patches_id()
{
	# The names are in it, their folder is not.
	(cd "$TOP/patches" && find . -maxdepth 1 -name '*.patch' -print0 |
	 sort -z | xargs -0 -r sha256sum) | sha256sum | cut -d' ' -f1
}

kdir_id()
{
	[ -z "${KDIR:-}" ] || git -C "$KDIR" rev-parse HEAD
}

stamp_file=$LINUX/.git/mprotect-stamp

stamp()
{
	printf 'base %s\nkdir %s\npatches %s\nseries %s\n' \
		"$(g rev-parse base)" "${kdir:-none}" "$(patches_id)" \
		"$(g rev-parse series)"
}

make_base_from_kdir()
{
	step "sharing the objects of $KDIR"
	rm -rf "$LINUX.new"
	git clone -q --shared --no-checkout "$KDIR" "$LINUX.new"
	git -C "$LINUX.new" checkout -q -B base "$kdir"
	mv "$LINUX.new" "$LINUX"
}

make_base_from_debian()
{
	local version

	need_space "$BUILD" 8000
	rm -rf "$LINUX.new"
	version=$(debian_linux_source 7.3 "$LINUX.new")
	step "committing the tree"
	git -C "$LINUX.new" init -q -b base
	git -C "$LINUX.new" config gc.auto 0
	# Debian's .gitignore hides every file: add them all the same.
	git -C "$LINUX.new" add -f -A
	GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' \
		git -C "$LINUX.new" commit -q -m "Linux, Debian's linux-source-7.3 $version"
	mv "$LINUX.new" "$LINUX"
}

# Why a patch did not apply: the file, the hunk, and the two blobs.
explain_conflict()
{
	local patch=$1 line file want have

	say "--- what git says:"
	{ g apply --check -v "$patch" 2>&1 || true; } |
		grep -E '^error' >&2 || true
	say "--- which blobs of the files it was made for:"
	file=
	while IFS= read -r line; do
		case $line in
		'diff --git a/'*)
			file=${line##* b/}
			;;
		'index '*)
			want=${line#index }
			want=${want%%..*}
			# A file the patch creates has no blob yet.
			[ -n "${want//0/}" ] || continue
			have=$(g rev-parse -q --verify "HEAD:$file" || echo none)
			case $have in
			"$want"*) ;;
			*) say "$file: patch made for $want, here ${have:0:${#want}}" ;;
			esac
			;;
		esac
	done <"$patch"
}

apply_series()
{
	local p opts=() n=0

	[ "$blob" = "$BASE_BLOB" ] || opts=(-3)
	g checkout -q -f -B series base
	for p in "${patches[@]}"; do
		n=$((n + 1))
		step "applying $n/${#patches[@]}: $(basename "$p")"
		if g am -q --committer-date-is-author-date "${opts[@]}" "$p" \
			>"$BUILD/log/git-am.log" 2>&1; then
			continue
		fi
		cat "$BUILD/log/git-am.log" >&2
		g am --abort || true
		explain_conflict "$p"
		die "$(basename "$p") does not apply; mend it, or take the base it was made for (mm/mprotect.c is blob $BASE_BLOB there, $blob here)"
	done
}

export_series()
{
	local new=$TOP/patches/.new n

	[ -z "$(g status --porcelain --untracked-files=no)" ] ||
		die "build/linux has changes that are not committed; commit them to 'series' first"
	rm -rf "$new"
	n=$(g rev-list --count base..series)
	[ "$n" -gt 0 ] || die "'series' has no commit on top of 'base'"
	# No version of git, no base-commit: the files change with the series
	# only, and our base commit is nobody else's.
	g format-patch -q -o "$new" --no-signature --zero-commit --no-base \
		--full-index --no-numbered --no-cover-letter base..series
	rm -f "$TOP"/patches/*.patch
	mv "$new"/*.patch "$TOP/patches/"
	rmdir "$new"
	stamp >"$stamp_file.new" && mv "$stamp_file.new" "$stamp_file"
	say "wrote $n patches to patches/"
}

mkdir -p "$BUILD/log"
kdir=
if [ -n "${KDIR:-}" ]; then
	kdir=$(kdir_id) || die "KDIR=$KDIR is no git checkout"
	[ -e "$KDIR/mm/mprotect.c" ] || die "KDIR=$KDIR has no mm/mprotect.c"
fi

if [ "$mode" = status ]; then
	[ -e "$stamp_file" ] || die "build/linux is not complete; run $SELF"
	cat "$stamp_file"
	exit 0
fi

lock kernel-tree

if [ "$mode" = export ]; then
	[ -d "$LINUX/.git" ] || die "build/linux is not there; run $SELF first"
	export_series
	exit 0
fi

# A tree of the other kind of base, or a clone of another commit: start over.
if [ -d "$LINUX/.git" ] && [ -n "$kdir" ] &&
   [ "$(g rev-parse -q --verify base)" != "$kdir" ]; then
	[ "$force" = 1 ] ||
		die "build/linux has another base; remove it, or give --force, to use KDIR=$KDIR"
	rm -rf "$LINUX"
fi

if [ -d "$LINUX/.git" ] && [ -e "$stamp_file" ] && [ "$force" = 0 ]; then
	if [ -z "${KDIR:-}" ]; then
		# KDIR= need not be said again.
		kdir=$(sed -n 's/^kdir //p' "$stamp_file")
	fi
	if [ "$(stamp)" = "$(cat "$stamp_file")" ]; then
		say "build/linux: base $(g rev-parse --short=12 base), series of ${#patches[@]} patches $(g rev-parse --short=12 series): up to date"
		exit 0
	fi
	if [ "$(g rev-parse series)" != "$(sed -n 's/^series //p' "$stamp_file")" ]; then
		die "'series' in build/linux has commits that patches/ has not: $SELF --export writes them there, --force throws them away"
	fi
	if [ -n "$(g status --porcelain --untracked-files=no)" ]; then
		die "build/linux has changes that are not committed: commit and --export them, or --force throws them away"
	fi
fi

if [ ! -d "$LINUX/.git" ]; then
	if [ -n "$kdir" ]; then
		make_base_from_kdir
	else
		make_base_from_debian
	fi
fi

# What an interrupted run may have left behind.
rm -f "$stamp_file" "$LINUX/.git/index.lock"
g am --abort >/dev/null 2>&1 || true
rm -rf "$LINUX/.git/rebase-apply"

blob=$(g rev-parse base:mm/mprotect.c)
if [ "$blob" != "$BASE_BLOB" ]; then
	warn "mm/mprotect.c of this base is blob $blob, the series was made against $BASE_BLOB; trying git am -3"
fi

apply_series
stamp >"$stamp_file.new"
mv "$stamp_file.new" "$stamp_file"
step "build/linux is ready: base $(g rev-parse --short=12 base), series $(g rev-parse --short=12 series) (${#patches[@]} patches)"
