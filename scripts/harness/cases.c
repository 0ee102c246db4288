// SPDX-License-Identifier: GPL-2.0-only
/* Random folios, page tables, vmas and flags for the judge. */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

/* splitmix64 */
static unsigned long mix(unsigned long z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9UL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebUL;
	return z ^ z >> 31;
}

void rng_seed(struct rng *r, unsigned long seed, unsigned long number)
{
	r->state = mix(mix(seed + 1) + number);
	r->data = NULL;
	r->size = 0;
}

/* 32 bits; from the fuzzer one byte is enough for a small decision. */
static inline unsigned int bits(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15UL;
	return mix(r->state) >> 32;
}

/* 0 .. n - 1, n below 65536. */
static inline unsigned int below(struct rng *r, unsigned int n)
{
	if (__builtin_expect(r->data != NULL, 0)) {
		unsigned int v = 0;

		if (r->size) {
			v = *r->data++;
			r->size--;
		}
		if (n > 256 && r->size) {
			v |= *r->data++ << 8;
			r->size--;
		}
		return v % n;
	}
	return (unsigned long)bits(r) * n >> 32;
}

static inline bool one_in(struct rng *r, unsigned int n)
{
	return below(r, n) == 0;
}

static void add_folio(struct world *w, struct rng *r, unsigned long pfn,
		      unsigned int order)
{
	const struct h_kernel *k = w->kernel;
	struct zoo *zoo = &w->zoo;
	unsigned long i, nr = 1UL << order;
	unsigned int flags = 0, mode;
	enum h_folio kind;
	int exclusive = 0;

	kind = below(r, order ? H_NR_FOLIOS - 1 : H_NR_FOLIOS);
	if (one_in(r, 2))
		kind = H_FOLIO_ANON;
	flags |= below(r, 2) ? H_FOLIO_DIRTY : 0;
	flags |= below(r, 2) ? H_FOLIO_MAPPED_SHARED : 0;
	flags |= one_in(r, 8) ? H_FOLIO_PINNED : 0;
	flags |= below(r, 2) ? H_FOLIO_NODE1 : 0;
	flags |= one_in(r, 16) ? H_FOLIO_DEVICE : 0;
	flags |= below(r, 256) << H_FOLIO_TIME_SHIFT;
	if (!pfn) {
		kind = H_FOLIO_FILE;
		flags = 0;
	}
	k->make_folio(pfn, order, kind, flags);

	/*
	 * All exclusive, none, changing rarely, changing often. In a folio
	 * that is not anonymous the same bit has another meaning.
	 */
	mode = below(r, 4);
	exclusive = below(r, 2);
	for (i = 0; i < nr; i++) {
		if (mode == 0 && one_in(r, 16))
			exclusive = !exclusive;
		if (mode == 1)
			exclusive = below(r, 2);
		if (exclusive && pfn)
			k->set_anon_exclusive(pfn + i, 1);
		zoo->exclusive[pfn + i] = exclusive &&
			(kind == H_FOLIO_ANON || kind == H_FOLIO_KSM);
		zoo->head[pfn + i] = pfn;
	}
	zoo->order[pfn] = order;
	zoo->kind[pfn] = kind;
	zoo->folio[zoo->nr_folios++] = pfn;
}

void zoo_make(struct world *w, unsigned long seed, unsigned long number)
{
	unsigned long pfn = 0;
	unsigned int order;
	struct rng r;

	rng_seed(&r, ~seed, number);
	w->shadow_stacks = number & 1;
	w->zoo.nr_folios = 0;
	while (pfn < ZOO_PAGES) {
		order = one_in(&r, 3) ? 0 : below(&r, 10);
		/* Folios are aligned to their size, and frame 0 is taken. */
		if (!pfn)
			order = 0;
		while (pfn & ((1UL << order) - 1))
			order--;
		add_folio(w, &r, pfn, order);
		pfn += 1UL << order;
	}
	memcpy(w->pristine, w->machine.memmap, w->memmap_size);
}

static void geo_make(struct world *w, enum geometry g, unsigned long left_end,
		     unsigned long right_start, int hole_level)
{
	struct geo *geo = &w->geo[g];

	geo->left_end = left_end;
	geo->right_start = right_start;
	geo->left = machine_entry(&w->machine,
				  left_end - H_PTRS * H_PAGE_SIZE, 0);
	geo->right = machine_entry(&w->machine, right_start, 0);
	geo->hole = hole_level ?
		machine_entry(&w->machine, left_end, hole_level) : NULL;
}

void world_init(struct world *w, const struct h_kernel *k)
{
	const unsigned long pmd = 1UL << 21, pud = 1UL << 30, pgd = 1UL << 39;
	int i;

	w->kernel = k;
	for (i = 0; i < 1 << H_PKEY_SHIFT; i++)
		w->template[i] = k->make_pte(0, i);
	w->memmap_size = ZOO_PAGES * k->size_of_page;
	w->pristine = malloc(w->memmap_size);
	if (!w->pristine)
		err(1, "malloc");
	geo_make(w, GEO_ONE_TABLE, 2 * pgd + 5 * pmd, 2 * pgd + 9 * pmd, 0);
	geo_make(w, GEO_NEXT_PMD, 4 * pgd + 5 * pmd, 4 * pgd + 5 * pmd, 0);
	geo_make(w, GEO_NEXT_PUD, 6 * pgd + 5 * pud, 6 * pgd + 5 * pud, 0);
	geo_make(w, GEO_NEXT_PGD, 9 * pgd, 9 * pgd, 0);
	geo_make(w, GEO_HOLE_PMD, 12 * pgd + 5 * pmd, 12 * pgd + 6 * pmd, 1);
	geo_make(w, GEO_HOLE_PUD, 14 * pgd + 5 * pud, 14 * pgd + 6 * pud, 2);
	geo_make(w, GEO_HOLE_PGD, 17 * pgd, 18 * pgd, 3);
	geo_make(w, GEO_HUGE_PMD, 20 * pgd + 5 * pmd, 20 * pgd + 6 * pmd, 1);
	/* Present, writable, user, A, D, huge; of some frame. */
	w->geo[GEO_HUGE_PMD].hole_value = (512UL << 12) | 0xe7;
	*w->geo[GEO_HUGE_PMD].hole = w->geo[GEO_HUGE_PMD].hole_value;
	w->pool = machine_new_table(&w->machine);
	for (i = 1; i < NR_POOL; i++)
		machine_new_table(&w->machine);
}

/* As make_pte(), faster: a PROT_NONE entry has its frame inverted. */
static inline unsigned long pte_of(const struct world *w, unsigned long pfn,
				   unsigned int flags)
{
	return (w->template[flags & ((1U << H_PKEY_SHIFT) - 1)] ^ pfn << 12) |
		(unsigned long)(flags >> H_PKEY_SHIFT) << 59;
}

static unsigned int present_flags(struct rng *r, const struct test_case *c)
{
	unsigned int f = bits(r) & (H_WRITE | H_YOUNG | H_DIRTY | H_SOFT_DIRTY |
				    H_NX | H_SAVED_DIRTY);

	if (__builtin_expect(r->data != NULL, 0))
		f = below(r, 256) & (H_WRITE | H_YOUNG | H_DIRTY |
				     H_SOFT_DIRTY | H_NX);
	/* The common state, more often. */
	if (one_in(r, 4))
		f |= H_YOUNG | H_DIRTY | H_SOFT_DIRTY;
	/* Saved dirty is for entries that hardware may not write. */
	if (f & H_WRITE)
		f &= ~H_SAVED_DIRTY;
	else if (!(c->vm & H_VM_SHSTK) && (f & H_DIRTY))
		f = (f & ~H_DIRTY) | H_SAVED_DIRTY;
	if (one_in(r, c->vm & (H_VM_UFFD_WP | H_VM_UFFD_RWP) ? 2 : 16))
		f |= H_UFFD;
	if (one_in(r, 6)) {
		f |= H_PROTNONE;
		if (f & H_WRITE)
			f &= ~(H_WRITE | H_DIRTY);
	} else if (one_in(r, 32)) {
		f |= H_GLOBAL;
	}
	if (one_in(r, 8))
		f |= below(r, 16) << H_PKEY_SHIFT;
	return f;
}

/* Entries i.. of the window get pages; returns how many. */
static unsigned int add_pages(struct world *w, struct test_case *c,
			      struct rng *r, unsigned int i, unsigned int nr)
{
	const struct zoo *zoo = &w->zoo;
	unsigned long first = zoo->folio[below(r, zoo->nr_folios)], pfn;
	unsigned int size, run, j, f, vary;
	int step = 1;

	/* A small window would mostly see the middle of large folios. */
	size = 1U << zoo->order[first];
	pfn = first + (size > 1 && one_in(r, 2) ? below(r, size) : 0);
	run = one_in(r, 2) ? size - (pfn - first) : 1 + below(r, size);
	/* Past the end of the folio, into its neighbour. */
	if (one_in(r, 3))
		run += 1 + below(r, 8);
	/* Moved to another place in another order. */
	if (one_in(r, 16))
		step = one_in(r, 2) ? -1 : 2;
	if (run > nr)
		run = nr;
	f = present_flags(r, c);
	vary = one_in(r, 2) ? 0 : 1 + below(r, 8);
	for (j = 0; j < run; j++) {
		if (vary && j && one_in(r, vary)) {
			if (one_in(r, 2))
				f = present_flags(r, c);
			else if (!(f & H_PROTNONE))
				f ^= H_YOUNG;
		}
		/* Frame 0 is the zero page: a normal page never is it. */
		if (pfn - 1 >= ZOO_PAGES - 1)
			break;
		c->pte[i + j] = pte_of(w, pfn, f);
		pfn += step;
	}
	return j;
}

/* No struct page is to be looked at: the zero page, or a frame of a driver. */
static unsigned int add_special(struct world *w, struct test_case *c,
				struct rng *r, unsigned int i, unsigned int nr)
{
	unsigned int f, run, j;
	unsigned long pfn = 0;
	int step = 0;

	f = present_flags(r, c) | H_SPECIAL;
	run = 1 + below(r, 4);
	if (c->vm & (H_VM_PFNMAP | H_VM_MIXEDMAP) && !one_in(r, 4)) {
		pfn = one_in(r, 2) ? MACHINE_PAGES + below(r, 65535) :
			below(r, ZOO_PAGES);
		step = 1;
	} else if (c->vm & H_VM_SHARED) {
		/* The zero page is clean where it is shared. */
		f &= ~(H_WRITE | H_DIRTY | H_SAVED_DIRTY);
	}
	if (run > nr)
		run = nr;
	for (j = 0; j < run; j++) {
		c->pte[i + j] = pte_of(w, pfn, f);
		pfn += step;
	}
	return run;
}

static unsigned int add_leafs(struct world *w, struct test_case *c,
			      struct rng *r, unsigned int i, unsigned int nr)
{
	enum h_leaf kind = below(r, H_NR_LEAFS);
	unsigned long offset = 1 + below(r, ZOO_PAGES - 8);
	unsigned int flags = below(r, 32), run = 1 + below(r, 4), j;

	if (kind != H_LEAF_SWAP)
		flags &= ~H_LEAF_EXCLUSIVE;
	if (run > nr)
		run = nr;
	for (j = 0; j < run; j++)
		c->pte[i + j] = w->kernel->make_leaf(kind, offset + j, flags);
	return run;
}

static void vma_make(struct test_case *c, struct rng *r)
{
	static const unsigned int cps[] = {
		0, 0, 0, 0, H_CP_TRY_CHANGE_WRITABLE, H_CP_TRY_CHANGE_WRITABLE,
		H_CP_TRY_CHANGE_WRITABLE, H_CP_TRY_CHANGE_WRITABLE,
		H_CP_PROT_NUMA, H_CP_PROT_NUMA,
		H_CP_UFFD_WP, H_CP_UFFD_WP_RESOLVE,
		H_CP_UFFD_WP_RESOLVE | H_CP_TRY_CHANGE_WRITABLE,
		H_CP_UFFD_RWP, H_CP_UFFD_RWP_RESOLVE,
		H_CP_UFFD_RWP_RESOLVE | H_CP_TRY_CHANGE_WRITABLE,
	};
	unsigned int f;

	c->cp = cps[below(r, sizeof(cps) / sizeof(cps[0]))];
	f = below(r, 8);				/* R, W, X */
	/* Only a writable vma asks for that. */
	if (c->cp & H_CP_TRY_CHANGE_WRITABLE)
		f |= H_VM_WRITE;
	f |= below(r, 2) ? H_VM_SHARED : 0;
	f |= one_in(r, 4) ? 0 : H_VM_SOFTDIRTY;
	if (f & H_VM_SHARED)
		f |= below(r, 2) ? H_VM_NOTIFY : 0;
	else
		f |= one_in(r, 4) ? 0 : H_VM_ANON;
	if (one_in(r, 8))
		f |= one_in(r, 2) ? H_VM_PFNMAP : H_VM_MIXEDMAP;
	if (c->cp & (H_CP_UFFD_WP | H_CP_UFFD_WP_RESOLVE))
		f |= one_in(r, 16) ? 0 : H_VM_UFFD_WP;
	else if (c->cp & (H_CP_UFFD_RWP | H_CP_UFFD_RWP_RESOLVE))
		f |= one_in(r, 16) ? 0 : H_VM_UFFD_RWP;
	else if (one_in(r, 4))
		f |= one_in(r, 2) ? H_VM_UFFD_WP : H_VM_UFFD_RWP;
	if ((f & H_VM_ANON) && (f & H_VM_WRITE) && one_in(r, 16))
		f |= H_VM_SHSTK;
	if (one_in(r, 8))
		f |= below(r, 16) << H_VM_PKEY_SHIFT;
	c->vm = f;

	c->env = below(r, 64) | below(r, 4) << H_ENV_TABLES_SHIFT;
	c->pgoff = below(r, ZOO_PAGES);
}

/* The number of entries is small most of the time, a whole table at times. */
static unsigned int window_size(struct rng *r)
{
	if (one_in(r, 512))
		return 1 + below(r, H_PTRS);
	if (one_in(r, 32))
		return 1 + below(r, 64);
	return 1 + below(r, 12);
}

void case_make(struct world *w, struct test_case *c, struct rng *r)
{
	unsigned int nr, i, what, mixed;

	vma_make(c, r);

	nr = window_size(r);
	c->offset = 0;
	c->right = 0;
	c->left = nr;
	if (one_in(r, 3)) {
		c->geometry = 1 + below(r, NR_GEOMETRIES - 1);
		c->right = below(r, nr + 1);
		c->left -= c->right;
	} else {
		c->geometry = GEO_ONE_TABLE;
		c->offset = below(r, H_PTRS - nr + 1);
	}

	/* Everything mixed, or nothing but pages. */
	mixed = one_in(r, 2);
	for (i = 0; i < nr; ) {
		what = mixed ? below(r, 8) : 0;
		if (what < 4) {
			if (what < 3 || !(c->vm & (H_VM_PFNMAP | H_VM_MIXEDMAP)))
				what = add_pages(w, c, r, i, nr - i);
			else
				what = add_special(w, c, r, i, nr - i);
			if (!what)
				c->pte[i++] = 0;
			i += what;
		} else if (what == 4) {
			i += add_special(w, c, r, i, nr - i);
		} else if (what < 7) {
			i += add_leafs(w, c, r, i, nr - i);
		} else {
			c->pte[i++] = 0;
		}
	}

	c->first = 0;
	c->last = nr;
	if (one_in(r, 2)) {
		c->first = below(r, nr);
		c->last = c->first + 1 + below(r, nr - c->first);
	}
}
