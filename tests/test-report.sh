#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# test-report.sh
#
# Tests scripts/report.py, plot.sh, env-record.sh on made-up runs.

# shellcheck disable=SC2317,SC2016 # the tests are called by name; text, not variables
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

. "$(dirname "${BASH_SOURCE[0]}")/lib-bench.sh"

[ $# -eq 0 ] || help_exit
export RESULTS=$tmp/results
report=$TOP/scripts/report.py

# make_run NAME [SERIES-FACTOR [ONE-PAGE-FACTOR [THP-FACTOR]]]: base, series,
# base of known figures.
make_run()
{
	local dir=$RESULTS/$1

	rm -rf "$dir"
	mkdir -p "$dir/raw"
	cat >"$dir/env.txt" <<-END
		kind: icount
		unit: instructions_per_page
		kernels: base series
		config: bench
		sequence: base series base
		kernel.base.commit: 0123456789abcdef
		kernel.base.tree: 0123456789abcdef
		kernel.base.release: 7.3.4
		kernel.series.commit: fedcba9876543210
		kernel.series.tree: fedcba9876543210
		kernel.series.release: 7.3.4
		qemu: QEMU emulator version 7.2.22
		unexpected_results: 0
	END
	awk -v dir="$dir/raw" -v all="${2:-0.1}" -v one="${3:-1}" -v thp="${4:-1}" '
	function put(boot, kernel, factor, drift,   f, s, n, a, r) {
		f = sprintf("%s/%02d-%s.csv", dir, boot, kernel)
		print "kernel,boot,config,scenario,pages,order,phase,round,instructions_per_page" >f
		n = split("shared-dirty-toggle,1,0,protect,2700 " \
			  "shared-dirty-toggle,1,0,restore,2700 " \
			  "shared-dirty-toggle,16384,0,protect,150 " \
			  "shared-dirty-toggle,16384,0,restore,152 " \
			  "shared-dirty-toggle,16384,0,post_touch,8 " \
			  "anon-pte-thp-toggle,16384,9,restore,60 " \
			  "mincore,16384,0,mincore,20", s, " ")
		for (i = 1; i <= n; i++) {
			split(s[i], a, ",")
			x = kernel == "base" ? 1 : a[2] == 1 ? one : \
			    a[1] ~ /thp/ ? thp : \
			    a[1] ~ /shared/ && a[4] != "post_touch" ? all : 1
			for (r = 0; r < 3; r++)
				printf "%s,%d,bench,%s,%d,%d,%s,%d,%.4f\n", kernel, boot,
				       a[1], a[2], a[3], a[4], r,
				       a[5] * x * drift + r / 1000 >f
		}
		close(f)
	}
	BEGIN {
		put(0, "base", 1, 1); put(1, "series", 1, 1)
		put(2, "base", 1, 1.001)
	}'
}

# ---- summary and gate --------------------------------------------------------

summary()
{
	make_run good
	"$report" summary good
	grep -q '^series,shared-dirty-toggle,16384,0,protect,1,3,15.0010,' "$RESULTS/good/summary.csv"
	grep -Eq ' 64 MiB   0 protect +150.08 +15.00  0.100   0.10%  -90.0%' "$RESULTS/good/summary.txt"
	grep -Eq ' 64 MiB   0 mincore +20.01 +20.00  1.000   0.10%    none$' "$RESULTS/good/summary.txt"
	[ "$(wc -L <"$RESULTS/good/summary.txt")" -le 76 ]
}
t "summary has the ratios, the drift and 'none' for what is noise" summary

same_again()
{
	cp -r "$RESULTS/good" "$tmp/before"
	LC_ALL=de_DE.UTF-8 PYTHONHASHSEED=7 "$report" summary good
	diff -r "$tmp/before" "$RESULTS/good"
}
t "the same samples give the same bytes" same_again

interval()
{
	local b dir=$RESULTS/many

	make_run many
	rm "$dir"/raw/*
	for ((b = 0; b < 16; b++)); do
		awk -v b="$b" -v k="$([ $((b % 2)) -eq 0 ] && echo base || echo series)" 'BEGIN {
			print "kernel,boot,config,scenario,pages,order,phase,round,instructions_per_page"
			printf "%s,%d,bench,mincore,100,0,mincore,0,%.4f\n", k, b, 100 + b * b
		}' >"$dir/raw/$b.csv"
	done
	"$report" summary many
	grep '^series,mincore' "$dir/summary.csv"
	awk -F, '/^series,mincore/ { exit !($13 < $12 && $12 < $14) }' "$dir/summary.csv"
	cp "$dir/summary.csv" "$tmp/many.csv"
	for _ in 1 2 3; do
		"$report" summary many
		cmp "$tmp/many.csv" "$dir/summary.csv"
	done
}
t "the interval is around the ratio and the same each time" interval

t "gate passes on good figures" "$report" gate good
# gate_misses TEXT FACTOR...
gate_misses()
{
	make_run bad "${@:2}"
	fails "$1" "$report" gate bad
}
t "gate: 0.13 of base is too much" gate_misses "shared-dirty-toggle order 0, 64 MiB, protect: ratio 0.12" 0.13
t "gate: one-page calls 1.9 % slower" gate_misses "1 page, protect: ratio 1.01" 0.1 1.019
small_loss()
{
	make_run bad 0.1 1.009
	"$report" gate bad
}
t "gate: one-page calls 0.9 % slower are let through" small_loss
t "gate: PTE-mapped THP 0.5 % slower" gate_misses "anon-pte-thp-toggle order 9, 64 MiB, restore: ratio 1.0" 0.1 1 1.005
noisy()
{
	make_run bad
	sed -i 's/,60\.[0-9]*$/,66.0000/' "$RESULTS/bad/raw/02-base.csv"
	fails "can't be judged" "$report" gate bad
}
t "gate: boots that differ by 10 % can't be judged" noisy
no_row()
{
	make_run bad
	sed -i '/shared-dirty/d' "$RESULTS/bad/raw/"*
	fails "no row of shared-dirty-toggle" "$report" gate bad
}
t "gate: without the row that counts" no_row

json()
{
	"$report" show icount good --json >"$tmp/json"
	python3 - "$tmp/json" <<-END
		import json, sys
		rows = json.load(open(sys.argv[1]))
		assert len(rows) == 14 and rows[0]["kernel"] == "base", rows
	END
}
t "--json" json
kinds()
{
	local kind

	for kind in icount orders ladder glance; do
		"$report" show "$kind" good >"$tmp/out"
		grep -q 15.0 "$tmp/out"
		[ "$(wc -L <"$tmp/out")" -le 76 ]
	done
}
t "every kind of table shows the figure, within 76 columns" kinds

harness()
{
	local dir=$RESULTS/x-harness

	mkdir -p "$dir"
	{
		echo "kernel,scenario,layout,pages,order,phase,n,min_ns_per_page,median_ns_per_page,ratio_to_base,ratio_low,ratio_high"
		for k in base series-1 series v6.12.107 v6.17.8; do
			echo "$k,shared-dirty,random,16384,0,protect,3,1,9.99,1,1,1"
			echo "$k,shared-dirty,rising,16384,0,protect,3,1,2.25,0.55,1,1"
			echo "$k,shared-old,rising,16384,0,protect,3,1,7.77,0.88,1,1"
		done
	} >"$dir/summary.csv"
	"$report" show harness x-harness >"$tmp/out"
	cat "$tmp/out"
	# Times of the first, ratios of the same rounds for the others.
	[ "$(grep -c '^shared-dirty .*2.25 .*0.55 .*0.55 .*0.55$' "$tmp/out")" -eq 1 ]
	[ "$(wc -L <"$tmp/out")" -le 76 ]
	! grep -E '9.99|7.77|series-1' "$tmp/out" || return 1
	# Not through a pipe: grep -q would end it early.
	"$report" show harness-all x-harness >"$tmp/out"
	grep -q 7.77 "$tmp/out"
	echo "series,shared-notify,falling,1,9,restore,3,1,2,1.23,1,2" >>"$dir/summary.csv"
	"$report" show harness-worst x-harness >"$tmp/out"
	cat "$tmp/out"
	grep -q '^all others  *1.00  *1.00$' "$tmp/out"
	grep -q '^old PTEs  *0.88  *0.88$' "$tmp/out"
	grep -q '^a single page  *-  *1.23$' "$tmp/out"
	sed -i '9s/0.55/x/' "$dir/summary.csv"
	fails "x-harness/summary.csv:9: " "$report" show harness x-harness
	fails "x-harness/summary.csv:9: " "$report" show harness-worst x-harness
	rm -r "$dir"
}
t "the harness's summary" harness

# ---- samples that must be refused --------------------------------------------

# damaged SED TEXT: after SED on a raw file, summary fails with TEXT and makes
# nothing.
damaged()
{
	make_run bad
	sed -i "$1" "$RESULTS/bad/raw/01-series.csv"
	fails "$2" "$report" summary bad
	[ ! -e "$RESULTS/bad/summary.csv" ]
}
f=raw/01-series.csv
t "damaged: text for a number" damaged '5s/[0-9.]*$/abc/' "$f:5: 'abc'"
t "damaged: a negative number" damaged '5s/\([0-9.]*\)$/-\1/' "$f:5: '-"
t "damaged: nan" damaged '5s/[0-9.]*$/nan/' "$f:5: 'nan'"
t "damaged: no fractions" damaged '5s/\.[0-9]*$//' "$f:5: '"
t "damaged: a column is missing" damaged '7s/,[^,]*$//' "$f:7: 8 columns, not 9"
t "damaged: cut off in a line" damaged '$s/.....$//' "$f:22: "
t "damaged: cut off after a line" damaged '$d' "2 samples of mincore"
t "damaged: another header" damaged '1s/instructions_per_page/ns_per_page/' "$f:1: the columns"
t "damaged: empty" damaged d "$f:1: the columns"
t "damaged: a sample twice" damaged '9p' "$f:10: this sample is there twice"
t "damaged: unknown phase" damaged '3s/protect/protest/' "$f:3: unknown phase"
t "damaged: another config" damaged '4s/bench/debug/' "$f:4: config debug"
t "damaged: unknown kernel" damaged '4s/series/serious/' "$f:4: kernel serious"
t "damaged: a scenario only one kernel has" damaged /mincore/d "0 samples of mincore"
unexpected()
{
	make_run bad
	sed -i 's/^unexpected_results: 0/unexpected_results: 3/' "$RESULTS/bad/env.txt"
	fails "unexpected_results is not 0" "$report" summary bad
}
t "unexpected results in env.txt" unexpected
damaged_gz()
{
	make_run bad
	gzip "$RESULTS/bad/raw/01-series.csv"
	"$report" summary bad
	truncate -s -20 "$RESULTS/bad/raw/01-series.csv.gz"
	fails "01-series.csv.gz: " "$report" summary bad
}
t "gzipped samples are read, damaged ones refused" damaged_gz
t "no such run" fails "no run nowhere" "$report" summary nowhere
t "no command" fails "usage:" "$report"
t "--help" bash -c '"$1" --help | grep -q "report.py check"' - "$report"

# ---- what the benchmark prints -----------------------------------------------

make_ktap()
{
	cat >"$tmp/ktap" <<-END
		TAP version 13
		1..2
		# csv: scenario,pages,order,phase,round,ns_per_page
		# csv: mincore,1,0,mincore,0,300.1250
		# unexpected_results: 0
		ok 1 mincore pages 1 order 0
		ok 2 # SKIP shmem-pte-thp-toggle pages 1 order 9: size is no multiple
		# Totals: pass:1 fail:0 xfail:0 xpass:0 skip:1 error:0
	END
}
collect()
{
	rm -f "$tmp/c.csv"
	"$report" collect --kernel base --boot 3 --config bench \
		--unit instructions_per_page "$tmp/ktap" "$tmp/c.csv"
}
collect_good()
{
	make_ktap
	collect
	[ "$(sed -n 2p "$tmp/c.csv")" = base,3,bench,mincore,1,0,mincore,0,300.1250 ]
}
t "collect takes a good output" collect_good
collect_bad()
{
	make_ktap
	sed -i "$1" "$tmp/ktap"
	fails "$2" collect
	[ ! -e "$tmp/c.csv" ]
}
t "collect: unexpected results" collect_bad 's/results: 0/results: 2/' "unexpected_results: 2"
t "collect: a failed test" collect_bad 's/^ok 1/not ok 1/' "not ok 1"
t "collect: the output ends early" collect_bad '/^ok 2/d' "1 results of 2 planned"
t "collect: nothing but skips" collect_bad '/csv: mincore/d' "no samples"
t "collect: a garbled sample" collect_bad 's/300.1250/30\x010.1250/' "ktap:4: "

# ---- tables in files ---------------------------------------------------------

make_files()
{
	make_run good
	mkdir -p "$RESULTS/public"
	cp "$TOP"/bench-results/public/public.csv "$RESULTS/public/"
	rm -rf "$RESULTS/bad" "$RESULTS/many"
	cat >"$tmp/README.md" <<-END
		text before

		<!-- table:glance run=good begin -->
		<!-- table:glance end -->
		between
		<!-- table:icount run=good begin -->
		<!-- table:icount end -->
		after
	END
	cat >"$tmp/letter.txt" <<-END
		Dear list,

		[table icount from bench-results/good]
		[end of table]

		[table public from bench-results/public]
		[end of table]
		-- 
	END
	"$report" update "$tmp/README.md" "$tmp/letter.txt"
}
check()
{
	"$report" check "$tmp/README.md" "$tmp/letter.txt"
}
update_check()
{
	make_files
	check
	grep -q '^| shared, 4 KiB folios: protect, 64 MiB | 150.1 | 15.0 | 0.10 |$' "$tmp/README.md"
	grep -q '^text before$' "$tmp/README.md"
	[ "$(tail -n 1 "$tmp/README.md")" = after ]
	[ "$(tail -n 1 "$tmp/letter.txt")" = "-- " ]
	[ "$(wc -L <"$tmp/letter.txt")" -le 76 ]
	cp "$tmp/README.md" "$tmp/before.md"
	"$report" update "$tmp/README.md" "$tmp/letter.txt"
	cmp "$tmp/before.md" "$tmp/README.md"
}
t "update fills the tables, check agrees, a second update changes nothing" update_check
edited()
{
	make_files
	sed -i '/64 MiB   0 protect/s/0\.100/0.400/' "$tmp/letter.txt"
	fails "letter.txt:8: table icount of good" check
}
t "check: a number edited by hand" edited
edited_md()
{
	make_files
	sed -i 's/^| shared, 4 KiB folios: protect.*/&oops/' "$tmp/README.md"
	fails "README.md:6: table glance of good" check
}
t "check: a Markdown table edited by hand" edited_md
row_lost()
{
	make_files
	sed -i '/mincore  /d' "$tmp/letter.txt"
	fails "letter.txt:" check
}
t "check: a row removed by hand" row_lost
stale()
{
	make_files
	sed -i 's/,15\./,16./' "$RESULTS/good/raw/01-series.csv"
	fails "good/summary.csv:" check
	grep -q 'README.md:6: table glance' "$tmp/out"
	grep -q 'letter.txt:[0-9]*: table icount' "$tmp/out"
}
t "check: tables older than the samples" stale
summary_edited()
{
	make_files
	sed -i '5s/1/2/' "$RESULTS/good/summary.txt"
	fails "good/summary.txt:5: not what" check
}
t "check: summary.txt edited by hand" summary_edited
marker()
{
	make_files
	sed -i "$1" "$tmp/letter.txt"
	cp "$tmp/letter.txt" "$tmp/before.txt"
	fails "$2" "$report" update "$tmp/letter.txt"
	cmp "$tmp/before.txt" "$tmp/letter.txt"
}
t "marker without end" marker '/^\[end of table\]/d' "letter.txt:23: the table of line 3 has no end"
t "marker without begin" marker '/^\[table icount/d' "letter.txt:"
t "marker of an unknown kind" marker 's/table icount/table pretty/' "letter.txt:3: unknown kind"
t "marker of an unknown run" marker 's/results\/good/results\/gone/' "letter.txt:3: no run gone"
t "marker of a run of another unit" marker 's/table icount/table host/' "letter.txt:3: good has instr"
t "no such file" fails "gone.txt: No such file" "$report" check "$tmp/gone.txt"
read_only()
{
	make_files
	rm -rf "$RESULTS/good/summary.txt"
	mkdir "$RESULTS/good/summary.txt"
	fails "good/summary.txt: " "$report" summary good
	rm -rf "$RESULTS/good/summary.txt"
	[ -z "$(find "$RESULTS" -name '*.tmp*')" ]
}
t "a file that can't be written" read_only

# ---- two machines' runs ------------------------------------------------------

make_host()
{
	make_run "$1"
	rm "$RESULTS/$1"/raw/0[12]*
	mv "$RESULTS/$1/raw/00-base.csv" "$RESULTS/$1/raw/000.csv"
	sed -i "s/instructions/ns/; s/^base,/$2,/; s/,bench,/,host,/" "$RESULTS/$1/raw/000.csv"
	awk -F, -v OFS=, -v x="$3" 'NR > 1 { $NF = sprintf("%.4f", $NF * x) } { print }' \
		"$RESULTS/$1/raw/000.csv" >"$tmp/x"
	mv "$tmp/x" "$RESULTS/$1/raw/000.csv"
	cat >"$RESULTS/$1/env.txt" <<-END
		kind: host
		unit: ns_per_page
		kernels: $2
		config: host
		benchmark_sha256: $4
		benchmark_args: --size 1p
		machine.cpu_model: CPU
		machine.kernel_release: 7.3.4
		unexpected_results: 0
		unsuitable: turbo is on
	END
}
compare()
{
	make_host a1 base 1 x
	make_host b series 0.5 x
	make_host a2 base 1.02 x
	"$report" summary a1 b a2
	"$report" compare a1 b a2 >"$tmp/out"
	cat "$tmp/out"
	grep -Eq '64 MiB   0 protect +151.50 +75.00  0.50\[ 0.49, 0.50\]  2.0%$' "$tmp/out"
	grep -q 'unsuitable: turbo is on' "$tmp/out"
	[ "$(wc -L <"$tmp/out")" -le 76 ]
	make_host b series 0.995 x
	"$report" compare a1 b a2 >"$tmp/out"
	grep -Eq ' protect .*  none$' "$tmp/out"
}
t "compare: three boots, drift, none, the state of the machine" compare
compare_other()
{
	make_host b series 0.5 y
	fails "benchmark_sha256 differs" "$report" compare a1 b
	fails "two labels are compared" "$report" compare a1 a2
	make_run good
	fails "not a run of bench-host.sh" "$report" compare good good
}
t "compare: other binary, same label, emulation: refused" compare_other

# ---- the machine -------------------------------------------------------------

machine()
{
	local s=$tmp/root/sys p=$tmp/root/proc c

	c=$s/devices/system/cpu
	mkdir -p "$c"/{cpu3/cpufreq,intel_pstate} "$s/devices/system/clocksource/clocksource0" "$p"
	echo tsc >"$s/devices/system/clocksource/clocksource0/current_clocksource"
	echo performance >"$c/cpu3/cpufreq/scaling_governor"
	echo 1 >"$c/intel_pstate/no_turbo"
	echo "0.01 0.00 0.00 1/1 1" >"$p/loadavg"
	echo "BOOT_IMAGE=/vmlinuz root=UUID=1 mitigations=off ip=1.2.3.4 nosmt" >"$p/cmdline"
	printf 'processor\t: 0\nmodel name\t: CPU\nflags\t\t: fpu msr\nprocessor\t: 1\n' >"$p/cpuinfo"
	echo "MemTotal: 2048 kB" >"$p/meminfo"
	record() { SYSROOT=$tmp/root "$TOP/scripts/env-record.sh" --cpu 3; }
	record >"$tmp/out"
	cat "$tmp/out"
	grep -q '^unsuitable' "$tmp/out" && return 1
	grep -q '^machine.kernel_cmdline: mitigations=off nosmt$' "$tmp/out"

	sed -i 's/fpu/fpu hypervisor/' "$p/cpuinfo"
	echo 0 >"$c/intel_pstate/no_turbo"
	echo powersave >"$c/cpu3/cpufreq/scaling_governor"
	echo hpet >"$s/devices/system/clocksource/clocksource0/current_clocksource"
	echo "2.00 0.00 0.00 1/1 1" >"$p/loadavg"
	record >"$tmp/out"
	cat "$tmp/out"
	[ "$(grep -c '^unsuitable' "$tmp/out")" -eq 5 ]
}
t "env-record: a quiet machine, then one with everything wrong" machine
no_names()
{
	"$TOP/scripts/env-record.sh" >"$tmp/out"
	[ "$(uname -n)" = localhost ] || ! grep -Fiw "$(uname -n)" "$tmp/out" || return 1
}
t "env-record: no host name" no_names

if command -v gnuplot >/dev/null; then
	plot()
	{
		make_run good
		"$report" summary good
		"$TOP/scripts/plot.sh" good
		grep -q '</svg>' "$RESULTS/good/plot.svg"
		grep -q 'series' "$RESULTS/good/plot.svg"
	}
	t "plot.sh draws" plot
	t "plot.sh: no such run" fails "report.py summary" "$TOP/scripts/plot.sh" nowhere
else
	skip "plot.sh draws" "no gnuplot"
fi
for s in plot env-record bench-host; do
	t "$s.sh --help" bash -c '"$1" --help | grep -q "^$2.sh"' - "$TOP/scripts/$s.sh" "$s"
	t "$s.sh: bad option" fails "unknown option" "$TOP/scripts/$s.sh" --bad
done

finish
