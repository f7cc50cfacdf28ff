/* A model for Spin of client.WithBatches: processes take batches of units from a limiter on a server, spend them, let them
 * expire, give them back, crash and restart. Requests and replies are delayed or lost. README.md says how to run it.
 *
 * The property: in any time span L, at most the units that the limit allows in L + TTL are spent: B + (L + TTL) / T.
 * One counter checks this for all L at once. It grows by T with each unit that is spent, and shrinks by 1 per tick down
 * to 0. If more units are spent in a span, the counter exceeds B * T + TTL, and the check in spend() fails.
 */

#ifndef PROCS
#define PROCS 2 /* client processes, 2 or 3 */
#endif
#ifndef B
#define B 2     /* the limit's capacity, in units */
#endif
#ifndef T
#define T 1     /* ticks in which one unit refills */
#endif
#ifndef TTL
#define TTL 2   /* ticks for which a batch may be spent */
#endif
#ifndef BATCH
#define BATCH 2 /* the most units in a batch */
#endif
#ifndef DELAY
#define DELAY 1 /* a refund arrives within this many ticks, or never: the timeout of the client's call */
#endif
#ifndef LESS
#define LESS 0  /* tightens the property by this much: with 1 it must fail, which shows that the model reaches the bound */
#endif

/* The server: the debt of gcra, which is the number of ticks until the limit is full again. */
byte debt;

/* The counter of the property. */
byte spent;

mtype = { idle, asked, charged, holds };

typedef Process {
	mtype state;
	byte age;    /* ticks since the request was sent; it stops growing above TTL */
	byte units;  /* asked: units in the request; charged: in the reply; holds: not spent yet */
	byte stray;  /* units of a request that may still reach the server after its sender has crashed or given up */
	byte refund; /* units of a refund in transit */
	byte late;   /* ticks for which the refund has been in transit */
};
Process p[PROCS];

/* The server charges as many units as fit, up to c (UPTO), or none. */
inline charge(c, got) {
	got = (B * T - debt) / T;
	if
	:: got > c -> got = c
	:: else
	fi;
	debt = debt + got * T
}

inline give(c) {
	if
	:: debt > c * T -> debt = debt - c * T
	:: else -> debt = 0
	fi
}

inline spend() {
	spent = spent + T;
	assert(spent <= B * T + TTL - LESS)
}

/* The number of units to give back. Units that have refilled since they were charged must not be given back too. At most, these
 * are the units that refill between the request and the arrival of the refund. */
inline returnable(i, back) {
#ifdef GIVE_ALL
	back = p[i].units;
#else
	back = (p[i].age + DELAY + T - 1) / T;
	if
	:: p[i].units > back -> back = p[i].units - back
	:: else -> back = 0
	fi
#endif
}

inline nothing(i) {
	p[i].state = idle;
	p[i].units = 0;
	p[i].age = 0
}

#ifdef SPEND_LATE
#define SPENDABLE(i) (p[i].state == holds && p[i].units > 0)
#else
#define SPENDABLE(i) (p[i].state == holds && p[i].units > 0 && p[i].age <= TTL)
#endif

proctype Client(byte i) {
	byte back;
end:
	do
	:: atomic { p[i].state == idle -> /* asks for a batch of any size */
		p[i].age = 0;
		select(back : 1 .. BATCH);
		p[i].units = back;
		back = 0;
		p[i].state = asked }
#ifdef SPEND_FIRST
	:: atomic { p[i].state == asked && p[i].units > 0 -> spend(); p[i].units-- }
#endif
	:: atomic { p[i].state == charged -> /* the reply arrives */
#ifdef TTL_FROM_REPLY
		p[i].age = 0;
#endif
		p[i].state = holds }
	:: atomic { SPENDABLE(i) -> spend(); p[i].units-- }
	:: atomic { p[i].state == holds && (p[i].units == 0 || !SPENDABLE(i)) -> nothing(i) } /* spent or expired */
	:: atomic { p[i].state == holds && p[i].units > 0 && p[i].age <= TTL && p[i].refund == 0 -> /* Close */
		returnable(i, back);
		p[i].refund = back;
		back = 0;
#ifndef SPEND_GIVEN
		nothing(i)
#endif
		}
	:: atomic { p[i].state == charged -> nothing(i) } /* the reply is lost, or the process crashes */
	:: atomic { p[i].state == holds -> nothing(i) }   /* the process crashes */
	:: atomic { p[i].state == asked -> nothing(i) }   /* the request is lost, or the process crashes */
	:: atomic { p[i].state == asked && p[i].stray == 0 -> p[i].stray = p[i].units; nothing(i) } /* the request arrives later */
	od
}

proctype Server() {
	byte got, i;
end:
	do
	:: atomic {
		select(i : 0 .. PROCS - 1);
		if
		:: p[i].state == asked ->
			charge(p[i].units, got);
			p[i].units = got;
			p[i].state = charged
		:: p[i].stray > 0 -> charge(p[i].stray, got); p[i].stray = 0
		:: p[i].stray > 0 -> p[i].stray = 0
		:: p[i].refund > 0 -> give(p[i].refund); p[i].refund = 0; p[i].late = 0
#ifdef GIVE_TWICE
		:: p[i].refund > 0 -> give(p[i].refund) /* the reply is lost, and the client sends the refund again */
#endif
		:: p[i].refund > 0 -> p[i].refund = 0; p[i].late = 0 /* the refund is lost */
		:: else
		fi;
		got = 0; i = 0 }
	od
}

#ifdef GIVE_LATE
#define PASSES(i) true
#else
#define PASSES(i) (p[i].refund == 0 || p[i].late < DELAY)
#endif
#if PROCS > 2
#define ALL_PASS (PASSES(0) && PASSES(1) && PASSES(2))
#else
#define ALL_PASS (PASSES(0) && PASSES(1))
#endif

proctype Clock() {
	byte i;
end:
	do
	:: atomic { ALL_PASS ->
		for (i : 0 .. PROCS - 1) {
			if
			:: p[i].state != idle && p[i].age <= TTL -> p[i].age++
			:: else
			fi;
			if
			:: p[i].refund > 0 && p[i].late < DELAY -> p[i].late++
			:: else
			fi
		}
		i = 0;
		if
		:: debt > 0 -> debt--
		:: else
		fi;
		if
		:: spent > 0 -> spent--
		:: else
		fi }
	od
}

init {
	byte i;
	atomic {
		for (i : 0 .. PROCS - 1) {
			p[i].state = idle;
			run Client(i)
		}
		i = 0;
		run Server();
		run Clock()
	}
}
