#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Usage: submit.sh prep | check | dry-run | send [OPTIONS]
#
# From this repository to linux-mm. Only send talks to a network; it asks first.
#
#   prep     rebuild the series as a branch of b4: patches/*.patch with you as
#            author and signer, cover-letter.txt as its cover letter. You are
#            user.name and user.email of git. Refused if they are not set, if
#            the repository has changes, if a table is stale, or on another
#            base than the patches were made for.
#   check    write the mails and look at them with check-series.sh (which
#            builds each patch), and with b4 prep --check where b4 has it
#   dry-run  write the mails; show who would get them, and the threading
#   send     git send-email of what dry-run wrote, after you typed "yes"
#
#   --tree DIR  the clone with the branch (default build/submit)
#   --out DIR   the mails (default build/mails)
#   --no-build  check: leave the compiler out
#   --reflect   send: to yourself alone, to see what arrives
#   --help      this text
#
# KDIR= as for kernel-tree.sh: with a clone of yours whose HEAD is in one of
# its tags or remote branches, the mails carry it as base-commit. The kernel
# of Debian's package has no commit that others know: they carry none then.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# You are who git config says, not who the environment does.
unset GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL,DATE}

tree=$BUILD/submit out=$BUILD/mails command='' build=1 reflect=0
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	prep|check|dry-run|send) command=$1 ;;
	--tree) tree=${2:?}; shift ;;
	--out) out=${2:?}; shift ;;
	--no-build) build=0 ;;
	--reflect) reflect=1 ;;
	*) usage_error "unknown argument '$1'" ;;
	esac
	shift
done
[ -n "$command" ] || usage_error "prep, check, dry-run or send?"
need git b4 perl python3
perl -MMail::Address -e 1 2>/dev/null || die "git send-email is not complete; run scripts/setup-deps.sh"
tree=$(realpath -m "$tree") out=$(realpath -m "$out")
branch=b4/mprotect
# The author in patches/, see kernel-tree.sh: nobody.
placeholder=mprotect-series@localhost

name=$(git -C "$TOP" config user.name || true)
email=$(git -C "$TOP" config user.email || true)
if [ -z "$name" ] || [ -z "$email" ]; then
	die "who are you? The patches need your Signed-off-by: git config user.name and user.email"
fi
if [[ $email != *@*.* || $email =~ noreply|\.(example|invalid|localdomain|\(none\))$ ]]; then
	die "user.email is '$email', where nobody can answer you"
fi

t()
{
	git -C "$tree" "$@"
}

# recipients To|Cc: one a line, as MAINTAINERS-notes has them.
recipients()
{
	sed -n "s/^$1: \(.*@\)/\1/p" "$TOP/MAINTAINERS-notes"
}

# What the mails are made from: do they still say what they would say now?
inputs()
{
	{
		cat "$TOP"/patches/*.patch "$TOP/cover-letter.txt"
		printf '%s\n' "$(recipients '[TC][oc]')" "$(git -C "$LINUX" rev-parse base)" "$name" "$email"
	} | sha256sum
}

# A base that others can fetch, or nothing.
public_base()
{
	local base kdir

	base=$(git -C "$LINUX" rev-parse base)
	kdir=$(git -C "$LINUX" config remote.origin.url) || return 0
	git -C "$kdir" for-each-ref --count=1 --contains "$base" --format="$base" refs/remotes refs/tags
}

refusals()
{
	local changes want have

	changes=$(git -C "$TOP" status --porcelain)
	[ -z "$changes" ] ||
		die "the repository has changes, commit them first:"$'\n'"$changes"
	"$TOP/scripts/kernel-tree.sh"
	# The patches themselves say which file they were made for.
	want=$(awk '/^diff --git / { mine = $3 == "a/mm/mprotect.c" }
		    mine && /^index / { sub(/\.\..*/, "", $2); print $2; exit }' \
		"$TOP"/patches/*.patch)
	have=$(git -C "$LINUX" rev-parse base:mm/mprotect.c)
	[[ $have == "$want"* ]] ||
		die "wrong base: mm/mprotect.c is blob ${have:0:12}, the patches are for ${want:0:12}; rebase 'series' in build/linux, test it again, and scripts/kernel-tree.sh --export"
	"$TOP/scripts/report.py" check || die "tables are stale, see above: make report, and commit"
}

# The cover letter as b4 keeps it: text, then what it tracks.
cover()
{
	local revision

	revision=$(sed -nE '1s/^Subject: \[[^]]*PATCH v([0-9]+) .*/\1/p' "$TOP/cover-letter.txt")
	sed -e '1s/^Subject: //' -e '/^\[\(table .*\|end of table\)\]$/d' "$TOP/cover-letter.txt"
	printf '\n--- b4-submit-tracking ---\n'
	printf '{"series": {"revision": %d, "change-id": "%s", "base-branch": "base", "prefixes": []}}\n' \
		"${revision:-1}" "$(cat "$TOP/patches/change-id")"
}

prep()
{
	local p base dirs tip

	[ -s "$TOP/patches/change-id" ] || die "patches/change-id is missing; git restore it"
	refusals
	if [ ! -e "$tree" ]; then
		step "cloning build/linux"
		# Not what of your configuration changes mails, nor b4's web
		# service; and a part of the files, git sparse-checkout has the rest.
		git clone -q --shared --sparse -b base -c mprotect.tip=none \
			-c commit.gpgsign=false -c diff.noprefix=false \
			-c diff.mnemonicPrefix=false -c sendemail.smtpserver=localhost \
			"$LINUX" "$tree"
		mapfile -t dirs < <(git apply --numstat "$TOP"/patches/*.patch |
				    cut -f3 | xargs dirname | sort -u)
		t sparse-checkout set scripts "${dirs[@]}"
	fi
	tip=$(t config --local mprotect.tip) || die "$tree is not ours; remove it, or give another --tree"
	if [ "$tip" != none ] && { [ "$(t rev-parse -q --verify $branch)" != "$tip" ] ||
				   [ -n "$(t status --porcelain --untracked-files=no)" ]; }; then
		die "$tree has changes of its own: bring them to 'series' in build/linux (scripts/kernel-tree.sh --export), then remove $tree"
	fi
	t config mprotect.tip none
	t am --abort 2>/dev/null || true
	t checkout -q -f --detach
	t branch -q -D $branch 2>/dev/null || true
	t fetch -q -f origin base:base
	t checkout -q -f base
	t config user.name "$name"
	t config user.email "$email"
	t config b4.send-series-to "$(recipients To | paste -sd, -)"
	t config b4.send-series-cc "$(recipients Cc | paste -sd, -)"
	base=$(public_base)
	# shellcheck disable=SC2016 # b4 fills these in
	printf '${cover}\n\n---\n%schange-id: ${change_id}\n\n-- \n${signature}\n' \
		"${base:+base-commit: $base$'\n'}" >"$tree/.git/cover-template"
	t config b4.prep-cover-template "$tree/.git/cover-template"
	(cd "$tree" && run_log "$BUILD/log/submit-b4.log" b4 --offline-mode prep -n mprotect -f base)
	cover | t commit -q --amend --allow-empty --cleanup=verbatim -F -
	for p in "$TOP"/patches/*.patch; do
		run_log "$BUILD/log/submit-am.log" git -C "$tree" am -q -3 --signoff "$p" ||
			die "$(basename "$p") does not apply"
		[ "$(t log -1 --format=%ae)" != $placeholder ] ||
			t commit -q --amend --no-edit --reset-author
	done
	t config mprotect.tip "$(t rev-parse HEAD)"
	[ "$(t rev-parse 'HEAD^{tree}')" = "$(git -C "$LINUX" rev-parse 'series^{tree}')" ] ||
		die "the branch is not what is in build/linux: scripts/kernel-tree.sh --force"
	step "$tree: branch $branch, signed off by $name <$email>"
	[ -n "$base" ] || warn "no base-commit in the mails; KDIR= with a clone of the tree you send to gives one"
}

mails()
{
	mkdir -p "$out"
	rm -f "$out"/*.eml "$out/stamp" "$out/sent"
	(cd "$tree" && run_log "$BUILD/log/submit-b4.log" b4 --offline-mode send --no-sign -o "$out")
	inputs >"$out/stamp"
	step "$(find "$out" -name '*.eml' | wc -l) mails in $out"
}

check()
{
	local flags=() wide

	[ "$build" = 1 ] || flags=(--no-build)
	wide=$(awk 'length > 76 { print FILENAME ":" FNR ": over 76 columns" }
		    /^#/ { print FILENAME ":" FNR ": b4 takes it for a comment" }' "$TOP/cover-letter.txt")
	[ -z "$wide" ] || die "$wide"
	"$TOP/scripts/check-series.sh" --signed "$name <$email>" --patches "$out" "${flags[@]}"
	# b4 0.14 and later.
	! b4 prep --help | grep -q -e --check || (cd "$tree" && b4 prep --check)
	step "nothing found"
}

# git send-email leaves the recipients and the thread to the mails' headers.
send_email()
{
	git -C "$TOP" send-email --confirm=never --no-thread --no-format-patch \
		--no-annotate --no-to --no-cc --no-bcc --no-xmailer \
		--suppress-cc=author --suppress-cc=body --suppress-cc=cccmd "$@"
}

show()
{
	local log=$BUILD/log/submit-dry-run.log

	run_log "$log" send_email --dry-run "$out"/*.eml
	step "what git send-email would do (all of it: $log)"
	awk '/^Subject: / { sub(/^Subject: /, ""); subject = $0 }
	     /^In-Reply-To: / { reply = "  `- " }
	     /^Result: / { print reply subject; reply = "" }' "$log"
	printf 'each to:\n'
	sed -n 's/^RCPT TO:<\(.*\)>/  \1/p' "$log" | sort -u
}

send()
{
	local m answer mine=$out to=() whom

	[ -s "$out/stamp" ] || die "no mails in $out; run $SELF dry-run first"
	[ "$(cat "$out/stamp")" = "$(inputs)" ] ||
		die "the mails in $out are not of these patches, letter, recipients, base or name; run $SELF dry-run again"
	[ ! -e "$out/sent" ] || die "these mails were sent: $(cat "$out/sent")"
	[ -t 0 ] || die "I ask before I send: run it on a terminal"
	whom="$(recipients '[TC][oc]' | wc -l) people and lists, those in the trailers, and yourself"
	if [ "$reflect" = 1 ]; then
		mine=$out/reflect
		whom="yourself alone"
		to=("--to=$name <$email>")
		rm -rf "$mine"
		mkdir "$mine"
		for m in "$out"/*.eml; do
			awk '!body && /^[^ \t]/ { skip = /^(To|Cc):/ } /^$/ { body = 1; skip = 0 } !skip' \
				"$m" >"$mine/$(basename "$m")"
		done
	fi
	say "The mails in $mine, by $(git -C "$TOP" config sendemail.smtpserver || echo "git's default server"),"
	say "to $whom."
	read -r -p "Send them? Type 'yes': " answer
	[ "$answer" = yes ] || die "nothing was sent"
	send_email "${to[@]}" "$mine"/*.eml ||
		die "git send-email failed: see above which mails went out; if you send again, those carry the same Message-Id"
	[ "$reflect" = 1 ] || date >"$out/sent"
	step "sent: https://lore.kernel.org/all/$(sed -n 's/^Message-Id: <\(.*\)>$/\1/p' "$out"/0000*.eml)/"
}

lock submit
mkdir -p "$BUILD/log"
case $command in
prep) prep ;;
check) prep; mails; check ;;
dry-run) prep; mails; show ;;
send) send ;;
esac
