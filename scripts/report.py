#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tables from bench-results/, and what git and get_maintainer.pl say.

  report.py summary RUN...        write summary.csv and summary.txt of a run
  report.py show KIND RUN         print a table; --json: its rows
  report.py gate RUN              fail if the run misses the limits
  report.py compare RUN RUN...    runs of bench-host.sh on two kernels
  report.py update [FILE...]      write all summaries, then the tables in
                                  FILEs (README.md, cover-letter.txt and
                                  MAINTAINERS-notes)
  report.py check [FILE...]       fail, with file and line, if update would
                                  change anything
  report.py collect ...           output of mprotect_toggle to raw CSV; what
                                  bench.sh and bench-host.sh call

RUN is a folder, or the name of one in bench-results/ (RESULTS= is another).
compare takes the first RUN as the base; more runs with its label show the
drift (boot A, boot B, boot A: compare A1 B A2).

A table in a file stands between two lines of its own. In Markdown
    <!-- table:KIND run=RUN begin -->
    <!-- table:KIND end -->
and in plain text
    [table KIND from bench-results/RUN]
    [end of table]
Two kinds are not of a run but of the series in build/linux:
    [table diffstat from patches/]
    [table recipients from patches/]

Kinds: icount   instructions per page, first kernel against the last
       orders   the same without touching pages and other sizes than 64 MiB
                and one page
       ladder   all the kernels of the run, without touching pages
       glance   the few rows of icount that matter most
       host     ns per page on one machine and kernel
       harness  ns per page, kernel code in user space, without the patches
                one by one and the rarer kinds of entries
       harness-all
                with them
       harness-patches
                what each patch buys, a few rows
       harness-worst
                the largest ratio after each patch, by what loses
       public   what others measured on bare metal; run is public
       text     summary.txt of the run as it is
"""
import argparse
import csv
import gzip
import io
import json
import os
import random
import re
import statistics
import subprocess
import sys
import zlib

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.environ.get("RESULTS") or os.path.join(TOP, "bench-results")
LINUX = os.path.join(os.environ.get("BUILD") or os.path.join(TOP, "build"),
                     "linux")
FILES = ["README.md", "cover-letter.txt", "MAINTAINERS-notes"]
WIDTH = 76
COLUMNS = ["kernel", "boot", "config", "scenario", "pages", "order", "phase",
           "round"]
UNITS = {"instructions_per_page": "instructions", "ns_per_page": "ns"}
PHASES = ["protect", "restore", "post_touch", "iteration", "single_protect",
          "move", "mincore"]
# Not to be told from zero in any table.
NOTHING = 0.0005


class Error(Exception):
    """What is wrong with the input, and where."""


# ---- files -----------------------------------------------------------------

def write(path, text):
    """All of it or nothing."""
    tmp = f"{path}.tmp{os.getpid()}"
    try:
        with open(tmp, "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
        os.replace(tmp, path)
    except OSError as e:
        if os.path.exists(tmp):
            os.unlink(tmp)
        raise Error(f"{path}: {e.strerror}") from e


def read(path):
    try:
        if path.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as f:
                return f.read()
        with open(path, encoding="utf-8") as f:
            return f.read()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as e:
        raise Error(f"{path}: {getattr(e, 'strerror', None) or e}") from e


def csv_text(rows):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def run_dir(run):
    """Of a folder, or of the name of one in RESULTS."""
    path = run if os.sep in run else os.path.join(RESULTS, run)
    if not os.path.isdir(path):
        raise Error(f"no run {run}: there is no folder {path}")
    return os.path.normpath(path)


def read_env(path):
    """'key: value' lines; of a key that repeats, all the values."""
    env = {}
    for n, line in enumerate(read(path).splitlines(), 1):
        key, colon, value = line.partition(":")
        if not line or line.startswith("#"):
            continue
        if not colon or not key:
            raise Error(f"{path}:{n}: not a 'key: value' line: {line}")
        env.setdefault(key, []).append(value.strip())
    return env


class Run:
    """A folder of bench-results with env.txt and raw samples.

    samples: {cell: {kernel: {boot: [value, ...]}}}, a cell being
    (scenario, order, pages, phase).
    """

    def __init__(self, run):
        self.dir = run_dir(run)
        self.name = os.path.basename(self.dir)
        self.env_path = os.path.join(self.dir, "env.txt")
        self.env = read_env(self.env_path)
        self.kernels = self.get("kernels").split()
        self.unit = self.get("unit")
        if self.unit not in UNITS:
            raise Error(f"{self.env_path}: unknown unit {self.unit}")
        if self.get("unexpected_results") != "0":
            raise Error(f"{self.env_path}: unexpected_results is not 0, so "
                        "the numbers are not of what they claim to be")
        self.what = UNITS[self.unit]
        self.samples = {}
        self.scenarios = []
        raw = os.path.join(self.dir, "raw")
        files = sorted(f for f in (os.listdir(raw) if os.path.isdir(raw)
                                   else []) if f.endswith((".csv", ".csv.gz")))
        if not files:
            raise Error(f"{raw}: no samples")
        for f in files:
            self.read_raw(os.path.join(raw, f))
        self.check_complete()
        rank = {s: i for i, s in enumerate(self.scenarios)}
        self.cells = sorted(self.samples, key=lambda c: (
            rank[c[0]], c[1], c[2], PHASES.index(c[3])))

    def get(self, key):
        if key not in self.env:
            raise Error(f"{self.env_path}: no line '{key}:'")
        return self.env[key][0]

    def read_raw(self, path):
        seen = set()
        lines = read(path).splitlines()
        want = ",".join(COLUMNS + [self.unit])
        if not lines or lines[0] != want:
            raise Error(f"{path}:1: the columns are not {want}")
        for n, line in enumerate(lines[1:], 2):
            kernel, boot, config, cell, rnd, value = parse_row(
                line, f"{path}:{n}", len(COLUMNS) + 1)
            if kernel not in self.kernels:
                raise Error(f"{path}:{n}: kernel {kernel} is not in env.txt")
            if config != self.get("config"):
                raise Error(f"{path}:{n}: config {config} is not that of "
                            "env.txt")
            if (kernel, boot, cell, rnd) in seen:
                raise Error(f"{path}:{n}: this sample is there twice")
            seen.add((kernel, boot, cell, rnd))
            if cell[0] not in self.scenarios:
                self.scenarios.append(cell[0])
            boots = self.samples.setdefault(cell, {}).setdefault(kernel, {})
            boots.setdefault(boot, []).append(value)

    def check_complete(self):
        """Every boot has every cell, with as many samples."""
        boots = {(k, b) for by in self.samples.values()
                 for k, bs in by.items() for b in bs}
        for kernel in self.kernels:
            if kernel not in {k for k, _ in boots}:
                raise Error(f"{self.dir}/raw: no samples of {kernel}")
        for cell, by in self.samples.items():
            have = {(k, b): len(v) for k, bs in by.items()
                    for b, v in bs.items()}
            for k, b in sorted(boots):
                if have.get((k, b)) != max(have.values()):
                    raise Error(f"{self.dir}/raw: {k}, boot {b} has "
                                f"{have.get((k, b), 0)} samples of "
                                f"{describe(cell)}, another boot has "
                                f"{max(have.values())}")


def parse_row(line, where, columns):
    row = line.split(",")
    if len(row) != columns:
        raise Error(f"{where}: {len(row)} columns, not {columns}: {line}")
    kernel, boot, config, scenario, pages, order, phase, rnd, value = row
    for name, text in (("boot", boot), ("pages", pages), ("order", order),
                       ("round", rnd)):
        if not re.fullmatch("[0-9]+", text):
            raise Error(f"{where}: {name} '{text}' is no number")
    if phase not in PHASES:
        raise Error(f"{where}: unknown phase '{phase}'")
    if not re.fullmatch(r"[0-9]+\.[0-9]{3,}", value) or float(value) <= 0:
        raise Error(f"{where}: '{value}' is no positive number with three "
                    "decimals")
    if not kernel or not scenario or int(pages) == 0:
        raise Error(f"{where}: empty field")
    return (kernel, int(boot), config,
            (scenario, int(order), int(pages), phase), int(rnd), float(value))


def describe(cell):
    scenario, order, pages, phase = cell
    return f"{scenario} order {order}, {size(pages)}, {phase}"


# ---- statistics ------------------------------------------------------------

class Stat:
    """One cell of one kernel: the replicate is the boot."""

    def __init__(self, boots):
        self.boots = [statistics.median(v) for _, v in sorted(boots.items())]
        self.samples = sum(len(v) for v in boots.values())
        self.median = statistics.median(self.boots)
        self.min = min(self.boots)
        self.max = max(self.boots)
        self.spread = (self.max - self.min) / self.median


def interval(a, b):
    """95 % bootstrap interval of the ratio of the medians of boots."""
    if len(set(a)) == 1 and len(set(b)) == 1:
        return b[0] / a[0], b[0] / a[0]
    rng = random.Random(1)

    def draw(v):
        return statistics.median(v[int(rng.random() * len(v))] for _ in v)

    ratios = sorted(draw(b) / draw(a) for _ in range(1000))
    return ratios[24], ratios[974]


class Row:
    """A cell of kernel against the first kernel."""

    def __init__(self, cell, a, b, floor=0):
        self.cell = cell
        self.a = a
        self.b = b
        self.ratio = b.median / a.median
        self.low, self.high = interval(a.boots, b.boots)
        self.drift = a.spread
        self.noise = max(a.spread, b.spread, floor, NOTHING)
        self.none = abs(self.ratio - 1) <= self.noise
        self.effect = "none" if self.none else f"{100 * (self.ratio - 1):+.1f}%"


def rows_of(run, kernel=None):
    """Of the last kernel, or of another one, against the first."""
    stats = [(c, Stat(run.samples[c][run.kernels[0]]),
              Stat(run.samples[c][kernel or run.kernels[-1]]))
             for c in run.cells]
    floor = noise_floor(run)
    return [Row(c, a, b, floor) for c, a, b in stats]


def noise_floor(run):
    """The largest A/A difference of any cell of an interleaved run.

    That of one cell alone, of two or three boots, is often 0 by luck.
    """
    if len(run.kernels) < 2:
        return 0
    return max(Stat(run.samples[c][run.kernels[0]]).spread
               for c in run.cells)


def as_dicts(run):
    for kernel in run.kernels:
        for r in rows_of(run, kernel):
            scenario, order, pages, phase = r.cell
            yield {
                "kernel": kernel, "scenario": scenario, "pages": pages,
                "order": order, "phase": phase, "boots": len(r.b.boots),
                "samples": r.b.samples,
                f"median_{run.unit}": f"{r.b.median:.4f}",
                f"min_{run.unit}": f"{r.b.min:.4f}",
                f"max_{run.unit}": f"{r.b.max:.4f}",
                "spread_percent": f"{100 * r.b.spread:.3f}",
                "ratio": f"{r.ratio:.4f}",
                "ratio_low": f"{r.low:.4f}", "ratio_high": f"{r.high:.4f}",
                "drift_percent": f"{100 * r.drift:.3f}",
                "effect": r.effect,
            }


# ---- tables ----------------------------------------------------------------

def size(pages):
    if pages == 1:
        return "1 page"
    if pages % 256 == 0:
        return f"{pages // 256} MiB"
    return f"{pages * 4} KiB"


def by_scenario(rows):
    for scenario in dict.fromkeys(r.cell[0] for r in rows):
        yield scenario, [r for r in rows if r.cell[0] == scenario]


def layout(head, rows, line):
    """Rows grouped by scenario, then order and size, said once each."""
    yield f"{'size':>8} {'ord':>3} {'phase':<14}{head}"
    for scenario, group in by_scenario(rows):
        yield scenario
        last = None
        for r in group:
            _, order, pages, phase = r.cell
            label = f"{size(pages):>8} {order:>3}"
            yield (f"{label if (order, pages) != last else '':12} "
                   f"{phase:<14}{line(r)}")
            last = order, pages


def split_sizes(rows):
    """One-page calls are another thing: they are all but the loop."""
    return ([r for r in rows if r.cell[2] > 1],
            [r for r in rows if r.cell[2] == 1])


def both_parts(run, rows, head, line):
    many, one = split_sizes(rows)
    if many:
        yield f"{run.what} per page, median of the boots"
        yield ""
        yield from layout(head, many, line)
    if many and one:
        yield ""
    if one:
        yield f"{run.what} per call of one page"
        yield ""
        yield from layout(head, one, line)


def pair_table(run, short=False):
    rows = rows_of(run)
    if short:
        rows = [r for r in rows if r.cell[2] in (1, 16384)
                and r.cell[3] not in ("post_touch", "iteration")]
    a, b = run.kernels[0][:8], run.kernels[-1][:8]
    head = f"{a:>10}{b:>10}{'ratio':>7}{'drift':>8}{'change':>8}"
    yield from both_parts(
        run, rows, head,
        lambda r: f"{r.a.median:10.2f}{r.b.median:10.2f}{r.ratio:7.3f}"
                  f"{100 * r.drift:7.2f}%{r.effect:>8}")


def ladder_table(run):
    stats = {k: {r.cell: r for r in rows_of(run, k)} for k in run.kernels}
    rows = [r for r in rows_of(run)
            if r.cell[3] not in ("post_touch", "iteration")]
    # The first kernel is in every part of what is too wide for a mail.
    for i in range(1, max(len(run.kernels), 2), 4):
        part = run.kernels[:1] + run.kernels[i:i + 4]
        if i > 1:
            yield ""
        yield from both_parts(
            run, rows, "".join(f"{k[:8]:>9}" for k in part),
            lambda r, part=part: "".join(
                f"{stats[k][r.cell].b.median:9.1f}" for k in part))


def host_table(run):
    head = f"{'median':>10}{'min':>10}{'max':>10}{'spread':>9}"
    yield from both_parts(
        run, rows_of(run), head,
        lambda r: f"{r.b.median:10.3f}{r.b.min:10.3f}{r.b.max:10.3f}"
                  f"{100 * r.b.spread:8.2f}%")


def cells_for_glance(cells):
    """(label, cell): the largest size up to 64 MiB of each."""
    want = [
        ("shared, 4 KiB folios: protect", "shared-dirty-toggle", "protect"),
        ("shared, 4 KiB folios: restore", "shared-dirty-toggle", "restore"),
        ("private, 4 KiB folios: restore", "anon-read-toggle", "restore"),
        ("shared, PTE-mapped THP: protect", "shmem-pte-thp-toggle", "protect"),
        ("private, PTE-mapped THP: restore", "anon-pte-thp-toggle", "restore"),
    ]
    for label, scenario, phase in want:
        fit = [c for c in cells if c[0] == scenario and c[3] == phase
               and 1 < c[2] <= 16384]
        if fit:
            best = max(fit, key=lambda c: c[2])
            yield f"{label}, {size(best[2])}", best
    for label, one in (
            ("one page", ("shared-dirty-toggle", 0, 1, "protect")),
            ("one page: restore, private",
             ("anon-read-toggle", 0, 1, "restore"))):
        if one in cells:
            yield f"whole mprotect() of {label}", one


def glance_rows(run):
    rows = {r.cell: r for r in rows_of(run)}
    return [(label, rows[c]) for label, c in cells_for_glance(run.cells)]


def glance_table(run):
    a, b = run.kernels[0][:9], run.kernels[-1][:9]
    yield f"{run.what + ' per page':<42}{a:>10}{b:>10}{'ratio':>8}"
    for label, r in glance_rows(run):
        yield (f"{label:<42}{r.a.median:10.1f}{r.b.median:10.1f}"
               f"{r.ratio:8.2f}")


def glance_markdown(run):
    yield (f"| {run.what} per page | {run.kernels[0]} | {run.kernels[-1]} "
           "| ratio |")
    yield "| --- | ---: | ---: | ---: |"
    for label, r in glance_rows(run):
        yield (f"| {label} | {r.a.median:.1f} | {r.b.median:.1f} "
               f"| {r.ratio:.2f} |")


def harness_rows(path):
    """(file:line, row) of the summary.csv of harness.sh run."""
    reader = csv.DictReader(io.StringIO(read(path)))
    want = ["kernel", "scenario", "layout", "pages", "order", "phase",
            "median_ns_per_page", "ratio_to_base"]
    if any(c not in (reader.fieldnames or []) for c in want):
        raise Error(f"{path}:1: not all of the columns {','.join(want)}")
    for n, r in enumerate(reader, 2):
        if None in r.values():
            raise Error(f"{path}:{n}: a column is missing")
        yield f"{path}:{n}", r


def number(where, text):
    try:
        return float(text)
    except ValueError as e:
        raise Error(f"{where}: {e}") from e


def step_class(r):
    """What loses in between, as a row of the table harness-worst."""
    if r["pages"] == "1":
        return "a single page"
    return {"shared-old": "old PTEs", "shared-clean": "clean PTEs",
            "notify-clean": "clean PTEs"}.get(r["scenario"], "all others")


def worst_table(path):
    """Largest ratio after each patch, from the summary.csv of harness.sh run."""
    path = os.path.join(path, "summary.csv")
    worst, kernels = {}, []
    for where, r in harness_rows(path):
        if not re.match("series", r["kernel"]):
            continue
        if r["kernel"] not in kernels:
            kernels.append(r["kernel"])
        key = step_class(r), r["kernel"]
        worst[key] = max(worst.get(key, 0), number(where, r["ratio_to_base"]))
    if not kernels:
        raise Error(f"{path}: no rows of the series")
    yield "largest ratio to base of all scenarios, orders, sizes and layouts"
    yield ""
    yield f"{'':<14}" + "".join(f"{k:>9}" for k in kernels)
    rows = {row for row, _ in worst}
    for row in sorted(rows, key=lambda r: (r == "all others", r)):
        yield f"{row:<14}" + "".join(
            f"{worst[row, k]:9.2f}" if (row, k) in worst else f"{'-':>9}"
            for k in kernels)


# Of harness-patches: smallest and largest folios.
BUYS = {("shared-dirty", "protect"), ("shared-clean", "protect"),
        ("anon-exclusive", "protect"), ("anon-exclusive", "restore")}


def harness_table(path, kind):
    """Ladder of kernels from the summary.csv of harness.sh run."""
    path = os.path.join(path, "summary.csv")
    value, kernels, cells = {}, [], []
    for where, r in harness_rows(path):
        if r["layout"] != "rising" or r["pages"] != "16384":
            continue
        if kind == "harness-patches":
            if (r["scenario"], r["phase"]) not in BUYS or \
                    r["order"] not in ("0", "9") or \
                    not re.match("base|series", r["kernel"]):
                continue
        elif kind == "harness" and (
                r["scenario"] not in ("shared-dirty", "anon-exclusive")
                or re.fullmatch("series-[0-9]+", r["kernel"])):
            continue
        cell = r["scenario"], r["order"], r["phase"]
        if r["kernel"] not in kernels:
            kernels.append(r["kernel"])
        if cell not in cells:
            cells.append(cell)
        # The pace of a machine drifts: only the same round can be compared.
        column = ("median_ns_per_page" if r["kernel"] == kernels[0]
                  else "ratio_to_base")
        value[r["kernel"], cell] = number(where, r[column])
    if not value:
        raise Error(f"{path}: no row for 16384 pages, rising frames")
    yield (f"64 MiB; {kernels[0]}: ns per page, others: ratio to it in the same "
           "round; medians")
    first, rest = kernels[:1], kernels[1:]
    wide, columns = (9, 4) if kind == "harness-patches" else (12, 3)
    for i in range(0, max(len(rest), 1), columns):
        part = first + rest[i:i + columns]
        yield ""
        yield (f"{'':<14} {'ord':>3} {'phase':>8}"
               + "".join(f"{k[:11]:>{wide}}" for k in part))
        for cell in cells:
            yield (f"{cell[0]:<14} {cell[1]:>3} {cell[2]:>8}" + "".join(
                f"{value[k, cell]:{wide}.2f}" if (k, cell) in value
                else f"{'-':>{wide}}" for k in part))


def public_table(path):
    path = os.path.join(path, "public.csv")
    want = ["group", "cpu", "kernel", "phase", "n", "mean_ns_per_page",
            "source"]
    reader = csv.DictReader(io.StringIO(read(path)))
    if reader.fieldnames != want:
        raise Error(f"{path}:1: the columns are not {','.join(want)}")
    rows = list(reader)
    for n, r in enumerate(rows, 2):
        if None in r or None in r.values():
            raise Error(f"{path}:{n}: not {len(want)} columns")
    yield "Bare metal, ns per page, mean of n, measured and published by"
    yield "Chengfeng Lin; not measured for this series"
    for group in dict.fromkeys(r["group"] for r in rows):
        mine = [r for r in rows if r["group"] == group]
        cpu = mine[0]["cpu"]
        phases = list(dict.fromkeys(r["phase"] for r in mine))
        yield ""
        yield group + (f" ({cpu})" if cpu else "")
        yield f"  {'':<26}{'n':>3}" + "".join(f"{p:>11}" for p in phases)
        for kernel in dict.fromkeys(r["kernel"] for r in mine):
            cols = {r["phase"]: r for r in mine if r["kernel"] == kernel}
            n = next(iter(cols.values()))["n"]
            yield f"  {kernel:<26}{n:>3}" + "".join(
                f"{float(cols[p]['mean_ns_per_page']):11.2f}"
                if p in cols else f"{'-':>11}" for p in phases)


def in_linux(*command):
    if not os.path.isdir(LINUX):
        raise Error(f"no kernel tree in {LINUX}; run scripts/kernel-tree.sh")
    r = subprocess.run(command, cwd=LINUX, capture_output=True, text=True)
    if r.returncode:
        raise Error(f"{' '.join(command)}: {r.stderr.strip()}")
    return r.stdout.rstrip().splitlines()


def patches():
    names = os.listdir(os.path.join(TOP, "patches"))
    return [os.path.join(TOP, "patches", n) for n in sorted(names)
            if n.endswith(".patch")]


def diffstat():
    """Titles and diffstat, as the cover letter of git format-patch."""
    yield f"{len(patches())} patches:"
    for line in in_linux("git", "log", "--reverse", "--format=%s",
                         "base..series"):
        yield "  " + line
    yield ""
    yield from in_linux("git", "diff", "--stat=72", "--summary", "base",
                        "series")


def recipients():
    """Whom get_maintainer.pl names for which patch, without git's history."""
    roles = {}
    for n, path in enumerate(patches(), 1):
        for line in in_linux("perl", "scripts/get_maintainer.pl", "--nogit",
                             "--nogit-fallback", "--nofixes", path):
            who, role = re.match(r"(.*@\S+) \((.*)\)$", line).groups()
            role = re.sub(":Keyword:(.*)", r" (for the word \1)", role)
            roles.setdefault(who, {}).setdefault(role, []).append(str(n))
    # Maintainers first, lists last.
    order = ("maintainer", "supporter", "reviewer", "")
    ranked = sorted((min(order.index(o) for o in order for r in roles[who]
                         if r.startswith(o)), n, who)
                    for n, who in enumerate(roles))
    for rank, _, who in ranked:
        yield f"{'Cc' if rank > 1 else 'To'}: {who}"
        for role, where in roles[who].items():
            role = role.replace("list:", "list for ").replace(":", " of ", 1)
            yield from ("    " + l for l in wrap(
                f"{role}, patch {' '.join(where)}"))


def wrap(text, indent="  "):
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            yield line
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def foot(run):
    """What these numbers are, so that the table can stand alone."""
    env = run.env
    if run.unit == "instructions_per_page":
        yield from wrap(
            "Guest instructions, user and kernel, counted by QEMU TCG with "
            "-icount shift=0. They are no times: a cache miss or an atomic "
            "counts one, as everything does.")
    else:
        yield from wrap("Time on this machine, ns; see env.txt.")
    if len(run.kernels) > 1:
        yield from wrap(
            f"drift: largest difference between boots of {run.kernels[0]} "
            "(A/A; no two boots have the same memory size, or they would be "
            "equal to the instruction). A change not above the largest drift "
            f"of all rows, {100 * noise_floor(run):.2f} %, or the spread of "
            "the boots of its own row is 'none'.")
    for k in run.kernels:
        if f"kernel.{k}.commit" in env:
            yield from wrap(f"{k}: {run.get(f'kernel.{k}.release')}, commit "
                            f"{run.get(f'kernel.{k}.commit')[:12]}, tree "
                            f"{run.get(f'kernel.{k}.tree')[:12]}")
    for key in ("config", "config_sha256", "sequence", "processes", "cpu",
                "qemu", "compiler", "benchmark_sha256"):
        if key in env:
            value = env[key][0]
            yield from wrap(f"{key}: "
                            f"{value[:16] if 'sha256' in key else value}")
    for key in ("skipped", "unsuitable"):
        for value in env.get(key, []):
            yield from wrap(f"{key}: {value}")


# ---- gates -----------------------------------------------------------------

def limit(cell):
    scenario, _, pages, phase = cell
    if pages > 1 and scenario == "shared-dirty-toggle" and \
            phase in ("protect", "restore"):
        return 0.12 if pages >= 16384 else 0.30
    # A call of one page is mostly not the loop; touching is user space.
    return 1.01 if pages == 1 or phase == "post_touch" else 1.00


def gate(run):
    """What misses its limit: [text]."""
    rows = rows_of(run)
    missed = []
    for r in rows:
        if r.ratio > limit(r.cell) + NOTHING and \
                r.ratio - limit(r.cell) > (0 if limit(r.cell) < 1 else r.noise):
            missed.append(f"{describe(r.cell)}: ratio {r.ratio:.4f}, limit "
                          f"{limit(r.cell):.2f}")
        elif max(r.a.spread, r.b.spread) > \
                (0.10 if r.cell[-1] == "post_touch" else 0.02):
            # Touching is short: a timer tick more or less shows.
            missed.append(f"{describe(r.cell)}: "
                          f"{100 * max(r.a.spread, r.b.spread):.1f} % between "
                          "boots of one kernel, so it can't be judged")
    if not any(limit(r.cell) < 1 for r in rows):
        missed.append("there is no row of shared-dirty-toggle")
    return missed


def gate_lines(run):
    missed = gate(run)
    yield from wrap(
        "Gates: shared-dirty-toggle protect and restore <= 0.12 from 64 MiB "
        "on, below <= 0.30; one-page calls and post_touch <= 1.01; all else <= 1.00 and what is noise: "
        + (f"{len(missed)} MISSED" if missed else
           f"met by all of {len(run.cells)}"))
    for m in missed:
        yield f"  {m}"


# ---- commands --------------------------------------------------------------

def table(kind, run, markdown=False):
    """The lines of a table."""
    if kind == "public":
        lines = public_table(run_dir(run))
    elif kind == "text":
        lines = read(os.path.join(run_dir(run), "summary.txt")).splitlines()
    elif kind in ("harness", "harness-all", "harness-patches"):
        lines = harness_table(run_dir(run), kind)
    elif kind == "harness-worst":
        lines = worst_table(run_dir(run))
    elif run == "patches/" and kind in ("diffstat", "recipients"):
        lines = {"diffstat": diffstat, "recipients": recipients}[kind]()
    else:
        r = Run(run)
        need = {"icount": "instructions_per_page",
                "ladder": "instructions_per_page",
                "orders": "instructions_per_page",
                "glance": "instructions_per_page", "host": "ns_per_page"}
        if kind not in need:
            raise Error(f"unknown kind of table: {kind}")
        if need[kind] != r.unit:
            raise Error(f"{r.name} has {r.unit}, so no table {kind}")
        if kind == "glance" and markdown:
            return list(glance_markdown(r))
        lines = {"icount": pair_table, "ladder": ladder_table,
                 "orders": lambda r: pair_table(r, short=True),
                 "glance": glance_table, "host": host_table}[kind](r)
    lines = list(lines)
    for line in lines:
        # A name and its address stay on one line.
        assert len(line) <= WIDTH or kind == "recipients", line
    return ["```"] + lines + ["```"] if markdown else lines


def summary(run):
    """{path: text} of what is made from raw/ and env.txt."""
    dicts = list(as_dicts(run))
    lines = list(pair_table(run) if len(run.kernels) > 1 else host_table(run))
    if len(run.kernels) > 2:
        lines += ["", "All kernels", ""] + list(ladder_table(run))
    lines += [""] + list(foot(run))
    if len(run.kernels) > 1:
        lines += [""] + list(gate_lines(run))
    for line in lines:
        assert len(line) <= WIDTH or line.startswith("  "), line
    return {
        os.path.join(run.dir, "summary.csv"): csv_text(
            [list(dicts[0])] + [list(d.values()) for d in dicts]),
        os.path.join(run.dir, "summary.txt"): "\n".join(lines) + "\n",
    }


def own_runs():
    """Runs of bench.sh and bench-host.sh; others write their summaries."""
    for name in sorted(n for n in os.listdir(RESULTS) if n[0] != "."):
        env = os.path.join(RESULTS, name, "env.txt")
        if os.path.exists(env) and \
                read_env(env).get("kind", [""])[0] in ("icount", "host"):
            yield Run(os.path.join(RESULTS, name))


MARKERS = [
    (re.compile(r"<!-- table:(?P<kind>\S+) run=(?P<run>\S+) begin -->$"),
     re.compile(r"<!-- table:(?P<kind>\S+) end -->$")),
    (re.compile(r"\[table (?P<kind>\S+) from "
                r"(?:bench-results/)?(?P<run>\S+)\]$"),
     re.compile(r"\[end of table\]$")),
]


def rewritten(path):
    """The file with its tables made anew, and what was wrong: [text]."""
    out, wrong = [], []
    begin, old = None, []
    lines = read(path).splitlines()
    for n, line in enumerate(lines, 1):
        starts = [m for m, _ in MARKERS if m.match(line)]
        ends = [m for _, m in MARKERS if m.match(line)]
        if begin is None and ends:
            raise Error(f"{path}:{n}: end of a table that does not begin")
        if begin is not None and starts:
            raise Error(f"{path}:{n}: the table of line {begin} has no end")
        if starts:
            match = starts[0].match(line)
            begin, old = n, []
        elif ends:
            markdown = MARKERS[0][0].match(lines[begin - 1]) is not None
            kind, run = match["kind"], match["run"]
            if markdown and ends[0].match(line).groupdict().get("kind") != kind:
                raise Error(f"{path}:{n}: not the end of the {kind} table of "
                            f"line {begin}")
            try:
                new = table(kind, run, markdown)
            except Error as e:
                raise Error(f"{path}:{begin}: {e}") from e
            for i in range(max(len(old), len(new))):
                o, w = old[i:i + 1], new[i:i + 1]
                if o != w:
                    wrong.append(
                        f"{path}:{begin + 1 + i}: table {kind} of {run} is "
                        f"stale or was edited by hand\n"
                        f"  has:    {o[0] if o else '(end)'}\n"
                        f"  should: {w[0] if w else '(end)'}")
                    break
            out += new
            begin = None
        if begin is None or starts:
            out.append(line)
        else:
            old.append(line)
    if begin is not None:
        raise Error(f"{path}:{begin}: this table has no end")
    return "\n".join(out) + "\n", wrong


def update(files, only_check):
    wrong = []
    for run in own_runs():
        for path, text in summary(run).items():
            have = read(path) if os.path.exists(path) else ""
            if have == text:
                continue
            if not only_check:
                write(path, text)
                continue
            h, t = have.splitlines(), text.splitlines()
            n = next((i for i, (a, b) in enumerate(zip(h, t)) if a != b),
                     min(len(h), len(t)))
            wrong.append(f"{path}:{n + 1}: not what the samples in raw/ give")
    for path in files:
        text, stale = rewritten(path)
        wrong += stale if only_check else []
        if not only_check and text != read(path):
            write(path, text)
    for w in wrong:
        print(f"report.py: {w}", file=sys.stderr)
    if wrong:
        print("report.py: scripts/report.py update writes them anew",
              file=sys.stderr)
    return 1 if wrong else 0


def compare(names):
    """Runs of bench-host.sh, one boot each, joined by their labels."""
    runs = [Run(n) for n in names]
    first = runs[0]
    for r in runs:
        if r.get("kind") != "host":
            raise Error(f"{r.env_path}: not a run of bench-host.sh; kernels "
                        "under -icount are compared within one run")
        for key in ("benchmark_sha256", "benchmark_args", "machine.cpu_model"):
            if r.get(key) != first.get(key):
                raise Error(f"{r.env_path}: {key} differs from that of "
                            f"{first.name}: not comparable")
    labels = list(dict.fromkeys(r.kernels[0] for r in runs))
    if len(labels) != 2:
        raise Error("two labels are compared, these runs have: "
                    + " ".join(labels))
    rows = []
    for cell in first.cells:
        if any(cell not in r.samples for r in runs):
            raise Error(f"not in all of the runs: {describe(cell)}")
        stats = []
        for label in labels:
            mine = [r.samples[cell][label] for r in runs
                    if r.kernels[0] == label]
            # The boot is the replicate, if there is more than one.
            stats.append(Stat(mine[0] if len(mine) == 1 else {
                i: [statistics.median(v) for v in m.values()]
                for i, m in enumerate(mine)}))
        rows.append(Row(cell, *stats))
    head = (f"{labels[0][:8]:>9}{labels[1][:8]:>9}{'ratio':>6}"
            f"{'95% interval':>13}{'drift':>6}")
    lines = list(both_parts(
        first, rows, head,
        lambda r: f"{r.a.median:9.2f}{r.b.median:9.2f}{r.ratio:6.2f}"
                  f"[{r.low:5.2f},{r.high:5.2f}]{100 * r.drift:5.1f}%"
                  f"{'  none' if r.none else ''}"))
    lines += [""]
    boots = [sum(r.kernels[0] == k for r in runs) for k in labels]
    if min(boots) < 2:
        lines += wrap("One boot of a kernel only: interval and drift are of "
                      "its processes, the difference between boots is not in "
                      "them.")
    lines += wrap("drift: largest difference between two boots (or processes) "
                  f"of {labels[0]}. 'none': not above the spread of both.")
    for r in runs:
        lines += wrap(f"{r.kernels[0]}: {r.name}, "
                      f"{r.get('machine.kernel_release')}")
        for value in r.env.get("unsuitable", []):
            lines += wrap(f"unsuitable: {value} ({r.name})")
    print("\n".join(lines))
    return 0


def collect(a):
    """Refuse what did not end well; write raw CSV only of the rest."""
    text = read(a.input)
    rows = []
    header = "scenario,pages,order,phase,round,ns_per_page"
    passed = skipped = plans = 0
    for n, line in enumerate(text.splitlines(), 1):
        where = f"{a.input}:{n}"
        line = line.rstrip("\r")
        if line.startswith("# csv: "):
            line = line[len("# csv: "):]
            if line == header:
                continue
            row = f"{a.kernel},{a.boot},{a.config},{line}"
            parse_row(row, where, len(COLUMNS) + 1)
            rows.append(row)
        elif line.startswith("# unexpected_results:"):
            if line.split()[-1] != "0":
                raise Error(f"{where}: {line[2:]}: the pages were not what "
                            "they should be; no number is taken")
        elif re.match("(not ok|Bail out!)", line):
            raise Error(f"{where}: {line}")
        elif re.match("ok ", line):
            if "# SKIP" in line:
                skipped += 1
            else:
                passed += 1
        elif re.match(r"1\.\.[0-9]+$", line):
            plans += int(line[3:])
    if not rows or not passed:
        raise Error(f"{a.input}: no samples")
    if passed + skipped != plans:
        raise Error(f"{a.input}: {passed + skipped} results of {plans} planned")
    head = ",".join(COLUMNS + [a.unit])
    body = "\n".join([head] + rows) + "\n"
    out = a.output
    if len(body) > 1 << 20:
        with gzip.GzipFile(out + ".gz.tmp", "wb", mtime=0) as f:
            f.write(body.encode())
        os.replace(out + ".gz.tmp", out + ".gz")
    else:
        write(out, body)
    return 0


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True,
                           metavar="COMMAND")
    for name in ("summary", "compare"):
        sub.add_parser(name).add_argument("run", nargs="+")
    s = sub.add_parser("show")
    s.add_argument("kind")
    s.add_argument("run")
    s.add_argument("--json", action="store_true")
    sub.add_parser("gate").add_argument("run")
    for name in ("update", "check"):
        sub.add_parser(name).add_argument("file", nargs="*")
    s = sub.add_parser("collect")
    for name in ("kernel", "boot", "config"):
        s.add_argument("--" + name, required=True)
    s.add_argument("--unit", choices=list(UNITS), required=True)
    s.add_argument("input")
    s.add_argument("output")
    a = p.parse_args()

    if a.command == "collect":
        return collect(a)
    if a.command == "summary":
        for name in a.run:
            for path, text in summary(Run(name)).items():
                write(path, text)
        return 0
    if a.command == "gate":
        run = Run(a.run)
        print("\n".join(gate_lines(run)))
        return 1 if gate(run) else 0
    if a.command == "compare":
        return compare(a.run)
    if a.command == "show":
        lines = table(a.kind, a.run)
        if a.json:
            if a.kind == "public" or a.kind.startswith("harness"):
                name = "public" if a.kind == "public" else "summary"
                path = os.path.join(run_dir(a.run), name + ".csv")
                rows = list(csv.DictReader(io.StringIO(read(path))))
            else:
                rows = list(as_dicts(Run(a.run)))
            print(json.dumps(rows, indent=1))
        else:
            print("\n".join(lines))
        return 0
    files = a.file or [os.path.join(TOP, f) for f in FILES]
    return update(files, a.command == "check")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as e:
        print(f"report.py: error: {e}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
