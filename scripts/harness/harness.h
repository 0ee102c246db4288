/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel side (shim.c, compiled by the flags of mm/mprotect.o) and
 * the user-space side (everything else here) know of each other. No kernel
 * type crosses this line, so one user-space program serves every kernel.
 */
#ifndef HARNESS_H
#define HARNESS_H

#define H_PAGE_SIZE	4096UL
#define H_PTRS		512UL		/* entries in a page table */

/* Bits of a present entry, see h_kernel::make_pte(). */
#define H_WRITE		0x001u
#define H_YOUNG		0x002u
#define H_DIRTY		0x004u
#define H_SOFT_DIRTY	0x008u
#define H_UFFD		0x010u
#define H_SPECIAL	0x020u
#define H_GLOBAL	0x040u
#define H_NX		0x080u
#define H_PROTNONE	0x100u
#define H_SAVED_DIRTY	0x200u	/* dirty in software only */
#define H_PKEY_SHIFT	12	/* four bits */

/* Entries that are not present, see h_kernel::make_leaf(). */
enum h_leaf {
	H_LEAF_SWAP,
	H_LEAF_MIGRATION_READ,
	H_LEAF_MIGRATION_READ_EXCLUSIVE,
	H_LEAF_MIGRATION_WRITE,
	H_LEAF_DEVICE_PRIVATE_READ,
	H_LEAF_DEVICE_PRIVATE_WRITE,
	H_LEAF_DEVICE_EXCLUSIVE,
	H_LEAF_HWPOISON,
	H_LEAF_MARKER_UFFD_WP,
	H_LEAF_MARKER_POISON,
	H_LEAF_MARKER_GUARD,
	H_NR_LEAFS
};

/* Its flags. */
#define H_LEAF_SOFT_DIRTY	0x01u
#define H_LEAF_UFFD		0x02u
#define H_LEAF_EXCLUSIVE	0x04u
#define H_LEAF_YOUNG		0x08u	/* of migration entries */
#define H_LEAF_DIRTY		0x10u

/* What a folio is, see h_kernel::make_folio(). */
enum h_folio {
	H_FOLIO_ANON,
	H_FOLIO_FILE,
	H_FOLIO_SHMEM,
	H_FOLIO_KSM,
	H_NR_FOLIOS
};
/* State of the folio as a whole, ORed into make_folio()'s flags. */
#define H_FOLIO_DIRTY		0x1u
#define H_FOLIO_MAPPED_SHARED	0x2u
#define H_FOLIO_PINNED		0x4u
#define H_FOLIO_NODE1		0x8u
#define H_FOLIO_DEVICE		0x10u	/* ZONE_DEVICE */
#define H_FOLIO_TIME_SHIFT	8	/* 8 bits into last_cpupid */

/* Flags of a vma, for h_kernel::set_vma(). */
#define H_VM_READ	0x001u
#define H_VM_WRITE	0x002u
#define H_VM_EXEC	0x004u
#define H_VM_SHARED	0x008u
#define H_VM_SOFTDIRTY	0x010u
#define H_VM_UFFD_WP	0x020u
#define H_VM_UFFD_RWP	0x040u
#define H_VM_PFNMAP	0x080u
#define H_VM_MIXEDMAP	0x100u
#define H_VM_ANON	0x200u	/* no vm_ops */
#define H_VM_NOTIFY	0x400u	/* page_prot as vma_set_page_prot() has it */
				/* when vma_wants_writenotify() */
#define H_VM_SHSTK	0x800u
#define H_VM_PKEY_SHIFT	12	/* four bits */

#define H_CP_TRY_CHANGE_WRITABLE	0x01u
#define H_CP_PROT_NUMA			0x02u
#define H_CP_UFFD_WP			0x04u
#define H_CP_UFFD_WP_RESOLVE		0x08u
#define H_CP_UFFD_RWP			0x10u
#define H_CP_UFFD_RWP_RESOLVE		0x20u

/* State around the call, for h_kernel::set_env(). */
#define H_ENV_SINGLE_THREADED	0x1u	/* mm_users is 1 */
#define H_ENV_NUMA_NORMAL	0x2u	/* sysctl numa_balancing */
#define H_ENV_NUMA_TIERING	0x4u
#define H_ENV_WP_UNPOPULATED	0x8u	/* the vma's userfaultfd has it */
#define H_ENV_HUGE_SHIFT	4	/* 2 bits: what change_huge_pmd() says */
#define H_ENV_TABLES_SHIFT	8	/* 8 bits: page tables left to allocate */

#define H_MAX_EVENTS	64

/* A call out of change_protection() that the rest of the kernel would see. */
enum h_event_kind {
	H_EVENT_FLUSH,		/* flush_tlb_mm_range() */
	H_EVENT_BATCHED,	/* flush_tlb_batched_pending() */
	H_EVENT_NOTIFY_START,
	H_EVENT_NOTIFY_END,
	H_EVENT_PTE_ALLOC,
	H_EVENT_HUGE,		/* change_huge_pmd() */
	H_EVENT_SPLIT,		/* __split_huge_pmd() */
};

struct h_event {
	unsigned long kind;
	unsigned long start;
	unsigned long end;
	unsigned long flags;	/* stride shift, bits of the mmu_gather */
};

struct h_result {
	long ret;
	unsigned long nr_events;
	struct h_event event[H_MAX_EVENTS];
	/* The mmu_gather as it was left. */
	unsigned long start;
	unsigned long end;
	unsigned long flags;
};

/* What the kernel's objects name and the harness does not have. */
struct h_stub {
	void *addr;
	const char *name;
};
#define H_STUB_SIZE	256UL

struct h_kernel {
	const char *release;
	const struct h_stub *stubs;	/* by address, the last has no name */
	unsigned long size_of_page;	/* sizeof(struct page) */

	/*
	 * Page frame 0 is at phys, its struct page at memmap; nr_pages of
	 * both. pgd is the page frame of the top page table.
	 */
	void (*init)(void *phys, void *memmap, unsigned long nr_pages,
		     unsigned long pgd, unsigned long zero_page);
	/*
	 * Patch the alternatives as at boot on a CPU with shadow stacks, or
	 * without; no other optional feature. Again for the other kind.
	 */
	void (*set_cpu)(int shadow_stacks);
	/* Frame pfn becomes a page table: its struct page holds the lock. */
	void (*make_table)(unsigned long pfn);
	/* Where tables come from that change_protection() allocates. */
	void (*set_pool)(unsigned long pfn);
	void (*make_folio)(unsigned long pfn, unsigned int order,
			   enum h_folio kind, unsigned int flags);
	void (*set_anon_exclusive)(unsigned long pfn, int exclusive);

	unsigned long (*make_pte)(unsigned long pfn, unsigned int flags);
	/* The flags that make_pte() takes; -1 if the entry is not present. */
	long (*pte_flags)(unsigned long pte);
	unsigned long (*make_leaf)(enum h_leaf kind, unsigned long offset,
				   unsigned int flags);

	void (*set_vma)(unsigned long start, unsigned long end,
			unsigned long pgoff, unsigned int flags);
	void (*set_env)(unsigned int flags);
	/* One call; events and the gather go to res unless it is NULL. */
	long (*change)(unsigned long start, unsigned long end,
		       unsigned int cp_flags, struct h_result *res);
	/* can_change_pte_writable(), which others call as well. */
	int (*can_change_writable)(unsigned long addr, unsigned long pte);
};

extern const struct h_kernel h_kernel;

#endif
