/* What client.WithBatches does with a limiter on a server, for Spin: processes take batches of units, spend them, let them
 * expire, give them back, crash and start again; requests and replies are late or lost. README.md says how to run it.
 *
 * The property: in any span L no more units are spent than the limit allows in L + TTL, which is B + (L + TTL) / T.
 * One counter says so for every L at once: it rises by T with each unit spent, falls by 1 a tick, never below 0, and is
 * never above B * T + TTL (the check in spend()). A span in which more was spent would have lifted it above that.
 */

#ifndef PROCS
#define PROCS 2 /* client processes, 2 or 3 */
#endif
#ifndef B
#define B 2     /* the limit's capacity, in units */
#endif
#ifndef T
#define T 1     /* ticks in which one unit comes back */
#endif
#ifndef TTL
#define TTL 2   /* ticks for which a batch may be spent */
#endif
#ifndef BATCH
#define BATCH 2 /* units in a batch at most */
#endif
#ifndef DELAY
#define DELAY 1 /* ticks after which a refund has arrived, or never will: the bound of the client's call */
#endif
#ifndef LESS
#define LESS 0  /* by how much to tighten the property: with 1 it must fail, or the model would not reach the bound */
#endif

/* The server: gcra's debt, the ticks until it is full again. */
byte debt;

/* Units spent, as the property counts them. */
byte spent;

mtype = { idle, asked, charged, holds };

typedef Process {
	mtype state;
	byte age;    /* ticks since before the request was sent; above TTL it no longer grows */
	byte units;  /* asked: in the request; charged: in the reply; holds: left to spend */
	byte stray;  /* units of a request that may reach the server though its sender has gone, or has given up */
	byte refund; /* units of a refund on its way */
	byte late;   /* ticks for which that has been on its way */
};
Process p[PROCS];

/* The server takes as many units as fit, from 1 to c (UPTO), or none. */
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

/* What may be given back of units that are left: what has come back by itself since they were charged is there already. At
 * most so much has as comes back from before the request until the refund arrives. */
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
	:: atomic { p[i].state == idle -> /* asks for a batch, of any size */
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
	:: atomic { p[i].state == holds && (p[i].units == 0 || !SPENDABLE(i)) -> nothing(i) } /* spent, or let go */
	:: atomic { p[i].state == holds && p[i].units > 0 && p[i].age <= TTL && p[i].refund == 0 -> /* Close */
		returnable(i, back);
		p[i].refund = back;
		back = 0;
#ifndef SPEND_GIVEN
		nothing(i)
#endif
		}
	:: atomic { p[i].state == charged -> nothing(i) } /* the reply is lost, or a crash */
	:: atomic { p[i].state == holds -> nothing(i) }   /* a crash */
	:: atomic { p[i].state == asked -> nothing(i) }   /* the request is lost, or a crash */
	:: atomic { p[i].state == asked && p[i].stray == 0 -> p[i].stray = p[i].units; nothing(i) } /* it still arrives */
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
		:: p[i].refund > 0 -> give(p[i].refund) /* its reply is lost, and the client asks again */
#endif
		:: p[i].refund > 0 -> p[i].refund = 0; p[i].late = 0 /* lost */
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
