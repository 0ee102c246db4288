#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-docs.sh
#
# What README.md, cover-letter.txt and MAINTAINERS-notes name is there: files,
# make targets, scripts and their options, functions, patches; hashes and
# message-ids have their form.

# shellcheck disable=SC2317,SC2016 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

"$TOP/scripts/kernel-tree.sh"
cd "$TOP"
docs=(README.md cover-letter.txt MAINTAINERS-notes)

# found RE: "file:line text" of each match.
found()
{
	grep -noHE -e "$1" "${docs[@]}" | sed -E 's/^([^:]*:[0-9]*):/\1 /'
}

t_make_targets()
{
	while read -r where _ target; do
		# The kernel's own.
		[ "$target" != headers ] || continue
		grep -qE "^$target:" Makefile || why "$where: there is no 'make $target'"
	done < <(found '(`|^ +)make [a-z][a-z-]*' | tr -d '`')
}

t_scripts()
{
	local script words word

	while read -r where script words; do
		if [ ! -x "$script" ]; then
			why "$where: $script is no script"
			continue
		fi
		"$script" --help >"$tmp/help"
		for word in $words; do
			case $script:$word in
			*:--*|*/submit.sh:*|*/report.py:*)
				grep -qE -e "(^|[^a-z-])$word([^a-z-]|\$)" "$tmp/help" ||
					why "$where: $script has no $word" ;;
			esac
		done
	done < <(found 'scripts/[a-z/-]+\.(sh|py)( [a-z-]+)?( --[a-z-]+)*')
}

t_paths()
{
	local where path

	while read -r where path; do
		# Objects and prefixes of subjects: the source is what is there.
		path=${path%/} path=${path%.o}
		case $path in
		build|build/*) continue ;;
		esac
		[ -e "$path" ] || git -C "$LINUX" cat-file -e "series:$path" 2>/dev/null ||
			git -C "$LINUX" cat-file -e "series:$path.c" 2>/dev/null ||
			why "$where: $path is neither here nor in the kernel"
	done < <(found '[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+/?' |
		grep -E ' (Documentation|arch|bench-results|build|fs|include|mm|patches|scripts|tests|tools|tools-testing-selftests-mm)/' |
		sed 's/[.]$//'
		found '\]\([^)]*\)' | tr -d '[]()'
		found '[a-z-]+\.rst' | while read -r where path; do
			echo "$where Documentation/process/$path"
		done)
}

t_functions()
{
	local name

	# kernel code, benchmark and harness
	while read -r name; do
		git -C "$LINUX" grep -qw -e "$name" series -- mm include arch/x86 arch/arm64 ||
			why "no function $name() in the series: $(grep -nH -m 1 "$name()" "${docs[@]}" | head -n 1)"
	done < <(cat "${docs[@]}" | grep -oE '[a-z_][a-z0-9_]+\(\)' | tr -d '()' |
		 sort -u | grep -vxE 'mprotect|mremap|mincore|xchg')
}

t_hashes()
{
	local where hash

	# Eight digits are left out: parts of message-ids.
	while read -r where hash; do
		case $(git -C "$LINUX" rev-parse base:mm/mprotect.c) in
		"$hash"*) continue ;;
		esac
		[ ${#hash} -eq 12 ] || why "$where: $hash has ${#hash} digits, not 12"
	done < <(found '\b[0-9a-f]{7,40}\b' | grep -E ' .*[0-9].*' | grep -E ' .*[a-f].*' |
		 grep -vE ' [0-9a-f]{8}$')
	# One name for one commit, everywhere.
	cat "${docs[@]}" patches/*.patch | tr '\n' ' ' |
		grep -oE '[0-9a-f]{12} \("[^"]*"\)' | sort -u >"$tmp/commits"
	[ "$(cut -c1-12 "$tmp/commits" | uniq -d)" = '' ] ||
		why "two subjects of one commit: $(cat "$tmp/commits")"
}

t_message_ids()
{
	local where id

	while read -r where id; do
		grep -qE '^[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$' <<<"$id" ||
			why "$where: '$id' is neither an address nor a message-id"
	done < <(found '[^][ <>(),;"`]*@[^][ <>(),;"`]*' | sed 's/\.$//'
		 sed -nE 's,^(Closes|Link): https://lore.kernel.org/(all|r)/([^/]*)/?$,patches \3,p' patches/*.patch)
	while read -r where id; do
		why "$where: $id"
	done < <(grep -nHE '^(Closes|Link): ' patches/*.patch |
		 grep -vE 'https://lore.kernel.org/all/[^/ ]+@[^/ ]+/$')
}

t_patches()
{
	local n last

	n=$(find patches -name '*.patch' | wc -l)
	head -n 1 cover-letter.txt | grep -qE "^Subject: \[(RFC )?PATCH( v[0-9]+)? 0/$n\] [a-z/]+: " ||
		why "cover-letter.txt:1: Subject is not [PATCH 0/$n] ..."
	for i in $(seq "$n"); do
		grep -qE "^Patch $i\b" cover-letter.txt || why "cover-letter.txt does not say what patch $i does"
	done
	last=$(cat "${docs[@]}" | grep -oiE '\bpatch [0-9]+' | grep -oE '[0-9]+' | sort -n | tail -n 1)
	[ "$last" -le "$n" ] || why "there is no patch $last"
	grep -qxE '[0-9]{8}-mprotect-[0-9a-f]{12}' patches/change-id || why "patches/change-id"
}

t_tables()
{
	run 0 scripts/report.py check
	cat "$tmp/err"
	for what in diffstat recipients; do
		grep -qx "\[table $what from patches/\]" cover-letter.txt MAINTAINERS-notes ||
			why "no table $what"
	done
}

t_width()
{
	run 0 awk 'length > 76 && FNR > 1 || /\t/ && !/^\t/ { print FILENAME ":" FNR; bad = 1 } END { exit bad }' \
		cover-letter.txt
	cat "$tmp/out"
	run 0 awk 'length > 80 { print FILENAME ":" FNR; bad = 1 } END { exit bad }' MAINTAINERS-notes
	cat "$tmp/out"
	run 0 codespell "${docs[@]}"
	cat "$tmp/out"
}

t 'make targets' t_make_targets
t 'scripts, their commands and options' t_scripts
t 'paths, here and in the kernel' t_paths
t 'functions' t_functions
t 'commit hashes' t_hashes
t 'addresses and message-ids' t_message_ids
t 'number of patches' t_patches
t 'tables, diffstat, recipients' t_tables
t 'width and spelling' t_width
finish
