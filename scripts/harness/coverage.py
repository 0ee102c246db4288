#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Line coverage of a source file by function, from gcov's JSON on stdin.

coverage.py FILE SKIP: the file as gcov names it at its end, and a regular
expression of functions that do not count. Prints the lines never reached.
"""
import json
import re
import sys


def main():
    name, skip = sys.argv[1:3]
    total = hit = 0
    missed = []
    functions = {}
    for f in json.load(sys.stdin)["files"]:
        if not f["file"].endswith(name):
            continue
        lines = {}
        for line in f["lines"]:
            # gcov gives no function to lines of always-inline ones.
            key = (line.get("function_name", "(always inlined)"),
                   line["line_number"])
            lines[key] = lines.get(key, 0) + line["count"]
        for (function, number), count in sorted(lines.items(),
                                                key=lambda x: x[0][1]):
            # "change_pte_range.constprop.0" is change_pte_range.
            function = function.split(".")[0]
            if re.fullmatch(skip, function):
                continue
            have = functions.setdefault(function, [0, 0])
            have[1] += 1
            total += 1
            if count:
                have[0] += 1
                hit += 1
            else:
                missed.append((number, function))
    if not total:
        sys.exit("coverage: no lines; was it run?")
    for function, (a, b) in functions.items():
        print(f"{a:5} of {b:4} lines  {function}")
    print(f"{hit:5} of {total:4} lines, {100 * hit / total:.1f} %")
    for number, function in missed:
        print(f"never reached: {name}:{number} {function}")


if __name__ == "__main__":
    main()
