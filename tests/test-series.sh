#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-series.sh
#
# scripts/check-series.sh has nothing to say about the series, and does about
# damaged copies of it. git am takes the series on a tree outside build/.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

"$TOP/scripts/kernel-tree.sh"

# damage SED-SCRIPT [PATCH-GLOB]: a copy of the patches, one of them edited.
damage()
{
	local p

	rm -rf "$tmp/patches"
	cp -a "$TOP/patches" "$tmp/patches"
	for p in "$tmp"/patches/${2:-*mm-mprotect*}.patch; do
		sed -i "$1" "$p"
		! cmp -s "$p" "$TOP/patches/$(basename "$p")" ||
			why "'$1' changes nothing"
		damaged=$(basename "$p")
		return
	done
}

check()
{
	run 1 "$TOP/scripts/check-series.sh" --patches "$tmp/patches" "$@"
	cat "$tmp/out"
}

t_clean()
{
	run 0 "$TOP/scripts/check-series.sh"
	cat "$tmp/out"
	[ ! -s "$tmp/out" ] || why "it has something to say"
}

t_am()
{
	local n

	# --shared: nothing is copied but the work tree.
	git clone -q --shared -b base "$LINUX" "$tmp/linux"
	git -C "$tmp/linux" -c user.name=t -c user.email=t@localhost \
		am -q "$TOP"/patches/*.patch || why "git am does not take it"
	n=$(git -C "$tmp/linux" rev-list --count origin/base..HEAD)
	[ "$n" -eq "$(find "$TOP/patches" -maxdepth 1 -name '*.patch' | wc -l)" ] ||
		why "$n commits"
	[ "$(git -C "$tmp/linux" rev-parse 'HEAD^{tree}')" = \
	  "$(git -C "$LINUX" rev-parse 'series^{tree}')" ] ||
		why "not the tree of build/linux"
	# What a reviewer would do next.
	run 0 make -s -C "$tmp/linux" headers
	run 0 make -s -j"$(nproc)" -C "$tmp/linux/tools/testing/selftests/mm" \
		"$tmp/linux/tools/testing/selftests/mm/mprotect_toggle"
	run 0 "$tmp/linux/tools/testing/selftests/mm/mprotect_toggle" --list
	rm -rf "$tmp/linux"
}

t_blank()
{
	damage '0,/^+\([^+].*[^ ]\)$/s//+\1 /'
	check --no-build
	out_has "$damaged: [^ ]*:[0-9]+: trailing whitespace"
}

t_figure()
{
	damage '0,/^$/s//\nIt is 9876.54321 times as fast.\n/'
	check --no-build
	out_has "$damaged:[0-9]+: 9876.54321 is in no summary"
}

t_fixes()
{
	damage 's/^Fixes: \(.......\)...../Fixes: \1/' \
		"$(basename "$(grep -l '^Fixes:' "$TOP"/patches/*.patch | head -n 1)" .patch)"
	check --no-build
	out_has "$damaged:[0-9]+: Fixes: wants 12 digits"
}

t_signed()
{
	damage '0,/^---$/s//Signed-off-by: Nobody <nobody@localhost>\n---/'
	check --no-build
	out_has "$damaged:[0-9]+: Signed-off-by"
}

t_does_not_apply()
{
	damage '0,/^-\(.*;\)$/s//-\1 x/'
	check --no-build
	out_has "$damaged: does not apply: error: patch failed: [^ ]*:[0-9]+"
}

t_kernel_doc()
{
	damage '0,/^+ \* @\([a-z_]*\):/s//+ * @no_such_\1:/' \
		"$(basename "$(grep -l '^+ \* @[a-z_]*:' "$TOP"/patches/*.patch | head -n 1)" .patch)"
	check --no-build
	out_has 'kernel-doc: .*:[0-9]+ .*no_such_'
}

t_unsigned()
{
	run 1 "$TOP/scripts/check-series.sh" --no-build --signed 'A <a@example.org>'
	out_has "0001.*: 0 lines 'Signed-off-by: A <a@example.org>', wanted 1"
}

# With what coccicheck has to say of it: both take long.
t_does_not_build()
{
	damage '0,/^+\(.*last->ptent = .*;\)$/s//+\1 no_such_function();/;0,/^+\t}$/s//+\t};/' \
		"$(basename "$(grep -l '^+.*last->ptent = .*;' "$TOP"/patches/*.patch | tail -n 1)" .patch)"
	check --targets x86_64
	out_has "$damaged: does not build for x86_64: mm/mprotect.c:[0-9]+:.*no_such_function"
	out_has "coccicheck: mm/mprotect.c:[0-9]+.*Unneeded semicolon"
}

t_selftest_differs()
{
	damage '0,/^+ \* mprotect_toggle/s//+ * mprotect_tuggle/' '*selftests*'
	check --no-build
	out_has 'tools-testing-selftests-mm/mprotect_toggle.c is not what the series adds'
}

t 'nothing to say about the series' t_clean
t 'git am takes it on a tree outside build/, the selftest builds' t_am
t 'a trailing blank is found' t_blank
t 'a figure that is in no result is found' t_figure
t 'a Fixes: of the wrong form is found' t_fixes
t 'a sign-off is found' t_signed
t 'a patch that does not apply is found' t_does_not_apply
t 'a parameter that kernel-doc does not find is found' t_kernel_doc
t 'a missing sign-off is found in stamped patches' t_unsigned
t 'a patch that does not build, and what coccicheck says, is found' t_does_not_build
t 'a selftest unlike the one in patches/ is found' t_selftest_differs
finish
