// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hardware against change_protection(): another CPU reads and writes through
 * the entries while they are changed, and its page walker sets A and D.
 *
 * Only accesses to the page table matter, so those are what time is measured
 * in: the table is inaccessible, each access faults, and between any two of
 * them the walker gets its turn through a second mapping. All pairs of
 * moments (one for the read, one for the write) are gone through.
 */
#define _GNU_SOURCE
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "judge.h"

#define PRESENT		0x001UL
#define RW		0x002UL
#define ACCESSED	0x020UL
#define DIRTY		0x040UL
#define SAVED_DIRTY	(1UL << 58)
#define EFLAGS_TF	0x100UL

#define MAX_ENTRIES	3

static char *table;			/* as the kernel sees it */
static unsigned long *walker;		/* the same memory, as hardware does */
static unsigned int first_entry, nr_entries, picked;
static unsigned int moment, read_at, write_at;
static bool shadow_stacks;		/* has the CPU */
static unsigned long got[MAX_WINDOW];	/* bits that the walker set */
/* What base makes of the entries: see references(). */
static unsigned long reference[4][MAX_ENTRIES];

/*
 * A locked read-modify-write of an entry that is still there. CPUs without
 * shadow stacks may set D even where they may not write, see
 * arch_check_zapped_pte().
 */
static void walk(unsigned int i, unsigned long bits)
{
	unsigned long *pte = walker + first_entry + i;

	if (!(*pte & PRESENT) ||
	    ((bits & DIRTY) && !(*pte & RW) && shadow_stacks))
		return;
	got[i] |= bits & ~*pte;
	*pte |= bits;
}

static void on_access(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	unsigned int i;

	if ((unsigned long)info->si_addr - (unsigned long)table >= H_PAGE_SIZE) {
		signal(sig, SIG_DFL);
		return;
	}
	for (i = 0; i < nr_entries; i++) {
		if (!(picked >> i & 1))
			continue;
		if (moment == read_at)
			walk(i, ACCESSED);
		if (moment == write_at)
			walk(i, ACCESSED | DIRTY);
	}
	moment++;
	/* Let this one instruction through. */
	mprotect(table, H_PAGE_SIZE, PROT_READ | PROT_WRITE);
	uc->uc_mcontext.gregs[REG_EFL] |= EFLAGS_TF;
}

static void on_step(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	mprotect(table, H_PAGE_SIZE, PROT_NONE);
	uc->uc_mcontext.gregs[REG_EFL] &= ~EFLAGS_TF;
}

/* One run; the final entries are in out. Returns the number of accesses. */
static unsigned int run(struct judge *j, const struct h_kernel *k,
			const struct test_case *c, unsigned int r,
			unsigned int w, unsigned long *out)
{
	const struct geo *g = &j->world.geo[c->geometry];
	struct sigaction access = { .sa_sigaction = on_access,
				    .sa_flags = SA_SIGINFO };
	struct sigaction step = { .sa_sigaction = on_step,
				  .sa_flags = SA_SIGINFO };
	struct sigaction old;
	struct h_result result;

	moment = 0;
	read_at = r;
	write_at = w;
	memset(got, 0, nr_entries * sizeof(got[0]));
	memcpy(walker + first_entry, c->pte, nr_entries * 8);
	k->set_env(c->env);
	k->set_vma(g->left_end - H_PTRS * H_PAGE_SIZE,
		   g->right_start + H_PTRS * H_PAGE_SIZE, c->pgoff, c->vm);

	sigaction(SIGSEGV, &access, &old);
	sigaction(SIGTRAP, &step, NULL);
	mprotect(table, H_PAGE_SIZE, PROT_NONE);
	k->change(case_addr(&j->world, c, c->first),
		  case_addr(&j->world, c, c->last - 1) + H_PAGE_SIZE,
		  c->cp, &result);
	mprotect(table, H_PAGE_SIZE, PROT_READ | PROT_WRITE);
	sigaction(SIGSEGV, &old, NULL);

	memcpy(out, walker + first_entry, nr_entries * 8);
	memset(walker + first_entry, 0, nr_entries * 8);
	return moment;
}

/*
 * Base's results if the walker did all before or nothing at all; each of the
 * whole range, and (it may not batch then) of every entry alone.
 */
static void references(struct judge *j, const struct test_case *c)
{
	static struct test_case alone;
	unsigned long out[MAX_WINDOW];
	unsigned int i, never;

	alone = *c;
	for (never = 0; never < 2; never++) {
		run(j, &h_base, c, -never, -never, reference[never]);
		memcpy(reference[2 + never], reference[never],
		       sizeof(reference[never]));
		for (i = c->first; i < c->last; i++) {
			alone.first = i;
			alone.last = i + 1;
			run(j, &h_base, &alone, -never, -never, out);
			reference[2 + never][i] = out[i];
		}
	}
}

static bool wrong(struct judge *j, const struct h_kernel *k,
		  const struct test_case *c, unsigned int r, unsigned int w,
		  unsigned int *accesses, char *text)
{
	unsigned long out[MAX_WINDOW];
	unsigned int i, n;

	*accesses = run(j, k, c, r, w, out);
	for (i = 0; i < nr_entries; i++) {
		unsigned long odd = ~(ACCESSED | DIRTY | SAVED_DIRTY);
		long flags = k->pte_flags(out[i]);
		const char *lost = NULL;

		/* Any other bit is as in one of base's results. */
		for (n = 0; n < 4; n++)
			odd &= out[i] ^ reference[n][i];

		if ((got[i] & DIRTY) && (flags < 0 ||
		    !(flags & (H_DIRTY | H_SAVED_DIRTY))))
			lost = "D";
		else if ((got[i] & ACCESSED) && (flags < 0 ||
			 !(flags & H_YOUNG)))
			lost = "A";
		/* Dirty is in software where hardware may not write. */
		else if (shadow_stacks && (got[i] & DIRTY) &&
			 !(flags & H_WRITE) && (flags & H_DIRTY))
			lost = "a proper shadow-stack state";
		else if (odd)
			lost = "base's result";
		if (!lost)
			continue;
		sprintf(text, "%s: entry %u: %s is lost: hardware read before access %u and wrote before access %u of %u, %#lx became %#lx (cp_flags %#x, vma %#x)",
			k == &h_base ? "base" : "other", i, lost, r, w,
			*accesses, c->pte[i], out[i], c->cp, c->vm);
		return true;
	}
	return false;
}

/* A second mapping of the table's memory. */
static void init(struct judge *j, enum geometry geometry)
{
	int fd = memfd_create("table", 0);

	if (fd < 0 || ftruncate(fd, H_PAGE_SIZE))
		err(1, "memfd");
	table = (char *)j->world.geo[geometry].left;
	walker = mmap(NULL, H_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
		      fd, 0);
	if (walker == MAP_FAILED ||
	    mmap(table, H_PAGE_SIZE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) != table)
		err(1, "mmap");
	close(fd);
}

/* Does the walker have anything to set? */
static bool worthwhile(const struct test_case *c)
{
	unsigned int i;

	for (i = c->first; i < c->last; i++)
		if ((c->pte[i] & PRESENT) &&
		    (!(c->pte[i] & ACCESSED) ||
		     (c->pte[i] & (RW | DIRTY)) == RW))
			return true;
	return false;
}

int judge_race(struct judge *j, const struct test_case *original, char *text)
{
	static struct test_case c;
	struct world *world = &j->world;
	unsigned int accesses, r, w;
	bool bad = false;

	c = *original;
	/* The number of moments goes with the square of the entries. */
	if (c.left > MAX_ENTRIES) {
		c.offset += c.left - MAX_ENTRIES;
		c.left = MAX_ENTRIES;
	}
	if (c.last > c.left)
		c.last = c.left;
	if (c.geometry != GEO_ONE_TABLE || c.first >= c.last ||
	    !worthwhile(&c))
		return 0;
	if (!table)
		init(j, GEO_ONE_TABLE);
	first_entry = case_entry(world, &c, 0) - (unsigned long *)table;
	nr_entries = c.left;
	shadow_stacks = world->shadow_stacks;

	/* Base is here to show that the test itself is right. */
	picked = -1U;
	references(j, &c);
	accesses = 1;
	for (r = 0; r <= accesses && !bad; r++)
		bad = wrong(j, &h_base, &c, r, r, &accesses, text);
	/* Entry by entry, so that neighbours come to differ... */
	for (picked = 1; picked < 1U << nr_entries && !bad; picked <<= 1) {
		references(j, &c);
		accesses = 1;
		for (r = 0; r <= accesses && !bad; r++)
			bad = wrong(j, &h_other, &c, r, r, &accesses, text);
	}
	/* ... and all together, written to at any time after the read. */
	picked = -1U;
	references(j, &c);
	accesses = 1;
	for (r = 0; r <= accesses && !bad; r++)
		for (w = r; w <= accesses && !bad; w++)
			bad = wrong(j, &h_other, &c, r, w, &accesses, text);
	memcpy(world->machine.memmap, world->pristine, world->memmap_size);
	return bad ? -1 : 1;
}
