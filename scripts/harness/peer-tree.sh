#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: peer-tree.sh SERIES...
#
# Put older kernels into build/peers/: for each SERIES, such as 6.17, the
# newest point release that the Debian mirror still has the source of.
# Prints one directory a line. A SERIES that the mirror has no more is
# skipped with a warning; exit code 1 if none is left.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=scripts/lib-debian.sh
. "$TOP/scripts/lib-debian.sh"

case ${1:-} in
-h|--help) help_exit ;;
-*) usage_error "unknown option '$1'" ;;
'') usage_error "which SERIES?" ;;
esac

# The upstream source of the package, unpatched.
fetch()
{
	local version=$1 dir=$2 dl=$BUILD/dl/linux-source-package tar

	rm -rf "$dl"
	mkdir -p "$dl"
	(cd "$dl" && run_log "$BUILD/log/peer-tree.log" debian_apt apt-get \
		source -q --tar-only --download-only "linux=$version") 2>/dev/null ||
		return 1
	tar=$(find "$dl" -name '*.orig.tar.xz')
	[ -n "$tar" ] || return 1
	step "unpacking $(basename "$tar")"
	rm -rf "$dir.tmp"
	mkdir -p "$dir.tmp"
	tar -xf "$tar" -C "$dir.tmp" --strip-components=1
	mv "$dir.tmp" "$dir"
	rm -rf "$dl"
}

peer()
{
	local series=$1 dir v upstream

	for dir in "$BUILD/peers/linux-$series".*; do
		[ -e "$dir/Makefile" ] && echo "$dir" && return
	done
	debian_apt_update
	need_space "$BUILD/peers" 2500
	while read -r v; do
		upstream=${v%%-*}
		step "fetching the source of Linux $upstream"
		dir=$BUILD/peers/linux-$upstream
		if fetch "$v" "$dir"; then
			echo "$dir"
			return
		fi
		warn "linux $v is gone from the mirror; trying the one before"
	done < <(debian_apt apt-cache madison linux |
		 awk -F' *[|] *' '$3 ~ /Sources/ { print $2 }' |
		 grep -E "^${series//./[.]}[.]" | sort -uVr)
	warn "the mirror has no Linux $series any more; going on without it"
}

lock peers
found=0
for series; do
	dir=$(peer "$series")
	[ -n "$dir" ] || continue
	found=1
	echo "$dir"
done
[ $found = 1 ] || die "no peer kernel could be had; check the network"
