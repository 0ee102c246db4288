# SPDX-License-Identifier: GPL-2.0-only
# ns per page by kernel, grouped by folio order; dir is the result's folder.
set terminal svg size 1000,760 font "sans,11" background "white"
set output dir.'/ladder.svg'
set multiplot layout 2,2 title "change\\_protection(), 16384 pages, rising frames: median ns per page"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.85 noborder
set boxwidth 0.9
set yrange [0:*]
set grid ytics lc rgb "#cccccc"
set xtics rotate by -35 nomirror noenhanced
set key outside above right horizontal samplen 1 font ",9"
set ylabel "ns per page"
do for [k in "shared-dirty anon-exclusive"] {
	do for [p in "protect restore"] {
		set title k.', '.p noenhanced offset 0,-0.5
		f = dir.'/'.k.'-'.p.'.dat'
		plot f using 2:xtic(1) title "order 0" lc rgb "#0072b2", \
		     f using 3 title "2" lc rgb "#56b4e9", \
		     f using 4 title "4" lc rgb "#e69f00", \
		     f using 5 title "9" lc rgb "#d55e00"
	}
}
unset multiplot
