/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One PTE, the kernel that changes its protection under the page table lock,
 * and two CPUs that go on using the page: may the kernel leave out clearing
 * the PTE first?
 *
 * The page walker follows Intel SDM vol. 3A 5.7 and 5.10 and AMD APM vol. 2
 * 5.4.2: Accessed is set, speculatively too, by an atomic read-modify-write
 * that checks again that the PTE is present; Dirty likewise, on a real write
 * only, and checks again that the PTE is writable. A TLB entry keeps what it
 * was filled with until it is flushed; a write through one that has not seen
 * Dirty goes back to the PTE.
 *
 * -DQUIRK   CPUs before shadow stacks may set Dirty through a stale TLB entry
 *           although the PTE is no longer writable: arch_check_zapped_pte()
 * -DCLEAR   what v7.3 does: exchange the PTE with 0, then store
 * -DRULE=n  when to store without an atomic; default: as the series does
 * -DHALVES  the PTE takes two stores, as on 32-bit PAE
 */

#define P	1	/* Present */
#define W	2	/* Write */
#define A	4	/* Accessed */
#define D	8	/* Dirty */
#define S	16	/* SavedDirty: software's Dirty for PTEs without Write */
#define HI	32	/* a bit of the upper half, NX say; set if and only if !W */

#define has(x, bits)	(((x) & (bits)) == (bits))
#define young(x)	has(x, A)
#define dirty(x)	(((x) & (D | S)) != 0)

#ifndef RULE
#define SKIP(x)	(!has(x, P) || (young(x) && dirty(x)))
#elif RULE == 1		/* although not young */
#define SKIP(x)	(!has(x, P) || dirty(x))
#elif RULE == 2		/* although writable and clean */
#define SKIP(x)	(!has(x, P) || young(x))
#elif RULE == 3		/* always */
#define SKIP(x)	true
#elif RULE == 4		/* and if read-only and clean */
#define SKIP(x)	(!has(x, P) || (young(x) && (has(x, D) || !has(x, W))))
#endif

#define CPUS	2

byte pte;
byte tlb[CPUS];		/* 0: no entry; else P | W | D as it was filled */

/* What really happened, that the PTE has to tell in the end. */
bool accessed, written;
/* Since the flush, until it is lifted: writes must fault. */
bool readonly;
bool done;

/* A walker never sees one half of a change. */
#define check_halves(x)	\
	assert(!has(x, P) || (has(x, W) != has(x, HI)))

proctype cpu(byte id)
{
	byte seen;

	do
	:: done -> break

	/* A read, maybe speculative: fill the TLB, set Accessed. */
	:: tlb[id] == 0 ->
		seen = pte;
		check_halves(seen);
		if
		:: !has(seen, P)		/* fault */
		:: has(seen, P) ->
			atomic {
				if
				:: has(pte, P) ->
					pte = pte | A;
					accessed = true;
					tlb[id] = pte & (P | W | D)
				:: else
				fi
			}
		fi

	/* A write. */
	:: has(tlb[id], W | D) ->
		atomic {
			if
			:: has(tlb[id], W | D) ->	/* no walk needed */
				assert(!readonly);
				written = true
			:: else
			fi
		}
	:: has(tlb[id], W) && !has(tlb[id], D) ->
		atomic {
			if
			:: !has(tlb[id], W)		/* flushed meanwhile */
			:: has(tlb[id], W) && has(pte, P | W) ->
				pte = pte | A | D;
				tlb[id] = tlb[id] | D;
				assert(!readonly);
				accessed = true;
				written = true
#ifdef QUIRK
			:: has(tlb[id], W) && has(pte, P) && !has(pte, W) ->
				pte = pte | A | D;
				assert(!readonly);
				accessed = true;
				written = true;
				tlb[id] = 0
#endif
			:: has(tlb[id], W) && !has(pte, P | W) ->
				tlb[id] = 0		/* fault */
			fi
		}
	:: tlb[id] != 0 -> tlb[id] = 0			/* evicted */
	od
}

/* pte_modify(): Dirty moves to SavedDirty and back with Write. */
inline change(to, from, prot)
{
	to = (from & (A | D | S)) | prot;
	if
	:: has(prot, P | W) && has(to, S) -> to = (to & ~S) | D
	:: !has(prot, W) && has(to, D) -> to = (to & ~D) | S
	:: else
	fi
}

inline store(x)
{
#ifdef HALVES
	pte = (pte & HI) | ((x) & ~HI);
#endif
	pte = x
}

inline modify_prot(prot)
{
	old = pte;				/* ptep_modify_prot_start() */
#ifdef CLEAR
	atomic { old = pte; pte = 0 }
#endif
	change(new, old, prot);
	seen = old;
#ifdef CLEAR
	store(new);
#else
	if
	:: SKIP(old) -> store(new)
	:: else ->
		do
		:: atomic {
			if
			:: pte == seen -> pte = new; committed = true
			:: else -> seen = pte
			fi
		   }
		   if
		   :: committed -> committed = false; break
		   :: else ->
			new = new | (seen & ~old & A);
			if
			:: has(seen & ~old, D) && !dirty(new) ->
				new = new | (has(new, W) -> D : S)
			:: else
			fi
		   fi
		od
	fi;
#endif
}

inline flush()
{
	tlb[0] = 0;
	tlb[1] = 0
}

active proctype kernel()
{
	byte old, new, seen, n;
	bool committed = false;

	/* Any PTE that a page can have before mprotect(). */
	if
	:: pte = P | W
	:: pte = P | W | A
	:: pte = P | W | A | D; written = true
	:: pte = P | W | D; written = true
	:: pte = P | HI | A
	:: pte = P | HI
	:: pte = P | HI | A | S; written = true
	:: pte = P | HI | S; written = true
	fi;
	accessed = has(pte, A);
	run cpu(0);
	run cpu(1);

	n = 0;
	do
	:: n == 3 -> break
	:: else ->
		n++;
		if
		:: modify_prot(P | HI); flush(); readonly = true	/* PROT_READ */
		:: modify_prot(HI); flush(); readonly = true		/* PROT_NONE */
		:: readonly = false; modify_prot(P | W)	/* no flush: more rights */
		/*
		 * Another thread changes it again before the first one has
		 * flushed: userfaultfd and NUMA hinting do so under the
		 * mmap lock taken for read.
		 */
		:: modify_prot(P | HI); modify_prot(HI); flush(); readonly = true
		fi
	od;
	done = true;
	(_nr_pr == 1);

	assert(!accessed || young(pte));
	assert(!written || dirty(pte))
}
