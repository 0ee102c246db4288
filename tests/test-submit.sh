#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-submit.sh
#
# scripts/submit.sh from a clean clone, with a made-up submitter: the mails,
# their way through an SMTP server on loopback and back by git am and b4 am,
# and what it refuses. Nothing here is sent to anybody else.

# shellcheck disable=SC2317 # the tests are called by name
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
. "$TOP/tests/lib.sh"

[ $# -eq 0 ] || help_exit

"$TOP/scripts/kernel-tree.sh"

# The submitter has no configuration but this one.
export HOME=$tmp/home GIT_CONFIG_GLOBAL=$tmp/home/gitconfig GIT_CONFIG_NOSYSTEM=1
mkdir "$HOME"
git config --global user.name 'Zoë Submitter'
git config --global user.email zoe@example.org
git config --global safe.directory '*'
git config --global init.defaultBranch master
git config --global b4.attestation-policy off
git config --global sendemail.smtpserver 127.0.0.1
# Nobody listens there.
git config --global sendemail.smtpserverport 1

repo=$tmp/repo
# A clean clone of what is here, committed or not.
new_repo()
{
	rm -rf "$repo"
	mkdir "$repo"
	git -C "$TOP" ls-files -z -co --exclude-standard |
		tar -C "$TOP" --null --ignore-failed-read -c -T - | tar -C "$repo" -x
	git -C "$repo" init -q
	# Whether ours are stale is for test-docs.sh to say.
	"$repo/scripts/report.py" update
	commit
}

commit()
{
	git -C "$repo" add -A
	git -C "$repo" -c user.name=t -c user.email=t@localhost commit -q -m x
}

submit()
{
	local want=$1
	shift
	run "$want" "$repo/scripts/submit.sh" "$@" --tree "$tmp/submit" --out "$tmp/mails"
}

# on_tty ANSWER COMMAND...
on_tty()
{
	local answer=$1
	shift
	script -qec "$(printf '%q ' "$@")" /dev/null <<<"$answer"
}

series_tree()
{
	git -C "$LINUX" rev-parse 'series^{tree}'
}

t_identity()
{
	git config --global --unset user.email
	submit 1 prep
	err_has 'who are you\?'
	for e in mprotect-series@localhost root@host.localdomain me@users.noreply.example.org; do
		git config --global user.email "$e"
		submit 1 prep
		err_has 'nobody can answer you'
	done
	git config --global user.email zoe@example.org
git config --global safe.directory '*'
}

t_dirty()
{
	echo >>"$repo/README.md"
	submit 1 prep
	err_has 'has changes, commit them first'
	err_has 'README.md'
	git -C "$repo" checkout -q README.md
	touch "$repo/new-file"
	submit 1 prep
	err_has 'new-file'
	rm "$repo/new-file"
}

t_stale()
{
	local what

	for what in 's/^  v6.16  .*25.00$/& /' 's/^ mm\/mprotect.c .*/&+/'; do
		sed -i "$what" "$repo/cover-letter.txt"
		commit
		submit 1 prep
		err_has 'cover-letter.txt:[0-9]+: table .* is stale'
		err_has 'tables are stale'
		git -C "$repo" reset -q --hard HEAD~1
	done
	sed -i '/^Cc: linux-mm@kvack.org/d' "$repo/MAINTAINERS-notes"
	commit
	submit 1 prep
	err_has 'MAINTAINERS-notes:[0-9]+: table recipients of patches/ is stale'
	git -C "$repo" reset -q --hard HEAD~1
}

# A tree of our own, with what the scripts need: quick.
mini_kdir()
{
	local files

	mapfile -t files < <(git apply --numstat "$TOP"/patches/*.patch | cut -f3 | sort -u)
	mapfile -t files < <(git -C "$LINUX" ls-tree -r --name-only base -- "${files[@]}" \
		scripts/get_maintainer.pl .get_maintainer.ignore .mailmap COPYING \
		CREDITS Kbuild MAINTAINERS Makefile README \
		{Documentation,drivers,fs,init,ipc,kernel,lib}/Makefile)
	mkdir "$tmp/kdir"
	git -C "$LINUX" archive base -- "${files[@]}" | tar -x -C "$tmp/kdir"
	git -C "$tmp/kdir" init -q
	git -C "$tmp/kdir" add -f -A
	git -C "$tmp/kdir" commit -q -m base
}

# The base of a tree that others have is named, and only there.
t_base_commit()
{
	export KDIR=$tmp/kdir BUILD=$tmp/build
	mini_kdir
	git -C "$KDIR" tag v7.3
	submit 0 dry-run
	grep -qx "base-commit: $(git -C "$KDIR" rev-parse HEAD)" "$tmp"/mails/0000*.eml ||
		why "no base-commit in the cover letter"
	git -C "$KDIR" tag -d v7.3 >/dev/null
	submit 0 dry-run
	err_has 'no base-commit in the mails'
	! grep -q '^base-commit' "$tmp"/mails/*.eml || why "a base-commit that nobody knows"
	rm -rf "$tmp/submit" "$tmp/mails"
}

t_wrong_base()
{
	# Applies, but is not what was tested.
	echo '/* another */' >>"$KDIR/mm/mprotect.c"
	git -C "$KDIR" commit -q -a -m other
	rm -rf "$tmp/build"
	submit 1 prep
	err_has 'wrong base: mm/mprotect.c is blob'
	rm -rf "$tmp/build" "$tmp/kdir"
	unset KDIR
	export BUILD=$build_of_all
}

t_dry_run()
{
	local m p

	submit 0 dry-run
	[ -z "$bad" ] || return 0
	out_has "^\\[PATCH 0/$patches\\] mm/mprotect: "
	[ "$(grep -c '^  `- \[PATCH [1-9]/' "$tmp/out")" = "$patches" ] ||
		why "the patches are no answers to the cover letter"
	# Whom MAINTAINERS-notes and the trailers name, no more and no less.
	{
		grep -E '^(To|Cc): ' "$repo/MAINTAINERS-notes" | grep -oE '[^ <]+@[^ >]+'
		sed -snE '1,/^---$/s/^[A-Z][a-z-]+-by: .*<(.*)>$/\1/p' "$TOP"/patches/*.patch
		echo zoe@example.org
	} | sort -u >"$tmp/want"
	sed -n 's/^  \([^ ]*@[^ ]*\)$/\1/p' "$tmp/out" | sort -u >"$tmp/have"
	diff "$tmp/want" "$tmp/have" || why "other recipients"
	[ "$(find "$tmp/mails" -name '*.eml' | wc -l)" = $((patches + 1)) ] ||
		why "not $patches mails and a cover letter"
	for m in "$tmp"/mails/0[0-9][0-9][1-9]*.eml; do
		[ "$(grep -c '^Signed-off-by: Zoë Submitter <zoe@example.org>$' "$m")" = 1 ] ||
			why "$m is not signed off"
		grep -q '^Assisted-by: ' "$m" || why "$m has lost Assisted-by:"
		! grep -q 'mprotect-series@localhost' "$m" || why "$m has a placeholder"
	done
	grep -qx "change-id: $(cat "$TOP/patches/change-id")" "$tmp"/mails/0000*.eml ||
		why "no change-id"
	# Every line of the letter arrives, but for the marks of tables.
	sed -e 1d -e '/^\[table /d' -e '/^\[end of table\]$/d' -e '/^$/d' "$repo/cover-letter.txt" |
		while IFS= read -r p; do
			grep -qxF -e "$p" "$tmp"/mails/0000*.eml || echo "$p"
		done >"$tmp/lost"
	[ ! -s "$tmp/lost" ] || why "lost of the cover letter: $(head -n 3 "$tmp/lost")"
}

t_check()
{
	submit 0 check --no-build
	cat "$tmp/out" "$tmp/err"
	# As the mails are what is checked, it finds what is wrong in one.
	sed -i 's/^Signed-off-by: .*/Signed-off-by: Nobody <nobody@example.org>/' \
		"$tmp"/mails/0001*.eml
	run 1 "$repo/scripts/check-series.sh" --no-build --patches "$tmp/mails" \
		--signed 'Zoë Submitter <zoe@example.org>'
	out_has '0001.*:[0-9]+: Signed-off-by'
}

t_send_refused()
{
	submit 0 dry-run
	submit 1 send
	err_has 'I ask before I send'
	run 1 on_tty no "$repo/scripts/submit.sh" send --tree "$tmp/submit" --out "$tmp/mails"
	out_has 'nothing was sent'
	# The mails are not of this letter any more.
	echo 'one more line' >>"$repo/cover-letter.txt"
	submit 1 send
	err_has 'run submit.sh dry-run again'
	git -C "$repo" checkout -q cover-letter.txt
}

t_round_trip()
{
	local sink=$tmp/sink

	mkdir "$sink"
	# Not our stdout: who reads it must not wait for the sink.
	"$TOP/tests/smtp-sink.py" "$sink" >"$sink/log" 2>&1 &
	pid=$!
	trap 'kill "$pid" 2>/dev/null || :; rm -rf "$tmp"' EXIT
	for _ in $(seq 300); do
		[ ! -e "$sink/port" ] || break
		sleep 0.1
	done
	git config --global sendemail.smtpserverport "$(cat "$sink/port")"
	run 0 on_tty yes "$repo/scripts/submit.sh" send --reflect --tree "$tmp/submit" --out "$tmp/mails"
	kill "$pid"
	wait "$pid" || true
	[ -z "$bad" ] || return 0
	[ "$(sort -u "$sink/to")" = zoe@example.org ] ||
		why "sent to $(sort -u "$sink/to" | tr '\n' ' ')"

	# As a maintainer takes it.
	git -C "$tmp/submit" checkout -q -f --detach base
	# The cover letter has no diff: git am stops at it.
	run 128 git -C "$tmp/submit" am -q "$sink/mbox"
	run 0 git -C "$tmp/submit" am -q --skip
	[ "$(git -C "$tmp/submit" rev-parse 'HEAD^{tree}')" = "$(series_tree)" ] ||
		why "git am of what arrived gives another tree"
	[ "$(git -C "$tmp/submit" rev-list --count base..HEAD)" = "$patches" ] ||
		why "not $patches commits"
	mkdir "$tmp/am"
	cd "$tmp/submit"
	git checkout -q -f --detach base
	run 0 b4 --offline-mode am --no-cache -m "$sink/mbox" -o "$tmp/am"
	run 0 git am -q "$tmp"/am/*.mbx
	[ "$(git rev-parse 'HEAD^{tree}')" = "$(series_tree)" ] ||
		why "b4 am of what arrived gives another tree"
	[ "$(git log --format='%an <%ae>' base..HEAD | sort -u)" = 'Zoë Submitter <zoe@example.org>' ] ||
		why "the author is $(git log -1 --format='%an <%ae>')"
	git checkout -q -f b4/mprotect
	cd "$TOP"
}

t_own_work()
{
	git -C "$tmp/submit" commit -q --allow-empty -m mine
	submit 1 prep
	err_has 'has changes of its own'
	git -C "$tmp/submit" reset -q --hard HEAD~1
	submit 0 prep
}

patches=$(find "$TOP/patches" -name '*.patch' | wc -l)
build_of_all=$BUILD
new_repo
t 'no name, no address, no placeholder' t_identity
t 'a repository with changes is refused' t_dirty
t 'a stale table, diffstat or recipient is refused' t_stale
t 'base-commit is one that others have' t_base_commit
t 'another mm/mprotect.c is refused' t_wrong_base
t 'dry-run writes the mails and says who gets them' t_dry_run
t 'the mails pass check' t_check
t 'send asks, and refuses mails of something else' t_send_refused
t 'SMTP on loopback, git am, b4 am: the same tree' t_round_trip
t 'work in the branch is not overwritten' t_own_work
finish
