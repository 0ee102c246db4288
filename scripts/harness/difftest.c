// SPDX-License-Identifier: GPL-2.0-only
/*
 * Usage: difftest [--seed N] [--cases N] [--case N] [--jobs N] [--either]
 *
 * Run change_protection() of two kernels on the same random page tables and
 * compare everything it leaves. The first case that differs is made small
 * and printed with both results.
 *
 *   --seed N    default 1
 *   --cases N   how many (default 10000000)
 *   --case N    replay this one only, print it and both results
 *   --jobs N    default: all CPUs
 *   --either    RULE_EITHER of judge.h applies
 *
 * Exit code: 0 all same (or as a rule allows), 1 a difference, 2 usage.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "judge.h"

/* Struct pages and the surroundings are looked at this often. */
#define STRAY_EVERY	4096UL
/* And the race against hardware, which takes much longer, is run. */
#define RACE_EVERY	16384UL
#define MAX_JOBS	1024
/* Of CPU time for one case, which takes 50 ms at most. */
#define HANG_SECONDS	5

struct shared {
	unsigned long next_zoo;			/* atomic */
	unsigned long done;			/* atomic */
	unsigned long verdicts[NR_ALLOWED];	/* atomic */
	unsigned long races;			/* atomic */
	int stop;
	struct {
		unsigned long now;		/* the case it works at */
	} __attribute__((aligned(64))) job[MAX_JOBS];
};

static struct judge judge;
static struct test_case test_case;
static struct shared *shared;
static unsigned long seed = 1, nr_cases = 10000000;

static enum verdict one_case(unsigned long number)
{
	struct rng r;

	rng_seed(&r, seed, number);
	case_make(&judge.world, &test_case, &r);
	return judge_case(&judge, &test_case);
}

static void new_zoo(unsigned long number)
{
	zoo_make(&judge.world, seed, number);
	h_base.set_cpu(judge.world.shadow_stacks);
	h_other.set_cpu(judge.world.shadow_stacks);
}

static void replay(unsigned long number)
{
	char text[512];
	enum verdict v;

	new_zoo(number / CASES_PER_ZOO);
	v = one_case(number);
	if (judge_race(&judge, &test_case, text) < 0)
		printf("race: %s\n", text);
	printf("case %lu of seed %lu: %s\n", number, seed,
	       v == DIFFERENT ? "DIFFERENT" : rule_text[v]);
	judge_print(&judge, &test_case);
	if (v != DIFFERENT)
		return;
	judge_minimise(&judge, &test_case);
	printf("minimised:\n");
	judge_print(&judge, &test_case);
}

/* Only this process's first failure is told, and only the first process's. */
static void fail(unsigned long number, const char *stray)
{
	if (__sync_lock_test_and_set(&shared->stop, 1))
		return;
	if (stray)
		printf("case %lu of seed %lu: %s was written to\n", number,
		       seed, stray);
	replay(number);
	printf("replay with: --seed %lu --case %lu\n", seed, number);
	fflush(stdout);
}

/* Which of the cases up to last wrote to what it must not? */
static void find_stray(unsigned long first, unsigned long last)
{
	const char *what = NULL;
	unsigned long n;

	for (n = first; n <= last; n++) {
		one_case(n);
		what = judge_stray(&judge);
		if (what)
			break;
	}
	fail(n, what ? what : "something, but not when replayed,");
}

static void work(int job)
{
	unsigned long counts[NR_ALLOWED] = {}, zoo, first, n, end, i;
	enum verdict v;
	char text[512];
	int race;

	while (!shared->stop) {
		zoo = __sync_fetch_and_add(&shared->next_zoo, 1);
		first = zoo * CASES_PER_ZOO;
		if (first >= nr_cases)
			break;
		end = first + CASES_PER_ZOO;
		if (end > nr_cases)
			end = nr_cases;
		new_zoo(zoo);
		for (n = first; n < end && !shared->stop; n++) {
			shared->job[job].now = n;
			v = one_case(n);
			if (v == DIFFERENT) {
				fail(n, NULL);
				exit(1);
			}
			counts[v]++;
			if (n % RACE_EVERY)
				goto stray;
			race = judge_race(&judge, &test_case, text);
			if (race < 0) {
				fail(n, NULL);
				exit(1);
			}
			__sync_fetch_and_add(&shared->races, race);
stray:
			if ((n + 1) % STRAY_EVERY && n + 1 != end)
				continue;
			if (judge_stray(&judge)) {
				find_stray(n / STRAY_EVERY * STRAY_EVERY, n);
				exit(1);
			}
			__sync_fetch_and_add(&shared->done,
					     n % STRAY_EVERY + 1);
		}
	}
	for (i = 0; i < NR_ALLOWED; i++)
		__sync_fetch_and_add(&shared->verdicts[i], counts[i]);
	exit(0);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* What a process has used; other load on the machine does not count. */
static double used(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int all(int jobs)
{
	static unsigned long last[MAX_JOBS];
	static double moved[MAX_JOBS];
	static pid_t pid[MAX_JOBS];
	double began = now(), told = began;
	int i, running = jobs, status, rc = 0;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	fflush(stdout);
	for (i = 0; i < jobs; i++) {
		pid[i] = fork();
		if (pid[i] < 0)
			err(1, "fork");
		if (!pid[i]) {
			judge_init(&judge);
			work(i);
		}
	}
	while (running) {
		const struct timespec tick = { .tv_nsec = 20000000 };

		nanosleep(&tick, NULL);
		for (i = 0; i < jobs; i++) {
			if (!pid[i])
				continue;
			if (shared->job[i].now != last[i]) {
				last[i] = shared->job[i].now;
				moved[i] = used(pid[i]);
			} else if (used(pid[i]) - moved[i] > HANG_SECONDS) {
				printf("case %lu of seed %lu: does not return\n",
				       last[i], seed);
				kill(pid[i], SIGKILL);
				moved[i] += HANG_SECONDS;
			}
			if (waitpid(pid[i], &status, WNOHANG) != pid[i])
				continue;
			pid[i] = 0;
			running--;
			if (WIFSIGNALED(status)) {
				printf("case %lu of seed %lu: signal %d\n",
				       shared->job[i].now, seed,
				       WTERMSIG(status));
				shared->stop = 1;
			}
			if (status)
				rc = 1;
		}
		if (now() - told > 10) {
			told = now();
			fprintf(stderr, "[%4.0fs] %lu of %lu cases\n",
				told - began, shared->done, nr_cases);
		}
	}
	printf("%lu cases, %.0f a second on %d CPUs, seed %lu\n", shared->done,
	       shared->done / (now() - began), jobs, seed);
	for (i = 0; i < NR_ALLOWED; i++)
		printf("%12lu %s\n", shared->verdicts[i], rule_text[i]);
	printf("%12lu of them also against hardware that sets A and D\n",
	       shared->races);
	printf("%s\n", rc ? "DIFFERENT" : "no difference");
	return rc;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 0);
	if (errno || *end || end == text)
		errx(2, "not a number: '%s'", text);
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "cases", required_argument, NULL, 'n' },
		{ "case", required_argument, NULL, 'c' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "either", no_argument, NULL, 'e' },
		{ }
	};
	unsigned long jobs = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned long single = -1UL;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 's': seed = number(optarg); break;
		case 'n': nr_cases = number(optarg); break;
		case 'c': single = number(optarg); break;
		case 'j': jobs = number(optarg); break;
		case 'e': judge.either = true; break;
		default: return 2;
		}
	}
	if (optind != argc || !jobs || jobs > MAX_JOBS)
		errx(2, "usage: see the top of difftest.c");
	if (h_base.size_of_page != h_other.size_of_page)
		errx(1, "struct page differs between the kernels");
	if (single == -1UL)
		return all(jobs);
	judge_init(&judge);
	replay(single);
	return 0;
}
