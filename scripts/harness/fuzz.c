// SPDX-License-Identifier: GPL-2.0-only
/*
 * libFuzzer on the generator of the judge: its bytes are the decisions, the
 * edges of the second kernel's mm/mprotect.o are what it is after.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "judge.h"

#define NR_COUNTERS	4096

__attribute__((section("__libfuzzer_extra_counters")))
static uint8_t counters[NR_COUNTERS];

/* GCC's __sanitizer_cov_trace_pc(), in every basic block; renamed. */
void fuzz_trace_pc(void);
void fuzz_trace_pc(void)
{
	static uintptr_t last;
	uintptr_t pc = (uintptr_t)__builtin_return_address(0);

	counters[(pc ^ last) % NR_COUNTERS]++;
	last = pc >> 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct judge judge;
	static struct test_case c;
	static int ready;
	struct rng r = { .data = data, .size = size };

	if (!ready) {
		judge_init(&judge);
		zoo_make(&judge.world, 1, 0);
		ready = 1;
	}
	if (!size)
		return 0;
	case_make(&judge.world, &c, &r);
	if (judge_case(&judge, &c) != DIFFERENT)
		return 0;
	judge_minimise(&judge, &c);
	judge_print(&judge, &c);
	fflush(stdout);
	abort();
}
