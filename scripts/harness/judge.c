// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge.h"

const char *const rule_text[NR_ALLOWED] = {
	[SAME] = "same",
	[RULE_ALONE] = "as base without batches",
	[RULE_EITHER] = "as base with some of its batches",
};

void judge_init(struct judge *j)
{
	machine_init(&j->world.machine, h_base.size_of_page);
	machine_boot(&j->world.machine, &h_base);
	machine_boot(&j->world.machine, &h_other);
	world_init(&j->world, &h_base);
	h_base.set_pool(j->world.pool);
	h_other.set_pool(j->world.pool);
}

/*
 * The hole may get tables: UFFDIO_WRITEPROTECT makes them where there are
 * none, and a huge entry may be split.
 */
static bool may_populate(const struct test_case *c)
{
	return c->geometry == GEO_HUGE_PMD ||
		((c->cp & H_CP_UFFD_WP) && c->geometry >= GEO_HOLE_PMD);
}

/* Struct pages may be written to: the access time for memory tiering. */
static bool may_touch_pages(const struct test_case *c)
{
	return (c->cp & H_CP_PROT_NUMA) && (c->env & H_ENV_NUMA_TIERING);
}

static void copy_in(struct judge *j, const struct test_case *c)
{
	struct world *w = &j->world;

	if (c->left)
		memcpy(case_entry(w, c, 0), c->pte, c->left * 8);
	if (c->right)
		memcpy(case_entry(w, c, c->left), c->pte + c->left,
		       c->right * 8);
}

/* The frame that an entry of the case maps, if it is in the zoo. */
static bool frame_of(unsigned long pte, unsigned long *pfn)
{
	long flags = h_base.pte_flags(pte);

	if (flags < 0)
		return false;
	/* PROT_NONE entries may have it inverted. */
	*pfn = (pte ^ h_base.make_pte(0, flags)) >> 12 & ((1UL << 40) - 1);
	return *pfn < ZOO_PAGES;
}

static unsigned long take_pages(struct judge *j, const struct test_case *c)
{
	struct world *w = &j->world;
	size_t size = h_base.size_of_page;
	unsigned long pfn, hash = 0, i, k;

	for (i = 0; i < c->left + c->right; i++) {
		unsigned long *page, *was;

		if (!frame_of(c->pte[i], &pfn))
			continue;
		pfn = w->zoo.head[pfn];
		page = (unsigned long *)(w->machine.memmap + pfn * size);
		was = (unsigned long *)(w->pristine + pfn * size);
		for (k = 0; k < size / 8; k++)
			hash = (hash ^ page[k]) * 0x9e3779b97f4a7c15UL;
		memcpy(page, was, size);
	}
	return hash;
}

/* Everything that a call left goes to o, and the tables are empty again. */
static void copy_out(struct judge *j, const struct test_case *c,
		     struct outcome *o)
{
	struct world *w = &j->world;
	unsigned long *entry;

	if (c->left) {
		entry = case_entry(w, c, 0);
		memcpy(o->pte, entry, c->left * 8);
		memset(entry, 0, c->left * 8);
	}
	if (c->right) {
		entry = case_entry(w, c, c->left);
		memcpy(o->pte + c->left, entry, c->right * 8);
		memset(entry, 0, c->right * 8);
	}
	if (may_populate(c)) {
		unsigned long *pool = machine_table(&w->machine, w->pool);

		o->hole = *w->geo[c->geometry].hole;
		*w->geo[c->geometry].hole = w->geo[c->geometry].hole_value;
		memcpy(o->pool, pool, sizeof(o->pool));
		memset(pool, 0, sizeof(o->pool));
	}
	if (may_touch_pages(c))
		o->pages = take_pages(j, c);
}

static void set_scene(const struct h_kernel *k, const struct world *w,
		      const struct test_case *c)
{
	const struct geo *g = &w->geo[c->geometry];

	k->set_env(c->env);
	k->set_vma(g->left_end - H_PTRS * H_PAGE_SIZE,
		   g->right_start + H_PTRS * H_PAGE_SIZE, c->pgoff, c->vm);
}

static void run(struct judge *j, const struct h_kernel *k,
		const struct test_case *c, struct outcome *o)
{
	struct world *w = &j->world;

	copy_in(j, c);
	set_scene(k, w, c);
	k->change(case_addr(w, c, c->first),
		  case_addr(w, c, c->last - 1) + H_PAGE_SIZE, c->cp,
		  &o->result);
	copy_out(j, c, o);
	/* Others ask this of an entry, too; only where the vma is writable. */
	o->writable = c->vm & H_VM_WRITE && k->pte_flags(c->pte[c->first]) >= 0 ?
		k->can_change_writable(case_addr(w, c, c->first),
				       c->pte[c->first]) : 0;
}

/* The same by base, but in a call for each entry. */
static void run_alone(struct judge *j, const struct test_case *c,
		      unsigned int last, struct outcome *o)
{
	struct world *w = &j->world;
	struct h_result r, *sum = &o->result;
	unsigned int i;

	copy_in(j, c);
	set_scene(&h_base, w, c);
	memset(sum, 0, sizeof(*sum));
	for (i = c->first; i < last; i++) {
		h_base.change(case_addr(w, c, i),
			      case_addr(w, c, i) + H_PAGE_SIZE, c->cp, &r);
		sum->ret += r.ret;
		sum->flags |= r.flags;
		if (i == c->first || r.start < sum->start)
			sum->start = r.start;
		if (i == c->first || r.end > sum->end)
			sum->end = r.end;
	}
	copy_out(j, c, o);
}

static bool same_events(const struct h_result *a, const struct h_result *b)
{
	unsigned long nr = a->nr_events;

	if (nr != b->nr_events)
		return false;
	if (nr > H_MAX_EVENTS)
		nr = H_MAX_EVENTS;
	return !memcmp(a->event, b->event, nr * sizeof(a->event[0]));
}

static bool same_gather(const struct h_result *a, const struct h_result *b)
{
	return a->start == b->start && a->end == b->end &&
		a->flags == b->flags;
}

static bool same_elsewhere(const struct outcome *a, const struct outcome *b,
			   const struct test_case *c)
{
	if (may_populate(c) &&
	    (a->hole != b->hole || memcmp(a->pool, b->pool, sizeof(a->pool))))
		return false;
	if (may_touch_pages(c) && a->pages != b->pages)
		return false;
	if (a->writable != b->writable)
		return false;
	return true;
}

static bool same_ptes(const struct outcome *a, const struct outcome *b,
		      const struct test_case *c)
{
	return !memcmp(a->pte, b->pte, (c->left + c->right) * 8);
}

static unsigned long lower(unsigned long a, unsigned long b)
{
	return a < b ? a : b;
}

static unsigned long upper(unsigned long a, unsigned long b)
{
	return a > b ? a : b;
}

/*
 * Each entry is as in alone, or as base leaves it if it starts at an entry. The
 * flush is not larger than by any of these.
 */
static bool either(struct judge *j, const struct test_case *c,
		   unsigned int last, const struct outcome *alone)
{
	const struct outcome *a = &j->base, *b = &j->other;
	static struct outcome o;
	bool found[MAX_WINDOW];
	unsigned int first, i;

	if (b->result.start < lower(a->result.start, alone->result.start) ||
	    b->result.end > upper(a->result.end, alone->result.end) ||
	    b->result.flags & ~(a->result.flags | alone->result.flags))
		return false;
	for (i = 0; i < c->left + c->right; i++)
		found[i] = b->pte[i] == alone->pte[i];
	for (first = c->first; first < last; first++) {
		struct test_case from = *c;

		from.first = first;
		from.last = last;
		run(j, &h_base, &from, &o);
		for (i = first; i < last; i++)
			found[i] |= b->pte[i] == o.pte[i];
	}
	for (i = 0; i < c->left + c->right; i++)
		if (!found[i])
			return false;
	return true;
}

static bool allowed(struct judge *j, const struct test_case *c,
		    unsigned int last, enum verdict rule)
{
	static struct outcome alone;
	const struct outcome *a = &j->base, *b = &j->other;

	/* Calls for each entry cannot tell about these, base as such can. */
	if (a->result.ret != b->result.ret ||
	    !same_events(&a->result, &b->result) || !same_elsewhere(a, b, c))
		return false;
	run_alone(j, c, last, &alone);
	if (rule == RULE_EITHER)
		return either(j, c, last, &alone);
	return same_ptes(b, &alone, c) &&
		same_gather(&b->result, &alone.result);
}

enum verdict judge_case(struct judge *j, const struct test_case *c)
{
	struct outcome *a = &j->base, *b = &j->other;
	enum verdict rule;

	run(j, &h_base, c, a);
	run(j, &h_other, c, b);
	if (a->result.ret == b->result.ret && same_ptes(a, b, c) &&
	    same_gather(&a->result, &b->result) &&
	    same_events(&a->result, &b->result) && same_elsewhere(a, b, c))
		return SAME;
	for (rule = SAME + 1; rule < NR_ALLOWED; rule++) {
		if (rule == RULE_EITHER && !j->either)
			continue;
		if (allowed(j, c, c->last, rule))
			return rule;
		/* Without a table for a hole nobody gets to its right side. */
		if (may_populate(c) && c->first < c->left &&
		    c->left < c->last && allowed(j, c, c->left, rule))
			return rule;
	}
	return DIFFERENT;
}

const char *judge_stray(struct judge *j)
{
	struct world *w = &j->world;
	const char *what = NULL;
	int g, i;

	for (g = 0; g < NR_GEOMETRIES; g++) {
		for (i = 0; i < (int)H_PTRS; i++)
			if (w->geo[g].left[i] || w->geo[g].right[i])
				what = "an entry outside the case";
		if (w->geo[g].hole && *w->geo[g].hole != w->geo[g].hole_value)
			what = "a table entry in a hole";
		memset(w->geo[g].left, 0, H_PAGE_SIZE);
		memset(w->geo[g].right, 0, H_PAGE_SIZE);
	}
	if (memcmp(w->machine.memmap, w->pristine, w->memmap_size)) {
		what = "a struct page";
		memcpy(w->machine.memmap, w->pristine, w->memmap_size);
	}
	return what;
}

static const char *flags_text(unsigned long flags, const char *const *names,
			      char *text)
{
	char *p = text;

	*p = 0;
	for (; *names; names++, flags >>= 1)
		if (flags & 1)
			p += sprintf(p, "%s%s", p == text ? "" : "|", *names);
	if (p == text)
		sprintf(p, "0");
	return text;
}

static const char *pte_text(struct judge *j, unsigned long pte, char *text)
{
	static const char *const names[] = {
		"W", "A", "D", "SD", "UFFD", "SPECIAL", "GLOBAL", "NX",
		"NONE", "SAVED", NULL
	};
	static const char *const kinds[] = { "anon", "file", "shmem", "ksm" };
	const struct zoo *zoo = &j->world.zoo;
	long flags = h_base.pte_flags(pte);
	unsigned long pfn;
	char *p = text;

	p += sprintf(p, "%016lx ", pte);
	if (!pte) {
		strcpy(p, "none");
	} else if (flags < 0) {
		strcpy(p, "not present");
	} else if (!frame_of(pte, &pfn)) {
		strcpy(p, "no struct page ");
		flags_text(flags, names, p + strlen(p));
	} else {
		p += sprintf(p, "%s%u+%lu ", kinds[zoo->kind[zoo->head[pfn]]],
			     zoo->order[zoo->head[pfn]], pfn - zoo->head[pfn]);
		flags_text(flags & 0xfff, names, p);
		if (flags >> H_PKEY_SHIFT)
			sprintf(p + strlen(p), " pkey %ld",
				flags >> H_PKEY_SHIFT);
	}
	return text;
}

static void print_result(const char *name, const struct h_result *r)
{
	static const char *const kinds[] = {
		"flush", "batched", "notify-start", "notify-end", "alloc",
		"huge", "split",
	};
	unsigned long i;

	printf("  %-6s returns %ld, flush %#lx-%#lx flags %#lx, calls:", name,
	       r->ret, r->start, r->end, r->flags);
	for (i = 0; i < r->nr_events && i < 8; i++)
		printf(" %s", kinds[r->event[i].kind]);
	printf("\n");
}

void judge_print(struct judge *j, const struct test_case *c)
{
	static const char *const geos[] = {
		"one table", "next pmd", "next pud", "next pgd",
		"empty pmd between", "empty pud between", "empty pgd between",
		"huge pmd between",
	};
	static const char *const vms[] = {
		"READ", "WRITE", "EXEC", "SHARED", "SOFTDIRTY", "UFFD_WP",
		"UFFD_RWP", "PFNMAP", "MIXEDMAP", "ANON", "NOTIFY", "SHSTK",
		NULL
	};
	static const char *const cps[] = {
		"TRY_CHANGE_WRITABLE", "PROT_NUMA", "UFFD_WP",
		"UFFD_WP_RESOLVE", "UFFD_RWP", "UFFD_RWP_RESOLVE", NULL
	};
	static const char *const envs[] = {
		"SINGLE_THREADED", "NUMA_NORMAL", "NUMA_TIERING",
		"WP_UNPOPULATED", "HUGE1", "HUGE2", NULL
	};
	static struct outcome alone;
	const struct outcome *a = &j->base, *b = &j->other;
	char text[256];
	unsigned int i;

	judge_case(j, c);
	printf("  vma %s", flags_text(c->vm & 0xfff, vms, text));
	printf(" pkey %u\n", c->vm >> H_VM_PKEY_SHIFT);
	printf("  cp_flags %s", flags_text(c->cp, cps, text));
	printf(", env %s, tables %s\n", flags_text(c->env & 0x3f, envs, text),
	       geos[c->geometry]);
	print_result("base", &a->result);
	print_result("other", &b->result);
	run_alone(j, c, c->last, &alone);
	for (i = 0; i < c->left + c->right; i++) {
		if (!c->pte[i] && !a->pte[i] && !b->pte[i])
			continue;
		printf("  [%u]%s %#lx\n", i,
		       i < c->first || i >= c->last ? " outside" : "",
		       case_addr(&j->world, c, i));
		printf("    input  %s\n", pte_text(j, c->pte[i], text));
		printf("    base   %s\n", pte_text(j, a->pte[i], text));
		printf("    other  %s%s\n", pte_text(j, b->pte[i], text),
		       a->pte[i] == b->pte[i] ? "" : "   <--");
		if (alone.pte[i] != a->pte[i])
			printf("    (alone %s)\n",
			       pte_text(j, alone.pte[i], text));
	}
	if (!same_elsewhere(a, b, c))
		printf("  and the struct pages, allocated tables, or can_change_pte_writable() of the first entry differ\n");
}

/* Keep the change of the case in *c if it still differs. */
static bool still(struct judge *j, struct test_case *c,
		  const struct test_case *old)
{
	if (!memcmp(c, old, sizeof(*c)))
		return false;
	if (judge_case(j, c) == DIFFERENT)
		return true;
	*c = *old;
	return false;
}

void judge_minimise(struct judge *j, struct test_case *c)
{
	static const unsigned long soft[] = {
		1UL << 5, 1UL << 6, 1UL << 9, 1UL << 10, 1UL << 11,
		1UL << 58, 1UL << 63, 0xfUL << 59,
	};
	struct test_case old;
	bool progress = true;
	unsigned int i, b, nr = c->left + c->right;

	while (progress) {
		progress = false;
#define TRY(change) do {						\
			old = *c;					\
			change;						\
			progress |= still(j, c, &old);			\
		} while (0)
		for (i = 0; i < nr; i++)
			TRY(c->pte[i] = 0);
		if (c->last - c->first > 1) {
			TRY(c->first++);
			if (c->last - c->first > 1)
				TRY(c->last--);
		}
		/* The writable flag is what some cp_flags demand. */
		for (b = 0; b < 16; b++)
			if (!((1U << b) == H_VM_WRITE &&
			      (c->cp & H_CP_TRY_CHANGE_WRITABLE)))
				TRY(c->vm &= ~(1U << b));
		for (b = 0; b < 10; b++)
			TRY(c->env &= ~(1U << b));
		for (b = 0; b < 6; b++)
			TRY(c->cp &= ~(1U << b));
		for (i = 0; i < nr; i++)
			for (b = 0; b < sizeof(soft) / sizeof(soft[0]); b++)
				if (h_base.pte_flags(c->pte[i]) >= 0)
					TRY(c->pte[i] &= ~soft[b]);
#undef TRY
	}
	judge_case(j, c);
}
