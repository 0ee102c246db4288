// SPDX-License-Identifier: GPL-2.0-only
#include <cpuid.h>
#include <err.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"

#define MAX_KERNELS	4
static const struct h_kernel *kernels[MAX_KERNELS];
static int nr_kernels;

/* Name the kernel function that the harness lacks, or just the address. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	char text[256];
	int i, len;

	len = snprintf(text, sizeof(text), "harness: signal %d at address %#lx\n",
		       sig, (unsigned long)addr);
	for (i = 0; i < nr_kernels; i++) {
		const struct h_stub *s = kernels[i]->stubs;

		for (; s->name; s++)
			if (addr - (uintptr_t)s->addr < H_STUB_SIZE)
				len = snprintf(text, sizeof(text),
					       "harness: '%s' is used by the kernel (%s) but not part of the harness; define it in shim.c\n",
					       s->name, kernels[i]->release);
	}
	if (write(STDERR_FILENO, text, len) < 0)
		_exit(4);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void *map(size_t size)
{
	const size_t align = 2 << 20;
	char *p = mmap(NULL, size + align, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		err(1, "cannot map %zu bytes", size);
	p = (char *)(((uintptr_t)p + align - 1) & -align);
	/* The kernel's direct map and memmap have 2 MiB pages, too. */
	madvise(p, size, MADV_HUGEPAGE);
	return p;
}

extern char __executable_start, etext;

void machine_init(struct machine *m, unsigned long size_of_page)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	/* Alternatives get patched. */
	if (mprotect(&__executable_start,
		     (&etext - &__executable_start + H_PAGE_SIZE - 1) &
		     -H_PAGE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC))
		err(1, "cannot make the code writable");
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	m->memmap_size = MACHINE_PAGES * size_of_page;
	m->memmap = map(m->memmap_size);
	m->phys = map(MACHINE_PAGES * H_PAGE_SIZE);
	m->next_table = MACHINE_PGD + 1;
}

int machine_has_shadow_stacks(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1 << 7);
}

void machine_boot(struct machine *m, const struct h_kernel *k)
{
	const struct h_stub *s = k->stubs;
	uintptr_t first = (uintptr_t)s->addr;

	while (s->name)
		s++;
	if (mprotect((void *)first, (uintptr_t)s->addr - first, PROT_NONE))
		err(1, "cannot protect the stubs");
	if (nr_kernels == MAX_KERNELS)
		errx(1, "too many kernels");
	kernels[nr_kernels++] = k;
	k->init(m->phys, m->memmap, MACHINE_PAGES, MACHINE_PGD, 0);
	k->set_cpu(machine_has_shadow_stacks());
	k->make_table(MACHINE_PGD);
	k->set_env(0);
}

unsigned long *machine_table(struct machine *m, unsigned long pfn)
{
	return (unsigned long *)(m->phys + pfn * H_PAGE_SIZE);
}

unsigned long machine_new_table(struct machine *m)
{
	if (m->next_table == MACHINE_PAGES)
		errx(1, "out of page tables");
	kernels[0]->make_table(m->next_table);
	return m->next_table++;
}

unsigned long *machine_entry(struct machine *m, unsigned long addr, int level)
{
	unsigned long pfn = MACHINE_PGD, *entry;
	int i;

	for (i = 3; ; i--) {
		entry = machine_table(m, pfn) +
			(addr >> (12 + 9 * i) & (H_PTRS - 1));
		if (i == level)
			return entry;
		if (!*entry)
			*entry = machine_new_table(m) << 12 | TABLE_FLAGS;
		pfn = *entry >> 12 & ((1UL << 40) - 1);
	}
}
