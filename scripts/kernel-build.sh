#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# kernel-build.sh VARIANT [--config NAME] [--jobs N]
#
# Builds one kernel of build/linux for the virtual machine.
#
# VARIANT          base      the tree without the series
#                  series    with all of it
#                  series-N  with its first N patches
#                  anything else is a git revision in build/linux
# --config NAME    scripts/configs/NAME.config (default: bench): tinyconfig,
#                  then bench.config, then NAME.config. An option that did not
#                  make it into the final config is an error.
# --jobs N         default: the number of CPUs
#
# The name of the result's directory is printed on stdout:
#   build/kernels/NAME-VARIANT/{bzImage,System.map,config,size.txt,build.txt}
# It is there only when the build is complete. Sources are a git worktree of
# its own, build/src/VARIANT; objects are in build/obj/NAME-VARIANT (make O=).
# With ccache, variants share the objects of the code that they have in common.
# Same commit, fragments and compiler as last time: nothing is done.
# Log: build/log/kernel-build-NAME-VARIANT.log

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

variant=
config=bench
jobs=$(nproc)
while [ $# -gt 0 ]; do
	case $1 in
	-h|--help) help_exit ;;
	--config|--jobs)
		[ $# -ge 2 ] || usage_error "$1 needs a value"
		case $1 in
		--config) config=$2 ;;
		--jobs) jobs=$2 ;;
		esac
		shift 2 ;;
	-*) usage_error "unknown option $1" ;;
	*)
		[ -z "$variant" ] || usage_error "one VARIANT, not also '$1'"
		variant=$1
		shift ;;
	esac
done
[ -n "$variant" ] || usage_error "VARIANT is missing"
[[ $jobs =~ ^[1-9][0-9]*$ ]] || usage_error "--jobs wants a number, not '$jobs'"
fragments=("$TOP/scripts/configs/bench.config")
[ "$config" = bench ] || fragments+=("$TOP/scripts/configs/$config.config")
[ -e "${fragments[-1]}" ] ||
	usage_error "no ${fragments[-1]#"$TOP"/}; there are: $(cd "$TOP/scripts/configs" && echo *.config)"

need git make gcc ld flex bison bc
[ -e "$LINUX/.git" ] || die "no kernel tree in $LINUX; run scripts/kernel-tree.sh"

rev()
{
	git -C "$LINUX" rev-parse --verify -q "$1^{commit}"
}

case $variant in
base|series)
	commit=$(rev "refs/heads/$variant") ||
		die "no branch $variant in $LINUX; run scripts/kernel-tree.sh" ;;
series-[0-9]*)
	commit=$(git -C "$LINUX" rev-list --reverse base..series |
		sed -n "${variant#series-}{p;q}")
	[ -n "$commit" ] ||
		usage_error "$variant: the series has $(git -C "$LINUX" rev-list --count base..series) patches" ;;
*)
	commit=$(rev "$variant") ||
		usage_error "'$variant' is no git revision in $LINUX" ;;
esac

# The same in vm-run.sh
name=${variant//[^A-Za-z0-9._-]/_}
src=$BUILD/src/$name
obj=$src/obj-$config
out=$BUILD/kernels/$config-$name
log=$BUILD/log/kernel-build-$config-$name.log

# What a build depends on; the head of build.txt.
key()
{
	echo "commit: $commit"
	echo "tree: $(git -C "$LINUX" rev-parse "$commit^{tree}")"
	echo "compiler: $(gcc --version | head -n 1)"
	echo "linker: $(ld --version | head -n 1)"
	echo "fragments: $(cat "${fragments[@]}" | sha256sum | cut -d' ' -f1)"
}

up_to_date()
{
	[ "$(head -n 5 "$out/build.txt" 2>/dev/null)" = "$want" ] || return 1
	step "$config-$name: nothing to do"
	echo "$out"
}

start=$SECONDS
want=$(key)
# Once without waiting for a build of another config, once after the wait.
! up_to_date || exit 0
lock "src-$name"
! up_to_date || exit 0
need_space "$BUILD" 4000
mkdir -p "$BUILD"/{src,obj,kernels,log}
# From here on the old kernel must not be taken for the new one.
rm -rf "$out" "$out".tmp*

job=
cleanup()
{
	[ -z "$job" ] || kill "$job" 2>/dev/null || :
	rm -rf "$out".tmp*
}
trap cleanup EXIT
trap 'say "$SELF: interrupted; run again to go on"; exit 130' INT
trap 'say "$SELF: terminated; run again to go on"; exit 143' TERM HUP

# Sources. A worktree of a build/linux that was made anew is of no use.
step "$config-$name: checking out ${commit:0:12}"
if ! git -C "$src" rev-parse -q --verify HEAD >/dev/null 2>&1 ||
   [ "$(git -C "$src" rev-parse --show-toplevel)" != "$(realpath "$src")" ]; then
	rm -rf "$src"
	git -C "$LINUX" worktree prune
	run_log "$log" git -C "$LINUX" worktree add --no-checkout --detach "$src" "$commit" ||
		die "git worktree failed"
fi
# The lock is ours, so an index.lock is what a killed run left.
rm -f "$(git -C "$src" rev-parse --git-dir)/index.lock"
run_log "$log" git -C "$src" -c checkout.workers="$jobs" -c advice.detachedHead=false \
	checkout --force --detach "$commit" || die "git checkout failed"

# Objects in a subdirectory of the sources: Kbuild then names every file
# relative to it, and the objects (and ccache's hashes) do not depend on where
# the tree is.
mkdir -p "$obj"
ln -sfn "../src/$name/obj-$config" "$BUILD/obj/$config-$name"

# ccache hides behind the name gcc, so that a "make O=" by hand agrees with the
# command lines recorded here. Its depend mode saves a run of the preprocessor,
# a quarter of the time, but is blind to .incbin: not for assembler.
if command -v ccache >/dev/null; then
	mkdir -p "$BUILD/ccache-bin"
	cat >"$BUILD/ccache-bin/gcc.tmp$$" <<-EOF
		#!/bin/sh
		for arg; do
			case \$arg in
			*.S) exec $(command -v gcc) "\$@" ;;
			esac
		done
		exec ccache $(command -v gcc) "\$@"
	EOF
	chmod +x "$BUILD/ccache-bin/gcc.tmp$$"
	mv "$BUILD/ccache-bin/gcc.tmp$$" "$BUILD/ccache-bin/gcc"
	export PATH=$BUILD/ccache-bin:$PATH
	export CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$BUILD
fi
# An image is the same bytes whenever, wherever and by whom it is built.
export KBUILD_BUILD_TIMESTAMP='2026-01-01 00:00:00 UTC' KBUILD_BUILD_VERSION=1
export KBUILD_BUILD_USER=user KBUILD_BUILD_HOST=host LOCALVERSION=
unset MAKEFLAGS MFLAGS KCFLAGS KBUILD_OUTPUT KCONFIG_CONFIG ARCH CROSS_COMPILE

# make's output goes to the log; say from time to time how far it is.
run_make()
{
	local rc=0 t=0

	make -C "$src" O="obj-$config" -j"$jobs" "$@" >>"$log" 2>&1 &
	job=$!
	while kill -0 "$job" 2>/dev/null; do
		sleep 0.2
		t=$((t + 1))
		[ $((t % 75)) -ne 0 ] ||
			step "$config-$name: $(grep -cE '^ +(CC|AS) ' "$log") files compiled, at $(tail -n 1 "$log" | tr -s ' ')"
	done
	wait "$job" || rc=$?
	job=
	[ "$rc" -ne 0 ] || return 0
	grep -E -A3 ' (fatal )?error: |\*\*\*|undefined reference|No space left' "$log" |
		head -n 25 >&2 || :
	die "make $* failed for $config-$name; all of its output: $log"
}

step "$config-$name: configuring"
: >"$log"
run_make tinyconfig
"$src/scripts/kconfig/merge_config.sh" -Q -m -O "$obj" "$obj/.config" "${fragments[@]}" \
	>>"$log" 2>&1 || die "merge_config.sh failed: $log"
run_make olddefconfig

# The last word on an option counts; "is not set" is also true of an option
# that is not there.
lost=$(awk '
	FNR == 1 { file++ }
	/^CONFIG_[A-Za-z0-9_]+=/ { opt = $0; sub(/=.*/, "", opt); val = $0; sub(/^[^=]*=/, "", val) }
	/^# CONFIG_[A-Za-z0-9_]+ is not set/ { opt = $2; val = "n" }
	opt == "" { next }
	file == nfrag + 1 { have[opt] = val }
	file <= nfrag { want[opt] = val }
	{ opt = "" }
	END {
		for (opt in want) {
			is = opt in have ? have[opt] : "n"
			if (is != want[opt])
				print "  " opt "=" want[opt] " became " is
		}
	}' nfrag=${#fragments[@]} "${fragments[@]}" "$obj/.config" | sort)
[ -z "$lost" ] ||
	die "$config.config: options that did not hold (unknown, or what they depend on is off):"$'\n'"$lost"

step "$config-$name: building with $jobs jobs, log ${log#"$TOP"/}"
run_make bzImage

mkdir "$out.tmp$$"
cp "$obj/arch/x86/boot/bzImage" "$obj/System.map" "$out.tmp$$/"
cp "$obj/.config" "$out.tmp$$/config"
(cd "$obj" && size vmlinux mm/mprotect.o) >"$out.tmp$$/size.txt"
{
	echo "$want"
	echo "variant: $variant"
	echo "config: $config"
	echo "release: $(cat "$obj/include/config/kernel.release")"
	echo "config_sha256: $(sha256sum <"$obj/.config" | cut -d' ' -f1)"
	echo "bzImage_sha256: $(sha256sum <"$obj/arch/x86/boot/bzImage" | cut -d' ' -f1)"
	echo "vmlinux_sha256: $(sha256sum <"$obj/vmlinux" | cut -d' ' -f1)"
	echo "build_seconds: $((SECONDS - start))"
} >"$out.tmp$$/build.txt"
mv -T "$out.tmp$$" "$out"
step "$config-$name: done"
echo "$out"
