#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-tree.sh
#
# scripts/kernel-tree.sh: makes build/linux, and what it says to a damaged
# patch, another base, an interruption and work that would be lost.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

# Real base, but only the files that the series touches: quick to clone.
mini_base()
{
	local files

	mapfile -t files < <(git apply --numstat "$TOP"/patches/*.patch |
			     cut -f3 | sort -u)
	rm -rf "$tmp/kdir"
	git init -q -b master "$tmp/kdir"
	# The names that base knows; what the series adds is not among them.
	mapfile -t files < <(git -C "$LINUX" ls-tree -r --name-only base -- "${files[@]}")
	git -C "$LINUX" archive base -- "${files[@]}" | tar -x -C "$tmp/kdir"
	git -C "$tmp/kdir" add -f -A
	git -C "$tmp/kdir" -c user.name=t -c user.email=t@localhost commit -q -m base
	# The project, to damage it.
	rm -rf "$tmp/project"
	mkdir "$tmp/project"
	cp -a "$TOP/scripts" "$TOP/patches" "$tmp/project/"
}

tree()
{
	local want=$1
	shift
	run "$want" env BUILD="$tmp/build" "$@" "$tmp/project/scripts/kernel-tree.sh"
}

t_make()
{
	run 0 "$TOP/scripts/kernel-tree.sh"
	run 0 git -C "$LINUX" rev-parse -q --verify base
	[ "$(git -C "$LINUX" rev-list --count base..series)" -eq \
	  "$(find "$TOP/patches" -maxdepth 1 -name '*.patch' | wc -l)" ] ||
		why "'series' has not one commit a patch"
}

t_second_call()
{
	local from to

	from=$(date +%s%N)
	run 0 "$TOP/scripts/kernel-tree.sh"
	to=$(date +%s%N)
	err_has 'up to date'
	[ $(((to - from) / 1000000)) -lt 2000 ] ||
		why "the second call took $(((to - from) / 1000000)) ms"
}

t_kdir()
{
	local before after

	mini_base
	before=$(cd "$tmp/kdir" && find . -type f | sort | xargs sha256sum)
	tree 0 KDIR="$tmp/kdir"
	after=$(cd "$tmp/kdir" && find . -type f | sort | xargs sha256sum)
	[ "$before" = "$after" ] || why "KDIR was changed"
	# The same patches on the same files: the same result as build/linux.
	[ "$(git -C "$tmp/build/linux" rev-parse series:mm/mprotect.c)" = \
	  "$(git -C "$LINUX" rev-parse series:mm/mprotect.c)" ] ||
		why "mm/mprotect.c differs from build/linux"
	tree 0 KDIR="$tmp/kdir"
	err_has 'up to date'
}

t_interrupted()
{
	# As git am leaves it when it is killed in the middle.
	mkdir -p "$tmp/build/linux/.git/rebase-apply"
	rm "$tmp/build/linux/.git/mprotect-stamp"
	touch "$tmp/build/linux/.git/index.lock"
	git -C "$tmp/build/linux" update-ref refs/heads/series base
	tree 0 KDIR="$tmp/kdir"
	[ "$(git -C "$tmp/build/linux" rev-parse series:mm/mprotect.c)" = \
	  "$(git -C "$LINUX" rev-parse series:mm/mprotect.c)" ] ||
		why "series is not whole"
}

t_own_commits()
{
	git -C "$tmp/build/linux" -c user.name=t -c user.email=t@localhost \
		commit -q --allow-empty -m 'work in progress'
	tree 1 KDIR="$tmp/kdir"
	err_has 'commits that patches/ has not'
	tree 1
	git -C "$tmp/build/linux" reset -q --hard HEAD~
	echo >>"$tmp/build/linux/mm/mprotect.c"
	cp "$tmp/project/patches/"0001-* "$tmp/project/patches/0000-x.patch"
	tree 1 KDIR="$tmp/kdir"
	err_has 'not committed'
}

t_export()
{
	mini_base
	rm -rf "$tmp/build"
	tree 0 KDIR="$tmp/kdir"
	run 0 env BUILD="$tmp/build" "$tmp/project/scripts/kernel-tree.sh" --export
	run 0 diff -r "$TOP/patches" "$tmp/project/patches"
	cat "$tmp/out"
}

t_damaged()
{
	local p

	mini_base
	rm -rf "$tmp/build"
	p=$(grep -l '^+++ b/mm/mprotect.c' "$tmp"/project/patches/*.patch | head -n 1)
	sed -i '0,/^ \t/s//  \t/' "$p"
	tree 1 KDIR="$tmp/kdir"
	err_has 'mm/mprotect.c'
	err_has "$(basename "$p") does not apply"
	[ ! -e "$tmp/build/linux/.git/mprotect-stamp" ] || why "taken for complete"
	[ ! -d "$tmp/build/linux/.git/rebase-apply" ] || why "git am was left open"
}

t_other_base()
{
	mini_base
	rm -rf "$tmp/build"
	sed -i 's/pte_t oldpte/pte_t orig_pte/; s/change_pte_range/alter_pte_range/' \
		"$tmp/kdir/mm/mprotect.c"
	git -C "$tmp/kdir" -c user.name=t -c user.email=t@localhost commit -q -a -m other
	tree 1 KDIR="$tmp/kdir"
	err_has 'of this base is blob'
	err_has 'mm/mprotect.c: patch made for [0-9a-f]+, here [0-9a-f]+'
	err_has 'does not apply'
}

t_not_git()
{
	mkdir -p "$tmp/empty"
	tree 1 KDIR="$tmp/empty"
	err_has 'is no git checkout'
}

t 'makes build/linux, a commit a patch' t_make
t 'a second call takes under two seconds' t_second_call
t 'KDIR= is used and not changed' t_kdir
t 'after an interruption it starts over' t_interrupted
t 'work in build/linux is not thrown away' t_own_commits
t '--export gives the same patches back' t_export
t 'a damaged patch is named, with the file' t_damaged
t 'another base is named, with the blobs' t_other_base
t 'KDIR= that is no checkout is refused' t_not_git
finish
