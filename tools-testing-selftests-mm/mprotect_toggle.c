// SPDX-License-Identifier: GPL-2.0
/*
 * mprotect_toggle - what mprotect(2) costs per page, and whether it is right
 *
 * Toggle the protection of populated memory and time each step by itself, for
 * small folios and for PTE-mapped large folios, shared and private. A number is
 * only worth something if the pages were in the state it is claimed for, so
 * that is what passes or fails here, never the time:
 *
 * - smaps, pagemap and kpageflags have to show that state before and after;
 * - none of the populated pages may fault in again, none may lose its data;
 * - what is protected must fault on access, what is restored must not.
 *
 * A state that cannot be had is skipped. A failed or skipped test prints no
 * times. Results are "key: value" lines, so that two runs can be diffed, and
 * CSV with one row per round.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kselftest.h"
#include "vm_util.h"
#include "hugepage_settings.h"

#define THP_ENABLED	"/sys/kernel/mm/transparent_hugepage/enabled"
#define MAX_LIST	16
#define PAGES_PER_ROUND	32768

enum phase {
	PROTECT,
	RESTORE,
	POST_TOUCH,
	ITERATION,
	SINGLE_PROTECT,
	MOVE,
	MINCORE,
	NR_PHASES,
};

static const char * const phase_names[NR_PHASES] = {
	"protect", "restore", "post_touch", "iteration", "single_protect",
	"move", "mincore",
};

enum check {
	STATE,
	DATA,
	ACCESS,
	FAULTS,
	NR_CHECKS,
};

static const char * const check_names[NR_CHECKS] = {
	"state_mismatches", "data_mismatches", "access_mismatches",
	"minor_faults",
};

enum folios {
	SMALL,		/* order 0 */
	PTE_THP,	/* PMD order, the PMD mapping split */
	MTHP,		/* smaller orders, mapped by PTEs anyway */
};

struct test;

struct scenario {
	const char *name;
	const char *help;
	void (*iterate)(struct test *t, uint64_t ns[NR_PHASES]);
	enum phase first, last;
	int prot;
	bool shared;
	enum folios folios;
	bool guard;	/* not about mprotect(): by default only one size */
};

struct test {
	const struct scenario *sc;
	size_t pages;
	int order;

	char *addr;		/* the memory under test */
	char *other;		/* mremap(): where to move it next */
	unsigned char *vec;	/* mincore(): its result */
	unsigned long touches;	/* writes to each page since fill() */

	unsigned long matching_pages;
	unsigned long unexpected[NR_CHECKS];
	char why[160];		/* the first thing found wrong */
};

static int rounds = 5, warmup = 1, iterations, cpu = -1;
static double *samples[NR_PHASES];
static FILE *csv, *csv_file;
static char *csv_text;
static size_t csv_len;

static int pagemap_fd = -1, kpageflags_fd = -1;
static size_t pmd_size;
static bool thp, thp_writable, locked;

static sigjmp_buf fault_env;
static bool fault_expected;

/* Accesses to the memory under test must stay where they are written. */
static inline void barrier(void)
{
	__asm__ __volatile__("" : : : "memory");
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	/* Read through the vDSO where there is one, and never slewed. */
	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static double clock_overhead_ns(void)
{
	const int calls = 1000;
	uint64_t start = now_ns();

	for (int i = 0; i < calls; i++)
		now_ns();
	return (double)(now_ns() - start) / (calls + 1);
}

static size_t bytes(const struct test *t)
{
	return t->pages * psize();
}

/* Keep the first reason, later ones are mostly its consequences. */
static __printf(2, 3) void note(struct test *t, const char *fmt, ...)
{
	va_list args;

	if (t->why[0])
		return;
	va_start(args, fmt);
	vsnprintf(t->why, sizeof(t->why), fmt, args);
	va_end(args);
}

/* Each page has a word that is counted up and one that says which page it is. */

static unsigned long *first_word(const struct test *t, size_t page)
{
	return (unsigned long *)(t->addr + page * psize());
}

static unsigned long *last_word(const struct test *t, size_t page)
{
	return first_word(t, page + 1) - 1;
}

static unsigned long expected_word(const struct test *t, size_t page)
{
	return (page + 1) * 0x9e3779b1UL + t->touches;
}

static void fill(struct test *t)
{
	t->touches = 0;
	for (size_t i = 0; i < t->pages; i++) {
		*first_word(t, i) = expected_word(t, i);
		*last_word(t, i) = ~(unsigned long)i;
	}
	barrier();
}

static void touch(struct test *t)
{
	const size_t stride = psize(), size = bytes(t);

	for (size_t off = 0; off < size; off += stride)
		*(unsigned long *)(t->addr + off) += 1;
	barrier();
	t->touches++;
}

static void check_data(struct test *t)
{
	for (size_t i = 0; i < t->pages; i++) {
		if (*first_word(t, i) == expected_word(t, i) &&
		    *last_word(t, i) == ~(unsigned long)i)
			continue;
		t->unexpected[DATA]++;
		note(t, "page %zu lost its data", i);
	}
}

static void fault_handler(int sig)
{
	if (!fault_expected)
		ksft_exit_fail_msg("unexpected signal: %s\n", strsignal(sig));
	siglongjmp(fault_env, 1);
}

static bool access_faults(unsigned long *word, bool write, unsigned long val)
{
	bool faulted = true;

	fault_expected = true;
	barrier();
	if (!sigsetjmp(fault_env, 0)) {
		if (write)
			*word = val;
		else
			FORCE_READ(*word);
		barrier();
		faulted = false;
	}
	fault_expected = false;
	return faulted;
}

static void expect_page_access(struct test *t, size_t page, int prot)
{
	unsigned long *word = first_word(t, page);
	bool r = access_faults(word, false, 0);
	bool w = access_faults(word, true, expected_word(t, page));

	if (r == !(prot & PROT_READ) && w == !(prot & PROT_WRITE))
		return;
	t->unexpected[ACCESS]++;
	note(t, "page %zu: read %s, write %s with protection %d", page,
	     r ? "faults" : "works", w ? "faults" : "works", prot);
}

static void expect_access(struct test *t, int prot)
{
	/* Odd, so that every position within a large folio has its turn. */
	const size_t step = (t->pages / 1024) | 1;

	for (size_t page = 0; page < t->pages; page += step)
		expect_page_access(t, page, prot);
	expect_page_access(t, t->pages - 1, prot);
}

static void set_prot(char *addr, size_t len, int prot)
{
	if (mprotect(addr, len, prot))
		ksft_exit_fail_msg("mprotect(%zu bytes, %d): %s\n", len, prot,
				   strerror(errno));
}

static void check_access(struct test *t)
{
	set_prot(t->addr, bytes(t), t->sc->prot);
	expect_access(t, t->sc->prot);
	set_prot(t->addr, bytes(t), PROT_READ | PROT_WRITE);
	expect_access(t, PROT_READ | PROT_WRITE);
}

/* What is wrong with a page, the @idx-th of its folio; NULL if nothing. */
static const char *page_mismatch(const struct test *t, char *addr, size_t idx,
				 unsigned long *pfn)
{
	const uint64_t entry = pagemap_get_entry(pagemap_fd, addr);
	const uint64_t compound = KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL |
				  KPF_THP;
	const unsigned long prev = *pfn;
	uint64_t flags, expected = 0;

	if (!(entry & PM_PRESENT))
		return "is not present";
	if (!(entry & PM_MMAP_EXCLUSIVE))
		return "is mapped elsewhere, too";
	if (!(entry & PM_FILE) == t->sc->shared)
		return t->sc->shared ? "is not shmem" : "is not anonymous";
	if (kpageflags_fd < 0)
		return NULL;

	*pfn = PAGEMAP_PFN(entry);
	if (pageflags_get(*pfn, kpageflags_fd, &flags))
		return "has no page flags";
	if (t->order)
		expected = KPF_THP |
			   (idx ? KPF_COMPOUND_TAIL : KPF_COMPOUND_HEAD);
	if ((flags & compound) != expected)
		return "is in a folio of another order";
	if (idx && *pfn != prev + 1)
		return "is out of place in its folio";
	if (t->order && idx == (1UL << t->order) - 1 &&
	    !pageflags_get(*pfn + 1, kpageflags_fd, &flags) &&
	    (flags & KPF_COMPOUND_TAIL))
		return "is in a folio of a higher order";
	return NULL;
}

static bool smaps_matches(struct test *t)
{
	const unsigned long kb = psize() / 1024, rss = t->pages * kb;
	const struct {
		const char *name;
		unsigned long min, max;
	} fields[] = {
		{ "Rss", rss, rss },
		{ "KernelPageSize", kb, kb },
		{ "MMUPageSize", 1, kb },
		{ "AnonHugePages", 0, 0 },
		{ "ShmemPmdMapped", 0, 0 },
		{ "FilePmdMapped", 0, 0 },
	};
	unsigned long start, end, val;
	char line[512], name[32];
	bool ours = false;
	size_t seen = 0;
	FILE *fp;

	fp = fopen("/proc/self/smaps", "r");
	if (!fp)
		ksft_exit_fail_perror("/proc/self/smaps");
	while (fgets(line, sizeof(line), fp)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
			ours = start == (unsigned long)t->addr &&
			       end - start == bytes(t);
			continue;
		}
		if (!ours || sscanf(line, "%31[^:]: %lu kB", name, &val) != 2)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
			if (strcmp(name, fields[i].name))
				continue;
			if (val >= fields[i].min && val <= fields[i].max)
				seen++;
			else
				note(t, "smaps has %s: %lu kB", name, val);
		}
	}
	fclose(fp);
	if (seen != ARRAY_SIZE(fields))
		note(t, "smaps does not show one mapping as expected");
	return seen == ARRAY_SIZE(fields);
}

static bool check_state(struct test *t)
{
	const size_t folio_pages = 1UL << t->order;
	unsigned long pfn = 0;
	const char *mismatch;

	t->matching_pages = 0;
	if (!smaps_matches(t))
		return false;
	for (size_t i = 0; i < t->pages; i++) {
		mismatch = page_mismatch(t, t->addr + i * psize(),
					 i % folio_pages, &pfn);
		if (!mismatch)
			t->matching_pages++;
		else
			note(t, "page %zu %s", i, mismatch);
	}
	return t->matching_pages == t->pages;
}

static unsigned long minor_faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		ksft_exit_fail_perror("getrusage");
	return usage.ru_minflt;
}

/*
 * Address space with a page of another mapping at both ends, so that toggling
 * never merges the mapping under test with a neighbour.
 */
static char *reserve(size_t size, char **base, size_t *len)
{
	const size_t align = pmd_size ? pmd_size : 2 * psize();

	*len = size + 2 * align;
	*base = mmap(NULL, *len, PROT_NONE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*base == MAP_FAILED)
		ksft_exit_fail_msg("mmap(%zu bytes of address space): %s\n",
				   *len, strerror(errno));
	return (char *)(((uintptr_t)*base + psize() + align - 1) & -align);
}

static void advise(struct test *t, int advice, const char *name)
{
	if (madvise(t->addr, bytes(t), advice))
		ksft_exit_fail_msg("madvise(%zu bytes, %s): %s\n", bytes(t),
				   name, strerror(errno));
}

static void populate(struct test *t, int thp_advice)
{
	if (mmap(t->addr, bytes(t), PROT_READ | PROT_WRITE, MAP_FIXED |
		 MAP_ANONYMOUS | (t->sc->shared ? MAP_SHARED : MAP_PRIVATE),
		 -1, 0) == MAP_FAILED)
		ksft_exit_fail_msg("mmap(%zu bytes): %s\n", bytes(t),
				   strerror(errno));
	if (thp && thp_advice >= 0)
		advise(t, thp_advice, "MADV_[NO]HUGEPAGE");
	advise(t, MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE");
	fill(t);
}

/* THP, then break up the PMD mappings while the folios stay. */
static bool populate_pte_thp(struct test *t)
{
	int tries = 3;

	populate(t, -1);
	while (madvise(t->addr, bytes(t), MADV_COLLAPSE)) {
		if (errno == EAGAIN && --tries)
			continue;
		note(t, "MADV_COLLAPSE: %s", strerror(errno));
		return false;
	}
	/*
	 * Protecting a part of a THP splits the PMD of anonymous memory and
	 * drops that of shmem. MADV_NOHUGEPAGE has the latter faulted in again
	 * as PTEs, and keeps khugepaged away.
	 */
	advise(t, MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE");
	for (size_t off = pmd_size / 2; off < bytes(t); off += pmd_size) {
		set_prot(t->addr + off, psize(), PROT_READ);
		set_prot(t->addr + off, psize(), PROT_READ | PROT_WRITE);
	}
	touch(t);
	return true;
}

static void populate_mthp(struct test *t)
{
	struct thp_settings settings = *thp_current_settings();

	for (int i = 0; i < NR_ORDERS; i++) {
		settings.hugepages[i].enabled = THP_NEVER;
		settings.shmem_hugepages[i].enabled = SHMEM_NEVER;
	}
	if (t->sc->shared)
		settings.shmem_hugepages[t->order].enabled = SHMEM_ADVISE;
	else
		settings.hugepages[t->order].enabled = THP_MADVISE;

	thp_push_settings(&settings);
	populate(t, MADV_HUGEPAGE);
	thp_pop_settings();
	/* Keep khugepaged away. */
	advise(t, MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE");
}

/* Is there any hope? If not, t->why says why. */
static bool can_run(struct test *t)
{
	unsigned long avail_kb = 0, need_kb, orders;
	char line[128];
	FILE *fp;

	if (t->pages % (1UL << t->order)) {
		note(t, "size is no multiple of the folio size");
		return false;
	}
	/* Page tables, a spare THP, and some air for everybody else. */
	need_kb = (bytes(t) + bytes(t) / 64 + pmd_size) / 1024 + 8192;
	fp = fopen("/proc/meminfo", "r");
	while (fp && fgets(line, sizeof(line), fp))
		if (sscanf(line, "MemAvailable: %lu kB", &avail_kb) == 1)
			break;
	if (fp)
		fclose(fp);
	if (avail_kb < need_kb) {
		note(t, "needs %lu kB of memory, %lu kB are available",
		     need_kb, avail_kb);
		return false;
	}
	if (t->sc->folios == SMALL)
		return true;

	if (t->sc->folios == PTE_THP)
		orders = pmd_size ? 1UL << t->order : 0;
	else if (t->sc->shared)
		orders = thp_shmem_supported_orders();
	else
		orders = thp_supported_orders();
	if (!thp || !pmd_size || !(orders & (1UL << t->order)))
		note(t, "no folios of that order in this kernel");
	else if (kpageflags_fd < 0)
		note(t, "folio orders can't be verified without root");
	else if (!thp_writable)
		note(t, "can't change " THP_ENABLED);
	return !t->why[0];
}

static void toggle(struct test *t, uint64_t ns[NR_PHASES])
{
	const size_t len = bytes(t);
	uint64_t start, protected, restored, end;

	start = now_ns();
	set_prot(t->addr, len, t->sc->prot);
	protected = now_ns();
	set_prot(t->addr, len, PROT_READ | PROT_WRITE);
	restored = now_ns();
	touch(t);
	end = now_ns();

	ns[PROTECT] += protected - start;
	ns[RESTORE] += restored - protected;
	ns[POST_TOUCH] += end - restored;
	ns[ITERATION] += end - start;
}

static void single(struct test *t, uint64_t ns[NR_PHASES])
{
	unsigned long faults = minor_faults();
	uint64_t start;

	/* Populating faults, only protecting should not. */
	populate(t, MADV_NOHUGEPAGE);
	t->unexpected[FAULTS] -= minor_faults() - faults;

	start = now_ns();
	set_prot(t->addr, bytes(t), t->sc->prot);
	ns[SINGLE_PROTECT] += now_ns() - start;

	check_data(t);
}

static void move(struct test *t, uint64_t ns[NR_PHASES])
{
	char *old = t->addr;
	uint64_t start;

	start = now_ns();
	t->addr = sys_mremap(old, bytes(t), bytes(t),
			     MREMAP_MAYMOVE | MREMAP_FIXED, t->other);
	ns[MOVE] += now_ns() - start;

	if (t->addr != t->other)
		ksft_exit_fail_perror("mremap");
	t->other = old;
}

static void residency(struct test *t, uint64_t ns[NR_PHASES])
{
	uint64_t start;

	memset(t->vec, 0xff, t->pages);
	start = now_ns();
	if (mincore(t->addr, bytes(t), t->vec))
		ksft_exit_fail_perror("mincore");
	ns[MINCORE] += now_ns() - start;

	for (size_t i = 0; i < t->pages; i++) {
		if (t->vec[i] == 1)
			continue;
		t->unexpected[STATE]++;
		note(t, "mincore() says page %zu is not resident", i);
	}
}

static const struct scenario scenarios[] = {
	{ "shared-dirty-toggle", "shmem: READ, READ|WRITE, write-touch",
	  toggle, PROTECT, ITERATION, PROT_READ, true, SMALL, false },
	{ "shared-dirty-single", "shmem, mapped afresh each time: READ",
	  single, SINGLE_PROTECT, SINGLE_PROTECT, PROT_READ, true, SMALL, false },
	{ "anon-read-toggle", "private: READ, READ|WRITE, write-touch",
	  toggle, PROTECT, ITERATION, PROT_READ, false, SMALL, false },
	{ "anon-none-toggle", "private: NONE, READ|WRITE, write-touch",
	  toggle, PROTECT, ITERATION, PROT_NONE, false, SMALL, false },
	{ "shmem-pte-thp-toggle", "shared-dirty-toggle on PTE-mapped THP",
	  toggle, PROTECT, ITERATION, PROT_READ, true, PTE_THP, false },
	{ "anon-pte-thp-toggle", "anon-read-toggle on PTE-mapped THP",
	  toggle, PROTECT, ITERATION, PROT_READ, false, PTE_THP, false },
	{ "shmem-mthp-toggle", "shared-dirty-toggle on folios of --order",
	  toggle, PROTECT, ITERATION, PROT_READ, true, MTHP, false },
	{ "anon-mthp-toggle", "anon-read-toggle on folios of --order",
	  toggle, PROTECT, ITERATION, PROT_READ, false, MTHP, false },
	{ "mremap-move", "private: mremap() to and fro, PTE by PTE",
	  move, MOVE, MOVE, PROT_READ, false, SMALL, true },
	{ "mincore", "private: mincore()",
	  residency, MINCORE, MINCORE, PROT_READ, false, SMALL, true },
};

static int test_iterations(const struct test *t)
{
	size_t nr = PAGES_PER_ROUND / t->pages;

	if (iterations)
		return iterations;
	/* Small sizes: a round of some ms. Large ones: more than one call. */
	nr = nr > 1000 ? 1000 : nr < 2 ? 2 : nr;
	/* Most of the time goes into mapping afresh, untimed. */
	if (t->sc->iterate == single)
		nr = (nr + 7) / 8;
	return nr;
}

static void run_rounds(struct test *t, int nr)
{
	for (int round = -warmup; round < rounds; round++) {
		uint64_t ns[NR_PHASES] = { 0 };

		for (int i = 0; i < nr; i++)
			t->sc->iterate(t, ns);
		if (round < 0)
			continue;
		for (enum phase p = t->sc->first; p <= t->sc->last; p++)
			samples[p][round] = (double)ns[p] / nr / t->pages;
	}
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report_times(const struct test *t)
{
	const int mid = rounds / 2, p99 = (rounds * 99 + 99) / 100 - 1;

	for (enum phase p = t->sc->first; p <= t->sc->last; p++) {
		const char *name = phase_names[p];
		double *s = samples[p];

		for (int i = 0; csv && i < rounds; i++)
			fprintf(csv, "%s%s,%zu,%d,%s,%d,%.4f\n",
				csv == stdout ? "# csv: " : "", t->sc->name,
				t->pages, t->order, name, i, s[i]);
		qsort(s, rounds, sizeof(*s), compare);
		ksft_print_msg("%s_ns_per_page_min: %.3f\n", name, s[0]);
		ksft_print_msg("%s_ns_per_page_median: %.3f\n", name,
			       rounds % 2 ? s[mid] : (s[mid - 1] + s[mid]) / 2);
		ksft_print_msg("%s_ns_per_page_p99: %.3f\n", name, s[p99]);
		ksft_print_msg("%s_ns_per_page_max: %.3f\n", name,
			       s[rounds - 1]);
	}
}

static void run_test(struct test *t)
{
	const int nr = test_iterations(t);
	char *base, *other_base = NULL;
	size_t len, other_len = 0;
	unsigned long faults, unexpected = 0;
	bool ready = true;

	ksft_print_msg("config: scenario=%s pages=%zu order=%d rounds=%d iterations=%d warmup=%d\n",
		       t->sc->name, t->pages, t->order, rounds, nr, warmup);
	if (!can_run(t)) {
		ksft_test_result_skip("%s pages %zu order %d: %s\n",
				      t->sc->name, t->pages, t->order, t->why);
		return;
	}

	t->addr = reserve(bytes(t), &base, &len);
	if (t->sc->iterate == move) {
		/* A page off, or whole page tables are moved, not PTEs. */
		t->other = reserve(bytes(t) + psize(), &other_base, &other_len);
		t->other += psize();
	}
	t->vec = calloc(t->pages, 1);
	if (!t->vec)
		ksft_exit_fail_perror("calloc");

	if (t->sc->folios == PTE_THP)
		ready = populate_pte_thp(t);
	else if (t->sc->folios == MTHP)
		populate_mthp(t);
	else
		populate(t, MADV_NOHUGEPAGE);

	if (!ready || !check_state(t)) {
		ksft_test_result_skip("%s pages %zu order %d: can't be set up: %s\n",
				      t->sc->name, t->pages, t->order, t->why);
		goto out;
	}
	if (!locked) {
		/* Have our own code faulted in. */
		check_access(t);
		run_rounds(t, 1);
		t->unexpected[FAULTS] = 0;
	}
	faults = minor_faults();
	check_access(t);
	run_rounds(t, nr);
	t->unexpected[FAULTS] += minor_faults() - faults;
	if (t->sc->iterate == move && !access_faults((void *)t->other, false, 0)) {
		t->unexpected[ACCESS]++;
		note(t, "memory still accessible where it was moved from");
	}
	if (!check_state(t))
		t->unexpected[STATE] += t->pages - t->matching_pages;
	check_data(t);
	if (t->unexpected[FAULTS])
		note(t, "pages faulted that were populated");

	for (int i = 0; i < NR_CHECKS; i++)
		unexpected += t->unexpected[i];
	if (!unexpected)
		report_times(t);
	ksft_print_msg("expected_match_ratio: %.3f\n",
		       100.0 * t->matching_pages / t->pages);
	for (int i = 0; i < NR_CHECKS; i++)
		ksft_print_msg("%s: %lu\n", check_names[i], t->unexpected[i]);
	ksft_print_msg("unexpected_results: %lu\n", unexpected);
	if (unexpected)
		ksft_print_msg("first unexpected result: %s\n", t->why);
	ksft_test_result(!unexpected, "%s pages %zu order %d\n", t->sc->name,
			 t->pages, t->order);
out:
	free(t->vec);
	munmap(base, len);
	if (other_base)
		munmap(other_base, other_len);
}

static void print_help(void)
{
	printf("usage: mprotect_toggle [options]\n"
	       "\n"
	       "Times mprotect() per page and checks what it did. Lists are comma separated.\n"
	       "\n"
	       "  --scenario NAME,...  which to run (default: all, see --list)\n"
	       "  --size SIZE,...      bytes with suffix K, M or G, or pages with suffix p\n"
	       "                       (default: 1p,100p,1024p where it makes sense)\n"
	       "  --order N,...        folio orders of the mthp scenarios (default: 2,4)\n"
	       "  --rounds N           samples per phase (default: 5)\n"
	       "  --iterations N       calls averaged in a sample (default: by size)\n"
	       "  --warmup N           rounds before the first sample (default: 1)\n"
	       "  --cpu N              run on this CPU only\n"
	       "  --csv FILE           write the samples, a row each; \"-\": to stdout,\n"
	       "                       each line after \"# csv: \"\n"
	       "  --list               list the scenarios\n"
	       "  --help               this text\n"
	       "\n"
	       "Root is needed for large folios, and to verify folio orders.\n"
	       "Exit status: 0 pass, 1 fail or usage error, 4 nothing could be run.\n");
}

static __noreturn __printf(1, 2) void usage_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "mprotect_toggle: ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, ", see --help\n");
	va_end(args);
	exit(KSFT_FAIL);
}

static long parse_long(const char *opt, const char *arg, long min, long max)
{
	char *end;
	long val;

	errno = 0;
	val = strtol(arg, &end, 10);
	if (errno || end == arg || *end || val < min || val > max)
		usage_error("--%s %s: not a number from %ld to %ld", opt, arg,
			    min, max);
	return val;
}

static size_t parse_pages(const char *arg)
{
	static const char suffixes[] = "KMG";
	const char *suffix;
	unsigned long long val;
	size_t unit = 1;
	char *end;

	errno = 0;
	val = strtoull(arg, &end, 10);
	if (errno || end == arg || arg[0] == '-')
		usage_error("--size %s: not a size", arg);
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix)
		unit = 1024UL << 10 * (suffix - suffixes);
	else if (*end == 'p')
		unit = psize();
	if (unit > 1)
		end++;
	if (*end || !val || val > SIZE_MAX / 4 / unit || val * unit % psize())
		usage_error("--size %s: not a multiple of the page size (%u bytes), or too large",
			    arg, psize());
	return val * unit / psize();
}

static const struct scenario *parse_scenario(const char *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
		if (!strcmp(arg, scenarios[i].name))
			return &scenarios[i];
	usage_error("--scenario %s: unknown", arg);
}

/* Cut the next item off a list, of which @nr are known already. */
static char *next_item(int nr)
{
	char *item = strsep(&optarg, ",");

	if (item && nr == MAX_LIST)
		usage_error("%s: more than %d items", item, MAX_LIST);
	return item;
}

static size_t sizes[MAX_LIST] = { 1, 100, 1024 };
static int orders[MAX_LIST] = { 2, 4 };
static const struct scenario *selected[MAX_LIST];
static int nr_sizes = 3, nr_orders = 2, nr_selected;
static bool default_sizes = true;

static void parse_args(int argc, char **argv)
{
	static const struct option options[] = {
		{ "scenario", required_argument, NULL, 's' },
		{ "size", required_argument, NULL, 'z' },
		{ "order", required_argument, NULL, 'o' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "iterations", required_argument, NULL, 'i' },
		{ "warmup", required_argument, NULL, 'w' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "csv", required_argument, NULL, 'f' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	bool default_orders = true;
	char *item;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 's':
			while ((item = next_item(nr_selected)))
				selected[nr_selected++] = parse_scenario(item);
			break;
		case 'z':
			if (default_sizes)
				nr_sizes = 0;
			default_sizes = false;
			while ((item = next_item(nr_sizes)))
				sizes[nr_sizes++] = parse_pages(item);
			break;
		case 'o':
			if (default_orders)
				nr_orders = 0;
			default_orders = false;
			while ((item = next_item(nr_orders)))
				orders[nr_orders++] = parse_long("order", item,
								 1, NR_ORDERS - 1);
			break;
		case 'r':
			rounds = parse_long("rounds", optarg, 1, 1000000);
			break;
		case 'i':
			iterations = parse_long("iterations", optarg, 1,
						1000000000);
			break;
		case 'w':
			warmup = parse_long("warmup", optarg, 0, 1000000);
			break;
		case 'c':
			cpu = parse_long("cpu", optarg, 0, CPU_SETSIZE - 1);
			break;
		case 'f':
			csv = strcmp(optarg, "-") ? NULL : stdout;
			csv_file = csv ? stdout : fopen(optarg, "w");
			if (!csv_file)
				usage_error("--csv %s: %s", optarg,
					    strerror(errno));
			break;
		case 'l':
			for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
				printf("%-20s  %s\n", scenarios[i].name,
				       scenarios[i].help);
			exit(KSFT_PASS);
		case 'h':
			print_help();
			exit(KSFT_PASS);
		default:
			usage_error("bad option");
		}
	}
	if (optind < argc)
		usage_error("unexpected argument %s", argv[optind]);
	if (!nr_selected)
		for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
			selected[nr_selected++] = &scenarios[i];
}

/* Count the tests, and run them if asked to. */
static int walk_tests(bool run)
{
	int nr = 0;

	for (int i = 0; i < nr_selected; i++) {
		const struct scenario *sc = selected[i];
		const int variants = sc->folios == MTHP ? nr_orders : 1;

		for (int v = 0; v < variants * nr_sizes; v++) {
			struct test t = {
				.sc = sc,
				.pages = sizes[v % nr_sizes],
			};

			if (sc->folios == MTHP)
				t.order = orders[v / nr_sizes];
			else if (sc->folios == PTE_THP)
				t.order = sz2ord(pmd_size ? pmd_size : HPAGE_SIZE,
						 psize());
			/* Of the default sizes only what fits. */
			if (default_sizes &&
			    (t.pages % (1UL << t.order) ||
			     (sc->guard && v != nr_sizes - 1)))
				continue;
			if (run)
				run_test(&t);
			nr++;
		}
	}
	return nr;
}

static void setup_thp(void)
{
	struct thp_settings settings;
	int pmd_order;

	thp = thp_available();
	pmd_size = read_pmd_pagesize();
	thp_writable = !access(THP_ENABLED, W_OK);
	if (!pmd_size || !thp_writable)
		return;

	/* Nothing large unless asked for. */
	pmd_order = sz2ord(pmd_size, psize());
	thp_save_settings();
	thp_read_settings(&settings);
	settings.thp_enabled = THP_MADVISE;
	settings.shmem_enabled = SHMEM_ADVISE;
	for (int i = 0; i < NR_ORDERS; i++) {
		settings.hugepages[i].enabled =
			i == pmd_order ? THP_INHERIT : THP_NEVER;
		settings.shmem_hugepages[i].enabled =
			i == pmd_order ? SHMEM_INHERIT : SHMEM_NEVER;
	}
	thp_push_settings(&settings);
}

static void setup(void)
{
	struct sigaction sa = {
		.sa_handler = fault_handler,
		.sa_flags = SA_NODEFER,
	};
	cpu_set_t cpus;

	if (sigaction(SIGSEGV, &sa, NULL) || sigaction(SIGBUS, &sa, NULL))
		ksft_exit_fail_perror("sigaction");

	CPU_ZERO(&cpus);
	if (cpu >= 0) {
		CPU_SET(cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			ksft_exit_fail_msg("--cpu %d: %s\n", cpu,
					   strerror(errno));
	}
	/* Code and stack of our own should not be among the faults counted. */
	locked = !mlockall(MCL_CURRENT);
	/* An own policy keeps NUMA balancing and its hinting faults away. */
	syscall(__NR_set_mempolicy, MPOL_LOCAL, NULL, 0);

	/* Without these nothing can be verified. */
	if (access("/proc/self/smaps", R_OK))
		ksft_exit_skip("/proc/self/smaps: %s (is /proc mounted?)\n",
			       strerror(errno));
	pagemap_fd = open("/proc/self/pagemap", O_RDONLY);
	if (pagemap_fd < 0)
		ksft_exit_skip("/proc/self/pagemap: %s\n", strerror(errno));
	kpageflags_fd = open("/proc/kpageflags", O_RDONLY);
	/* Without CAP_SYS_ADMIN pagemap has no PFNs to look up there. */
	if (kpageflags_fd >= 0 &&
	    !PAGEMAP_PFN(pagemap_get_entry(pagemap_fd, (char *)&sa))) {
		close(kpageflags_fd);
		kpageflags_fd = -1;
	}

	for (int p = 0; p < NR_PHASES; p++) {
		samples[p] = calloc(rounds, sizeof(double));
		if (!samples[p])
			ksft_exit_fail_perror("calloc");
		/* Nor should these. */
		for (int i = 0; i < rounds; i++)
			samples[p][i] = -1;
	}
	barrier();
}

static void open_csv(void)
{
	/* All or nothing: the file is written when the last test is done. */
	if (csv_file != stdout)
		csv = open_memstream(&csv_text, &csv_len);
	if (!csv)
		ksft_exit_fail_perror("open_memstream");
	fprintf(csv, "%sscenario,pages,order,phase,round,ns_per_page\n",
		csv == stdout ? "# csv: " : "");
}

static void write_csv(void)
{
	if (csv == stdout)
		return;
	if (fclose(csv) || fwrite(csv_text, 1, csv_len, csv_file) != csv_len ||
	    fflush(csv_file)) {
		int err = errno;

		/* Half a table must not pass for a whole one. */
		if (ftruncate(fileno(csv_file), 0))
			ksft_perror("--csv: ftruncate");
		ksft_exit_fail_msg("--csv: %s\n", strerror(err));
	}
}

int main(int argc, char **argv)
{
	struct utsname uts;
	int nr_tests;

	parse_args(argc, argv);
	ksft_print_header();
	setup();
	setup_thp();
	nr_tests = walk_tests(false);
	if (!nr_tests)
		ksft_exit_skip("no default size fits, use --size\n");
	ksft_set_plan(nr_tests);

	uname(&uts);
	ksft_print_msg("kernel: %s\n", uts.release);
	ksft_print_msg("page_size: %u\n", psize());
	ksft_print_msg("clock_overhead_ns: %.3f\n", clock_overhead_ns());
	ksft_print_msg("folio_orders_verified: %s\n",
		       kpageflags_fd >= 0 ? "yes" : "no, needs root");
	if (csv_file)
		open_csv();

	walk_tests(true);

	if (csv_file)
		write_csv();
	if (ksft_cnt.ksft_xskip == ksft_plan) {
		ksft_print_cnts();
		return KSFT_SKIP;
	}
	ksft_finished();
}
