/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef JUDGE_H
#define JUDGE_H

#include "cases.h"

/* The two kernels; the judge's word is "base" for the first. */
extern const struct h_kernel h_base, h_other;

/*
 * Where the series may differ from base. A rule names another exact outcome,
 * which base itself computes, and is counted.
 *
 * Of a batch of PTEs of one large folio base takes A and D together and sets
 * them in each (with D soft-dirty), and from there may make each writable.
 * Nobody relies on that. So a kernel with other batches may do what base
 * does if its batches are forced to end ...
 */
enum verdict {
	SAME,
	RULE_ALONE,		/* ... after every entry */
	RULE_EITHER,		/* ... so, or before the first of some batches */
	NR_ALLOWED,
	DIFFERENT = NR_ALLOWED,
};

extern const char *const rule_text[NR_ALLOWED];

struct outcome {
	struct h_result result;
	unsigned long pte[MAX_WINDOW];
	/* Only if tables may have been allocated. */
	unsigned long hole;
	unsigned long pool[NR_POOL * H_PTRS];
	/* Only if struct pages may have been written to: a hash. */
	unsigned long pages;
	int writable;			/* can_change_pte_writable() */
};

struct judge {
	struct world world;
	/*
	 * RULE_EITHER is for a patch in the middle of a series, which changes
	 * some entries in batches, and others not.
	 */
	bool either;
	struct outcome base, other;
};

void judge_init(struct judge *j);
enum verdict judge_case(struct judge *j, const struct test_case *c);
/* Both sides by side, for people. */
void judge_print(struct judge *j, const struct test_case *c);
/* The smallest case that still differs. */
void judge_minimise(struct judge *j, struct test_case *c);
/* -1 if A or D got lost that hardware set meanwhile, text says which; 0 if
 * there is nothing that hardware could set. */
int judge_race(struct judge *j, const struct test_case *c, char *text);
/* NULL, or what was written to that belongs to no case. */
const char *judge_stray(struct judge *j);

#endif
