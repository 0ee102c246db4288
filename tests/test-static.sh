#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-static.sh
#
# What needs no kernel: shellcheck, --help and bad options of every script.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit
cd "$TOP"
mapfile -t shell < <(git ls-files | while read -r f; do
	[ -f "$f" ] && head -n 1 "$f" | grep -qE '^#!.*\b(ba)?sh$' && echo "$f"
	case $f in */lib*.sh) echo "$f" ;; esac
done | sort -u)
mapfile -t commands < <(git ls-files 'scripts/*' |
	while read -r f; do
		case $f in */lib*.sh|*/guest-init) continue ;; esac
		[ -x "$f" ] && echo "$f"
	done)

t_shellcheck()
{
	# The wrapper follows the kernel's own wrappers, not ours.
	run 0 shellcheck "${shell[@]/tools-testing-selftests-mm*/tests/lib.sh}"
	cat "$tmp/out"
}

t_help()
{
	local f

	for f in "${commands[@]}"; do
		run 0 "$f" --help
		[ -s "$tmp/out" ] || why "$f --help prints nothing"
		! grep -qE '.{81}' "$tmp/out" || why "$f --help is wider than 80 columns"
	done
}

t_bad_option()
{
	local f

	for f in "${commands[@]}"; do
		run 2 "$f" --no-such-option
		[ -s "$tmp/err" ] || why "$f says nothing about a bad option"
	done
}

t_missing_tool()
{
	mkdir -p "$tmp/bin"
	run 1 env "PATH=$tmp/bin" "$BASH" -c \
		". $TOP/scripts/lib.sh 2>/dev/null; need no-such-tool"
	err_has 'setup-deps.sh'
}

t_full_disk()
{
	run 1 "$BASH" -c ". $TOP/scripts/lib.sh; need_space '$tmp' 999999999"
	err_has 'MiB are needed'
}

t_python()
{
	local f

	for f in $(git ls-files '*.py'); do
		run 0 python3 -W error -c "import ast; ast.parse(open('$f').read())"
	done
}

t_private()
{
	# No mirror, no path of somebody's machine, no Signed-off-by of ours.
	run 1 git grep -nE "/(home|work)/[a-z]+/|deb\.debian\.org|snapshot\.debian" -- \
		':!tests/test-static.sh' ':!COPYING'
	cat "$tmp/out"
	run 1 git grep -n '^Signed-off-by:' -- patches
}

t 'shellcheck is silent' t_shellcheck
t '--help of every script, within 80 columns' t_help
t 'a bad option gives exit code 2 and a message' t_bad_option
t 'a missing tool is named with the way to get it' t_missing_tool
t 'a full disk is told before the work' t_full_disk
t 'Python parses' t_python
t 'no mirror, no local path, no sign-off' t_private
finish
