# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# Sourced by the commands here, after lib.sh: from a kernel tree to kernel.o.

# What fails in $(...) fails there, and not somewhere after it.
shopt -s inherit_errexit

HARNESS=${TOP:?}/scripts/harness
HBUILD=${BUILD:?}/harness

# shellcheck disable=SC2054 # the linker's commas
PROGRAM_FLAGS=(-O2 -g -Wall -Wextra -Wno-unused-parameter
	-Wno-missing-field-initializers -no-pie
	-Wl,-z,noexecstack -Wl,--no-warn-rwx-segments)

# What of the kernel is linked in. The rest is in shim.c or a stub.
KERNEL_OBJECTS=(mm/mprotect.o mm/memory.o mm/pgtable-generic.o mm/util.o
	mm/mempolicy.o mm/mmzone.o arch/x86/mm/pgtable.o
	arch/x86/mm/pgprot.o kernel/locking/spinlock.o)

# What decides on kernel.o besides the kernel's source.
harness_key()
{
	{
		cat "$HARNESS"/{config,shim.c,harness.h,lib-harness.sh}
		gcc --version
	} | sha256sum | cut -c1-12
}

# configure SRC OBJ: the config of the harness, once for a tree and fragment.
configure()
{
	local src=$1 obj=$2

	if [ -e "$obj/.config" ] && cmp -s "$HARNESS/config" "$obj/.harness-config"; then
		return 0
	fi
	mkdir -p "$obj"
	rm -f "$obj/.harness-config"
	run_log "$obj/harness-config.log" make -C "$src" O="$obj" tinyconfig
	# Later lines win: the same as scripts/kconfig/merge_config.sh -m.
	grep -v '^#.*#' "$HARNESS/config" >>"$obj/.config"
	run_log "$obj/harness-config.log" make -C "$src" O="$obj" olddefconfig
	cp "$HARNESS/config" "$obj/.harness-config"
}

# at COMMIT: the work tree is there.
at()
{
	[ "$(git -C "$HBUILD/src" rev-parse HEAD)" = "$1" ] ||
		git -C "$HBUILD/src" checkout -q -f --detach "$1"
}

# objects SRC OBJ OBJECT...: as Kbuild makes them.
objects()
{
	local src=$1 obj=$2
	shift 2

	run_log "$obj/harness-make.log" nice make -C "$src" O="$obj" -j2 \
		CC="ccache gcc" KBUILD_BUILD_TIMESTAMP=@0 \
		KBUILD_BUILD_USER=harness KBUILD_BUILD_HOST=harness "$@"
}

# mprotect_cc OBJ: the command line of mm/mprotect.o, up to its -c.
mprotect_cc()
{
	sed -n 's/^\(saved\)\?cmd_mm\/mprotect.o := \(.*\) -c -o .*/\2/p' \
		"$1/mm/.mprotect.o.cmd" |
		sed 's/-Wp,-MMD,[^ ]*//; s/-DKBUILD_[A-Z]*=[^ ]*//g'
}

# link_kernel OUT OBJECT...: one relocatable object that exports h_kernel and
# needs only mem*(); whatever else it names is a stub that cannot be touched.
link_kernel()
{
	local out=$1 dir name
	shift

	dir=$(mktemp -d "$HBUILD/link.XXXXXX")
	# Where .altinstructions starts and ends.
	for name in h_alternatives h_alternatives_end; do
		printf '.section .altinstructions, "a"\n.globl %s\n%s:\n.section .note.GNU-stack, "", @progbits\n' \
			$name $name | gcc -c -x assembler -o "$dir/$name.o" -
	done
	ld -r -o "$dir/all.o" "$dir/h_alternatives.o" "$@" \
		"$dir/h_alternatives_end.o"
	{
		echo '.section .h_stubs, "aw", @progbits'
		echo '.balign 4096'
		nm -u "$dir/all.o" | awk '{ print $2 }' |
			grep -vxE 'mem(cpy|set|move|cmp)|h_stubs|__gcov_.*|fuzz_trace_pc|_GLOBAL_OFFSET_TABLE_' >"$dir/undefined"
		sed 's/.*/.globl &\n&: .skip 256/' "$dir/undefined"
		echo '.balign 4096'
		echo 'h_stubs_end:'
		echo '.section .data'
		echo '.globl h_stubs'
		echo '.balign 8'
		echo 'h_stubs:'
		sed 's/.*/.quad &, 1f\n.pushsection .rodata.str, "aMS", @progbits, 1\n1: .asciz "&"\n.popsection/' "$dir/undefined"
		echo '.quad h_stubs_end, 0'
		echo '.section .note.GNU-stack, "", @progbits'
	} >"$dir/stubs.S"
	gcc -c -o "$dir/stubs.o" "$dir/stubs.S"
	ld -r -o "$dir/kernel.o" "$dir/all.o" "$dir/stubs.o"
	objcopy --keep-global-symbol=h_kernel "$dir/kernel.o" "$dir/local.o"
	mv "$dir/local.o" "$out.tmp"
	rm -rf "$dir"
	mv "$out.tmp" "$out"
}

# build_kernel SRC OBJ OUTDIR: OUTDIR gets the objects, kernel.o and config.
build_kernel()
{
	local src=$1 obj=$2 out=$3 o weak=()

	configure "$src" "$obj"
	objects "$src" "$obj" "${KERNEL_OBJECTS[@]}"
	rm -rf "$out.tmp"
	mkdir -p "$out.tmp"
	for o in "${KERNEL_OBJECTS[@]}"; do
		# The shim's function wins over one of the same name.
		objcopy --weaken "$obj/$o" "$out.tmp/${o//\//-}"
		weak+=("$out.tmp/${o//\//-}")
	done
	mprotect_cc "$obj" >"$out.tmp/cc"
	(cd "$obj" && eval "$(cat "$out.tmp/cc") -Wno-missing-prototypes \
		-Wno-missing-declarations -DKBUILD_MODFILE='\"shim\"' \
		-DKBUILD_BASENAME='\"shim\"' -DKBUILD_MODNAME='\"shim\"' \
		-DHARNESS_H_PATH='\"$HARNESS/harness.h\"' \
		-c -o '$out.tmp/shim.o' '$HARNESS/shim.c'") \
		2>"$out.tmp/shim.log" || {
		cat "$out.tmp/shim.log" >&2
		die "shim.c does not compile for $src"
	}
	link_kernel "$out.tmp/kernel.o" "${weak[@]}" "$out.tmp/shim.o"
	cp "$obj/.config" "$out.tmp/config"
	rm -rf "$out"
	mv "$out.tmp" "$out"
}

# commit_of REV: a revision of build/linux; "series-N" is its first N patches.
commit_of()
{
	local rev=$1 commit

	[ -d "$LINUX/.git" ] || die "build/linux is not there; run scripts/kernel-tree.sh"
	case $rev in
	series-[0-9]*)
		commit=$(git -C "$LINUX" rev-list --reverse base..series |
			 sed -n "${rev#series-}p")
		;;
	*)
		commit=$(git -C "$LINUX" rev-parse -q --verify "$rev^{commit}" || true)
		;;
	esac
	[ -n "$commit" ] || die "build/linux has no revision '$rev'"
	echo "$commit"
}

# kernel_of_commit COMMIT: prints the directory with its kernel.o, made first
# if need be. One work tree and one object tree serve every revision, so that
# make recompiles only what differs.
kernel_of_commit()
{
	local commit=$1 src=$HBUILD/src obj=$HBUILD/obj out

	out=$HBUILD/kernels/${commit:0:12}-$(harness_key)
	if [ ! -e "$out/kernel.o" ]; then
		need gcc make flex bison bc ccache nm objcopy
		need_space "$HBUILD" 3000
		if [ ! -e "$src/.git" ]; then
			step "harness: work tree"
			git -C "$LINUX" worktree prune
			git -C "$LINUX" worktree add -q -f --detach "$src" base
		fi
		step "harness: kernel ${commit:0:12}"
		rm -rf "$HBUILD/kernels/${commit:0:12}"-*
		at "$commit"
		build_kernel "$src" "$obj" "$out"
	fi
	echo "$out"
}

# commit_of_patch COMMIT DIFF
commit_of_patch()
{
	derive "$1" "$(basename "$2")" git -C "$LINUX" apply --cached \
		--recount -C1 "$2"
}

# kernel_of_peer DIR: the same for a kernel source without git.
kernel_of_peer()
{
	local src=$1 out

	out=$HBUILD/kernels/$(basename "$src")-$(harness_key)
	if [ ! -e "$out/kernel.o" ]; then
		need_space "$HBUILD" 3000
		step "harness: kernel $(basename "$src")"
		rm -rf "$HBUILD/kernels/$(basename "$src")"-*
		build_kernel "$src" "$HBUILD/obj-$(basename "$src")" "$out"
	fi
	echo "$out"
}

# commit_of_tree DIR: its HEAD with what is changed but not committed.
commit_of_tree()
{
	local dir=$1 commit

	commit=$(git -C "$dir" stash create)
	[ -n "$commit" ] || commit=$(git -C "$dir" rev-parse HEAD)
	if ! git -C "$LINUX" cat-file -e "$commit^{tree}" 2>/dev/null; then
		git -C "$dir" bundle create -q "$HBUILD/tree.bundle" "$commit" 2>/dev/null ||
			die "$dir shares no objects with build/linux; make it by 'git -C build/linux worktree add'"
	fi
	echo "$commit"
}

# program OUT KERNELDIR SOURCE...: a user-space program around one kernel.o.
program()
{
	local out=$1 dir=$2 s src=()
	shift 2

	for s; do
		src+=("$HARNESS/$s")
	done
	# Static and no PIE: code model "kernel" lives in the low 2 GiB.
	gcc -static "${PROGRAM_FLAGS[@]}" -o "$out.tmp" "${src[@]}" \
		"$dir/kernel.o"
	mv "$out.tmp" "$out"
}

# judge_objects CC [FLAG...]: the user-space side, compiled once; prints it.
judge_objects()
{
	local out s

	out=$HBUILD/judge-$(cat "$HARNESS"/*.[ch] <(echo "$*") | sha256sum |
			    cut -c1-12).o
	if [ ! -e "$out" ]; then
		rm -f "$HBUILD"/judge-*.o
		for s in judge race cases machine; do
			"$@" "${PROGRAM_FLAGS[@]}" -c -o "$out.$s" "$HARNESS/$s.c"
		done
		ld -r -o "$out.tmp" "$out".{judge,race,cases,machine}
		rm "$out".{judge,race,cases,machine}
		mv "$out.tmp" "$out"
	fi
	echo "$out"
}

# judge_program OUT BASE OTHER [CC...]: difftest around two kernel.o; CC is
# another compiler and its flags for another main program.
judge_program()
{
	local out=$1 base=$2 other=$3 cc=(gcc -static difftest.c) objects
	shift 3

	[ $# -eq 0 ] || cc=("$@")
	objects=$(judge_objects gcc)
	objcopy --redefine-sym h_kernel=h_base "$base" "$out.base.o"
	objcopy --redefine-sym h_kernel=h_other "$other" "$out.other.o"
	(cd "$HARNESS" && "${cc[@]}" "${PROGRAM_FLAGS[@]}" -o "$out.tmp" \
		"$objects" "$out.base.o" "$out.other.o")
	rm "$out.base.o" "$out.other.o"
	mv "$out.tmp" "$out"
}

# recompiled COMMIT DIR OUT SOURCE FLAG...: DIR's kernel.o again, with another
# mm/mprotect.c, more flags, and headers that are in OUT/include.
recompiled()
{
	local commit=$1 dir=$2 out=$3 source=$4 others
	shift 4

	at "$commit"
	(cd "$HBUILD/obj" && eval "$(sed "s#-nostdinc#& -I$out/include#" \
		"$dir/cc") $* -w \
		-DKBUILD_MODFILE='\"mm/mprotect\"' \
		-DKBUILD_BASENAME='\"mprotect\"' \
		-DKBUILD_MODNAME='\"mprotect\"' \
		-c -o '$out/mprotect.o' '$source'") || return 1
	# libFuzzer has a function of that name, which does something else.
	objcopy --weaken --redefine-sym __sanitizer_cov_trace_pc=fuzz_trace_pc \
		"$out/mprotect.o" "$out/weak.o"
	mapfile -t others < <(find "$dir" -name '*-*.o' ! -name mm-mprotect.o)
	link_kernel "$out/kernel.o" "$out/weak.o" "$dir/shim.o" "${others[@]}"
}
