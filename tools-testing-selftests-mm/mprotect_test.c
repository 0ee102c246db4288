// SPDX-License-Identifier: GPL-2.0
/*
 * What mprotect(2) must do, and must leave alone, in each PTE that it changes:
 *
 * - accesses fault while the protection forbids them, and not afterwards;
 * - what is shared stays copy-on-write, what is pinned stays in place;
 * - write faults that somebody waits for (file systems, soft-dirty tracking,
 *   userfaultfd, copy-on-write) still happen once memory is writable again,
 *   others do not;
 * - accessed, dirty, soft-dirty and userfaultfd bits, protection keys, guard
 *   regions, swap and migration entries are not lost, nor passed on.
 *
 * Pages next to each other are in different states where possible: none may be
 * treated like its neighbour.
 *
 * Files are created in the directory that MPROTECT_TEST_DIR names, by default
 * the current one; it should be on a disk.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "vm_util.h"
#include "hugepage_settings.h"
#include "../../../../mm/gup_test.h"

#define NR_PAGES	64
#define PMD_ORDER	(-1)
#define MAX_PMD_SIZE	(32UL << 20)
#define RW		(PROT_READ | PROT_WRITE)

#define THP_ENABLED	"/sys/kernel/mm/transparent_hugepage/enabled"
#define KSM_RUN		"/sys/kernel/mm/ksm/run"
#define NUMA_BALANCING	"/proc/sys/kernel/numa_balancing"
#define NUMA_DEBUGFS	"/sys/kernel/debug/sched/numa_balancing/"
#define PAGE_IDLE	"/sys/kernel/mm/page_idle/bitmap"

enum backing {
	ANON,		/* shared anonymous memory is shmem */
	MEMFD,
	TMPFS,
	DISK,
	DEV_MEM,
};

enum state {
	WRITTEN,
	READ,		/* the zero page, or the page cache */
	MERGED,		/* by KSM */
	SWAPPED,
	FORKED,		/* a child maps the same pages */
	MOVED,		/* large folios: not aligned in address space */
	PARTIAL,	/* large folios: not mapped whole */
};

/* A kind of mapping. Large folios are mapped by PTEs, whatever their order. */
struct kind {
	enum backing backing;
	bool shared;
	enum state state;
	int order;
};

struct area {
	const struct kind *kind;
	char *addr;
	unsigned int pages;
	unsigned int *want;	/* the first word of each page */
	bool *hit;		/* pages for which something was observed */
	int prot;		/* all that it can have */
	int fd;
	int pagemap_fd;
	pid_t child;
};

static size_t pmd_size;
static bool thp_writable;

static sigjmp_buf fault_env;
static int fault_code;

/* Accesses to the memory under test must stay where they are written. */
static inline void barrier(void)
{
	__asm__ __volatile__("" : : : "memory");
}

static void fault_handler(int sig, siginfo_t *info, void *ucontext)
{
	fault_code = info->si_code;
	siglongjmp(fault_env, sig);
}

static void catch_faults(void)
{
	struct sigaction sa = {
		.sa_sigaction = fault_handler,
		.sa_flags = SA_SIGINFO | SA_NODEFER,
	};

	if (sigaction(SIGSEGV, &sa, NULL) || sigaction(SIGBUS, &sa, NULL))
		ksft_exit_fail_perror("sigaction");
}

/*
 * Sets of pages. Those of a folio are never all in the same one, and a run of
 * pages that are alike neither starts nor ends with a folio.
 */
static bool odd(unsigned int page)
{
	return page % 3 == 1;
}

static bool not_odd(unsigned int page)
{
	return !odd(page);
}

static bool third(unsigned int page)
{
	return page % 3 == 2;
}

static bool all(unsigned int page)
{
	return true;
}

static bool none(unsigned int page)
{
	return false;
}

static size_t bytes(const struct area *a)
{
	return (size_t)a->pages * psize();
}

static char *page_addr(const struct area *a, unsigned int page)
{
	return a->addr + (size_t)page * psize();
}

static unsigned int *word(const struct area *a, unsigned int page)
{
	return (unsigned int *)page_addr(a, page);
}

/* Return the signal that the access raises, else 0. */
static int try_read(const struct area *a, unsigned int page)
{
	int sig = sigsetjmp(fault_env, 0);

	if (!sig)
		FORCE_READ(*word(a, page));
	return sig;
}

static int try_write(struct area *a, unsigned int page)
{
	const unsigned int val = a->want[page] + 1;
	int sig = sigsetjmp(fault_env, 0);

	if (!sig) {
		*word(a, page) = val;
		barrier();
		a->want[page] = val;
	}
	return sig;
}

/* Does reading, or writing, raise the signal for exactly these pages? */
static bool reads_raise(const struct area *a, bool (*which)(unsigned int),
			int expected)
{
	for (unsigned int i = 0; i < a->pages; i++) {
		int sig = try_read(a, i);

		if (sig == (which(i) ? expected : 0))
			continue;
		ksft_print_msg("reading page %u: signal %d\n", i, sig);
		return false;
	}
	return true;
}

static bool writes_raise(struct area *a, bool (*which)(unsigned int),
			 int expected)
{
	for (unsigned int i = 0; i < a->pages; i++) {
		int sig = try_write(a, i);

		if (sig == (which(i) ? expected : 0))
			continue;
		ksft_print_msg("writing to page %u: signal %d\n", i, sig);
		return false;
	}
	return true;
}

static void write_page(struct area *a, unsigned int page)
{
	*word(a, page) = ++a->want[page];
	barrier();
}

static void write_pages(struct area *a, bool (*which)(unsigned int))
{
	for (unsigned int i = 0; i < a->pages; i++)
		if (which(i))
			write_page(a, i);
}

static bool data_ok(const struct area *a, unsigned int page)
{
	const unsigned int val = FORCE_READ(*word(a, page));

	/* /dev/mem is somebody else's memory. */
	if (val == a->want[page] || a->kind->backing == DEV_MEM)
		return true;
	ksft_print_msg("page %u has %x, not %x\n", page, val, a->want[page]);
	return false;
}

static bool data_ok_of(const struct area *a, bool (*which)(unsigned int))
{
	for (unsigned int i = 0; i < a->pages; i++)
		if (which(i) && !data_ok(a, i))
			return false;
	return true;
}

static bool all_data_ok(const struct area *a)
{
	return data_ok_of(a, all);
}

static bool access_ok(struct area *a, unsigned int page, int prot)
{
	const int read_sig = prot & PROT_READ ? 0 : SIGSEGV;
	const int write_sig = prot & PROT_WRITE ? 0 : SIGSEGV;
	int sig;

	sig = try_read(a, page);
	if (sig != read_sig || (sig && fault_code != SEGV_ACCERR)) {
		ksft_print_msg("page %u: reading with protection %d: signal %d, code %d\n",
			       page, prot, sig, sig ? fault_code : 0);
		return false;
	}
	if (!sig && !data_ok(a, page))
		return false;
	sig = try_write(a, page);
	if (sig != write_sig || (sig && fault_code != SEGV_ACCERR)) {
		ksft_print_msg("page %u: writing with protection %d: signal %d, code %d\n",
			       page, prot, sig, sig ? fault_code : 0);
		return false;
	}
	return sig || data_ok(a, page);
}

/* Signals take their time: with many pages, only a sample of them. */
static bool all_access_ok(struct area *a, int prot)
{
	/* Odd, so that every position within a large folio has its turn. */
	const unsigned int step = (a->pages / NR_PAGES) | 1;

	for (unsigned int i = 0; i < a->pages; i += step)
		if (!access_ok(a, i, prot))
			return false;
	return access_ok(a, a->pages - 1, prot);
}

static void protect_pages(const struct area *a, unsigned int page,
			  unsigned int nr, int prot)
{
	if (mprotect(page_addr(a, page), (size_t)nr * psize(), prot))
		ksft_exit_fail_perror("mprotect");
}

static void protect(const struct area *a, int prot)
{
	protect_pages(a, 0, a->pages, prot);
}

static void advise(const struct area *a, bool (*which)(unsigned int), int advice)
{
	for (unsigned int i = 0; i < a->pages; i++)
		if (which(i) && madvise(page_addr(a, i), psize(), advice))
			ksft_exit_fail_perror("madvise");
}

static void toggle(const struct area *a)
{
	protect(a, PROT_READ);
	protect(a, a->prot);
	protect(a, PROT_NONE);
	protect(a, a->prot);
}

static const struct rusage *own_usage(void)
{
	static struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		ksft_exit_fail_perror("getrusage");
	return &usage;
}

static long nr_faults(void)
{
	const struct rusage *usage = own_usage();

	return usage->ru_minflt + usage->ru_majflt;
}

static bool write_faults(struct area *a, unsigned int page)
{
	const unsigned int val = a->want[page] + 1;
	long before = nr_faults();

	*word(a, page) = val;
	barrier();
	before -= nr_faults();
	a->want[page] = val;
	return before;
}

/* Write to the pages, and note in a->hit which of them faulted for that. */
static void count_write_faults(struct area *a, bool (*which)(unsigned int))
{
	unsigned int dummy_page, dummy_want = 0;
	struct area dummy = {
		.addr = (char *)&dummy_page,
		.want = &dummy_want,
	};
	long switched;

	memset(a->hit, 0, a->pages);
	/*
	 * Stack, code and data of our own must not fault in between. Neither
	 * must the rseq area, which the kernel writes to after a context switch,
	 * and not every sleep is one.
	 */
	switched = own_usage()->ru_nvcsw;
	while (own_usage()->ru_nvcsw == switched)
		usleep(1);
	write_faults(&dummy, 0);
	write_faults(&dummy, 0);
	for (unsigned int i = 0; i < a->pages; i++)
		if (which(i))
			a->hit[i] = write_faults(a, i);
}

static unsigned int nr_hit(const struct area *a)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < a->pages; i++)
		nr += a->hit[i];
	return nr;
}

static bool hit_exactly(const struct area *a, bool (*which)(unsigned int))
{
	for (unsigned int i = 0; i < a->pages; i++) {
		if (a->hit[i] == which(i))
			continue;
		ksft_print_msg("writing to page %u: %s\n", i,
			       a->hit[i] ? "a fault" : "no fault");
		return false;
	}
	return true;
}

static uint64_t entry(const struct area *a, unsigned int page)
{
	return pagemap_get_entry(a->pagemap_fd, page_addr(a, page));
}

/* Has pagemap the bit set for exactly these pages? */
static bool have_bit(const struct area *a, bool (*which)(unsigned int),
		     uint64_t bit)
{
	for (unsigned int i = 0; i < a->pages; i++) {
		if (!(entry(a, i) & bit) == !which(i))
			continue;
		ksft_print_msg("page %u: %llx in pagemap\n", i,
			       (unsigned long long)entry(a, i));
		return false;
	}
	return true;
}

/* Has pagemap the bit set for these pages, at least? */
static bool have_all_bit(const struct area *a, bool (*which)(unsigned int),
			 uint64_t bit)
{
	for (unsigned int i = 0; i < a->pages; i++)
		if (which(i) && !(entry(a, i) & bit))
			return false;
	return true;
}

/* What PAGEMAP_SCAN has to say about a page; -1 if nothing can be said. */
static long categories(const struct area *a, unsigned int page)
{
	struct page_region region = {};
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.start = (uintptr_t)page_addr(a, page),
		.end = (uintptr_t)page_addr(a, page + 1),
		.vec = (uintptr_t)&region,
		.vec_len = 1,
		.category_anyof_mask = PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN |
				       PAGE_IS_FILE | PAGE_IS_PRESENT |
				       PAGE_IS_SWAPPED | PAGE_IS_PFNZERO |
				       PAGE_IS_HUGE | PAGE_IS_SOFT_DIRTY,
	};

	arg.return_mask = arg.category_anyof_mask;
	if (ioctl(a->pagemap_fd, PAGEMAP_SCAN, &arg) < 0)
		return -1;
	return region.categories;
}

/* The sum of a field of smaps, in pages. */
static unsigned long smaps_pages(const struct area *a, const char *field)
{
	const unsigned long first = (unsigned long)a->addr;
	unsigned long start, end, val, sum = 0;
	char line[512], name[32];
	bool ours = false;
	FILE *fp;

	fp = fopen("/proc/self/smaps", "r");
	if (!fp)
		ksft_exit_fail_perror("/proc/self/smaps");
	while (fgets(line, sizeof(line), fp)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = start >= first && end <= first + bytes(a);
		else if (ours && sscanf(line, "%31[^:]: %lu kB", name, &val) == 2 &&
			 !strcmp(name, field))
			sum += val;
	}
	fclose(fp);
	return sum * 1024 / psize();
}

/*
 * Is each page in a folio of the order, in its place? Return what is wrong.
 * Folios of files are what the file system likes, and not looked at.
 */
static const char *check_order(const struct area *a, int order)
{
	const uint64_t compound = KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL | KPF_THP;
	const char *wrong = NULL;
	uint64_t flags, expected;
	unsigned long pfn;
	unsigned int idx;
	int fd;

	fd = open("/proc/kpageflags", O_RDONLY);
	if (fd < 0)
		return order ? "folio orders can't be verified without root" : NULL;
	for (unsigned int i = 0; i < a->pages && !wrong; i++) {
		pfn = PAGEMAP_PFN(entry(a, i));
		if (!pfn || pageflags_get(pfn, fd, &flags)) {
			wrong = order ? "folio orders can't be verified" : NULL;
			break;
		}
		idx = i;
		if (a->kind->state == PARTIAL)
			idx += a->pages / 2;
		idx %= 1U << order;
		expected = 0;
		if (order)
			expected = KPF_THP | (idx ? KPF_COMPOUND_TAIL : KPF_COMPOUND_HEAD);
		if ((flags & compound) != expected)
			wrong = "no folios of that order to be had";
	}
	close(fd);
	return wrong;
}

/*
 * Address space aligned to PMDs, with pages of another mapping before and
 * after it, so that the area never merges with a neighbour.
 */
static char *reserve(size_t size)
{
	const size_t align = pmd_size ? pmd_size : psize();
	char *addr;

	addr = mmap(NULL, size + 2 * align + psize(), PROT_NONE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	return (char *)(((uintptr_t)addr + psize() + align - 1) & -(uintptr_t)align);
}

/* Where the pages of RAM are in /dev/mem, as in pfnmap.c; 0 if not known. */
static off_t find_ram(void)
{
	unsigned long long start, end, found = 0;
	char line[128];
	FILE *fp;

	fp = fopen("/proc/iomem", "r");
	while (fp && !found && fgets(line, sizeof(line), fp))
		if (sscanf(line, "%llx-%llx : System RAM", &start, &end) == 2 &&
		    line[0] != ' ' && end - start > (NR_PAGES + 1) * psize())
			found = (start + psize()) & -(unsigned long long)psize();
	if (fp)
		fclose(fp);
	return found == (unsigned long long)(off_t)found ? found : 0;
}

static void open_backing(struct __test_metadata *_metadata, struct area *a)
{
	const char *dir = getenv("MPROTECT_TEST_DIR");
	struct statfs fs;
	char path[512];

	switch (a->kind->backing) {
	case ANON:
		return;
	case MEMFD:
		a->fd = syscall(__NR_memfd_create, "mprotect_test", 0);
		if (a->fd < 0)
			SKIP(return, "memfd_create: %s", strerror(errno));
		break;
	case TMPFS:
	case DISK:
		if (a->kind->backing == TMPFS)
			dir = "/dev/shm";
		else if (!dir)
			dir = ".";
		snprintf(path, sizeof(path), "%s/mprotect_test_XXXXXX", dir);
		a->fd = mkstemp(path);
		if (a->fd < 0)
			SKIP(return, "%s: %s", path, strerror(errno));
		unlink(path);
		ASSERT_EQ(fstatfs(a->fd, &fs), 0);
		if (a->kind->backing == TMPFS && fs.f_type != TMPFS_MAGIC)
			SKIP(return, "no tmpfs in %s", dir);
		if (a->kind->backing == DISK &&
		    (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
			SKIP(return, "%s is not on a disk, set MPROTECT_TEST_DIR", dir);
		break;
	case DEV_MEM:
		a->fd = open("/dev/mem", O_RDONLY);
		if (a->fd < 0)
			SKIP(return, "/dev/mem: %s", strerror(errno));
		return;
	}
	ASSERT_EQ(ftruncate(a->fd, bytes(a)), 0);
	/* Page by page, so that the folios stay small. */
	if (a->kind->backing != DISK && a->kind->state != READ)
		return;
	for (unsigned int i = 0; i < a->pages; i++) {
		a->want[i] = i;
		ASSERT_EQ(pwrite(a->fd, &a->want[i], sizeof(a->want[i]),
				 (off_t)i * psize()), sizeof(a->want[i]));
	}
}

/* Switch folios of an order on, or off again. */
static void set_order(const struct kind *kind, bool on)
{
	const char *val = on ? kind->shared ? "advise" : "madvise" : "never";
	char name[64];

	snprintf(name, sizeof(name), "hugepages-%ukB/%s",
		 (psize() >> 10) << kind->order,
		 kind->shared ? "shmem_enabled" : "enabled");
	thp_write_string(name, val);
}

static void populate(struct area *a)
{
	for (unsigned int i = 0; i < a->pages; i++) {
		switch (a->kind->state) {
		case READ:
			FORCE_READ(*word(a, i));
			break;
		case MERGED:
			a->want[i] = 0x6b736d;
			*word(a, i) = a->want[i];
			break;
		default:
			a->want[i] = i << 8;
			write_page(a, i);
		}
	}
}

static void setup_thp(struct __test_metadata *_metadata, struct area *a)
{
	const unsigned int quarter = a->pages / 4;
	char *old = a->addr;
	int tries = 3;

	populate(a);
	while (madvise(a->addr, bytes(a), MADV_COLLAPSE)) {
		if (errno != EAGAIN || !--tries)
			SKIP(return, "MADV_COLLAPSE: %s", strerror(errno));
	}
	/* Map it by PTEs, and have nobody undo that. */
	ASSERT_EQ(madvise(a->addr, bytes(a), MADV_NOHUGEPAGE), 0);
	protect_pages(a, a->pages / 2, 1, PROT_READ);
	protect_pages(a, a->pages / 2, 1, RW);

	if (a->kind->state == MOVED) {
		a->addr = reserve(bytes(a) + psize()) + psize();
		ASSERT_TRUE(sys_mremap(old, bytes(a), bytes(a),
				       MREMAP_MAYMOVE | MREMAP_FIXED,
				       a->addr) == a->addr);
	} else if (a->kind->state == PARTIAL) {
		ASSERT_EQ(munmap(a->addr, quarter * psize()), 0);
		ASSERT_EQ(munmap(page_addr(a, 3 * quarter), quarter * psize()), 0);
		a->addr = page_addr(a, quarter);
		a->pages /= 2;
	}
	populate(a);
}

static void setup_merged(struct __test_metadata *_metadata, struct area *a)
{
	const long merged = ksm_get_self_merging_pages();
	int waits = 500;

	if (merged < 0 || access(KSM_RUN, W_OK))
		SKIP(return, "no KSM, or not allowed to start it");
	if (madvise(a->addr, bytes(a), MADV_MERGEABLE))
		SKIP(return, "MADV_MERGEABLE: %s", strerror(errno));
	write_num(KSM_RUN, 1);
	while (ksm_get_self_merging_pages() - merged < a->pages && waits--)
		usleep(20000);
	/* Only pause it: what was merged stays merged. */
	write_num(KSM_RUN, 0);
	if (ksm_get_self_merging_pages() - merged < a->pages)
		SKIP(return, "KSM has not merged the pages");
}

static bool have_swap(void)
{
	unsigned long kb = 0;
	char line[128];
	FILE *fp;

	fp = fopen("/proc/meminfo", "r");
	while (fp && fgets(line, sizeof(line), fp))
		if (sscanf(line, "SwapFree: %lu kB", &kb) == 1)
			break;
	if (fp)
		fclose(fp);
	return kb >= 16384;
}

static long move_pages(unsigned long nr, void **pages, const int *nodes,
		       int *status)
{
	return syscall(__NR_move_pages, 0, nr, pages, nodes, status,
		       MPOL_MF_MOVE);
}

/*
 * While they are in per-CPU caches of the LRU lists, pages can't be reclaimed,
 * nor become idle. Nothing has to be moved for these caches to be drained.
 */
static void drain_lru(void)
{
	int node = 0, status;
	void *page = &node;

	move_pages(1, &page, &node, &status);
}

static bool swap_out(const struct area *a)
{
	for (int tries = 0; tries < 3; tries++) {
		drain_lru();
		if (madvise(a->addr, bytes(a), MADV_PAGEOUT))
			return false;
		if (have_bit(a, all, PM_SWAP))
			return true;
	}
	return false;
}

/* Fork a child that only holds on to its memory. */
static pid_t fork_holder(void)
{
	const pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		ksft_exit_fail_perror("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent)
		pause();
	_exit(0);
}

static void end_holder(struct area *a)
{
	if (a->child <= 0)
		return;
	kill(a->child, SIGKILL);
	waitpid(a->child, NULL, 0);
	a->child = 0;
}

static void area_setup(struct __test_metadata *_metadata, struct area *a,
		       const struct kind *kind)
{
	const bool thp = kind->order == PMD_ORDER;
	const int advice = kind->order ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
	const char *wrong = NULL;
	unsigned long orders;
	off_t offset = 0;
	size_t size;

	catch_faults();
	a->kind = kind;
	a->prot = kind->backing == DEV_MEM ? PROT_READ : RW;
	a->fd = -1;
	a->pages = NR_PAGES;
	if (thp) {
		if (!thp_writable || !pmd_size || pmd_size > MAX_PMD_SIZE)
			SKIP(return, "no THP, too large, or not allowed to set it up");
		a->pages = pmd_size / psize();
	} else if (kind->order) {
		orders = kind->shared ? thp_shmem_supported_orders() :
					thp_supported_orders();
		if (!thp_writable || !(orders & (1UL << kind->order)) ||
		    (psize() << kind->order) >= pmd_size)
			SKIP(return, "no mTHP of order %d, or not allowed to set it up",
			     kind->order);
		if (a->pages < 2U << kind->order)
			a->pages = 2U << kind->order;
	}
	a->want = calloc(a->pages, sizeof(*a->want));
	a->hit = calloc(a->pages, sizeof(*a->hit));
	ASSERT_TRUE(a->want && a->hit);
	a->pagemap_fd = open("/proc/self/pagemap", O_RDONLY);
	if (a->pagemap_fd < 0)
		SKIP(return, "/proc/self/pagemap: %s", strerror(errno));

	open_backing(_metadata, a);
	if (_metadata->exit_code)
		return;
	if (kind->backing == DEV_MEM) {
		offset = find_ram();
		if (!offset)
			SKIP(return, "no RAM found in /proc/iomem");
	}
	size = bytes(a);
	a->addr = reserve(size + pmd_size);
	/* Folios of this order, but no place for those that a PMD can map. */
	if (kind->order && !thp)
		a->addr += psize() << kind->order;
	if (mmap(a->addr, size, a->prot, MAP_FIXED |
		 (kind->shared ? MAP_SHARED : MAP_PRIVATE) |
		 (a->fd < 0 ? MAP_ANONYMOUS : 0), a->fd, offset) == MAP_FAILED)
		SKIP(return, "mmap: %s", strerror(errno));
	if (kind->backing == DEV_MEM) {
		if (!check_vmflag_pfnmap(a->addr) || try_read(a, 0))
			SKIP(return, "/dev/mem can't be read, or is no pfn map");
		return;
	}

	if (kind->order && !thp)
		set_order(kind, true);
	/* Without THP in the kernel there is no such advice, and no need. */
	if (thp_available() && madvise(a->addr, size, advice))
		SKIP(return, "MADV_[NO]HUGEPAGE: %s", strerror(errno));
	if (thp)
		setup_thp(_metadata, a);
	else
		populate(a);
	if (kind->order && !thp) {
		set_order(kind, false);
		ASSERT_EQ(madvise(a->addr, size, MADV_NOHUGEPAGE), 0);
	}
	if (_metadata->exit_code)
		return;
	if (kind->order || (kind->backing == ANON && kind->state == WRITTEN))
		wrong = check_order(a, thp ? sz2ord(pmd_size, psize()) : kind->order);
	if (wrong)
		SKIP(return, "%s", wrong);

	switch (kind->state) {
	case READ:
		if (kind->backing == ANON &&
		    (categories(a, 0) < 0 || !(categories(a, 0) & PAGE_IS_PFNZERO)))
			SKIP(return, "no zero page");
		break;
	case MERGED:
		setup_merged(_metadata, a);
		break;
	case SWAPPED:
		if (!have_swap())
			SKIP(return, "no swap space");
		if (!swap_out(a))
			SKIP(return, "the pages can't be swapped out");
		break;
	case FORKED:
		a->child = fork_holder();
		break;
	default:
		break;
	}
}

static void area_teardown(struct area *a)
{
	/* All else goes with the process. */
	end_holder(a);
}

#define KIND(name_, backing_, shared_, state_, order_)			\
static const struct kind name_ = {					\
	.backing = backing_,						\
	.shared = shared_,						\
	.state = state_,						\
	.order = order_,						\
}

KIND(anon, ANON, false, WRITTEN, 0);
KIND(anon_zero, ANON, false, READ, 0);
KIND(anon_ksm, ANON, false, MERGED, 0);
KIND(anon_swapped, ANON, false, SWAPPED, 0);
KIND(anon_forked, ANON, false, FORKED, 0);
KIND(anon_order2, ANON, false, WRITTEN, 2);
KIND(anon_order3, ANON, false, WRITTEN, 3);
KIND(anon_order4, ANON, false, WRITTEN, 4);
KIND(anon_order5, ANON, false, WRITTEN, 5);
KIND(anon_order6, ANON, false, WRITTEN, 6);
KIND(anon_order7, ANON, false, WRITTEN, 7);
KIND(anon_order8, ANON, false, WRITTEN, 8);
KIND(anon_order4_swapped, ANON, false, SWAPPED, 4);
KIND(anon_order4_forked, ANON, false, FORKED, 4);
KIND(anon_thp, ANON, false, WRITTEN, PMD_ORDER);
KIND(anon_thp_moved, ANON, false, MOVED, PMD_ORDER);
KIND(anon_thp_partial, ANON, false, PARTIAL, PMD_ORDER);
KIND(shmem, ANON, true, WRITTEN, 0);
KIND(shmem_order1, ANON, true, WRITTEN, 1);
KIND(shmem_order2, ANON, true, WRITTEN, 2);
KIND(shmem_order3, ANON, true, WRITTEN, 3);
KIND(shmem_order4, ANON, true, WRITTEN, 4);
KIND(shmem_order5, ANON, true, WRITTEN, 5);
KIND(shmem_order6, ANON, true, WRITTEN, 6);
KIND(shmem_order7, ANON, true, WRITTEN, 7);
KIND(shmem_order8, ANON, true, WRITTEN, 8);
KIND(shmem_thp, ANON, true, WRITTEN, PMD_ORDER);
KIND(shmem_thp_moved, ANON, true, MOVED, PMD_ORDER);
KIND(shmem_thp_partial, ANON, true, PARTIAL, PMD_ORDER);
KIND(memfd, MEMFD, true, WRITTEN, 0);
KIND(memfd_private, MEMFD, false, WRITTEN, 0);
KIND(memfd_private_read, MEMFD, false, READ, 0);
KIND(tmpfs, TMPFS, true, WRITTEN, 0);
KIND(disk, DISK, true, WRITTEN, 0);
KIND(disk_private, DISK, false, WRITTEN, 0);
KIND(disk_private_read, DISK, false, READ, 0);
KIND(pfnmap, DEV_MEM, true, READ, 0);

/* What holds for all kinds of mappings. */
FIXTURE(mapping)
{
	struct area area;
};

FIXTURE_VARIANT(mapping)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(mapping, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(mapping, anon_zero) { .kind = &anon_zero };
FIXTURE_VARIANT_ADD(mapping, anon_ksm) { .kind = &anon_ksm };
FIXTURE_VARIANT_ADD(mapping, anon_swapped) { .kind = &anon_swapped };
FIXTURE_VARIANT_ADD(mapping, anon_forked) { .kind = &anon_forked };
FIXTURE_VARIANT_ADD(mapping, anon_order2) { .kind = &anon_order2 };
FIXTURE_VARIANT_ADD(mapping, anon_order3) { .kind = &anon_order3 };
FIXTURE_VARIANT_ADD(mapping, anon_order4) { .kind = &anon_order4 };
FIXTURE_VARIANT_ADD(mapping, anon_order5) { .kind = &anon_order5 };
FIXTURE_VARIANT_ADD(mapping, anon_order6) { .kind = &anon_order6 };
FIXTURE_VARIANT_ADD(mapping, anon_order7) { .kind = &anon_order7 };
FIXTURE_VARIANT_ADD(mapping, anon_order8) { .kind = &anon_order8 };
FIXTURE_VARIANT_ADD(mapping, anon_order4_swapped) { .kind = &anon_order4_swapped };
FIXTURE_VARIANT_ADD(mapping, anon_order4_forked) { .kind = &anon_order4_forked };
FIXTURE_VARIANT_ADD(mapping, anon_thp) { .kind = &anon_thp };
FIXTURE_VARIANT_ADD(mapping, anon_thp_moved) { .kind = &anon_thp_moved };
FIXTURE_VARIANT_ADD(mapping, anon_thp_partial) { .kind = &anon_thp_partial };
FIXTURE_VARIANT_ADD(mapping, shmem) { .kind = &shmem };
FIXTURE_VARIANT_ADD(mapping, shmem_order1) { .kind = &shmem_order1 };
FIXTURE_VARIANT_ADD(mapping, shmem_order2) { .kind = &shmem_order2 };
FIXTURE_VARIANT_ADD(mapping, shmem_order3) { .kind = &shmem_order3 };
FIXTURE_VARIANT_ADD(mapping, shmem_order4) { .kind = &shmem_order4 };
FIXTURE_VARIANT_ADD(mapping, shmem_order5) { .kind = &shmem_order5 };
FIXTURE_VARIANT_ADD(mapping, shmem_order6) { .kind = &shmem_order6 };
FIXTURE_VARIANT_ADD(mapping, shmem_order7) { .kind = &shmem_order7 };
FIXTURE_VARIANT_ADD(mapping, shmem_order8) { .kind = &shmem_order8 };
FIXTURE_VARIANT_ADD(mapping, shmem_thp) { .kind = &shmem_thp };
FIXTURE_VARIANT_ADD(mapping, shmem_thp_moved) { .kind = &shmem_thp_moved };
FIXTURE_VARIANT_ADD(mapping, shmem_thp_partial) { .kind = &shmem_thp_partial };
FIXTURE_VARIANT_ADD(mapping, memfd) { .kind = &memfd };
FIXTURE_VARIANT_ADD(mapping, memfd_private) { .kind = &memfd_private };
FIXTURE_VARIANT_ADD(mapping, memfd_private_read) { .kind = &memfd_private_read };
FIXTURE_VARIANT_ADD(mapping, tmpfs) { .kind = &tmpfs };
FIXTURE_VARIANT_ADD(mapping, disk) { .kind = &disk };
FIXTURE_VARIANT_ADD(mapping, disk_private) { .kind = &disk_private };
FIXTURE_VARIANT_ADD(mapping, disk_private_read) { .kind = &disk_private_read };
FIXTURE_VARIANT_ADD(mapping, pfnmap) { .kind = &pfnmap };

FIXTURE_SETUP(mapping)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(mapping)
{
	area_teardown(&self->area);
}

TEST_F(mapping, read_only)
{
	struct area *a = &self->area;

	protect(a, PROT_READ);
	ASSERT_TRUE(all_access_ok(a, PROT_READ));
	protect(a, a->prot);
	ASSERT_TRUE(all_access_ok(a, a->prot));
	protect(a, PROT_READ);
	ASSERT_TRUE(all_access_ok(a, PROT_READ));
	protect(a, a->prot);
	ASSERT_TRUE(all_data_ok(a));
}

TEST_F(mapping, none)
{
	struct area *a = &self->area;

	protect(a, PROT_NONE);
	ASSERT_TRUE(all_access_ok(a, PROT_NONE));
	protect(a, PROT_READ);
	ASSERT_TRUE(all_access_ok(a, PROT_READ));
	protect(a, PROT_NONE);
	ASSERT_TRUE(all_access_ok(a, PROT_NONE));
	protect(a, a->prot);
	ASSERT_TRUE(all_access_ok(a, a->prot));
	ASSERT_TRUE(all_data_ok(a));
}

/* Neither the page before nor the page after the range changes. */
TEST_F(mapping, part)
{
	struct area *a = &self->area;
	const unsigned int start = a->pages / 4 + 1;
	const unsigned int end = 3 * (a->pages / 4) + 1;
	bool ok = true;
	int prot;

	protect_pages(a, start, end - start, PROT_READ);
	protect_pages(a, a->pages / 2, 1, PROT_NONE);
	for (unsigned int i = 0; ok && i < a->pages; i++) {
		prot = i == a->pages / 2 ? PROT_NONE :
		       i >= start && i < end ? PROT_READ : a->prot;
		ok = access_ok(a, i, prot);
	}
	ASSERT_TRUE(ok);
	protect_pages(a, start, end - start, a->prot);
	ASSERT_TRUE(all_data_ok(a));
	ASSERT_TRUE(all_access_ok(a, a->prot));
}

/* Each page by itself, so that one call later changes many mappings. */
TEST_F(mapping, single_pages)
{
	const int prots[] = { PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE };
	struct area *a = &self->area;
	bool ok = true;

	for (unsigned int i = 0; i < a->pages; i++)
		protect_pages(a, i, 1, prots[i % 3] & a->prot);
	for (unsigned int i = 0; ok && i < a->pages; i++)
		ok = access_ok(a, i, prots[i % 3] & a->prot);
	ASSERT_TRUE(ok);
	protect(a, a->prot);
	ASSERT_TRUE(all_access_ok(a, a->prot));
	ASSERT_TRUE(all_data_ok(a));
}

/* Whatever pagemap shows, it shows it before, in between and after. */
TEST_F(mapping, pagemap)
{
	const int prots[] = { PROT_READ, RW, PROT_NONE, PROT_READ, RW };
	struct area *a = &self->area;
	uint64_t before[a->pages], now, mask;
	long scanned[a->pages];

	for (unsigned int i = 0; i < a->pages; i++) {
		before[i] = entry(a, i);
		scanned[i] = categories(a, i);
	}
	for (unsigned int p = 0; p < ARRAY_SIZE(prots); p++) {
		protect(a, prots[p] & a->prot);
		for (unsigned int i = 0; i < a->pages; i++) {
			now = entry(a, i);
			/* Compaction may move it at any time. */
			mask = before[i] & PM_PRESENT ? ~(BIT_ULL(55) - 1) : ~0ULL;
			ASSERT_EQ(before[i] & mask, now & mask) {
				TH_LOG("page %u, protection %d", i, prots[p]);
			}
			ASSERT_EQ(scanned[i], categories(a, i)) {
				TH_LOG("page %u, protection %d", i, prots[p]);
			}
		}
	}
}

/* A write fault after memory was made writable again only if there is need. */
TEST_F(mapping, write_faults)
{
	struct area *a = &self->area;
	const enum state state = a->kind->state;
	const bool always = state == READ || state == MERGED ||
			    state == SWAPPED || state == FORKED;
	int tries = a->kind->backing == DISK ? 3 : 1;

	if (!(a->prot & PROT_WRITE))
		SKIP(return, "mapping can't be written to");
	protect(a, PROT_READ);
	protect(a, a->prot);
	if (always) {
		count_write_faults(a, all);
		/* Swapped in, a large folio is mapped whole. */
		ASSERT_TRUE((state == SWAPPED && a->kind->order && nr_hit(a)) ||
			    hit_exactly(a, all));
		protect(a, PROT_READ);
		protect(a, a->prot);
	}
	/* Writeback may have been faster, and have files wait for a fault. */
	while (tries--) {
		count_write_faults(a, all);
		if (!nr_hit(a))
			break;
		protect(a, PROT_NONE);
		protect(a, a->prot);
	}
	ASSERT_TRUE(hit_exactly(a, none));
	protect(a, PROT_NONE);
	protect(a, a->prot);
	ASSERT_TRUE(all_data_ok(a));
	if (a->kind->backing == DISK)
		return;
	count_write_faults(a, all);
	ASSERT_TRUE(hit_exactly(a, none));
	ASSERT_TRUE(all_data_ok(a));
}

/* Private mappings of files. */
FIXTURE(private_file)
{
	struct area area;
};

FIXTURE_VARIANT(private_file)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(private_file, memfd_private) { .kind = &memfd_private };
FIXTURE_VARIANT_ADD(private_file, memfd_private_read) { .kind = &memfd_private_read };
FIXTURE_VARIANT_ADD(private_file, disk_private) { .kind = &disk_private };
FIXTURE_VARIANT_ADD(private_file, disk_private_read) { .kind = &disk_private_read };

FIXTURE_SETUP(private_file)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(private_file)
{
	area_teardown(&self->area);
}

/* What is written to the mapping must not reach the file. */
TEST_F(private_file, unchanged)
{
	struct area *a = &self->area;
	unsigned int val, old;

	for (unsigned int i = 0; i < a->pages; i++) {
		ASSERT_EQ(pread(a->fd, &old, sizeof(old), (off_t)i * psize()),
			  sizeof(old));
		toggle(a);
		write_page(a, i);
		toggle(a);
		write_page(a, i);
		ASSERT_EQ(pread(a->fd, &val, sizeof(val), (off_t)i * psize()),
			  sizeof(val));
		ASSERT_EQ(val, old);
	}
}

/* What the kernel tracks, page by page. */
FIXTURE(tracking)
{
	struct area area;
};

FIXTURE_VARIANT(tracking)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(tracking, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(tracking, anon_order2) { .kind = &anon_order2 };
FIXTURE_VARIANT_ADD(tracking, anon_order4) { .kind = &anon_order4 };
FIXTURE_VARIANT_ADD(tracking, anon_order8) { .kind = &anon_order8 };
FIXTURE_VARIANT_ADD(tracking, anon_thp) { .kind = &anon_thp };
FIXTURE_VARIANT_ADD(tracking, anon_thp_moved) { .kind = &anon_thp_moved };
FIXTURE_VARIANT_ADD(tracking, anon_thp_partial) { .kind = &anon_thp_partial };
FIXTURE_VARIANT_ADD(tracking, shmem) { .kind = &shmem };
FIXTURE_VARIANT_ADD(tracking, shmem_order2) { .kind = &shmem_order2 };
FIXTURE_VARIANT_ADD(tracking, shmem_order4) { .kind = &shmem_order4 };
FIXTURE_VARIANT_ADD(tracking, shmem_order8) { .kind = &shmem_order8 };
FIXTURE_VARIANT_ADD(tracking, shmem_thp) { .kind = &shmem_thp };
FIXTURE_VARIANT_ADD(tracking, shmem_thp_moved) { .kind = &shmem_thp_moved };
FIXTURE_VARIANT_ADD(tracking, shmem_thp_partial) { .kind = &shmem_thp_partial };
FIXTURE_VARIANT_ADD(tracking, memfd) { .kind = &memfd };
FIXTURE_VARIANT_ADD(tracking, memfd_private) { .kind = &memfd_private };
FIXTURE_VARIANT_ADD(tracking, tmpfs) { .kind = &tmpfs };

FIXTURE_SETUP(tracking)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(tracking)
{
	area_teardown(&self->area);
}

/* Unpopulated pages stay so, and get the right protection later. */
TEST_F(tracking, holes)
{
	struct area *a = &self->area;

	advise(a, odd, MADV_DONTNEED);
	for (unsigned int i = 0; i < a->pages; i++)
		if (odd(i) && !a->kind->shared)
			a->want[i] = 0;
	toggle(a);
	ASSERT_TRUE(have_bit(a, not_odd, PM_PRESENT));
	protect(a, PROT_READ);
	ASSERT_TRUE(all_access_ok(a, PROT_READ));
	protect(a, PROT_NONE);
	ASSERT_TRUE(all_access_ok(a, PROT_NONE));
	protect(a, a->prot);
	ASSERT_TRUE(all_access_ok(a, a->prot));
	ASSERT_TRUE(all_data_ok(a));
}

/*
 * Write to the pages: those that are not soft-dirty have to fault for that, and
 * to become so. Those that are need no fault, but get one if shared.
 */
static bool soft_dirty_writes_ok(struct area *a, bool (*which)(unsigned int))
{
	bool dirty[a->pages];
	bool ok = true;

	for (unsigned int i = 0; i < a->pages; i++)
		dirty[i] = pagemap_is_softdirty(a->pagemap_fd, page_addr(a, i));
	count_write_faults(a, which);
	for (unsigned int i = 0; ok && i < a->pages; i++) {
		if (!which(i))
			continue;
		if (dirty[i])
			ok = !a->hit[i] || a->kind->shared;
		else
			ok = a->hit[i];
		if (!ok)
			ksft_print_msg("writing to page %u, %ssoft-dirty: %s\n",
				       i, dirty[i] ? "" : "not ",
				       a->hit[i] ? "a fault" : "no fault");
		ok = ok && pagemap_is_softdirty(a->pagemap_fd, page_addr(a, i));
	}
	return ok;
}

TEST_F(tracking, soft_dirty)
{
	const int prots[] = { PROT_READ, RW, PROT_NONE, RW };
	struct area *a = &self->area;

	if (!softdirty_supported())
		SKIP(return, "no soft-dirty tracking");
	clear_softdirty();
	ASSERT_TRUE(have_bit(a, none, PM_SOFT_DIRTY));
	toggle(a);
	/* In a large folio, mprotect() may set more of these bits. */
	ASSERT_TRUE(a->kind->order || have_bit(a, none, PM_SOFT_DIRTY));

	ASSERT_TRUE(soft_dirty_writes_ok(a, odd));
	for (unsigned int p = 0; p < ARRAY_SIZE(prots); p++) {
		protect(a, prots[p]);
		ASSERT_TRUE(a->kind->order || have_bit(a, odd, PM_SOFT_DIRTY));
		ASSERT_TRUE(have_all_bit(a, odd, PM_SOFT_DIRTY));
	}
	ASSERT_TRUE(soft_dirty_writes_ok(a, all));
	ASSERT_TRUE(all_data_ok(a));

	/* Written to, but not dirty: that can only come from this very page. */
	clear_softdirty();
	write_pages(a, odd);
	if (a->kind->shared || madvise(a->addr, bytes(a), MADV_FREE))
		return;
	toggle(a);
	ASSERT_TRUE(have_bit(a, odd, PM_SOFT_DIRTY));
}

TEST_F(tracking, accessed)
{
	struct area *a = &self->area;
	unsigned long nr_read = 0;

	if (access("/proc/self/clear_refs", W_OK) ||
	    smaps_pages(a, "Referenced") != a->pages)
		SKIP(return, "no view of accessed bits");
	write_file("/proc/self/clear_refs", "1", 2);
	/* Reading sets bits only once the TLB is flushed, as it is by this. */
	toggle(a);
	ASSERT_EQ(smaps_pages(a, "Referenced"), 0);
	for (unsigned int i = 0; i < a->pages; i++) {
		if (!odd(i))
			continue;
		ASSERT_EQ(try_read(a, i), 0);
		nr_read++;
	}
	ASSERT_GE(smaps_pages(a, "Referenced"), nr_read);
	protect(a, PROT_READ);
	ASSERT_GE(smaps_pages(a, "Referenced"), nr_read);
	protect(a, a->prot);
	ASSERT_GE(smaps_pages(a, "Referenced"), nr_read);
	protect(a, PROT_NONE);
	protect(a, a->prot);
	ASSERT_GE(smaps_pages(a, "Referenced"), nr_read);
	/* In a large folio, others may count as accessed, too. */
	ASSERT_LE(smaps_pages(a, "Referenced"), a->kind->order ? a->pages : nr_read);
}

static int open_uffd(uint64_t features)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		/* SIGBUS, so that nobody has to wait for faults. */
		.features = features | UFFD_FEATURE_SIGBUS,
	};
	int fd;

	fd = syscall(__NR_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Have writes to these pages trapped, and to no others. */
static void uffd_wp(int uffd, const struct area *a, bool (*which)(unsigned int))
{
	for (unsigned int i = 0; i < a->pages; i++) {
		struct uffdio_writeprotect wp = {
			.range.start = (uintptr_t)page_addr(a, i),
			.range.len = psize(),
			.mode = which(i) ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
		};

		if (ioctl(uffd, UFFDIO_WRITEPROTECT, &wp))
			ksft_exit_fail_perror("UFFDIO_WRITEPROTECT");
	}
}

TEST_F(tracking, uffd_wp)
{
	struct area *a = &self->area;
	int uffd;

	uffd = open_uffd(UFFD_FEATURE_PAGEFAULT_FLAG_WP |
			 UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	if (uffd < 0 || uffd_register(uffd, a->addr, bytes(a), false, true, false))
		SKIP(return, "no uffd-wp");
	uffd_wp(uffd, a, odd);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	protect(a, PROT_READ);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	protect(a, a->prot);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	protect(a, PROT_NONE);
	protect(a, a->prot);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	ASSERT_TRUE(all_data_ok(a));
	ASSERT_TRUE(writes_raise(a, odd, SIGBUS));

	if (a->kind->shared) {
		/* Of unmapped pages a marker remains. */
		ASSERT_EQ(madvise(a->addr, bytes(a), MADV_DONTNEED), 0);
		ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
		toggle(a);
		ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
		ASSERT_TRUE(writes_raise(a, odd, SIGBUS));
		ASSERT_TRUE(all_data_ok(a));
	}

	uffd_wp(uffd, a, none);
	ASSERT_TRUE(have_bit(a, none, PM_UFFD_WP));
	ASSERT_TRUE(all_access_ok(a, RW));
}

static void uffd_rwp(int uffd, const struct area *a, unsigned int page,
		     unsigned int nr, bool on)
{
	struct uffdio_rwprotect rwp = {
		.range.start = (uintptr_t)page_addr(a, page),
		.range.len = (size_t)nr * psize(),
		.mode = on ? UFFDIO_RWPROTECT_MODE_RWP : 0,
	};

	if (ioctl(uffd, UFFDIO_RWPROTECT, &rwp))
		ksft_exit_fail_perror("UFFDIO_RWPROTECT");
}

TEST_F(tracking, uffd_rwp)
{
	struct area *a = &self->area;
	struct uffdio_register reg = {
		.range.start = (uintptr_t)a->addr,
		.range.len = bytes(a),
		.mode = UFFDIO_REGISTER_MODE_RWP,
	};
	int uffd;

	uffd = open_uffd(UFFD_FEATURE_RWP);
	if (uffd < 0 || ioctl(uffd, UFFDIO_REGISTER, &reg))
		SKIP(return, "no uffd-rwp");
	/* From none, too: the kernel has to tell the two apart. */
	protect(a, PROT_NONE);
	for (unsigned int i = 0; i < a->pages; i++)
		if (odd(i))
			uffd_rwp(uffd, a, i, 1, true);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	protect(a, PROT_READ);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	ASSERT_TRUE(reads_raise(a, odd, SIGBUS));
	protect(a, a->prot);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	ASSERT_TRUE(reads_raise(a, odd, SIGBUS));
	ASSERT_TRUE(writes_raise(a, odd, SIGBUS));
	protect(a, PROT_NONE);
	ASSERT_TRUE(reads_raise(a, all, SIGSEGV));
	protect(a, a->prot);
	ASSERT_TRUE(writes_raise(a, odd, SIGBUS));

	uffd_rwp(uffd, a, 0, a->pages, false);
	ASSERT_TRUE(have_bit(a, none, PM_UFFD_WP));
	ASSERT_TRUE(all_access_ok(a, RW));
}

static bool all_trap_with_key(const struct area *a, int pkey)
{
	/* If raised for another reason, the signal has no key. */
	for (unsigned int i = 0; i < a->pages; i++) {
		if (try_read(a, i) == SIGSEGV && fault_code == SEGV_PKUERR)
			continue;
		ksft_print_msg("page %u has lost protection key %d\n", i, pkey);
		return false;
	}
	return true;
}

TEST_F(tracking, pkey)
{
	struct area *a = &self->area;
	int pkey;

	pkey = syscall(__NR_pkey_alloc, 0, PKEY_DISABLE_ACCESS);
	if (pkey <= 0)
		SKIP(return, "no protection keys");
	ASSERT_EQ(syscall(__NR_pkey_mprotect, a->addr, bytes(a), RW, pkey), 0);
	ASSERT_TRUE(all_trap_with_key(a, pkey));
	protect(a, PROT_READ);
	ASSERT_TRUE(all_trap_with_key(a, pkey));
	protect(a, PROT_NONE);
	ASSERT_TRUE(reads_raise(a, all, SIGSEGV));
	protect(a, RW);
	ASSERT_TRUE(all_trap_with_key(a, pkey));
	ASSERT_EQ(syscall(__NR_pkey_mprotect, a->addr, bytes(a), PROT_READ, pkey), 0);
	ASSERT_TRUE(all_trap_with_key(a, pkey));
	/* The default key allows everything. */
	ASSERT_EQ(syscall(__NR_pkey_mprotect, a->addr, bytes(a), RW, 0), 0);
	ASSERT_TRUE(all_access_ok(a, RW));
	ASSERT_TRUE(all_data_ok(a));
}

/* Memory that is shared, but only until somebody writes to it. */
FIXTURE(cow)
{
	struct area area;
};

FIXTURE_VARIANT(cow)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(cow, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(cow, anon_order2) { .kind = &anon_order2 };
FIXTURE_VARIANT_ADD(cow, anon_order4) { .kind = &anon_order4 };
FIXTURE_VARIANT_ADD(cow, anon_order8) { .kind = &anon_order8 };
FIXTURE_VARIANT_ADD(cow, anon_thp) { .kind = &anon_thp };
FIXTURE_VARIANT_ADD(cow, anon_thp_moved) { .kind = &anon_thp_moved };
FIXTURE_VARIANT_ADD(cow, anon_thp_partial) { .kind = &anon_thp_partial };
FIXTURE_VARIANT_ADD(cow, memfd_private) { .kind = &memfd_private };

FIXTURE_SETUP(cow)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(cow)
{
	area_teardown(&self->area);
}

static void sync_with(int fds[2], bool first)
{
	char c = 0;

	if (first ? write(fds[1], &c, 1) != 1 : read(fds[0], &c, 1) != 1)
		ksft_exit_fail_perror("pipe");
}

/* Parent and child each write to other pages, and see but their own writes. */
TEST_F(cow, fork)
{
	struct area *a = &self->area;
	int from_child[2], from_parent[2], status;
	pid_t pid;

	ASSERT_EQ(pipe(from_child), 0);
	ASSERT_EQ(pipe(from_parent), 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		toggle(a);
		write_pages(a, odd);
		sync_with(from_child, true);
		sync_with(from_parent, false);
		toggle(a);
		status = !all_data_ok(a);
		write_pages(a, third);
		_exit(status || !all_data_ok(a));
	}
	sync_with(from_child, false);
	toggle(a);
	EXPECT_TRUE(all_data_ok(a));
	write_pages(a, third);
	EXPECT_TRUE(all_data_ok(a));
	toggle(a);
	EXPECT_TRUE(all_data_ok(a));
	sync_with(from_parent, true);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	toggle(a);
	ASSERT_TRUE(all_access_ok(a, RW));
}

/* Of the same folio, the child has only every third page. */
TEST_F(cow, partly_shared)
{
	struct area *a = &self->area;
	int from_parent[2], status;
	pid_t pid;

	ASSERT_EQ(pipe(from_parent), 0);
	advise(a, not_odd, MADV_DONTFORK);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		sync_with(from_parent, false);
		_exit(!data_ok_of(a, odd));
	}
	ASSERT_EQ(madvise(a->addr, bytes(a), MADV_DOFORK), 0);
	toggle(a);
	count_write_faults(a, all);
	EXPECT_TRUE(hit_exactly(a, odd));
	sync_with(from_parent, true);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	ASSERT_TRUE(all_data_ok(a));
}

/* The child is gone, yet only pages written to since are known as exclusive. */
TEST_F(cow, partly_exclusive)
{
	struct area *a = &self->area;

	a->child = fork_holder();
	end_holder(a);
	write_pages(a, odd);
	/* Some PTEs lose the right to write, others never had it. */
	protect(a, PROT_READ);
	ASSERT_TRUE(writes_raise(a, all, SIGSEGV));
	protect(a, RW);
	toggle(a);
	count_write_faults(a, all);
	ASSERT_TRUE(hit_exactly(a, not_odd));
	ASSERT_TRUE(all_data_ok(a));
	toggle(a);
	count_write_faults(a, all);
	ASSERT_TRUE(hit_exactly(a, none));
}

/* What a child put into a pipe without copying it stays as it was. */
TEST_F(cow, vmsplice)
{
	struct area *a = &self->area;
	struct iovec iov = { .iov_base = a->addr, .iov_len = bytes(a) };
	unsigned int before[a->pages], page[psize() / sizeof(int)];
	int fds[2], status;
	unsigned int nr;
	pid_t pid;

	for (nr = 0; nr < a->pages; nr++)
		before[nr] = a->want[nr];
	ASSERT_EQ(pipe(fds), 0);
	fcntl(fds[1], F_SETPIPE_SZ, (int)bytes(a));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		ssize_t len = vmsplice(fds[1], &iov, 1, SPLICE_F_NONBLOCK);

		_exit(len > 0 && !munmap(a->addr, bytes(a)) ? 0 : 1);
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
	close(fds[1]);
	toggle(a);
	ASSERT_TRUE(all_access_ok(a, RW));
	for (nr = 0; read(fds[0], page, psize()) == psize(); nr++) {
		ASSERT_EQ(page[0], before[nr]) {
			TH_LOG("page %u", nr);
		}
	}
	ASSERT_GT(nr, 0);
}

/* A pin taken for reading sees later writes, the child does not. */
TEST_F(cow, pin)
{
	struct area *a = &self->area;
	struct pin_longterm_test pin = {
		.addr = (uintptr_t)a->addr,
		.size = bytes(a),
	};
	unsigned int before[a->pages];
	int gup_fd, from_parent[2], status;
	unsigned int i, val;
	char *copy;
	__u64 to;
	pid_t pid;

	gup_fd = open("/sys/kernel/debug/gup_test", O_RDWR);
	if (gup_fd < 0)
		SKIP(return, "/sys/kernel/debug/gup_test: %s", strerror(errno));
	copy = malloc(bytes(a));
	if (!copy)
		ksft_exit_fail_perror("malloc");
	to = (uintptr_t)copy;
	memcpy(before, a->want, sizeof(before));
	ASSERT_EQ(pipe(from_parent), 0);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		sync_with(from_parent, false);
		toggle(a);
		_exit(!all_data_ok(a));
	}
	ASSERT_EQ(ioctl(gup_fd, PIN_LONGTERM_TEST_START, &pin), 0);
	toggle(a);
	EXPECT_TRUE(all_access_ok(a, RW));
	toggle(a);
	EXPECT_TRUE(all_access_ok(a, RW));
	sync_with(from_parent, true);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	EXPECT_EQ(status, 0);
	ASSERT_EQ(ioctl(gup_fd, PIN_LONGTERM_TEST_READ, &to), 0);
	ASSERT_EQ(ioctl(gup_fd, PIN_LONGTERM_TEST_STOP), 0);
	for (i = 0; i < a->pages; i++) {
		memcpy(&val, copy + (size_t)i * psize(), sizeof(val));
		ASSERT_EQ(val, a->want[i]) {
			TH_LOG("page %u", i);
		}
	}
}

/* Pages that were given back may be dropped if clean, but not if dirty. */
TEST_F(cow, dirty)
{
	struct area *a = &self->area;
	unsigned long nr_dirty = 0;

	/* Pages of files can't be given back. */
	if (madvise(a->addr, bytes(a), MADV_FREE))
		SKIP(return, "MADV_FREE: %s", strerror(errno));
	if (smaps_pages(a, "Private_Dirty"))
		SKIP(return, "MADV_FREE has left pages dirty");
	toggle(a);
	ASSERT_EQ(smaps_pages(a, "Private_Dirty"), 0);
	/* All accessed, some dirty. */
	ASSERT_TRUE(reads_raise(a, none, 0));
	write_pages(a, odd);
	for (unsigned int i = 0; i < a->pages; i++)
		nr_dirty += odd(i);
	protect(a, PROT_READ);
	ASSERT_GE(smaps_pages(a, "Private_Dirty"), nr_dirty);
	protect(a, PROT_NONE);
	ASSERT_GE(smaps_pages(a, "Private_Dirty"), nr_dirty);
	protect(a, a->prot);
	ASSERT_GE(smaps_pages(a, "Private_Dirty"), nr_dirty);
	/* In a large folio, others may count as dirty, too. */
	ASSERT_LE(smaps_pages(a, "Private_Dirty"), a->kind->order ? a->pages : nr_dirty);
	drain_lru();
	ASSERT_EQ(madvise(a->addr, bytes(a), MADV_PAGEOUT), 0);
	ASSERT_TRUE(data_ok_of(a, odd));
}

/* Files of which somebody writes pages back. */
FIXTURE(file)
{
	struct area area;
};

FIXTURE_SETUP(file)
{
	area_setup(_metadata, &self->area, &disk);
}

FIXTURE_TEARDOWN(file)
{
	area_teardown(&self->area);
}

static int open_direct(const struct area *a)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd);
	return open(path, O_RDONLY | O_DIRECT);
}

static bool on_disk(const struct area *a, int fd)
{
	unsigned int *page = aligned_alloc(psize(), psize());
	bool ok = page;

	for (unsigned int i = 0; ok && i < a->pages; i++) {
		if (pread(fd, page, psize(), (off_t)i * psize()) != psize()) {
			ksft_perror("O_DIRECT read");
			ok = false;
		} else if (page[0] != a->want[i]) {
			ksft_print_msg("page %u on disk has %x, not %x\n", i,
				       page[0], a->want[i]);
			ok = false;
		}
	}
	free(page);
	return ok;
}

/* File systems want to know of the first write to a clean page. */
TEST_F(file, write_notify)
{
	struct area *a = &self->area;
	int fd;

	if (check_order(a, 0))
		SKIP(return, "file has large folios");
	ASSERT_EQ(msync(a->addr, bytes(a), MS_SYNC), 0);
	toggle(a);
	count_write_faults(a, odd);
	ASSERT_TRUE(hit_exactly(a, odd));
	/* Not only the pages next to it. */
	toggle(a);
	count_write_faults(a, third);
	ASSERT_TRUE(hit_exactly(a, third));
	ASSERT_EQ(msync(a->addr, bytes(a), MS_SYNC), 0);
	toggle(a);
	count_write_faults(a, all);
	ASSERT_TRUE(hit_exactly(a, all));

	fd = open_direct(a);
	if (fd < 0)
		return;
	ASSERT_EQ(msync(a->addr, bytes(a), MS_SYNC), 0);
	ASSERT_TRUE(on_disk(a, fd));
}

/* What was dirty before memory was made read-only reaches the disk after. */
TEST_F(file, dirty)
{
	const int prots[] = { PROT_READ, PROT_NONE, RW };
	struct area *a = &self->area;
	int fd;

	fd = open_direct(a);
	if (fd < 0)
		SKIP(return, "O_DIRECT: %s", strerror(errno));
	for (unsigned int p = 0; p < ARRAY_SIZE(prots); p++) {
		ASSERT_EQ(msync(a->addr, bytes(a), MS_SYNC), 0);
		write_pages(a, odd);
		toggle(a);
		protect(a, prots[p]);
		ASSERT_EQ(msync(a->addr, bytes(a), MS_SYNC), 0);
		ASSERT_TRUE(on_disk(a, fd));
		protect(a, RW);
		write_pages(a, third);
		protect(a, prots[p]);
		ASSERT_EQ(fsync(a->fd), 0);
		ASSERT_TRUE(on_disk(a, fd));
		protect(a, RW);
	}
	ASSERT_TRUE(all_data_ok(a));
	write_pages(a, odd);
	protect(a, PROT_READ);
	ASSERT_EQ(munmap(a->addr, bytes(a)), 0);
	ASSERT_EQ(fsync(a->fd), 0);
	ASSERT_TRUE(on_disk(a, fd));
}

TEST_F(file, accessed)
{
	struct area *a = &self->area;

	if (access("/proc/self/clear_refs", W_OK) ||
	    smaps_pages(a, "Referenced") != a->pages)
		SKIP(return, "no view of accessed bits");
	write_file("/proc/self/clear_refs", "1", 2);
	toggle(a);
	ASSERT_EQ(smaps_pages(a, "Referenced"), 0);
	ASSERT_TRUE(reads_raise(a, none, 0));
	toggle(a);
	ASSERT_EQ(smaps_pages(a, "Referenced"), a->pages);
}

/* Entries that are not present. */
FIXTURE(nonpresent)
{
	struct area area;
};

FIXTURE_VARIANT(nonpresent)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(nonpresent, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(nonpresent, anon_order4) { .kind = &anon_order4 };

FIXTURE_SETUP(nonpresent)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(nonpresent)
{
	area_teardown(&self->area);
}

TEST_F(nonpresent, swap_soft_dirty)
{
	struct area *a = &self->area;

	if (!softdirty_supported())
		SKIP(return, "no soft-dirty tracking");
	if (!have_swap())
		SKIP(return, "no swap space");
	clear_softdirty();
	write_pages(a, odd);
	if (!swap_out(a))
		SKIP(return, "the pages can't be swapped out");
	ASSERT_TRUE(have_bit(a, odd, PM_SOFT_DIRTY));
	toggle(a);
	ASSERT_TRUE(have_bit(a, all, PM_SWAP));
	ASSERT_TRUE(have_bit(a, odd, PM_SOFT_DIRTY));
	ASSERT_TRUE(all_data_ok(a));
	ASSERT_TRUE(have_bit(a, odd, PM_SOFT_DIRTY));
}

TEST_F(nonpresent, swap_uffd_wp)
{
	struct area *a = &self->area;
	int uffd;

	uffd = open_uffd(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	if (uffd < 0 || uffd_register(uffd, a->addr, bytes(a), false, true, false))
		SKIP(return, "no uffd-wp");
	if (!have_swap())
		SKIP(return, "no swap space");
	uffd_wp(uffd, a, odd);
	if (!swap_out(a))
		SKIP(return, "the pages can't be swapped out");
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	toggle(a);
	ASSERT_TRUE(have_bit(a, all, PM_SWAP));
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	ASSERT_TRUE(all_data_ok(a));
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	ASSERT_TRUE(writes_raise(a, odd, SIGBUS));

	/* Protected, and no longer so, while swapped out. */
	uffd_wp(uffd, a, none);
	if (!swap_out(a))
		SKIP(return, "the pages can't be swapped out");
	uffd_wp(uffd, a, odd);
	toggle(a);
	ASSERT_TRUE(have_bit(a, odd, PM_UFFD_WP));
	uffd_wp(uffd, a, none);
	toggle(a);
	ASSERT_TRUE(have_bit(a, all, PM_SWAP));
	ASSERT_TRUE(have_bit(a, none, PM_UFFD_WP));
	ASSERT_TRUE(all_access_ok(a, RW));
}

TEST_F(nonpresent, guard)
{
	struct area *a = &self->area;
	unsigned int i;

	for (i = 0; i < a->pages; i++) {
		if (!odd(i))
			continue;
		if (madvise(page_addr(a, i), psize(), MADV_GUARD_INSTALL))
			SKIP(return, "MADV_GUARD_INSTALL: %s", strerror(errno));
		a->want[i] = 0;
	}
	toggle(a);
	ASSERT_TRUE(reads_raise(a, odd, SIGSEGV));
	protect(a, PROT_READ);
	ASSERT_TRUE(reads_raise(a, odd, SIGSEGV));
	protect(a, a->prot);
	ASSERT_EQ(madvise(a->addr, bytes(a), MADV_GUARD_REMOVE), 0);
	ASSERT_TRUE(all_access_ok(a, RW));
}

/* Up to the gap, as if it was not there. */
TEST_F(nonpresent, gap)
{
	struct area *a = &self->area;
	const unsigned int gap = a->pages / 2;
	bool ok = true;

	ASSERT_EQ(munmap(page_addr(a, gap), psize()), 0);
	ASSERT_EQ(mprotect(a->addr, bytes(a), PROT_READ), -1);
	ASSERT_EQ(errno, ENOMEM);
	for (unsigned int i = 0; ok && i < a->pages; i++)
		ok = i == gap || access_ok(a, i, i < gap ? PROT_READ : RW);
	ASSERT_TRUE(ok);
}

/* Two nodes with memory. */
static bool two_nodes(int nodes[2])
{
	char path[64];
	int nr = 0;

	for (int node = 0; node < 64 && nr < 2; node++) {
		snprintf(path, sizeof(path),
			 "/sys/devices/system/node/node%d/meminfo", node);
		if (!access(path, R_OK))
			nodes[nr++] = node;
	}
	return nr == 2;
}

static unsigned int move_to(const struct area *a, int node)
{
	void *pages[a->pages];
	int nodes[a->pages], status[a->pages];
	unsigned int moved = 0;

	for (unsigned int i = 0; i < a->pages; i++) {
		pages[i] = page_addr(a, i);
		nodes[i] = node;
		status[i] = -1;
	}
	if (move_pages(a->pages, pages, nodes, status) < 0)
		return 0;
	for (unsigned int i = 0; i < a->pages; i++)
		moved += status[i] == node;
	return moved;
}

FIXTURE(nodes)
{
	struct area area;
	int node[2];
};

FIXTURE_VARIANT(nodes)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(nodes, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(nodes, anon_order4) { .kind = &anon_order4 };
FIXTURE_VARIANT_ADD(nodes, anon_thp) { .kind = &anon_thp };
FIXTURE_VARIANT_ADD(nodes, shmem) { .kind = &shmem };

FIXTURE_SETUP(nodes)
{
	if (!two_nodes(self->node))
		SKIP(return, "needs two NUMA nodes");
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(nodes)
{
	area_teardown(&self->area);
}

struct mover {
	const struct area *area;
	const int *node;
	bool stop;
	unsigned int passes;
	unsigned int moved[2];
};

static void *move_around(void *arg)
{
	struct mover *m = arg;

	for (unsigned int i = 0; !__atomic_load_n(&m->stop, __ATOMIC_RELAXED); i = !i) {
		m->moved[i] += move_to(m->area, m->node[i]);
		__atomic_add_fetch(&m->passes, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F_TIMEOUT(nodes, migration, 120)
{
	struct area *a = &self->area;
	struct mover mover = { .area = a, .node = self->node };
	const int zero = open("/dev/zero", O_RDONLY);
	unsigned int written = 0;
	pthread_t thread;

	ASSERT_GE(zero, 0);
	ASSERT_EQ(pthread_create(&thread, NULL, move_around, &mover), 0);
	/* Until all pages have moved some times. */
	while (!written && __atomic_load_n(&mover.passes, __ATOMIC_RELAXED) < 30) {
		protect(a, PROT_READ);
		/* Many writes, no signals: those are slow. */
		for (unsigned int i = 0; i < a->pages; i++)
			written += read(zero, page_addr(a, i), 1) == 1;
		protect(a, RW);
		write_pages(a, all);
	}
	__atomic_store_n(&mover.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ASSERT_EQ(written, 0);
	ASSERT_TRUE(all_data_ok(a));
	if (!mover.moved[0] || !mover.moved[1])
		SKIP(return, "no page was moved");
}

static unsigned long read_vmstat(const char *field)
{
	unsigned long val, found = 0;
	char line[128], name[64];
	FILE *fp;

	fp = fopen("/proc/vmstat", "r");
	while (fp && fgets(line, sizeof(line), fp))
		if (sscanf(line, "%63s %lu", name, &val) == 2 &&
		    !strcmp(name, field))
			found = val;
	if (fp)
		fclose(fp);
	return found;
}

static unsigned long cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec;
}

/*
 * NUMA balancing scans at a rate that depends on the CPU time that a process
 * uses. Which pages it protects is its own business, but some of those must
 * fault, none must stay inaccessible, and none become so by mprotect().
 */
TEST_F_TIMEOUT(nodes, numa_hinting, 120)
{
	struct area *a = &self->area;
	unsigned long scanned, hinted, enabled, start;

	if (read_sysfs(NUMA_BALANCING, &enabled) || enabled != 1)
		SKIP(return, "NUMA balancing is not enabled");
	/* One half of the pages on each of the nodes, so some are remote. */
	if (!move_to(a, self->node[0]))
		SKIP(return, "no page was moved");
	a->pages /= 2;
	if (!move_to(a, self->node[1]))
		SKIP(return, "no page was moved");
	a->pages *= 2;

	syscall(__NR_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	scanned = read_vmstat("numa_pte_updates");
	hinted = read_vmstat("numa_hint_faults");
	start = cpu_seconds();
	while (read_vmstat("numa_hint_faults") == hinted &&
	       cpu_seconds() - start < 20) {
		bool ok = true;

		for (int i = 0; ok && i < 100; i++)
			ok = all_data_ok(a);
		ASSERT_TRUE(ok);
	}
	if (read_vmstat("numa_pte_updates") == scanned)
		SKIP(return, "no page was scanned");
	ASSERT_NE(read_vmstat("numa_hint_faults"), hinted);
	for (int round = 0; round < 20; round++) {
		protect(a, PROT_READ);
		ASSERT_TRUE(all_access_ok(a, PROT_READ));
		protect(a, PROT_NONE);
		ASSERT_TRUE(all_access_ok(a, PROT_NONE));
		protect(a, RW);
		ASSERT_TRUE(all_access_ok(a, RW));
	}
}

/* Idle page tracking: only heads of folios count there. */
FIXTURE(idle)
{
	struct area area;
};

FIXTURE_VARIANT(idle)
{
	const struct kind *kind;
};

FIXTURE_VARIANT_ADD(idle, anon) { .kind = &anon };
FIXTURE_VARIANT_ADD(idle, anon_order4) { .kind = &anon_order4 };
FIXTURE_VARIANT_ADD(idle, shmem) { .kind = &shmem };
FIXTURE_VARIANT_ADD(idle, shmem_order4) { .kind = &shmem_order4 };

FIXTURE_SETUP(idle)
{
	area_setup(_metadata, &self->area, variant->kind);
}

FIXTURE_TEARDOWN(idle)
{
	area_teardown(&self->area);
}

/* Whether the folio that the page is the head of is idle. */
static bool is_idle(const struct area *a, int fd, unsigned int page)
{
	const unsigned long pfn = PAGEMAP_PFN(entry(a, page));
	uint64_t bits;

	if (pread(fd, &bits, sizeof(bits), pfn / 64 * 8) != sizeof(bits))
		ksft_exit_fail_perror(PAGE_IDLE);
	return bits & BIT_ULL(pfn % 64);
}

static bool set_idle(const struct area *a, int fd, unsigned int page)
{
	const unsigned long pfn = PAGEMAP_PFN(entry(a, page));
	const uint64_t bits = BIT_ULL(pfn % 64);

	return pwrite(fd, &bits, sizeof(bits), pfn / 64 * 8) == sizeof(bits) &&
	       is_idle(a, fd, page);
}

TEST_F(idle, page_idle)
{
	struct area *a = &self->area;
	const unsigned int step = 1U << a->kind->order;
	bool ok = true;
	unsigned int i;
	int fd;

	fd = open(PAGE_IDLE, O_RDWR);
	if (fd < 0)
		SKIP(return, "%s: %s", PAGE_IDLE, strerror(errno));
	drain_lru();
	for (i = 0; i < a->pages; i += step) {
		if (!set_idle(a, fd, i))
			SKIP(return, "page %u does not become idle", i);
	}
	toggle(a);
	for (i = 0; i < a->pages; i += step)
		ok &= is_idle(a, fd, i);
	ASSERT_TRUE(ok);
	/* A page of every other folio. */
	for (i = 0; i < a->pages; i += 2 * step)
		ok &= !try_read(a, i + step / 2);
	ASSERT_TRUE(ok);
	toggle(a);
	for (i = 0; i < a->pages; i += step)
		ok &= is_idle(a, fd, i) == i / step % 2;
	ASSERT_TRUE(ok);
}

static unsigned long ksm_run;

static void restore_ksm(void)
{
	write_num(KSM_RUN, ksm_run);
}

static void setup_settings(void)
{
	struct thp_settings settings;
	int pmd_order;

	if (!access(KSM_RUN, W_OK)) {
		ksm_run = read_num(KSM_RUN);
		atexit(restore_ksm);
	}
	/* An own policy keeps NUMA balancing and its hinting faults away. */
	syscall(__NR_set_mempolicy, MPOL_LOCAL, NULL, 0);

	pmd_size = read_pmd_pagesize();
	thp_writable = !access(THP_ENABLED, W_OK);
	if (!pmd_size || !thp_writable)
		return;
	/* Nothing large unless asked for. */
	pmd_order = sz2ord(pmd_size, psize());
	thp_save_settings();
	thp_read_settings(&settings);
	settings.thp_enabled = THP_MADVISE;
	settings.shmem_enabled = SHMEM_ADVISE;
	for (int i = 0; i < NR_ORDERS; i++) {
		settings.hugepages[i].enabled =
			i == pmd_order ? THP_INHERIT : THP_NEVER;
		settings.shmem_hugepages[i].enabled =
			i == pmd_order ? SHMEM_INHERIT : SHMEM_NEVER;
	}
	thp_push_settings(&settings);
}

int main(int argc, char **argv)
{
	setup_settings();
	return test_harness_run(argc, argv);
}
