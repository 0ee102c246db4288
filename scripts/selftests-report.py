#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Show the results of selftests on one kernel, or compare two.

Reads what guest-selftests printed, has every test's KTAP parsed by the
kernel's own kunit_parser, prints one table. Exit code 0 if all tests had the
same results on the kernels and every failure and skip is a known one, else 1.

What is wrong may be run again: of a test that is in several folders, the last
results count, and the table says what the first were.
"""

import argparse
import glob
import os
import re
import sys
from collections import namedtuple

# verdict: of the kselftest runner; cases: (status, text) of each test case
Result = namedtuple("Result", "verdict cases")
Known = namedtuple("Known", "test kind regex reason")
LOST = Result("lost", [])


def read_known(path):
    known = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                fields = re.split(r"\t+", line.strip(), maxsplit=3)
                if len(fields) != 4 or fields[1] not in ("skip", "fail", "timeout"):
                    sys.exit(f"{path}: bad line: {line.strip()}")
                known.append(Known(*fields))
    return known


def sections(paths):
    """The lines that each test printed, by its name; None if it did not end."""
    tests = {}
    for path in paths:
        name = None
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                line = line.rstrip("\r\n")
                if line.startswith("### begin "):
                    name = line.split()[2]
                    tests[name] = []
                elif line.startswith("### end "):
                    name = None
                elif name:
                    tests[name].append(line)
        if name:
            tests[name] = None
    return tests


def parse(name, lines, kunit_parser):
    """
    The runner marks a test's own output by "# " and ends it with its verdict.
    KTAP nests by indentation.
    """
    if lines is None:
        return LOST
    title = f"selftests: mm: {name}"
    ends = [line for line in lines if re.match(rf"(not )?ok 1 {re.escape(title)}( #|$)", line)]
    if len(ends) != 1:
        return LOST
    own = lines[:lines.index(ends[0])]
    if f"# {title}" in own:
        own = own[own.index(f"# {title}") + 1:]
    own = [line[2:] for line in own if line.startswith("# ")]
    doc = ["KTAP version 1", "1..1"]
    if any(re.match(r"(not )?ok \d", line) for line in own):
        doc += ["  KTAP version 1", f"  # Subtest: {title}"]
        doc += ["  " + line for line in own if not re.match(r"K?TAP version", line)]
    doc += [re.sub(r" # (TIMEOUT|exit=).*", "", ends[0])]
    test = kunit_parser.parse_run_tests(doc, kunit_parser.Printer(print=False))
    outer = test.subtests[0]
    cases = []
    for sub in outer.subtests or [outer]:
        status = {"SUCCESS": "pass", "SKIPPED": "skip"}.get(sub.status.name, "fail")
        cases.append((status, sub.name or sub.skip_reason))
    if "# TIMEOUT" in ends[0]:
        verdict = "timeout"
    elif ends[0].startswith("not"):
        verdict = "fail"
    else:
        verdict = "skip" if "# SKIP" in ends[0] else "pass"
    # Its cases say more than an exit code does, but must not contradict it.
    if verdict in ("pass", "skip") and any(status == "fail" for status, _ in cases):
        verdict = "fail"
    return Result(verdict, cases)


def count(result, status):
    return sum(case[0] == status for case in result.cases)


def differences(kernels, results):
    diffs = []
    if len(results) < 2:
        return diffs
    (one, two), (was, now) = kernels, results
    if was.verdict != now.verdict:
        diffs.append(f"{one} {was.verdict}, {two} {now.verdict}")
    if len(was.cases) != len(now.cases):
        diffs.append(f"{one} {len(was.cases)} cases, {two} {len(now.cases)}")
    for number, (old, new) in enumerate(zip(was.cases, now.cases), 1):
        if old[0] != new[0]:
            diffs.append(f"case {number}: {one} {old[0]}, {two} {new[0]}: {new[1] or old[1]}")
    return diffs


def unlisted(name, result, known, used):
    """The failures and skips that nobody has given a reason for."""
    bad = []
    cases = list(result.cases)
    if result.verdict == "timeout":
        cases = [("timeout", "time-out")] + [c for c in cases if c[0] != "fail"]
    elif result.verdict == "lost":
        bad.append("the guest did not run it to its end")
    elif result.verdict == "fail" and not count(result, "fail"):
        cases.append(("fail", "exit code"))
    for status, text in cases:
        if status == "pass":
            continue
        for entry in known:
            if entry.test == name and entry.kind == status and re.search(entry.regex, text):
                used.setdefault(entry, set()).add((name, text))
                break
        else:
            bad.append(f"{status}: {text}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kunit", required=True, help="tools/testing/kunit of a kernel tree")
    parser.add_argument("--known", required=True, help="known failures and skips")
    parser.add_argument("--tests", required=True, help="names, those that must have run")
    parser.add_argument("--dir", required=True, action="append",
                        help="output of guest-selftests in KERNEL-*.out; may be given again")
    parser.add_argument("--wrong", help="file for the names of the tests that are wrong")
    parser.add_argument("kernels", metavar="KERNEL", nargs="+", help="one, or two to compare")
    args = parser.parse_args()

    if not os.path.exists(os.path.join(args.kunit, "kunit_parser.py")):
        sys.exit(f"no kunit_parser.py in {args.kunit}")
    sys.path.insert(0, args.kunit)
    sys.dont_write_bytecode = True
    import kunit_parser  # pylint: disable=import-error,import-outside-toplevel

    known = read_known(args.known)
    used = {}
    first, *repeats = [[sections(glob.glob(os.path.join(folder, kernel + "-*.out")))
                        for kernel in args.kernels] for folder in args.dir]
    outputs = [dict(tests) for tests in first]
    again = set()
    for latest in repeats:
        names = set().union(*latest)
        again |= names
        for tests, now in zip(outputs, latest):
            # One that has not run on this kernel is lost.
            tests.update({name: now.get(name) for name in names})

    def judge(name, outputs, used):
        results = [parse(name, tests.get(name), kunit_parser) for tests in outputs]
        diffs, bad = differences(args.kernels, results), []
        for kernel, result in zip(args.kernels, results):
            bad += [f"{kernel}: {text}" for text in unlisted(name, result, known, used)]
        verdict = "DIFFERS" if diffs else "UNLISTED" if bad else results[0].verdict
        return results, diffs + bad, verdict

    def shorten(name, texts):
        more = [f"and {len(texts) - 6} more"] if len(texts) > 6 else []
        return [f"  {name}: {text}" for text in texts[:6] + more]

    wrong, notes, repeated = [], [], []
    print(" " * 25 + "".join(f"{kernel:>20}" for kernel in args.kernels))
    print(f"{'test':25}" + f"{'pass  fail  skip':>20}" * len(outputs) + "   verdict")
    for name in args.tests.split():
        results, bad, verdict = judge(name, outputs, used)
        counts = "".join("  " + "".join(f"{count(r, s):6}" for s in ("pass", "fail", "skip"))
                         for r in results)
        print(f"{name:25}{counts}   {verdict}" + (" (again)" if name in again else ""))
        if name in again:
            repeated += shorten(name, judge(name, first, {})[1])
        if bad:
            wrong.append(name)
            notes += shorten(name, bad)
    if used:
        print("\nKnown:")
        for entry in known:
            if entry in used:
                print(f"  {entry.test}: {len(used[entry])} {entry.kind}: {entry.reason}")
    if repeated:
        print("\nRun again, for what they were the first time:")
        print("\n".join(repeated))
    if notes:
        print("\nWrong:")
        print("\n".join(notes))
    print(f"\n{len(args.tests.split())} tests, {len(wrong)} wrong")
    if args.wrong:
        with open(args.wrong, "w", encoding="utf-8") as file:
            file.writelines(name + "\n" for name in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
