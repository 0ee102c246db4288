#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# plot.sh RUN [--png]
#
# Draws plot.svg (and plot.png) of a run from its summary.csv: what protect and
# restore cost per page, by scenario, folio order and kernel, at 64 MiB or the
# largest size below.
#
# RUN   a folder, or the name of one in bench-results (RESULTS= is another)

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run=
png=
for arg; do
	case $arg in
	-h|--help) help_exit ;;
	--png) png=1 ;;
	-*) usage_error "unknown option '$arg'" ;;
	*)
		[ -z "$run" ] || usage_error "one RUN, not also '$arg'"
		run=$arg ;;
	esac
done
[ -n "$run" ] || usage_error "RUN is missing"
[[ $run == */* ]] || run=${RESULTS:-$TOP/bench-results}/$run
[ -e "$run/summary.csv" ] || die "no $run/summary.csv; run scripts/report.py summary"
need gnuplot

tmp=$(mktemp -d "${TMPDIR:-/tmp}/plot.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

what=$(head -n 1 "$run/summary.csv" | sed 's/.*median_\([a-z]*\)_.*/\1/')

# Columns: panel, row, number of the kernel, its name, value, pages, row's label.
python3 - "$run/summary.csv" >"$tmp/data" <<'PYTHON'
import csv
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    reader = csv.DictReader(f)
    rows = [r for r in reader if 1 < int(r["pages"]) <= 16384]
value = next(c for c in reader.fieldnames if c.startswith("median_"))
largest, labels = {}, []
kernels = list(dict.fromkeys(r["kernel"] for r in rows))
for r in rows:
    key = r["scenario"], r["order"]
    largest[key] = max(largest.get(key, 0), int(r["pages"]))
for r in rows:
    key = r["scenario"], r["order"]
    if r["phase"] in ("post_touch", "iteration") or \
            int(r["pages"]) != largest[key]:
        continue
    label = f"{key[0].removesuffix('-toggle')}, order {key[1]}"
    if label not in labels:
        labels.append(label)
    print(f'{int(r["phase"] == "restore")} {labels.index(label)} '
          f'{kernels.index(r["kernel"])} "{r["kernel"]}" {r[value]} {r["pages"]} "{label}"')
PYTHON
[ -s "$tmp/data" ] || die "$run/summary.csv has nothing to draw"
rows=$(awk '$2 > m { m = $2 } END { print m + 1 }' "$tmp/data")
kernels=$(awk '$3 > m { m = $3 } END { print m + 1 }' "$tmp/data")

size="$(awk '$6 > m { m = $6 } END { print m / 256 " MiB" }' "$tmp/data")"

draw()
{
	gnuplot <<GNUPLOT
set terminal $1
set output "$2"
rows = $rows
kernels = $kernels
h = 0.8 / kernels
color(k) = k == 0 ? 0x9a9a9a : word("0x1f5fa8 0xd1802f 0x3f8f55 0x8454a0 0xb03a48", (int(k) - 1) % 5 + 1) + 0
name(k) = system(sprintf("awk '\$3 == %d { gsub(/\\"/, \\"\\", \$4); print \$4; exit }' $tmp/data", k))
stats "$tmp/data" using 5 nooutput
set label 1 "$what per page, $size" at screen 0.02, screen 0.965 left font ",13"
set multiplot layout 1,2 margins 0.23,0.98,0.07,0.86 spacing 0.03
set style fill solid noborder
set border 1 lc rgb "#606060"
set tics nomirror scale 0 textcolor rgb "#202020"
unset ytics
set xtics out
set grid xtics lc rgb "#e4e4e4" lt 1
set yrange [rows - 0.4:-0.6]
set xrange [0:STATS_max * 1.14]
set key at screen 0.98, screen 0.985 top right horizontal Left reverse samplen 1 width 1
do for [p = 0:1] {
	set title (p ? "restore" : "protect (or the call that is named)")
	if (p == 0) {
		unset key
	} else {
		set key
	}
	if (p == 1) {
		unset label 1
	}
	plot for [k = 0:kernels - 1] "$tmp/data" \\
		using (\$1 == p && \$3 == k ? \$5 / 2 : NaN):(\$2 + (k - (kernels - 1) / 2.0) * h):(\$5 / 2):(h / 2) \\
		with boxxyerror lc rgb color(k) title name(k), \\
	     "" using (\$1 == p ? \$5 : NaN):(\$2 + (\$3 - (kernels - 1) / 2.0) * h):(sprintf(" %.0f", \$5)) \\
		with labels left font ",9" tc rgb "#303030" notitle, \\
	     "" using (p == 0 && \$1 == 0 && \$3 == 0 ? 0 : NaN):2:7 with labels right offset -0.7,0 notitle
}
unset multiplot
GNUPLOT
}

height=$((90 + rows * (14 * kernels + 12)))
draw "svg size 900,$height font 'sans-serif,12' background rgb 'white'" "$tmp/plot.svg" ||
	die "gnuplot failed"
mv "$tmp/plot.svg" "$run/plot.svg.tmp"
mv "$run/plot.svg.tmp" "$run/plot.svg"
if [ -n "$png" ]; then
	draw "pngcairo size 900,$height font 'sans,10'" "$tmp/plot.png" || die "gnuplot failed"
	mv "$tmp/plot.png" "$run/plot.png.tmp"
	mv "$run/plot.png.tmp" "$run/plot.png"
fi
