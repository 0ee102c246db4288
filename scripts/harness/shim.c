// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel side of the harness: compiled with the very command line that
 * compiled mm/mprotect.c, linked with the kernel's objects, it gives them a
 * mm, a vma, a mmu_gather, page frames and the few functions they call.
 *
 * A function defined here wins over the kernel's of the same name; whatever
 * is called and is neither here nor there ends in a named fault, see link.sh.
 */
#include <linux/version.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/ksm.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/userfaultfd_k.h>
#include <linux/sched/sysctl.h>
#include <linux/memory-tiers.h>
#include <linux/huge_mm.h>
#include <linux/utsname.h>
#include <generated/utsrelease.h>
#include <asm/alternative.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>

#include "internal.h"		/* mm/internal.h */

#include HARNESS_H_PATH

/*
 * Variables of the rest of the kernel, under their assembler names: some
 * of them are per-CPU, and with a gs base of 0 that is a plain variable.
 */
#define VAR(type, name, value)						\
	type h_var_##name __asm__(#name) = value

static struct task_struct task;
static struct mm_struct mm;
static struct vm_area_struct vma;
static struct vm_operations_struct vm_ops;
static struct userfaultfd_ctx *uffd = (void *)&vm_ops;	/* only != NULL */
static struct mmu_gather gather;
static struct h_result *result;
static unsigned int env;
static int tables_left;

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
VAR(struct pcpu_hot, pcpu_hot, {});
VAR(struct pcpu_hot, const_pcpu_hot, {});
#else
VAR(unsigned long, __preempt_count, PREEMPT_ENABLED);	/* int in some */
VAR(struct task_struct *, current_task, &task);
VAR(struct task_struct *, const_current_task, &task);
#endif
VAR(int, numa_node, 0);
VAR(unsigned long, this_cpu_off, 0);
VAR(unsigned long, jiffies, 123456789);
VAR(unsigned long, page_offset_base, 0);
VAR(unsigned long, vmemmap_base, 0);
VAR(unsigned long, phys_base, 0);
VAR(unsigned long, zero_pfn, 0);
VAR(unsigned long, zero_page_pfn, 0);
VAR(unsigned long, huge_zero_pfn, ~0UL);
VAR(unsigned long, highest_memmap_pfn, 0);
VAR(pteval_t, __supported_pte_mask, ~0UL);
VAR(pteval_t, __default_kernel_pte_mask, ~0UL);
VAR(unsigned int, pgdir_shift, 39);
VAR(unsigned int, ptrs_per_p4d, 1);
VAR(unsigned int, __pgtable_l5_enabled, 0);
VAR(int, sysctl_numa_balancing_mode, 0);
VAR(struct cpuinfo_x86, boot_cpu_data, {});

static void event(enum h_event_kind kind, unsigned long start,
		  unsigned long end, unsigned long flags)
{
	struct h_event *e;

	if (!result)
		return;
	/* The number still counts when there is no room for the rest. */
	if (result->nr_events < H_MAX_EVENTS) {
		e = &result->event[result->nr_events];
		e->kind = kind;
		e->start = start;
		e->end = end;
		e->flags = flags;
	}
	result->nr_events++;
}

static unsigned long gather_flags(const struct mmu_gather *tlb)
{
	return tlb->fullmm | tlb->need_flush_all << 1 |
		tlb->freed_tables << 2 | tlb->delayed_rmap << 3 |
		tlb->cleared_ptes << 4 | tlb->cleared_pmds << 5 |
		tlb->cleared_puds << 6 | tlb->cleared_p4ds << 7 |
		tlb->vma_exec << 8 | tlb->vma_huge << 9 | tlb->vma_pfn << 10;
}

/* What change_protection() calls; each as cheap as the kernel's usual path. */

void flush_tlb_mm_range(struct mm_struct *m, unsigned long start,
			unsigned long end, unsigned int stride_shift,
			bool freed_tables)
{
	event(H_EVENT_FLUSH, start, end,
	      stride_shift | gather_flags(&gather) << 8);
}

void flush_tlb_batched_pending(struct mm_struct *m)
{
	event(H_EVENT_BATCHED, 0, 0, atomic_read(&m->tlb_flush_batched));
}

#ifdef CONFIG_PREEMPT_RCU
void __rcu_read_lock(void)
{
	WRITE_ONCE(current->rcu_read_lock_nesting,
		   READ_ONCE(current->rcu_read_lock_nesting) + 1);
	barrier();
}

void __rcu_read_unlock(void)
{
	barrier();
	WRITE_ONCE(current->rcu_read_lock_nesting,
		   READ_ONCE(current->rcu_read_lock_nesting) - 1);
}
#endif

#ifdef CONFIG_MMU_NOTIFIER
int __mmu_notifier_invalidate_range_start(struct mmu_notifier_range *range)
{
	event(H_EVENT_NOTIFY_START, range->start, range->end, range->event);
	return 0;
}

void __mmu_notifier_invalidate_range_end(struct mmu_notifier_range *range)
{
	event(H_EVENT_NOTIFY_END, range->start, range->end, range->event);
}
#endif

/*
 * Tables that UFFDIO_WRITEPROTECT populates come from a fixed place, in
 * order, until there are none left: the -ENOMEM path is part of the test.
 */
static unsigned long table_pool_pfn;
static int table_pool_used;

static struct page *table_alloc(unsigned long addr)
{
	event(H_EVENT_PTE_ALLOC, addr, 0, 0);
	if (!tables_left)
		return NULL;
	tables_left--;
	return pfn_to_page(table_pool_pfn + table_pool_used++);
}

int __pte_alloc(struct mm_struct *m, pmd_t *pmd)
{
	struct page *page = table_alloc(0);

	if (!page)
		return -ENOMEM;
	set_pmd(pmd, __pmd(_PAGE_TABLE | page_to_pfn(page) << PAGE_SHIFT));
	return 0;
}

int __pmd_alloc(struct mm_struct *m, pud_t *pud, unsigned long addr)
{
	struct page *page = table_alloc(addr);

	if (!page)
		return -ENOMEM;
	set_pud(pud, __pud(_PAGE_TABLE | page_to_pfn(page) << PAGE_SHIFT));
	return 0;
}

int __pud_alloc(struct mm_struct *m, p4d_t *p4d, unsigned long addr)
{
	struct page *page = table_alloc(addr);

	if (!page)
		return -ENOMEM;
	set_p4d(p4d, __p4d(_PAGE_TABLE | page_to_pfn(page) << PAGE_SHIFT));
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
/* Of a huge PMD only what change_pmd_range() makes of the answers. */
int change_huge_pmd(struct mmu_gather *tlb, struct vm_area_struct *v,
		    pmd_t *pmd, unsigned long addr, pgprot_t newprot,
		    unsigned long cp_flags)
{
	event(H_EVENT_HUGE, addr, pgprot_val(newprot), cp_flags);
	switch (env >> H_ENV_HUGE_SHIFT & 3) {
	case 0:
		/* It is not huge any more: somebody has split it. */
		__split_huge_pmd(v, pmd, addr, false);
		return 0;
	case 1:
		return 1;
	default:
		return HPAGE_PMD_NR;
	}
}

void __split_huge_pmd(struct vm_area_struct *v, pmd_t *pmd,
		      unsigned long addr, bool freeze)
{
	event(H_EVENT_SPLIT, addr, freeze, 0);
	/* A file's is only unmapped. */
	set_pmd(pmd, __pmd(0));
	if (vma_is_anonymous(v) && tables_left)
		__pte_alloc(v->vm_mm, pmd);
}
#endif

/* Node 1 is slow memory. */
bool node_is_toptier(int node)
{
	return node == 0;
}

bool folio_use_access_time(struct folio *folio)
{
	return (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING) &&
		!node_is_toptier(folio_nid(folio));
}

bool userfaultfd_wp_unpopulated(struct vm_area_struct *v)
{
	return env & H_ENV_WP_UNPOPULATED;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
int __SCT__might_resched(void);
int __SCT__cond_resched(void);
int __SCT__might_resched(void) { return 0; }
int __SCT__cond_resched(void) { return 0; }
#endif
int h_cond_resched(void) __asm__("__cond_resched");
int h_cond_resched(void)
{
	return 0;
}

/* Building blocks for the user-space side. */

static void h_init(void *phys, void *memmap, unsigned long nr_pages,
		   unsigned long pgd, unsigned long zero_page)
{
	h_var_page_offset_base = (unsigned long)phys;
	h_var_vmemmap_base = (unsigned long)memmap;
	h_var_highest_memmap_pfn = nr_pages - 1;
	h_var_zero_pfn = zero_page;
	h_var_zero_page_pfn = zero_page;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
	h_var_pcpu_hot.current_task = &task;
	h_var_pcpu_hot.preempt_count = PREEMPT_ENABLED;
	h_var_const_pcpu_hot = h_var_pcpu_hot;
#endif
	mm.pgd = phys + (pgd << PAGE_SHIFT);
	task.mm = &mm;
	/* A set of notifiers, so that the calls are made. */
#ifdef CONFIG_MMU_NOTIFIER
	mm.notifier_subscriptions = (void *)&vm_ops;
#endif
}

extern struct alt_instr h_alternatives[], h_alternatives_end[];

static void h_set_cpu(int shadow_stacks)
{
	static u8 original[1024][16];
	static bool saved;
	struct alt_instr *a;
	s32 *distance;
	u8 *instr;
	int i;

	/* The first entry of an instruction has what there was at first. */
	for (a = h_alternatives, i = 0; a < h_alternatives_end; a++, i++) {
		instr = (u8 *)&a->instr_offset + a->instr_offset;
		if (i == ARRAY_SIZE(original) || a->instrlen > 16)
			break;
		if (saved)
			memcpy(instr, original[i], a->instrlen);
		else
			memcpy(original[i], instr, a->instrlen);
	}
	saved = true;

	for (a = h_alternatives; a < h_alternatives_end; a++) {
		instr = (u8 *)&a->instr_offset + a->instr_offset;
		if (a->flags)
			continue;
		switch (a->cpuid) {
		case X86_FEATURE_ALWAYS:
			break;
		case X86_FEATURE_SHSTK:
		case X86_FEATURE_USER_SHSTK:
			if (shadow_stacks)
				break;
			continue;
		default:
			continue;
		}
		memset(instr, 0x90, a->instrlen);
		/* One NOP of five bytes, as the kernel has it. */
		if (!a->replacementlen && a->instrlen == 5)
			memcpy(instr, "\x0f\x1f\x44\x00\x00", 5);
		memcpy(instr, (u8 *)&a->repl_offset + a->repl_offset,
		       a->replacementlen);
		/* jmp rel32 */
		if (a->replacementlen == 5 && *instr == 0xe9) {
			distance = (s32 *)(instr + 1);
			*distance += (u8 *)&a->repl_offset + a->repl_offset -
				instr;
		}
	}
}

static void h_make_table(unsigned long pfn)
{
	memset(pfn_to_page(pfn), 0, sizeof(struct page));
}

static void h_set_pool(unsigned long pfn)
{
	table_pool_pfn = pfn;
}

static void h_make_folio(unsigned long pfn, unsigned int order,
			 enum h_folio kind, unsigned int flags)
{
	struct page *page = pfn_to_page(pfn);
	struct folio *folio = (struct folio *)page;
	unsigned int zone = flags & H_FOLIO_DEVICE ? ZONE_DEVICE : ZONE_NORMAL;
	unsigned int nid = flags & H_FOLIO_NODE1 ? 1 : 0;
	unsigned long i, nr = 1UL << order;

	memset(page, 0, nr * sizeof(*page));
	for (i = 0; i < nr; i++) {
		set_page_links(page + i, zone, nid, pfn + i);
		atomic_set(&page[i]._mapcount, 0);
	}
	set_page_count(page, nr + 1);
	if (order) {
		__SetPageHead(page);
		for (i = 1; i < nr; i++) {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
			set_compound_head(page + i, page, order);
#else
			set_compound_head(page + i, page);
#endif
		}
		folio_set_order(folio, order);
		atomic_set(&folio->_large_mapcount, nr - 1);
		atomic_set(&folio->_entire_mapcount, -1);
		if (order > 1)
			atomic_set(&folio->_pincount,
				   !!(flags & H_FOLIO_PINNED));
	} else if (flags & H_FOLIO_MAPPED_SHARED) {
		atomic_set(&page->_mapcount, 1);
	}
#ifdef CONFIG_MM_ID
	if (order && (flags & H_FOLIO_MAPPED_SHARED))
		__set_bit(FOLIO_MM_IDS_SHARED_BITNUM, &folio->_mm_ids);
#endif
	if (order < 2 && (flags & H_FOLIO_PINNED))
		set_page_count(page, GUP_PIN_COUNTING_BIAS);
	__set_bit(PG_uptodate, (unsigned long *)&folio->flags);
	if (flags & H_FOLIO_DIRTY)
		__set_bit(PG_dirty, (unsigned long *)&folio->flags);
	/* Any object serves as mapping; its low bits must be clear. */
	folio->mapping = (void *)&vm_ops;
	switch (kind) {
	case H_FOLIO_KSM:
		folio->mapping = (void *)&vm_ops + 3;	/* ANON and KSM */
		folio_set_swapbacked(folio);
		break;
	case H_FOLIO_ANON:
		folio->mapping = (void *)&vm_ops + 1;
		fallthrough;
	case H_FOLIO_SHMEM:
		folio_set_swapbacked(folio);
		break;
	default:
		break;
	}
#ifdef CONFIG_NUMA_BALANCING
	folio_xchg_last_cpupid(folio, flags >> H_FOLIO_TIME_SHIFT & 0xff);
#endif
}

static void h_set_anon_exclusive(unsigned long pfn, int exclusive)
{
	/* The bit itself: the accessors want to know more of the folio. */
	unsigned long *flags = (unsigned long *)&pfn_to_page(pfn)->flags;

	if (exclusive)
		__set_bit(PG_anon_exclusive, flags);
	else
		__clear_bit(PG_anon_exclusive, flags);
}

#ifndef _PAGE_UFFD
#define _PAGE_UFFD		_PAGE_UFFD_WP
#define pte_swp_mkuffd		pte_swp_mkuffd_wp
#endif

static const struct {
	unsigned int flag;
	pteval_t bit;
} pte_bits[] = {
	{ H_WRITE,		_PAGE_RW },
	{ H_YOUNG,		_PAGE_ACCESSED },
	{ H_DIRTY,		_PAGE_DIRTY },
	{ H_SAVED_DIRTY,	_PAGE_SAVED_DIRTY },
	{ H_SOFT_DIRTY,		_PAGE_SOFT_DIRTY },
	{ H_UFFD,		_PAGE_UFFD },
	{ H_SPECIAL,		_PAGE_SPECIAL },
	{ H_NX,			_PAGE_NX },
};

static unsigned long h_make_pte(unsigned long pfn, unsigned int flags)
{
	pteval_t val = flags & H_PROTNONE ? 0 : _PAGE_PRESENT | _PAGE_USER;
	int i;

	for (i = 0; i < ARRAY_SIZE(pte_bits); i++)
		if (flags & pte_bits[i].flag)
			val |= pte_bits[i].bit;
	/* In an entry that is not present, global means PROT_NONE. */
	if (flags & (H_GLOBAL | H_PROTNONE))
		val |= _PAGE_GLOBAL;
	val |= (pteval_t)(flags >> H_PKEY_SHIFT & 0xf) << _PAGE_BIT_PKEY_BIT0;
	/*
	 * Through pfn_pte(), which inverts the frame where L1TF needs it, but
	 * which warns of a shadow stack's entry: dirty and not writable.
	 */
	return pte_val(pfn_pte(pfn, __pgprot(val & ~_PAGE_DIRTY))) |
		(val & _PAGE_DIRTY);
}

static long h_pte_flags(unsigned long val)
{
	pte_t pte = __pte(val);
	long flags = 0;
	int i;

	if (!pte_present(pte))
		return -1;
	for (i = 0; i < ARRAY_SIZE(pte_bits); i++)
		if (val & pte_bits[i].bit)
			flags |= pte_bits[i].flag;
	if (pte_protnone(pte))
		flags |= H_PROTNONE;
	else if (val & _PAGE_GLOBAL)
		flags |= H_GLOBAL;
	flags |= (val >> _PAGE_BIT_PKEY_BIT0 & 0xf) << H_PKEY_SHIFT;
	return flags;
}

static unsigned long h_make_leaf(enum h_leaf kind, unsigned long offset,
				 unsigned int flags)
{
	swp_entry_t entry;
	pte_t pte;

	if (kind >= H_LEAF_MIGRATION_READ && kind <= H_LEAF_MIGRATION_WRITE) {
		offset |= flags & H_LEAF_YOUNG ? SWP_MIG_YOUNG : 0;
		offset |= flags & H_LEAF_DIRTY ? SWP_MIG_DIRTY : 0;
	}
	switch (kind) {
	default:
	case H_LEAF_SWAP:
		entry = swp_entry(offset & 1, offset);
		break;
	case H_LEAF_MIGRATION_READ:
		entry = make_readable_migration_entry(offset);
		break;
	case H_LEAF_MIGRATION_READ_EXCLUSIVE:
		entry = make_readable_exclusive_migration_entry(offset);
		break;
	case H_LEAF_MIGRATION_WRITE:
		entry = make_writable_migration_entry(offset);
		break;
	case H_LEAF_DEVICE_PRIVATE_READ:
		entry = make_readable_device_private_entry(offset);
		break;
	case H_LEAF_DEVICE_PRIVATE_WRITE:
		entry = make_writable_device_private_entry(offset);
		break;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
	case H_LEAF_DEVICE_EXCLUSIVE:
		entry = make_device_exclusive_entry(offset);
		break;
#endif
#ifdef CONFIG_MEMORY_FAILURE
	case H_LEAF_HWPOISON:
		entry = swp_entry(SWP_HWPOISON, offset);
		break;
#endif
	case H_LEAF_MARKER_UFFD_WP:
		return pte_val(make_pte_marker(PTE_MARKER_UFFD_WP));
	case H_LEAF_MARKER_POISON:
		return pte_val(make_pte_marker(PTE_MARKER_POISONED));
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	case H_LEAF_MARKER_GUARD:
		return pte_val(make_pte_marker(PTE_MARKER_GUARD));
#endif
	}
	pte = swp_entry_to_pte(entry);
	if (flags & H_LEAF_SOFT_DIRTY)
		pte = pte_swp_mksoft_dirty(pte);
	if (flags & H_LEAF_UFFD)
		pte = pte_swp_mkuffd(pte);
	if (flags & H_LEAF_EXCLUSIVE)
		pte = pte_swp_mkexclusive(pte);
	return pte_val(pte);
}

static void h_set_vma(unsigned long start, unsigned long end,
		      unsigned long pgoff, unsigned int flags)
{
	vm_flags_t f = VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC, prot;

	f |= flags & H_VM_READ ? VM_READ : 0;
	f |= flags & H_VM_WRITE ? VM_WRITE : 0;
	f |= flags & H_VM_EXEC ? VM_EXEC : 0;
	f |= flags & H_VM_SHARED ? VM_SHARED | VM_MAYSHARE : 0;
	f |= flags & H_VM_SOFTDIRTY ? VM_SOFTDIRTY : 0;
	f |= flags & H_VM_UFFD_WP ? VM_UFFD_WP : 0;
#ifdef VM_UFFD_RWP
	f |= flags & H_VM_UFFD_RWP ? VM_UFFD_RWP : 0;
#endif
	f |= flags & H_VM_PFNMAP ? VM_PFNMAP : 0;
	f |= flags & H_VM_MIXEDMAP ? VM_MIXEDMAP : 0;
	f |= flags & H_VM_SHSTK ? VM_SHADOW_STACK : 0;
	f |= (vm_flags_t)(flags >> H_VM_PKEY_SHIFT & 0xf) << VM_PKEY_SHIFT;

	vma.vm_mm = &mm;
	vma.vm_start = start;
	vma.vm_end = end;
	vma.vm_pgoff = pgoff;
	vma.vm_ops = flags & H_VM_ANON ? NULL : &vm_ops;
	vma.vm_userfaultfd_ctx.ctx =
		flags & (H_VM_UFFD_WP | H_VM_UFFD_RWP) ? uffd : NULL;
	vm_flags_init(&vma, f);
	prot = flags & H_VM_NOTIFY ? f & ~VM_SHARED : f;
	vma.vm_page_prot = vm_get_page_prot(prot);
}

static void h_set_env(unsigned int flags)
{
	env = flags;
	atomic_set(&mm.mm_users, flags & H_ENV_SINGLE_THREADED ? 1 : 2);
	h_var_sysctl_numa_balancing_mode =
		(flags & H_ENV_NUMA_NORMAL ? NUMA_BALANCING_NORMAL : 0) |
		(flags & H_ENV_NUMA_TIERING ? NUMA_BALANCING_MEMORY_TIERING : 0);
	tables_left = flags >> H_ENV_TABLES_SHIFT & 0xff;
	table_pool_used = 0;
}

static long h_change(unsigned long start, unsigned long end,
		     unsigned int flags, struct h_result *res)
{
	unsigned long cp = 0;

	cp |= flags & H_CP_TRY_CHANGE_WRITABLE ? MM_CP_TRY_CHANGE_WRITABLE : 0;
	cp |= flags & H_CP_PROT_NUMA ? MM_CP_PROT_NUMA : 0;
	cp |= flags & H_CP_UFFD_WP ? MM_CP_UFFD_WP : 0;
	cp |= flags & H_CP_UFFD_WP_RESOLVE ? MM_CP_UFFD_WP_RESOLVE : 0;
#ifdef MM_CP_UFFD_RWP
	cp |= flags & H_CP_UFFD_RWP ? MM_CP_UFFD_RWP : 0;
	cp |= flags & H_CP_UFFD_RWP_RESOLVE ? MM_CP_UFFD_RWP_RESOLVE : 0;
#endif
	/* As tlb_gather_mmu() leaves it. */
	gather.mm = &mm;
	gather.fullmm = gather.need_flush_all = 0;
	gather.freed_tables = gather.delayed_rmap = 0;
	gather.vma_exec = gather.vma_huge = gather.vma_pfn = 0;
	__tlb_reset_range(&gather);

	result = res;
	if (!res)
		return change_protection(&gather, &vma, start, end, cp);

	res->nr_events = 0;
	res->ret = change_protection(&gather, &vma, start, end, cp);
	res->start = gather.start;
	res->end = gather.end;
	res->flags = gather_flags(&gather);
	return res->ret;
}

static int h_can_change_writable(unsigned long addr, unsigned long pte)
{
	return can_change_pte_writable(&vma, addr, __pte(pte));
}

extern const struct h_stub h_stubs[];

const struct h_kernel h_kernel = {
	.release = UTS_RELEASE,
	.stubs = h_stubs,
	.size_of_page = sizeof(struct page),
	.init = h_init,
	.set_cpu = h_set_cpu,
	.make_table = h_make_table,
	.set_pool = h_set_pool,
	.make_folio = h_make_folio,
	.set_anon_exclusive = h_set_anon_exclusive,
	.make_pte = h_make_pte,
	.pte_flags = h_pte_flags,
	.make_leaf = h_make_leaf,
	.set_vma = h_set_vma,
	.set_env = h_set_env,
	.change = h_change,
	.can_change_writable = h_can_change_writable,
};
