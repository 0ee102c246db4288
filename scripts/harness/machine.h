/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MACHINE_H
#define MACHINE_H

#include "harness.h"

/*
 * A pretended machine: page frames, their struct pages, x86-64 page tables.
 * Page frames 0 .. MACHINE_TABLES - 1 have no memory, nobody reads it;
 * those from there on are page tables.
 */
#define MACHINE_PAGES	(1UL << 18)
#define MACHINE_TABLES	(MACHINE_PAGES - 1024)
#define MACHINE_PGD	MACHINE_TABLES

struct machine {
	char *phys;
	char *memmap;
	unsigned long memmap_size;
	unsigned long next_table;
};

/* Bits of an entry that points to a table: present, write, user, A, D. */
#define TABLE_FLAGS	0x67UL

void machine_init(struct machine *m, unsigned long size_of_page);
int machine_has_shadow_stacks(void);	/* this CPU */
/* Let a kernel run on it. */
void machine_boot(struct machine *m, const struct h_kernel *k);
unsigned long machine_new_table(struct machine *m);
unsigned long *machine_table(struct machine *m, unsigned long pfn);
/* The entry of addr at a level (0: PTE .. 3: PGD), with the tables above. */
unsigned long *machine_entry(struct machine *m, unsigned long addr, int level);

#endif
