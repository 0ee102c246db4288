#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Apply a mutant: mutate.py MUTANT < old source > new source.

A mutant is a small wrong version of the series:

    # what it breaks
    file: mm/mprotect.c
    find:
    <lines>
    replace:
    <lines>

The lines are looked for with any white space and must be there once, so
that a mutant outlives changes around it. More than one find/replace pair:
all are applied. "--file" prints the name of the file instead.
"""
import re
import sys


def parse(path):
    with open(path) as f:
        text = f.read()
    name = re.search(r"^file: (\S+)$", text, re.M)
    pairs = re.findall(r"^find:\n(.*?)^replace:\n(.*?)(?=^find:|\Z)", text,
                       re.M | re.S)
    if not name or not pairs:
        sys.exit(f"{path}: not a mutant")
    return name.group(1), pairs


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    name, pairs = parse(sys.argv[-1])
    if sys.argv[1] == "--file":
        print(name)
        return
    source = sys.stdin.read()
    for find, replace in pairs:
        pattern = r"\s+".join(map(re.escape, find.split()))
        hits = list(re.finditer(pattern, source))
        if len(hits) != 1:
            sys.exit(f"{sys.argv[1]}: {len(hits)} places, not 1, have:\n{find}")
        start, end = hits[0].span()
        source = source[:start] + replace.strip() + source[end:]
    sys.stdout.write(source)


if __name__ == "__main__":
    main()
