// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stopwatch of one kernel. Reads one line a cell from standard input:
 *
 *	KIND ORDER LAYOUT PAGES ITERATIONS COLD
 *
 * and answers with one line, "PROTECT_NS RESTORE_NS" (the fastest iteration,
 * ns per page), or "error TEXT" if a count or an entry is not as it must be.
 * stopwatch.py asks the kernels in turn.
 */
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "machine.h"

#define START		0x10000000UL
#define MAX_PAGES	102400UL
#define FIRST_PFN	512UL		/* aligned to the largest folio */
/* Short calls are made over this many pages, one after the other. */
#define MIN_PAGES	1024UL

struct kind {
	const char *name;
	enum h_folio folio;
	bool exclusive;
	unsigned int pte;		/* before protect and after restore */
	unsigned int protected;		/* after protect */
	unsigned int vm_protect, cp_protect;
	unsigned int vm_restore, cp_restore;
	/* If not 0, every other entry is this; its page is not exclusive. */
	unsigned int odd_pte, odd_protected;
	bool swap;			/* swap entries, which stay as they are */
};

#define SHARED	(H_VM_SHARED | H_VM_SOFTDIRTY)
#define PRIVATE	(H_VM_ANON | H_VM_SOFTDIRTY)
#define RO	H_VM_READ
#define RW	(H_VM_READ | H_VM_WRITE)
#define TRY	H_CP_TRY_CHANGE_WRITABLE
/* H_DIRTY here: dirty in hardware or in software. */
#define A	H_YOUNG
#define D	H_DIRTY
#define W	H_WRITE
#define NONE	H_PROTNONE
#define SPECIAL	H_SPECIAL
/* All entries are soft-dirty, but those with this. */
#define CLEAN	H_SOFT_DIRTY

static const struct kind kinds[] = {
	{ "shared-dirty", H_FOLIO_SHMEM, false, W | A | D, A | D,
	  RO | SHARED, 0, RW | SHARED, 0 },
	{ "shared-notify", H_FOLIO_FILE, false, W | A | D, A | D,
	  RO | SHARED, 0, RW | SHARED | H_VM_NOTIFY, TRY },
	{ "shared-clean", H_FOLIO_SHMEM, false, W | A, A,
	  RO | SHARED, 0, RW | SHARED, 0 },
	{ "shared-old", H_FOLIO_SHMEM, false, W | D, D,
	  RO | SHARED, 0, RW | SHARED, 0 },
	{ "shared-none", H_FOLIO_SHMEM, false, W | A | D, A | D | NONE,
	  SHARED, 0, RW | SHARED, 0 },
	{ "anon-exclusive", H_FOLIO_ANON, true, W | A | D, A | D,
	  RO | PRIVATE, 0, RW | PRIVATE, TRY },
	{ "anon-shared", H_FOLIO_ANON, false, A | D, A | D,
	  RO | PRIVATE, 0, RW | PRIVATE, TRY },
	{ "anon-none", H_FOLIO_ANON, true, W | A | D, A | D | NONE,
	  PRIVATE, 0, RW | PRIVATE, TRY },
	/* No entry is like the one before it: soft-dirty, or exclusive. */
	{ "shared-mixed", H_FOLIO_SHMEM, false, W | A | D, A | D,
	  RO | SHARED, 0, RW | SHARED, 0, W | A | D | CLEAN, A | D },
	{ "anon-mixed", H_FOLIO_ANON, true, W | A | D, A | D,
	  RO | PRIVATE, 0, RW | PRIVATE, TRY, A | D, A | D },
	{ "notify-clean", H_FOLIO_FILE, false, A, A,
	  RO | SHARED, 0, RW | SHARED | H_VM_NOTIFY, TRY },
	{ "pfnmap", H_FOLIO_FILE, false, W | A | D | SPECIAL, A | D | SPECIAL,
	  RO | SHARED | H_VM_PFNMAP, 0, RW | SHARED | H_VM_PFNMAP, 0 },
	{ "uffd-wp", H_FOLIO_SHMEM, false, W | A | D, A | D | H_UFFD,
	  RW | SHARED | H_VM_NOTIFY | H_VM_UFFD_WP, H_CP_UFFD_WP,
	  RW | SHARED | H_VM_NOTIFY | H_VM_UFFD_WP, H_CP_UFFD_WP_RESOLVE | TRY },
	/* NUMA hinting, and mprotect() that ends it. */
	{ "numa", H_FOLIO_ANON, true, W | A | D, A | D | NONE,
	  RW | PRIVATE, H_CP_PROT_NUMA, RW | PRIVATE, TRY },
	{ .name = "swap", .swap = true, .vm_protect = RO | PRIVATE,
	  .vm_restore = RW | PRIVATE, .cp_restore = TRY },
};
#define NR_KINDS	(sizeof(kinds) / sizeof(kinds[0]))

static struct machine machine;
static unsigned long *pte;		/* of START, and all that follow */
static unsigned long pfns[MAX_PAGES];
static bool bare;

static void init_tables(void)
{
	unsigned long addr, i;

	for (i = 0; i < MAX_PAGES; i += H_PTRS) {
		unsigned long *table;

		addr = START + i * H_PAGE_SIZE;
		table = machine_entry(&machine, addr, 0);
		if (!i)
			pte = table;
		/* The tables lie one after the other. */
		if (table != pte + i)
			errx(1, "page tables are not adjacent");
	}
}

/* Frames for MAX_PAGES pages; many cells use those of the cell before. */
static void make_pages(const struct kind *kind, unsigned int order,
		       const char *layout)
{
	static unsigned long first[MAX_PAGES];
	static const struct kind *had;
	static unsigned int had_order;
	static char had_layout[32];
	unsigned long nr = 1UL << order, folios = MAX_PAGES / nr;
	unsigned long i, j, seed = 1;

	if (had && had->folio == kind->folio &&
	    had->exclusive == kind->exclusive &&
	    !had->odd_pte == !kind->odd_pte && had_order == order &&
	    !strcmp(had_layout, layout))
		return;
	for (i = 0; i < folios; i++) {
		first[i] = FIRST_PFN + i * nr;
		h_kernel.make_folio(first[i], order, kind->folio, 0);
		for (j = 0; j < nr && kind->exclusive; j++)
			h_kernel.set_anon_exclusive(first[i] + j,
						    !kind->odd_pte ||
						    !((i * nr + j) & 1));
	}
	for (i = folios - 1; i > 0; i--) {
		unsigned long tmp = first[i];

		if (!strcmp(layout, "falling")) {
			j = folios - 1 - i;
			if (j >= i)
				break;
		} else if (!strcmp(layout, "random")) {
			seed = seed * 6364136223846793005UL +
				1442695040888963407UL;
			j = (seed >> 33) % (i + 1);
		} else {
			break;
		}
		first[i] = first[j];
		first[j] = tmp;
	}
	for (i = 0; i < MAX_PAGES; i++)
		pfns[i] = first[i / nr] + i % nr;
	had = kind;
	had_order = order;
	strcpy(had_layout, layout);
}

/* Flags of entry i, of two that take turns. Order 0 in other layouts: by frame. */
static unsigned int turn(unsigned long i, unsigned int even, unsigned int odd)
{
	return odd && ((pfns[i] - FIRST_PFN) & 1) ? odd : even;
}

static void make_ptes(const struct kind *kind, unsigned long pages)
{
	unsigned long i;

	for (i = 0; i < pages; i++) {
		unsigned int flags = (turn(i, kind->pte, kind->odd_pte) ^
				      CLEAN) | H_NX;

		if ((flags & (D | W)) == D)
			flags ^= H_DIRTY | H_SAVED_DIRTY;
		pte[i] = kind->swap ? h_kernel.make_leaf(H_LEAF_SWAP, i, 0) :
				      h_kernel.make_pte(pfns[i], flags);
	}
}

/* NULL, or what is wrong with the entries; odd as in turn(). */
static const char *check(const struct kind *kind, unsigned long pages,
			 unsigned int even, unsigned int odd)
{
	const long mask = W | A | NONE | H_UFFD | SPECIAL;
	static char text[128];
	unsigned long i;

	for (i = 0; i < pages; i++) {
		unsigned int want = turn(i, even, odd);
		long have = h_kernel.pte_flags(pte[i]);
		bool dirty = have & (H_DIRTY | H_SAVED_DIRTY);

		if (kind->swap ?
		    pte[i] == h_kernel.make_leaf(H_LEAF_SWAP, i, 0) :
		    have >= 0 && (have & mask) == (want & mask) &&
		    dirty == !!(want & D) &&
		    pte[i] == h_kernel.make_pte(pfns[i], have))
			continue;
		snprintf(text, sizeof(text),
			 "entry %lu is %#lx, flags %#lx, expected %#x",
			 i, pte[i], have, want);
		return text;
	}
	return NULL;
}

static void evict(unsigned long pages)
{
	unsigned long i;
	char *p;

	for (i = 0; i < pages; i++) {
		p = machine.memmap + pfns[i] * h_kernel.size_of_page;
		asm volatile("clflush %0" : "+m" (*p));
	}
	asm volatile("mfence" ::: "memory");
}

/* The least that any implementation has to do. */
static long bare_loop(unsigned long first, unsigned long pages)
{
	volatile unsigned long *p = pte + first;
	unsigned long i;

	for (i = 0; i < pages; i++)
		p[i] ^= 2;
	return pages;
}

/* How often somebody else ran on our CPU. */
static long switches(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_nivcsw;
}

static double since(clockid_t clock, const struct timespec *a)
{
	struct timespec b;

	clock_gettime(clock, &b);
	return (b.tv_sec - a->tv_sec) * 1e9 + b.tv_nsec - a->tv_nsec;
}

/*
 * ns for all pages in calls of len pages; *count is what they returned. If
 * it was interrupted, then of CPU time, which is slow to read.
 */
static double phase(unsigned long pages, unsigned long len, unsigned int vm,
		    unsigned int cp, bool cold, long *count)
{
	struct timespec wall, cpu;
	double wall_ns, cpu_ns;
	unsigned long i;
	long before;

	h_kernel.set_vma(START, START + MAX_PAGES * H_PAGE_SIZE,
			 START / H_PAGE_SIZE, vm);
	if (cold)
		evict(pages);
	*count = 0;
	before = switches();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	clock_gettime(CLOCK_MONOTONIC, &wall);
	for (i = 0; i < pages; i += len) {
		unsigned long addr = START + i * H_PAGE_SIZE;

		if (bare)
			*count += bare_loop(i, len);
		else
			*count += h_kernel.change(addr, addr + len * H_PAGE_SIZE,
						  cp, NULL);
	}
	wall_ns = since(CLOCK_MONOTONIC, &wall);
	cpu_ns = since(CLOCK_THREAD_CPUTIME_ID, &cpu);
	return switches() == before ? wall_ns : cpu_ns;
}

static void cell(const struct kind *kind, unsigned int order,
		 const char *layout, unsigned long len, int iterations,
		 bool cold)
{
	unsigned long pages = len < MIN_PAGES ? MIN_PAGES : len;
	double protect = 1e300, restore = 1e300, t;
	const char *wrong = NULL;
	long count = 0, expected = kind->swap && !bare ? 0 : pages;
	int i;

	make_pages(kind, order, layout);
	make_ptes(kind, pages);
	/* The first iteration warms up, and is the one that is checked. */
	for (i = 0; i <= iterations && !wrong; i++) {
		t = phase(pages, len, kind->vm_protect, kind->cp_protect, cold,
			  &count);
		if (i && t < protect)
			protect = t;
		if (!i && !bare)
			wrong = check(kind, pages, kind->protected,
				      kind->odd_protected);
		if (count != expected)
			wrong = "protect returned a wrong count";
		if (wrong)
			break;

		t = phase(pages, len, kind->vm_restore, kind->cp_restore, cold,
			  &count);
		if (i && t < restore)
			restore = t;
		if (count != expected)
			wrong = "restore returned a wrong count";
	}
	if (!wrong && !bare)
		wrong = check(kind, pages, kind->pte, kind->odd_pte);
	if (wrong)
		printf("error %s\n", wrong);
	else
		printf("%.4f %.4f\n", protect / pages, restore / pages);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[256], name[32], layout[32];
	unsigned int order, cold, i;
	unsigned long pages;
	int iterations;

	bare = argc > 1 && !strcmp(argv[1], "--bare");
	machine_init(&machine, h_kernel.size_of_page);
	machine_boot(&machine, &h_kernel);
	h_kernel.set_env(H_ENV_NUMA_NORMAL);
	init_tables();
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %u %31s %lu %d %u", name, &order, layout,
			   &pages, &iterations, &cold) != 6 ||
		    order > 9 || !pages || pages > MAX_PAGES || iterations < 1)
			errx(2, "bad line: %s", line);
		for (i = 0; i < NR_KINDS; i++)
			if (!strcmp(kinds[i].name, name))
				break;
		if (i == NR_KINDS)
			errx(2, "unknown kind: %s", name);
		cell(&kinds[i], order, layout, pages, iterations, cold);
	}
	return 0;
}
