#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Ask the bench programs of several kernels in turn; print ns per page.

A round starts a fresh process for each kernel, so the round is the
replicate; within a round the kernels are asked cell by cell, in an order
that turns with the round, all on one CPU.
"""
import argparse
import csv
import gzip
import math
import os
import subprocess
import sys
import textwrap
import time

KINDS = ["shared-dirty", "shared-notify", "shared-clean", "shared-old",
         "shared-none", "anon-exclusive", "anon-shared", "anon-none",
         "shared-mixed", "anon-mixed", "notify-clean", "pfnmap", "uffd-wp",
         "numa", "swap"]
# What mprotect() is not mostly used for: no other layouts, fewer sizes.
SIDE_KINDS = KINDS[KINDS.index("shared-mixed"):]
SIDE_SIZES = [1, 512, 16384]
NO_FOLIO_KINDS = ["pfnmap", "swap"]     # their order says nothing
ORDERS = [0, 2, 4, 9]
LAYOUTS = ["rising", "falling", "random"]
SIZES = [1, 16, 512, 16384, 102400]
PHASES = ["protect", "restore"]
# About a millisecond a sample on a slow kernel.
ITERATIONS = {1: 6, 16: 12, 512: 16, 16384: 3, 102400: 2}


class Bench:
    """One process."""

    def __init__(self, name, program):
        self.name = name
        cpu = max(os.sched_getaffinity(0))
        bare = ["--bare"] if name == "bare-loop" else []
        self.process = subprocess.Popen(
            [program] + bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))

    def ask(self, cell, cold):
        kind, order, layout, size = cell
        iterations = ITERATIONS[size]
        self.process.stdin.write(
            f"{kind} {order} {layout} {size} {iterations} {int(cold)}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2 or answer[0] == "error":
            why = " ".join(answer[1:]) or "the program ended"
            sys.exit(f"harness: {self.name}: {kind} order {order} {layout} "
                     f"{size} pages: {why}; no number is given")
        return dict(zip(PHASES, map(float, answer)))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(programs, cells, rounds, cold):
    """programs: [(name, path)]. Returns {(name, cell, phase): [ns, ...]}."""
    samples = {}
    began = time.monotonic()
    for r in range(rounds):
        benches = [Bench(n, p) for n, p in programs]
        for i, cell in enumerate(cells):
            turn = (r + i) % len(benches)
            for b in benches[turn:] + benches[:turn]:
                for phase, ns in b.ask(cell, cold).items():
                    samples.setdefault((b.name, cell, phase), []).append(ns)
        for b in benches:
            b.close()
        print(f"[{time.monotonic() - began:4.0f}s] round {r + 1}/{rounds}",
              file=sys.stderr)
    return samples


def write_raw(path, samples, config):
    """Raw samples in the columns of every raw/*.csv of bench-results."""
    with open(path + ".tmp", "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["kernel", "boot", "config", "scenario", "pages", "order",
                      "phase", "round", "ns_per_page", "layout"])
        for (name, (kind, order, layout, size), phase), ns in samples.items():
            for r, value in enumerate(ns):
                out.writerow([name, r, config, kind, size, order, phase, r,
                              f"{value:.4f}", layout])
    os.rename(path + ".tmp", path)


def read_raw(path):
    """What write_raw() wrote, gzipped: names, cells, samples."""
    names, cells, samples = {}, {}, {}
    with gzip.open(path, "rt", newline="") as f:
        for row in csv.DictReader(f):
            cell = (row["scenario"], int(row["order"]), row["layout"],
                    int(row["pages"]))
            names[row["kernel"]] = cells[cell] = True
            samples.setdefault((row["kernel"], cell, row["phase"]),
                               []).append(float(row["ns_per_page"]))
    return list(names), list(cells), samples


def median(values):
    """The upper one of an even number, so that interval() is exact."""
    return sorted(values)[len(values) // 2]


def interval(values):
    """95 % bootstrap interval of the median.

    The median of a resample is one of the values, and the chance that it is
    at most the k-th smallest is that of drawing at least half of n from the
    k smallest: the bootstrap distribution needs no random numbers.
    """
    n = len(values)
    need = n // 2 + 1

    def at_most(k):
        p = k / n
        return sum(math.comb(n, i) * p ** i * (1 - p) ** (n - i)
                   for i in range(need, n + 1))

    v = sorted(values)
    low = next(k for k in range(1, n + 1) if at_most(k) > 0.025)
    high = next(k for k in range(1, n + 1) if at_most(k) >= 0.975)
    return v[low - 1], v[high - 1]


def ratios(samples, name, to, cell, phase):
    """Of samples of the same round."""
    return [b / a for a, b in zip(samples[(to, cell, phase)],
                                  samples[(name, cell, phase)])]


def table(names, cells, samples):
    """ns/page, and from the second kernel on its ratio to the first."""
    layouts = len({c[2] for c in cells}) > 1
    sizes = len({c[3] for c in cells}) > 1
    head = f"{'ns/page':<15} {'order':>5}"
    head += f" {'frames':>8}" if layouts else ""
    head += f" {'pages':>6}" if sizes else ""
    head += f" {'phase':>8}" + f" {names[0][:13]:>13}"
    head += "".join(f" {n[:13]:>13}" for n in names[1:])
    yield head
    for cell in cells:
        kind, order, layout, size = cell
        for phase in PHASES:
            row = f"{kind:<15} {order:>5}"
            row += f" {layout:>8}" if layouts else ""
            row += f" {size:>6}" if sizes else ""
            row += f" {phase:>8}"
            row += f" {median(samples[(names[0], cell, phase)]):13.2f}"
            for n in names[1:]:
                ns = median(samples[(n, cell, phase)])
                ratio = median(ratios(samples, n, names[0], cell, phase))
                row += f" {ns:6.2f} ({ratio:4.2f})"
            yield row


def write_summary(path, names, cells, samples):
    with open(path + ".tmp", "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["kernel", "scenario", "layout", "pages", "order",
                      "phase", "n", "min_ns_per_page", "median_ns_per_page",
                      "ratio_to_base", "ratio_low", "ratio_high"])
        for n in names:
            for cell in cells:
                kind, order, layout, size = cell
                for phase in PHASES:
                    ns = samples[(n, cell, phase)]
                    r = ratios(samples, n, names[0], cell, phase)
                    low, high = interval(r)
                    out.writerow([n, kind, layout, size, order, phase,
                                  len(ns), f"{min(ns):.4f}",
                                  f"{median(ns):.4f}", f"{median(r):.4f}",
                                  f"{low:.4f}", f"{high:.4f}"])
    os.rename(path + ".tmp", path)


def ladder(names, cells, samples):
    """Median ns/page at 16384 pages, rising frames; 76 columns."""
    width = 9
    yield (f"{'':<14} {'order':>5} {'phase':>7} "
           + "".join(f"{n[:width - 1]:>{width}}" for n in names))
    for cell in cells:
        kind, order, layout, size = cell
        if (layout, size) != ("rising", 16384):
            continue
        for phase in PHASES:
            yield (f"{kind:<14} {order:>5} {phase:>7} " + "".join(
                f"{median(samples[(n, cell, phase)]):{width}.2f}"
                for n in names))


def limit(cell, phase):
    """The most that the series may take of base's time; None: not more."""
    kind, order, _, pages = cell
    if pages < 512:
        return None
    if kind == "shared-dirty":
        return 0.25 if order else 0.15
    if kind == "anon-exclusive" and phase == "protect":
        return 0.25 if order else 0.15
    if kind == "anon-exclusive" and not order:
        return 0.75
    return None


def gate(cells, samples, exceptions, name="series", to="base", room=1.00):
    """Cells of the series that miss their limit: [(cell, phase, text)].

    A limit is taken times room; an exception is a limit of its own.
    """
    missed, excused = [], []
    for cell in cells:
        for phase in PHASES:
            r = ratios(samples, name, to, cell, phase)
            low, high = interval(r)
            m, most = median(r), limit(cell, phase)
            # 1.00 means two decimals: equal code is not always 1.000.
            if (m <= most * room if most else
                    m < 1.005 * room and high <= 1.03 * room):
                continue
            text = f"{m:.3f} [{low:.3f}, {high:.3f}]"
            e = next((e for e in exceptions if all(
                p == "*" or str(v) in p.split(",")
                for p, v in zip(e, (*cell, phase)))), None)
            if e and m <= float(e[5]):
                excused.append((cell, phase, text, e[6]))
            else:
                missed.append((cell, phase, text))
    return missed, excused


def read_exceptions():
    """Lines: KIND ORDER LAYOUT PAGES PHASE MOST REASON, as that file says."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "exceptions")
    with open(path) as f:
        return [line.split(None, 6) for line in f
                if line.strip() and not line.startswith("#")]


# Where the compiler puts a branch or a loop moves a cell by 5 % on a CPU, and
# to another side on the next one. The gate of "run" has no such room: its CPU
# is described beside its results.
ROOM = 1.05


def gate_again(programs, cells, samples, rounds, cold):
    """The gate for any machine, if noisy: the second kernel against the first.

    What misses its limit is measured again, three times at most and each time
    with twice the rounds. Noise goes away by that, a slow kernel does not.
    """
    (to, _), (name, _) = programs[:2]
    exceptions = read_exceptions()
    for again in (True, True, True, False):
        missed, excused = gate(cells, samples, exceptions, name, to, ROOM)
        cells = list(dict.fromkeys(cell for cell, _, _ in missed))
        for (kind, order, layout, size), phase, what in missed:
            print(f"missed: {kind} order {order} {layout} {size} pages "
                  f"{phase}: {what}" + (", once more" if again else ""))
        for (kind, order, layout, size), phase, what, why in excused:
            print(f"excepted: {kind} order {order} {layout} {size} pages "
                  f"{phase}: {what}: {why.strip()}")
        if not missed:
            print("gate: met")
            return 0
        if again:
            rounds *= 2
            samples = measure(programs, cells, rounds, cold)
    print("gate: MISSED")
    return 1


def steady(programs, cells, samples, rounds, cold):
    """Measure again, of all kernels, what misses the gate of the series.

    As gate_again(); the samples of such a cell are replaced as a whole.
    """
    names = [n for n, _ in programs]
    for _ in range(3):
        if "series" not in names or "base" not in names:
            return
        missed, _ = gate(cells, samples, read_exceptions())
        again = list(dict.fromkeys(cell for cell, _, _ in missed))
        if not again:
            return
        rounds *= 2
        print(f"{len(again)} cells miss the gate: once more", file=sys.stderr)
        samples.update(measure(programs, again, rounds, cold))


def anchor(names, samples):
    """What the world's machines say of v6.17 must be true here, too."""
    new = next((n for n in names if n.startswith("v6.17")), None)
    old = next((n for n in names if n.startswith("v6.12")), None)
    cell = ("shared-dirty", 0, "rising", 16384)
    if not new or not old or (new, cell, "protect") not in samples:
        return
    r = ratios(samples, new, old, cell, "protect")
    low, high = interval(r)
    yield (f"Anchor: {new} / {old}, shared dirty, order 0, protect: "
           f"{median(r):.2f} [{low:.2f}, {high:.2f}]")
    yield "Public bare-metal figures for v6.17 / v6.16: 1.54 to 1.75."
    if not 1.3 <= median(r) <= 2.2:
        yield ("Outside 1.3 to 2.2: THE HARNESS DOES NOT REPRESENT THIS "
               "MACHINE'S KERNEL.")


# The lines of targets(): kind, orders, and phases that have one limit(), and
# the most that the series may take of the time of others than base.
TARGETS = [
    ("shared-dirty", [0], PHASES, {"v6.12": 0.33, "bare-loop": 3.00}),
    ("shared-dirty", [2, 4, 9], PHASES, {}),
    ("anon-exclusive", [0], ["protect"], {}),
    ("anon-exclusive", [2, 4, 9], ["protect"], {}),
    ("anon-exclusive", [0], ["restore"], {}),
    ("anon-exclusive", [2, 4, 9], ["restore"], {}),
] + [(k, ORDERS, PHASES, {}) for k in KINDS
     if k not in ("shared-dirty", "anon-exclusive")]


def targets(names, samples):
    """The worst cell of each line."""
    yield ("Targets, 16384 pages: series / other, worst of the orders and "
           "phases")
    for kind, orders, phases, others in TARGETS:
        base = limit((kind, orders[0], "rising", 16384), phases[0]) or 1.00
        for other, value in {"base": base, **others}.items():
            r = [median(ratios(samples, "series", other,
                               (kind, o, "rising", 16384), p))
                 for o in orders for p in phases
                 if (other, (kind, o, "rising", 16384), p) in samples]
            if not r:
                continue
            yield (f"  {kind:<15} {','.join(map(str, orders)):<8} "
                   f"{' '.join(phases):<16} {other:<10} <= {value:.2f}: "
                   f"{max(r):.2f} {'met' if max(r) < value + 0.005 else 'MISSED'}")


LEFT_OUT = """\
Left out: the TLB flush, the syscall and what mprotect_fixup() does, faults
after the call, a cold memmap (see --cold). A sample is the fastest
iteration in one process; n counts processes."""


def report(out, names, cells, samples):
    write_summary(os.path.join(out, "summary.csv"), names, cells, samples)
    rounds = min(map(len, samples.values()))
    text = [f"change_protection() in user space, ns per page, median of "
            f"{rounds} processes,", "more where that left the gate open", ""]
    peers = [n for n in names if n.startswith("v")]
    own = [n for n in names if n not in peers]
    for group in (own, peers + ["base", "series"] if peers else []):
        # What fits into 76 columns.
        for i in range(0, len(group), 5):
            text += ladder(group[i:i + 5], cells, samples)
            text.append("")
    text += anchor(names, samples)
    rc = 0
    if "series" in names and "base" in names:
        missed, excused = gate(cells, samples, read_exceptions())
        r = sorted(median(ratios(samples, "series", "base", c, p))
                   for c in cells for p in PHASES)
        text += ["", *targets(names, samples), "",
                 f"series / base over {len(r)} cells: min {r[0]:.3f}, median "
                 f"{median(r):.3f}, max {r[-1]:.3f}",
                 "Gate: from 512 pages on as in the targets; every other cell "
                 "<= 1.00 and its",
                 "interval <= 1.03"]
        for (kind, order, layout, size), phase, what in missed:
            text.append(f"  MISSED {kind} {order} {layout} {size} {phase}: "
                        f"{what}")
        for reason in dict.fromkeys(why for _, _, _, why in excused):
            for (kind, order, layout, size), phase, what, why in excused:
                if why == reason:
                    text.append(f"  excepted {kind} {order} {layout} {size} "
                                f"{phase}: {what}")
            text += textwrap.wrap(reason, 76, initial_indent="    ",
                                  subsequent_indent="    ")
        text.append("Gate: " + ("MISSED" if missed else "met"))
        rc = 1 if missed else 0
    text += ["", LEFT_OUT]
    path = os.path.join(out, "summary.txt")
    with open(path + ".tmp", "w") as f:
        f.write("\n".join(text) + "\n")
    os.rename(path + ".tmp", path)
    print("\n".join(text))
    return rc


def pick(text, known, what):
    if not text:
        return known
    chosen = [type(known[0])(t) for t in text.split(",")]
    for c in chosen:
        if c not in known:
            sys.exit(f"harness: unknown {what} '{c}'; "
                     f"known: {', '.join(map(str, known))}")
    return chosen


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--full", action="store_true")
    p.add_argument("--cold", action="store_true")
    p.add_argument("--kinds")
    p.add_argument("--orders")
    p.add_argument("--layouts")
    p.add_argument("--sizes")
    p.add_argument("--csv")
    p.add_argument("--gate", action="store_true")
    p.add_argument("--config", default="harness")
    p.add_argument("--out", help="write raw/, summary.csv, summary.txt there")
    p.add_argument("--again", metavar="RUN",
                   help="write the summaries of a run anew, from its raw/")
    p.add_argument("kernels", nargs="*", metavar="NAME=PROGRAM")
    a = p.parse_args()

    if a.again:
        names, cells, samples = read_raw(
            os.path.join(a.again, "raw", "harness.csv.gz"))
        sys.exit(report(a.again, names, cells, samples))
    programs = []
    for k in a.kernels:
        name, program = k.split("=", 1)
        # base,base measures the noise.
        while name in [n for n, _ in programs]:
            name += "'"
        programs.append((name, program))
    if a.gate and len(programs) != 2:
        sys.exit("harness: --gate compares two kernels")
    programs.append(("bare-loop", programs[0][1]))
    layouts = pick(a.layouts, LAYOUTS, "layout")
    sizes = pick(a.sizes, SIZES, "size")
    if not a.full:
        layouts = layouts if a.layouts else ["rising"]
        sizes = sizes if a.sizes else [16384]
    # Kinds in the inner loop: many have the same struct pages.
    cells = [(k, o, l, s) for o in pick(a.orders, ORDERS, "order")
             for l in layouts for k in pick(a.kinds, KINDS, "kind")
             for s in sizes
             if not (k in SIDE_KINDS and
                     (l != "rising" or s not in SIDE_SIZES)) and
             not (k in NO_FOLIO_KINDS and o)]
    names = [n for n, _ in programs]
    samples = measure(programs, cells, a.rounds, a.cold)
    cells.sort(key=lambda c: (KINDS.index(c[0]), c[1], LAYOUTS.index(c[2]),
                              c[3]))
    if a.csv:
        write_raw(a.csv, samples, a.config)
    if not a.out:
        for line in table(names, cells, samples):
            print(line)
        if a.gate:
            sys.exit(gate_again(programs, cells, samples, a.rounds, a.cold))
        return
    steady(programs, cells, samples, a.rounds, a.cold)
    os.makedirs(os.path.join(a.out, "raw"), exist_ok=True)
    write_raw(os.path.join(a.out, "raw", "harness.csv"), samples, a.config)
    sys.exit(report(a.out, names, cells, samples))


if __name__ == "__main__":
    main()
