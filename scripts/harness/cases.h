/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CASES_H
#define CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "machine.h"

/*
 * The zoo: page frames 0 .. ZOO_PAGES - 1 hold folios of every kind and
 * order. Frame 0 is the zero page. One zoo serves CASES_PER_ZOO cases.
 */
#define ZOO_PAGES	16384UL
#define CASES_PER_ZOO	65536UL

struct zoo {
	unsigned short head[ZOO_PAGES];		/* first frame of its folio */
	unsigned char order[ZOO_PAGES];		/* at the first frame */
	unsigned char kind[ZOO_PAGES];		/* at the first frame */
	unsigned char exclusive[ZOO_PAGES];	/* PageAnonExclusive() */
	unsigned int nr_folios;
	unsigned short folio[ZOO_PAGES];	/* first frames, by number */
};

/*
 * The tables of a case: its window is the last entries of a left table and
 * the first entries of a right one. In between lies what the name says.
 */
enum geometry {
	GEO_ONE_TABLE,		/* no right table */
	GEO_NEXT_PMD,
	GEO_NEXT_PUD,
	GEO_NEXT_PGD,
	GEO_HOLE_PMD,		/* an empty entry at that level */
	GEO_HOLE_PUD,
	GEO_HOLE_PGD,
	GEO_HUGE_PMD,		/* a huge entry there */
	NR_GEOMETRIES
};

#define MAX_WINDOW	(2 * H_PTRS)
#define NR_POOL		8		/* tables that may be allocated */

struct geo {
	unsigned long left_end, right_start;
	unsigned long *left, *right;		/* the tables */
	unsigned long *hole;			/* the entry between */
	unsigned long hole_value;		/* 0 but for GEO_HUGE_PMD */
};

struct test_case {
	enum geometry geometry;
	unsigned int offset;		/* GEO_ONE_TABLE: entries behind */
	unsigned int left, right;	/* entries of each table */
	unsigned int first, last;	/* the range that is changed */
	unsigned int vm, cp, env;	/* H_VM_*, H_CP_*, H_ENV_* */
	unsigned long pgoff;
	unsigned long pte[MAX_WINDOW];
};

/* Where decisions come from: a generator, or a fuzzer's bytes. */
struct rng {
	unsigned long state;
	const unsigned char *data;
	size_t size;
};

struct world {
	struct machine machine;
	struct zoo zoo;
	int shadow_stacks;		/* every other zoo's CPU has them */
	struct geo geo[NR_GEOMETRIES];
	unsigned long pool;		/* first frame of the tables there */
	char *pristine;			/* the memmap of the zoo as made */
	size_t memmap_size;		/* of the zoo */
	const struct h_kernel *kernel;	/* the one that makes everything */
	/* make_pte() of frame 0 for all flags but the pkey. */
	unsigned long template[1U << H_PKEY_SHIFT];
};

void world_init(struct world *w, const struct h_kernel *k);
void zoo_make(struct world *w, unsigned long seed, unsigned long number);
void case_make(struct world *w, struct test_case *c, struct rng *r);
void rng_seed(struct rng *r, unsigned long seed, unsigned long number);

/* Address of entry i of the window. */
static inline unsigned long case_addr(const struct world *w,
				      const struct test_case *c, unsigned int i)
{
	const struct geo *g = &w->geo[c->geometry];

	if (i < c->left)
		return g->left_end - (c->offset + c->left - i) * H_PAGE_SIZE;
	return g->right_start + (i - c->left) * H_PAGE_SIZE;
}

static inline unsigned long *case_entry(const struct world *w,
					const struct test_case *c,
					unsigned int i)
{
	const struct geo *g = &w->geo[c->geometry];

	if (i < c->left)
		return g->left + H_PTRS - c->offset - c->left + i;
	return g->right + i - c->left;
}

#endif
