// SPDX-License-Identifier: GPL-2.0
/*
 * mprotect_stress - does a write or a Dirty bit get lost while the protection
 * of the page changes?
 *
 * Threads write to slots of their own in a range of pages and note what they
 * wrote, while the main thread toggles the protection of the range. Then all
 * stop, and everything must be as noted: in memory, and after the kernel was
 * made to drop what it takes to be clean. So that this can fail, the pages are
 * clean and (but for SYNC) writable when a round starts:
 *
 *   FREE  MADV_FREE; a page that is not dirty again is freed by MADV_PAGEOUT
 *   HOLE  a hole in a tmpfs file, only read so far; the same
 *   SWAP  just swapped in; if not dirty again, the copy in swap is taken
 *   SYNC  msync(); then read from the disk with O_DIRECT, and once more after
 *         the page cache was dropped
 *
 * While PROT_READ holds, no store may reach the page: it is read twice.
 *
 * One KTAP test a variant. It wants root, and what guest.sh sets up.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE		4096UL
#define SLOT		512UL	/* O_DIRECT reads no less */
#define SLOTS		(PAGE / SLOT)
#define CHILD_SLOT	(SLOTS - 1)
#define STORES		3	/* threads that store */
#define MAX_PAGES	512UL
#define DIO_VALUES	4096UL

typedef uint64_t u64;
struct worker;
/* Returns what is in the slot now, or 0 if it did not write. */
typedef u64 op_fn(struct worker *w, size_t page, u64 value);

struct worker {
	pthread_t thread;
	op_fn *op;
	unsigned int slot;
	u64 seed, value, denied_gen;
};

struct variant {
	const char *name;
	enum { ANON, ANON_MTHP, TMPFS, DISK } mem;
	enum { KEEP, FREE, HOLE, SWAP, SYNC } clean;
	op_fn *ops[4];		/* besides the stores */
	const char *event;	/* in /proc/vmstat; must occur */
	char **swap;
	bool whole;		/* toggle no parts */
};

static char *disk, *swap_disk, *swap_zram;
static long seconds = 10;
static u64 seed = 1;

static const struct variant *var;
static size_t npages, size;
static char *region, *copy;
static int fd, direct_fd, values_fd, pipe_fd[2];
static struct worker workers[SLOTS];
static unsigned int nworkers;
static u64 noted[SLOTS][MAX_PAGES], before[STORES][MAX_PAGES];
static bool touched[MAX_PAGES];
static pthread_barrier_t barrier;
static atomic_int working;
static atomic_bool stop, quit;
static atomic_uint failures, refusals;
static _Atomic u64 gen;	/* odd while pages may be protected */
static __thread struct worker *self;

static u64 rnd(u64 *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* The first few say it all. */
#define fail(fmt, ...)							\
	do {								\
		if (failures++ < 8)					\
			dprintf(1, "# %s: " fmt "\n", var->name, ##__VA_ARGS__); \
	} while (0)

static volatile u64 *slot_of(char *base, size_t page, unsigned int slot)
{
	return (volatile u64 *)(base + page * PAGE + slot * SLOT);
}

/*
 * The page could not be accessed. That is right while it is protected, and can
 * be seen late; but not twice in the same time in which it was not.
 */
static void denied(size_t page)
{
	u64 g = gen;

	refusals++;
	if (!(g & 1) && self->denied_gen == g)
		fail("page %zu: access refused, but it is readable and writable",
		     page);
	self->denied_gen = g;
	while ((gen & 1) && !failures)
		usleep(20);
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
	char *addr = info->si_addr;

	if (!self || addr < region || addr >= region + size)
		abort();
	denied((addr - region) / PAGE);
	/* The store will be repeated in any case. */
	if (failures)
		mprotect(region, size, PROT_READ | PROT_WRITE);
}

/* A system call failed: as the page was protected, or what else? */
static void call_failed(size_t page, const char *call)
{
	if (errno == EFAULT)
		denied(page);
	else
		fail("page %zu: %s: %s", page, call, strerror(errno));
}

static u64 op_store(struct worker *w, size_t page, u64 value)
{
	*slot_of(region, page, w->slot) = value;
	return value;
}

static u64 op_vm_writev(struct worker *w, size_t page, u64 value)
{
	struct iovec from = { &value, sizeof(value) };
	struct iovec to = { (void *)slot_of(region, page, w->slot), sizeof(value) };

	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof(value))
		return value;
	call_failed(page, "process_vm_writev");
	return 0;
}

/* Sector n of the file has the value n. */
static u64 op_direct_read(struct worker *w, size_t page, u64 value)
{
	value = 1 + value % (DIO_VALUES - 1);
	if (pread(values_fd, (void *)slot_of(region, page, w->slot), SLOT,
		  value * SLOT) == SLOT)
		return value;
	call_failed(page, "O_DIRECT read");
	return 0;
}

/* The pipe refers to the page: it must show what is stored afterwards. */
static u64 op_vmsplice(struct worker *w, size_t page, u64 value)
{
	struct iovec iov = { (void *)slot_of(region, page, w->slot), sizeof(value) };
	u64 seen = 0;

	op_store(w, page, value);
	if (vmsplice(pipe_fd[1], &iov, 1, 0) != sizeof(value)) {
		call_failed(page, "vmsplice");
		return value;
	}
	op_store(w, page, ++value);
	if (read(pipe_fd[0], &seen, sizeof(seen)) != sizeof(seen) || seen != value)
		fail("page %zu: %lu in the pipe, %lu was stored: not the same page",
		     page, seen, value);
	return value;
}

static u64 op_msync(struct worker *w, size_t page, u64 value)
{
	if (msync(region, size, MS_SYNC))
		fail("msync: %s", strerror(errno));
	return 0;
}

static u64 op_pageout(struct worker *w, size_t page, u64 value)
{
	madvise(region + page * PAGE, PAGE * (1 + value % (npages - page)), MADV_PAGEOUT);
	return 0;
}

static u64 op_migrate(struct worker *w, size_t page, u64 value)
{
	void *pages[64];
	int nodes[64], status[64];

	for (int i = 0; i < 64; i++) {
		pages[i] = region + (page + i) % npages * PAGE;
		nodes[i] = value >> 1 & 1;
	}
	syscall(SYS_move_pages, 0, 64, pages, nodes, status, 2 /* MPOL_MF_MOVE */);
	return 0;
}

/*
 * The child's pages are what they were when it was forked, whatever is written
 * to the parent's, and the other way round.
 */
static u64 op_fork(struct worker *w, size_t page, u64 value)
{
	int status = 0;
	pid_t pid = fork();

	if (pid) {
		if (waitpid(pid, &status, 0) != pid || status)
			fail("fork: child %d, status 0x%x", pid, status);
		return 0;
	}
	signal(SIGSEGV, SIG_DFL);
	mprotect(region, size, PROT_READ | PROT_WRITE);
	memcpy(copy, region, size);
	for (int i = 0; i < 3; i++) {
		sched_yield();
		for (size_t p = 0; p < npages; p++)
			if (memcmp(region + p * PAGE, copy + p * PAGE, PAGE)) {
				fail("page %zu: changed in the child", p);
				_exit(1);
			}
	}
	for (size_t p = 0; p < npages; p++)
		*slot_of(region, p, CHILD_SLOT) = value;
	_exit(0);
}

/* The scheduler would need some ticks to find a CPU for each thread. */
static void pin(unsigned int n)
{
	const unsigned int nr = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(n && nr > 1 ? 1 + n % (nr - 1) : 0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const bool store = w->slot < STORES;
	size_t page, step, n;
	u64 is;

	self = w;
	pin(w->slot + 1);
	for (;;) {
		pthread_barrier_wait(&barrier);
		if (quit)
			return NULL;
		/*
		 * mprotect() goes upwards. Who goes downwards is sure to meet
		 * it. Each starts with pages that nobody has made dirty yet.
		 */
		page = (w->slot + 1) * npages / STORES - 1;
		step = npages - (rnd(&w->seed) & 1 ? 1 : 1 + rnd(&w->seed) % 7);
		n = store ? npages * (1 + rnd(&w->seed) % 2) : -1UL;
		if (store)
			usleep(rnd(&w->seed) % 2000);
		for (page %= npages; n && !stop && !failures; n--) {
			is = w->op(w, page, w->value + 1);
			w->value += 2;
			if (is) {
				noted[w->slot][page] = is;
				touched[page] = true;
			}
			page = (page + step) % npages;
		}
		working -= store;
		pthread_barrier_wait(&barrier);
	}
}

/* What GUP has got before may still be written to; so not the other slots. */
static void check_frozen(size_t from, size_t to, size_t step)
{
	u64 is;

	for (size_t p = from; p < to; p += step)
		for (unsigned int i = 0; i < STORES; i++)
			before[i][p] = *slot_of(region, p, i);
	if (step == 1)
		usleep(20);
	for (size_t p = from; p < to; p += step)
		for (unsigned int i = 0; i < STORES; i++) {
			is = *slot_of(region, p, i);
			if (is != before[i][p])
				fail("page %zu slot %u: was %lu, is %lu after mprotect(PROT_READ)",
				     p, i, before[i][p], is);
		}
}

static void toggle(u64 *s)
{
	int prot = PROT_READ | PROT_WRITE | PROT_EXEC;
	size_t from = 0, to = npages;

	if (!var->whole && rnd(s) & 1) {
		from = rnd(s) % npages;
		to = from + 1 + rnd(s) % (npages - from);
	}
	if (rnd(s) & 1)
		prot = rnd(s) % 4 ? PROT_READ : PROT_NONE;
	gen++;
	if (mprotect(region + from * PAGE, (to - from) * PAGE, prot))
		fail("mprotect: %s", strerror(errno));
	else if (prot == PROT_READ)
		check_frozen(from, to, rnd(s) % 8 ? 31 : 1);
	if (mprotect(region + from * PAGE, (to - from) * PAGE, PROT_READ | PROT_WRITE))
		fail("restoring mprotect: %s", strerror(errno));
	gen++;
}

/* Is everything in base as noted? */
static void verify(char *base, const char *where)
{
	static const char zeroes[PAGE];

	for (size_t p = 0; p < npages; p++) {
		/* Freed, as nobody wrote to it after MADV_FREE. */
		bool freed = var->clean == FREE && !touched[p] &&
			     !memcmp(base + p * PAGE, zeroes, PAGE);

		for (unsigned int s = 0; s < SLOTS; s++) {
			u64 is = *slot_of(base, p, s);

			if (freed)
				noted[s][p] = 0;
			if (is != noted[s][p])
				fail("page %zu slot %u: found %lu %s, expected %lu",
				     p, s, is, where, noted[s][p]);
		}
	}
}

static void read_back(int from, const char *where)
{
	if (pread(from, copy, size, 0) != (ssize_t)size)
		fail("cannot read back %s: %s", where, strerror(errno));
	else
		verify(copy, where);
}

static void make_clean(void)
{
	memset(touched, 0, sizeof(touched));
	if (var->clean == FREE)
		madvise(region, size, MADV_FREE);
	if (var->clean == HOLE) {
		madvise(region, size, MADV_REMOVE);
		memset(noted, 0, sizeof(noted));
		for (size_t p = 0; p < npages; p++)
			(void)*slot_of(region, p, 0);
	}
	/* The others: that is how the previous round left them. */
}

/* Let the kernel drop what it takes to be clean, and look again. */
static void drop_and_verify(void)
{
	verify(region, "in memory");
	if (var->clean == SYNC) {
		if (msync(region, size, MS_SYNC))
			fail("msync: %s", strerror(errno));
		read_back(direct_fd, "on disk after msync()");
		madvise(region, size, MADV_DONTNEED);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	} else if (var->clean != KEEP) {
		madvise(region, size, MADV_PAGEOUT);
	}
	if (fd >= 0)
		read_back(fd, "by read() after it was dropped");
	verify(region, "after it was dropped");
}

static long vmstat(const char *name)
{
	FILE *f = fopen("/proc/vmstat", "r");
	char key[64];
	long value = 0;

	while (fscanf(f, "%63s %ld", key, &value) == 2 && strcmp(key, name))
		;
	fclose(f);
	return value;
}

static int open_file(const char *dir, const char *name, int flags)
{
	char path[256];
	int f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = open(path, O_RDWR | O_CREAT | flags, 0600);
	if (f < 0)
		err(1, "%s", path);
	return f;
}

static void map_region(void)
{
	/* What is slow has fewer pages, so that there are some rounds. */
	npages = var->ops[0] ? MAX_PAGES / 4 : MAX_PAGES;
	size = npages * PAGE;
	memset(copy, 0, size);
	fd = direct_fd = -1;
	if (var->mem == TMPFS)
		fd = open_file("/dev/shm", "stress", O_TRUNC);
	if (var->mem == DISK) {
		fd = open_file(disk, "stress", O_TRUNC);
		direct_fd = open_file(disk, "stress", O_DIRECT);
	}
	if (fd >= 0 && (write(fd, copy, size) != (ssize_t)size || fsync(fd)))
		err(1, "cannot write the file");
	/* Far from others: NUMA hinting forgets about a VMA that is merged. */
	region = mmap((void *)0x200000000000, size, PROT_READ | PROT_WRITE,
		      fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (region == MAP_FAILED)
		err(1, "mmap");
	madvise(region, size, var->mem == ANON_MTHP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	if (fd < 0)
		memset(region, 0, size);
	memset(noted, 0, sizeof(noted));
}

static bool happened(long events)
{
	return refusals && (!var->event || vmstat(var->event) > events);
}

static void run(void)
{
	unsigned long rounds = 0, toggles = 0;
	time_t start = time(NULL);
	long events = var->event ? vmstat(var->event) : 0;
	u64 s = seed;
	unsigned int n;

	failures = refusals = nworkers = 0;
	stop = quit = false;
	while (nworkers < STORES || var->ops[nworkers - STORES])
		nworkers++;
	pthread_barrier_init(&barrier, NULL, nworkers + 1);
	for (n = 0; n < nworkers; n++) {
		workers[n] = (struct worker){
			.op = n < STORES ? op_store : var->ops[n - STORES],
			.slot = n, .seed = seed * 1000003 + n, .denied_gen = -1,
		};
		if (pthread_create(&workers[n].thread, NULL, work, &workers[n]))
			errx(1, "cannot start a thread");
	}
	if (var->swap && swapon(*var->swap, 0))
		err(1, "swapon %s", *var->swap);

	/* A round may be long, and what it is about may take some luck. */
	while (!failures && (time(NULL) < start + seconds ||
			     (time(NULL) < start + seconds + 30 && !happened(events)))) {
		make_clean();
		working = STORES;
		stop = false;
		pthread_barrier_wait(&barrier);
		while (working) {
			for (n = rnd(&s) % 32; n; n--, toggles++)
				toggle(&s);
			/* Let page faults have the mmap_lock. */
			usleep(20);
		}
		stop = true;
		pthread_barrier_wait(&barrier);
		rounds++;
		if (!failures)
			drop_and_verify();
	}
	if (failures)
		printf("# %s: failed after %ld s\n", var->name, time(NULL) - start);
	quit = true;
	pthread_barrier_wait(&barrier);
	for (n = 0; n < nworkers; n++)
		pthread_join(workers[n].thread, NULL);
	pthread_barrier_destroy(&barrier);
	if (var->swap && swapoff(*var->swap))
		err(1, "swapoff %s", *var->swap);
	if (!failures && !happened(events))
		fail("what it is about did not happen: not a test");
	printf("# %s: %lu rounds, %lu toggles, refused %u times",
	       var->name, rounds, toggles, refusals);
	if (var->event)
		printf(", %s %ld", var->event, vmstat(var->event) - events);
	printf("\n");
}

/* The kernel hints at NUMA all the time, but forgets about a VMA that is split. */
static const struct variant variants[] = {
	{ "anon", ANON, FREE, .event = "pglazyfree" },
	{ "anon-mthp", ANON_MTHP, FREE, .event = "pglazyfree" },
	{ "anon-fork", ANON, KEEP, { op_fork } },
	{ "anon-mthp-fork", ANON_MTHP, KEEP, { op_fork } },
	{ "anon-gup", ANON, FREE, { op_vm_writev, op_vmsplice, op_direct_read } },
	{ "anon-swap", ANON, SWAP, .event = "pswpout", .swap = &swap_disk },
	{ "anon-pageout", ANON, SWAP, { op_pageout }, "pswpin", &swap_disk },
	{ "anon-zram", ANON, SWAP, { op_pageout }, "pswpin", &swap_zram },
	{ "anon-migrate", ANON, FREE, { op_migrate }, "pgmigrate_success" },
	{ "anon-numa", ANON, FREE, .event = "numa_pte_updates", .whole = true },
	{ "tmpfs", TMPFS, HOLE },
	{ "tmpfs-gup", TMPFS, HOLE, { op_vm_writev, op_vmsplice, op_direct_read } },
	{ "tmpfs-pageout", TMPFS, HOLE, { op_pageout }, "pswpout", &swap_disk },
	{ "tmpfs-migrate", TMPFS, HOLE, { op_migrate }, "pgmigrate_success" },
	{ "tmpfs-numa", TMPFS, HOLE, .event = "numa_pte_updates", .whole = true },
	{ "disk", DISK, SYNC, { op_msync } },
	{ "disk-gup", DISK, SYNC, { op_vm_writev, op_vmsplice, op_direct_read } },
	{ "disk-pageout", DISK, SYNC, { op_msync, op_pageout } },
	{ "disk-migrate", DISK, SYNC, { op_migrate }, "pgmigrate_success" },
	{ }
};

static bool wanted(char **names)
{
	for (char **name = names; *name; name++)
		if (!strcmp(*name, var->name))
			return true;
	return !*names;
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };
	unsigned int n = 0, bad = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int c; (c = getopt(argc, argv, "s:r:d:w:z:")) != -1; )
		switch (c) {
		case 's': seconds = atol(optarg); break;
		case 'r': seed = strtoull(optarg, NULL, 0); break;
		case 'd': disk = optarg; break;
		case 'w': swap_disk = optarg; break;
		case 'z': swap_zram = optarg; break;
		}
	argv += optind;
	for (var = variants; var->name; var++)
		n += wanted(argv);
	if (seconds <= 0 || !seed || !disk || !swap_disk || !n)
		errx(2, "usage: -d DIRECTORY -w SWAP_DEVICE [-z ZRAM_DEVICE] [-s SECONDS] [-r SEED] [VARIANT]...");
	pin(0);
	copy = aligned_alloc(PAGE, MAX_PAGES * PAGE);
	values_fd = open_file(disk, "values", O_DIRECT);
	for (u64 v = 0; v < DIO_VALUES; v++)
		*(u64 *)(copy + v * SLOT) = v;
	if (write(values_fd, copy, DIO_VALUES * SLOT) != DIO_VALUES * SLOT ||
	    pipe(pipe_fd))
		err(1, "cannot set up");
	sigaction(SIGSEGV, &act, NULL);

	printf("TAP version 13\n1..%u\n", n);
	n = 0;
	for (var = variants; var->name; var++) {
		if (!wanted(argv))
			continue;
		if (var->swap && !*var->swap) {
			printf("ok %u %s # SKIP no such swap device\n", ++n, var->name);
			skipped++;
			continue;
		}
		map_region();
		run();
		munmap(region, size);
		close(fd);
		close(direct_fd);
		printf("%s %u %s\n", failures ? "not ok" : "ok", ++n, var->name);
		bad += !!failures;
	}
	printf("# Totals: pass:%u fail:%u skip:%u\n", n - bad - skipped, bad, skipped);
	return !!bad;
}
