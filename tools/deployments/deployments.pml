/* A model of a deployment to several primaries. loader/PROTOCOL.md has the rules that it follows, with the
 * same numbers. Spin searches every order of the steps of two deployers, a watch, and a world in which
 * primaries fail, replies are lost, writes arrive late, and leases expire. check.sh lists the searches.
 *
 * A text has a part for each of two namespaces. A part has 10 bits: number (4), value (3), and the value that
 * it replaced (3). Value 0 is a tombstone; a part of 0 is no part. Parts are compared as numbers, which
 * is the order (number, content).
 *
 * Each switch (-D) turns the protocol into a faulty one, or changes what happens:
 *   LEASES  0: no leases; 1: a lease on the leader only
 *   READ    0: the nodes are read before the leases are taken (rule 4)
 *   KEEP    0: a part does not keep what it replaced (rule 6)
 *   TOMB    0: a delete leaves no tombstone (rule 12)
 *   VIEW    1: the second deployer takes another primary for the leader
 *   CLOCK   0: the number is the highest number + 1, without the leader's clock (rule 5)
 *   VERIFY  0: success and undo are reported without reading again (rules 8, 9)
 *   LOOK    0: a lost lease is taken again whatever the node holds (rule 7)
 *   UNDO    0: the undo writes the old text with its old number; 1: only where something was written
 *   RECORD  1: the undo records the failed value as replaced (rule 9)
 *   FENCE   0: no fences (rule 10); 1: not before an undo; 2: not when a lease is taken over
 *   FILE    1: the watch's file has a new number; 2: it is written wherever the text differs (rule 11)
 *   FILL    1: the watch writes only to empty nodes
 *   GUARD   0: the watch takes no leases
 *   PARTS   0: one number for the whole text
 *   TWO     1: the header is a library of its own
 *   SECOND  what the second deployer does: 0 deploys its own namespace; 1 deploys the namespace of the first;
 *           2 rolls it back; 3 deploys the first one's value; 4 deletes it
 *   ADDED   1: the first deployer's namespace has no part at first
 *   NODES FAILURES LOST LATE CRASHES EXPIRED BACK ROUNDS   how many primaries there are, and how often a primary
 *           fails, a reply or a command is lost, a write arrives late, a deployer dies, a lease
 *           expires under its holder, the leader's clock is set back, and the watch makes a round
 */
#ifndef NODES
#define NODES 3
#endif
#ifndef LEASES
#define LEASES 2
#endif
#ifndef READ
#define READ 1
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef TOMB
#define TOMB 1
#endif
#ifndef VIEW
#define VIEW 0
#endif
#ifndef CLOCK
#define CLOCK 1
#endif
#ifndef VERIFY
#define VERIFY 1
#endif
#ifndef LOOK
#define LOOK 1
#endif
#ifndef UNDO
#define UNDO 2
#endif
#ifndef RECORD
#define RECORD 0
#endif
#ifndef FENCE
#define FENCE 3
#endif
#ifndef FILE
#define FILE 0
#endif
#ifndef FILL
#define FILL 0
#endif
#ifndef GUARD
#define GUARD 1
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef TWO
#define TWO 0
#endif
#ifndef SECOND
#define SECOND 0
#endif
#ifndef ADDED
#define ADDED 0
#endif
#ifndef FAILURES
#define FAILURES 0
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef EXPIRED
#define EXPIRED 0
#endif
#ifndef BACK
#define BACK 0
#endif
#ifndef ROUNDS
#define ROUNDS 0
#endif

#define PART(t,k)    (((t)>>(10*(k))) & 1023)
#define NUMBER(t,k)  (((t)>>(10*(k)+6)) & 15)
#define VALUE(t,k)   (((t)>>(10*(k)+3)) & 7)
#define BEFORE(t,k)  (((t)>>(10*(k))) & 7)
#define MAKE(n,v,b)  (((n)<<6) | ((v)<<3) | (b))
#define SET(t,k,p)   (((k)==0 -> ((t) & (1023<<10)) | (p) : ((t) & 1023) | ((p)<<10)))
#define MAX(a,b)     ((a)>(b) -> (a) : (b))
#define HIGHEST(t)   MAX(NUMBER(t,0),NUMBER(t,1))
#define BOTH(a,b)    (MAX(PART(a,0),PART(b,0)) | (MAX(PART(a,1),PART(b,1))<<10))
#define LOWER(a,b)   (BOTH(a,b)==(b))                 /* no part of a is higher than that of b */
#if PARTS
#define JOIN(a,b)    BOTH(a,b)                        /* rule 2, Join */
#else
#define JOIN(a,b)    (HIGHEST(a)>HIGHEST(b) || (HIGHEST(a)==HIGHEST(b) && (a)>(b)) -> (a) : (b))
#endif

#define START  (MAKE(1,1,0)*(1-ADDED) | (MAKE(1,1,0)<<10))
#define OLD    4                                      /* the value in the watch's file, which is an old one */
#define NODE1  (NODES>1)
#define NODE2  ((NODES>2)*2)
#define WATCH  2                                      /* a round of the watch as a holder of leases, 3 in the last one; 0 and 1 are the deployers */

int  text[NODES];                /* rule 1, Header: the parts and what they describe are one text, written in one step */
int  copy[NODES];                /* what a failover or a restart brings back: the text before the last write */
#if TWO
int  header[NODES];
#endif
byte lease[NODES];               /* 0: nobody; h+1: holder h; h+5: h left it behind */
bit  up[NODES];                  /* can be reached */
byte fence[NODES];               /* whose writes the node refuses: bit h the writes, bit h+4 the undo */
bit  ended[4], expired[4];       /* ended: the holder has died or returned */
byte clock = 2;                  /* the leader's */
byte failures = FAILURES, lost = LOST, late = LATE, crashes = CRASHES, expiries = EXPIRED, back = BACK;
bit  flying; byte to, by; int load;         /* a write that arrives late: where, whose, what */
bit  over;                       /* both deployers have ended, and all nodes can be reached: the last round of the watch */
bit  finished;                   /* the last round is over */

/* For the properties only. */
byte goodNumber[2], goodValue[2], goodBefore[2];      /* the last deployment that was reported as successful */
byte undone;                     /* the values of the deployments that were reported as undone, as bits */
bit  emptied;                    /* a node has lost leases and fences */
bit  reading[2], failed[2];      /* a deployer reads all again; a node has failed since */

#define HOLDER(i)  ((lease[i]-1) & 3)
#define FREE(i)    (lease[i]==0 || lease[i]>4 || ended[HOLDER(i)] || expired[HOLDER(i)])
#define HAS(i,k)   (NUMBER(text[i],k)>=goodNumber[k])
#define LEFT(k)    (HAS(0,k) || HAS(NODE1,k) || HAS(NODE2,k))
#define ON(i)      (PART(text[i],k)>=PART(new,k))
#define EVERYWHERE (failed[d] || (ON(0) && ON(NODE1) && ON(NODE2)))

/* A node that cannot be reached keeps the lease until it expires (rule 10, Fence). */
inline take(h,i) {
  fence[i] = (FENCE==3 && lease[i]>0 -> fence[i] | (17<<HOLDER(i)) : fence[i]);
  lease[i] = h+1
}
inline release(h,i) {
  if
  :: lease[i]==h+1 && up[i]  -> lease[i] = 0; fence[i] = (FENCE -> fence[i] | (17<<h) : fence[i])
  :: lease[i]==h+1 && !up[i] -> lease[i] = h+5
  :: else
  fi
}

/* No write lowers a part of a text, unless a node has lost its leases and fences. */
inline apply(i,t) {
  assert(emptied || LOWER(text[i],t));
  copy[i] = (text[i]==t -> copy[i] : text[i]);
  text[i] = t
}

#if LEASES==0
#define KEEPS(h,i) true
#elif LEASES==1
#define KEEPS(h,i) (lease[leader]==h+1)
#else
#define KEEPS(h,i) (lease[i]==h+1 || !up[i] || (h>=WATCH && !GUARD))
#endif

/* write checks the lease on node i and writes t (rule 7, Write). name is h, or h+4 for an undo. result is 0 for no reply,
 * 1 for done, 2 for overtaken. The check and a write that arrives in time are one step. */
inline write(h,name,i,t,mine,result) {
#if TWO
  atomic { if :: up[i] -> header[i] = t :: else fi };
#endif
  atomic {
#if LEASES==2
    if :: up[i] && lease[i]==0 && (!LOOK || LOWER(text[i],J) || text[i]==t || text[i]==mine) -> lease[i] = h+1 :: else fi;
#endif
    if :: FENCE>1 && name>3 && up[i] -> fence[i] = fence[i] | (1<<h) :: else fi;
    if
    :: !KEEPS(h,i) || (up[i] && ((fence[i]>>name)&1)) -> result = 2
    :: KEEPS(h,i) && up[i] && !((fence[i]>>name)&1) -> apply(i,t); result = 1
    :: KEEPS(h,i) && up[i] && !((fence[i]>>name)&1) && lost>0 -> lost--; apply(i,t); result = 0
    :: KEEPS(h,i) && lost>0 -> lost--; result = 0
    :: KEEPS(h,i) && up[i] && late>0 -> late--; flying = 1; to = i; by = name; load = t; result = 0
    :: KEEPS(h,i) && !up[i] -> result = 0
    fi }
}

#define MAY_DIE(d) :: atomic { crashes>0 -> crashes--; ended[d] = 1; goto out }

/* deployer deploys value v of namespace k, or rolls back. J is the join of what it read. */
proctype deployer(byte d; byte k; byte v; bit rollback; bit delete) {
  int J, new, mine; byte i, n, leader, result; bit all, wrote[NODES], has;
  leader = (VIEW && d==1 -> NODE1 : 0);
#if !READ
  do
  :: atomic { i<NODES && up[i] -> J = JOIN(J,text[i]); i++ }
  :: atomic { i<NODES && !up[i] -> goto out }
  :: atomic { i>=NODES -> i = 0; break }
  od;
#endif
#if LEASES==1
  atomic { up[leader] && FREE(leader) -> take(d,leader) };
#endif
#if LEASES==2
  atomic { up[leader] && FREE(leader) -> take(d,leader) };                          /* rule 3, Lease */
  do
  :: atomic { i<NODES && i==leader -> i++ }
  :: atomic { i<NODES && i!=leader && up[i] && FREE(i) -> take(d,i); i++ }
  :: atomic { i<NODES && i!=leader && !(up[i] && FREE(i)) -> goto release_all }
  :: atomic { i>=NODES -> i = 0; break }
  od;
#endif
#if READ
  do                                                                                /* rule 4, Read */
  :: atomic { i<NODES && up[i] && (LEASES<2 || lease[i]==d+1) -> J = JOIN(J,text[i]); i++ }
  :: atomic { i<NODES && !(up[i] && (LEASES<2 || lease[i]==d+1)) -> goto release_all }
  :: atomic { i>=NODES -> break }
  od;
#endif
  skip; d_step {
    n = HIGHEST(J)+1;                                                               /* rule 5, Number */
    if :: CLOCK -> n = MAX(n,clock) :: else fi;
    clock = MAX(clock,n)+2; if :: clock>12 -> clock = 12 :: else fi;
    if :: rollback -> v = BEFORE(J,k) :: else fi;                                   /* rule 12, Rollback */
    has = !rollback && PART(J,k)!=0 && VALUE(J,k)==v;
    if
    :: has -> new = J; n = NUMBER(J,k)
    :: delete && !TOMB -> new = SET(J,k,0)
    :: else -> new = SET(J,k,MAKE(n,v,(delete -> 0 : (KEEP -> VALUE(J,k) : v))))    /* rule 6, Text */
    fi;
    mine = new; i = 0
  };
  if :: rollback && v==0 -> goto release_all :: else fi;
  do                                                                                /* rule 7, Write */
  :: i<NODES -> if
     :: wrote[i] = 1; write(d,d,i,new,mine,result);
        if :: result==0 -> goto undo :: result==1 -> i++ :: result==2 -> goto out fi
     MAY_DIE(d)
     fi
  :: i>=NODES -> break
  od;
#if VERIFY
  skip; d_step { i = 0; reading[d] = 1 };
  do                                                                                /* rule 8, Verify */
  :: atomic { i<NODES && up[i] && PART(text[i],k)==PART(new,k) -> i++ }
  :: atomic { i<NODES && !(up[i] && PART(text[i],k)==PART(new,k)) -> goto undo }
  :: atomic { i>=NODES -> break }
  od;
#endif
  atomic {                                            /* success is reported; a copy of it is left */
    assert(EVERYWHERE);
    if
    :: (NUMBER(text[0],k)>=n || NUMBER(text[NODE1],k)>=n || NUMBER(text[NODE2],k)>=n) && n>=goodNumber[k] ->
       if :: rollback && NUMBER(J,k)==goodNumber[k] && goodNumber[k]>0 -> assert(v==goodBefore[k]) :: else fi;
       if :: has -> goodBefore[k] = BEFORE(J,k) :: else -> goodBefore[k] = (delete -> 0 : VALUE(J,k)) fi;
       goodNumber[k] = n; goodValue[k] = v;
       undone = undone & (255 - (1<<v))
    :: else
    fi
  };
  goto release_all;
undo: skip;
  if :: has -> goto release_all :: else fi;
  skip; d_step {                                                                    /* rule 9, Undo */
#if UNDO==0
    new = J;
#else
    new = SET(J,k,MAKE(n+1,VALUE(J,k),(RECORD -> v : BEFORE(J,k))));
#endif
    i = 0; all = 1; reading[d] = 0; failed[d] = 0
  };
  do
  :: i<NODES && (UNDO==2 || wrote[i]) -> if
     :: write(d,d+4,i,new,mine,result); if :: result==2 -> goto out :: else fi; all = all && (result==1); i++
     MAY_DIE(d)
     fi
  :: i<NODES && !(UNDO==2 || wrote[i]) -> i++
  :: i>=NODES -> break
  od;
#if VERIFY
  skip; d_step { i = 0; reading[d] = 1 };
  do
  :: atomic { i<NODES && all -> all = up[i] && PART(text[i],k)==PART(new,k); i++ }
  :: atomic { i>=NODES || !all -> break }
  od;
#endif
  atomic {                                            /* "undone" is reported */
    if
    :: all && !rollback && !delete -> undone = undone | (1<<v);
       assert(EVERYWHERE);
       if
       :: UNDO==2 && goodNumber[k]>0 && NUMBER(J,k)==goodNumber[k] && VALUE(J,k)==goodValue[k] ->
          goodNumber[k] = n+1; if :: !LEFT(k) -> goodNumber[k] = 0 :: else fi
       :: else
       fi
    :: else
    fi
  };
release_all:
  atomic { i = 0; do :: i<NODES -> release(d,i); i++ :: else -> break od };
out:
  atomic { ended[d] = 1; reading[d] = 0; failed[d] = 0; J = 0; new = 0; mine = 0; i = 0; n = 0; result = 0; all = 0; has = 0; do :: i<NODES -> wrote[i] = 0; i++ :: else -> break od; i = 0 }
}

/* fill completes a join with what the watch remembers, and then with its file (rule 11, Watch). */
inline fill(J) {
  i = 0;
  do
  :: i<2 ->
     if :: NUMBER(J,i)==0 && PART(remembered,i)>PART(J,i) -> J = SET(J,i,PART(remembered,i)) :: else fi;
     if
     :: PART(J,i)==0 && FILE==0 -> J = SET(J,i,MAKE(0,OLD,0))
     :: PART(J,i)==0 && FILE==1 -> J = SET(J,i,MAKE(clock,OLD,0)); clock = MAX(clock,12)
     :: else
     fi;
     i++
  :: else -> break
  od;
#if FILE==2
  J = SET(J,0,MAKE(NUMBER(J,0),OLD,0))
#endif
}
#if FILL
#define BEHIND(i,J) (text[i]==0)
#elif FILE==2
#define BEHIND(i,J) (VALUE(text[i],0)!=OLD)
#else
#define BEHIND(i,J) (text[i]!=J)
#endif

/* watch makes rounds while the deployers work, and a last one after them, when all nodes can be reached. */
proctype watch() {
  int J, remembered; byte i, round, result; byte leader = 0; bit reached[NODES], last;
  do
  :: over -> last = 1; goto go_on
  :: atomic { !over && round<ROUNDS && !(ended[0] && ended[1]) -> round++ };
go_on:
     i = 0; J = 0;
     do
#if GUARD && LEASES
     :: atomic { i<NODES && up[i] && ((LEASES==1 && i>0) || FREE(i)) -> if :: LEASES==2 || i==0 -> take(WATCH+last,i) :: else fi; i++ }
     :: atomic { i<NODES && up[i] && !((LEASES==1 && i>0) || FREE(i)) -> goto end_of_round }
#else
     :: atomic { i<NODES && up[i] -> i++ }
#endif
     :: atomic { i<NODES && !up[i] -> i++ }
     :: atomic { i>=NODES -> i = 0; break }
     od;
     do
     :: atomic { i<NODES && up[i] && (LEASES<2 || !GUARD || lease[i]==WATCH+last+1) -> J = JOIN(J,text[i]); reached[i] = 1; i++ }
     :: atomic { i<NODES && !(up[i] && (LEASES<2 || !GUARD || lease[i]==WATCH+last+1)) -> reached[i] = 0; i++ }
     :: atomic { i>=NODES -> break }
     od;
     skip; d_step { fill(J); remembered = J; i = 0 };
     do
     :: i<NODES && reached[i] && up[i] && BEHIND(i,J) ->
        write(WATCH+last,WATCH+last,i,J,J,result); if :: result==2 -> goto end_of_round :: else -> i++ fi
     :: i<NODES && !(reached[i] && up[i] && BEHIND(i,J)) -> i++
     :: i>=NODES -> break
     od;
end_of_round:
     atomic { i = 0; do :: i<NODES -> release(WATCH+last,i); reached[i] = 0; i++ :: else -> break od; J = 0; i = 0; result = 0 };
     if :: last -> finished = 1; break :: else fi
  od
}

/* What every node has lost cannot be kept. */
inline forgive() {
  if :: !LEFT(0) -> goodNumber[0] = 0 :: else fi;
  if :: !LEFT(1) -> goodNumber[1] = 0 :: else fi
}
inline lose(i,t) { text[i] = t; lease[i] = 0; fence[i] = 0; emptied = 1; if :: flying && to==i -> flying = 0; to = 0; by = 0; load = 0 :: else fi }

proctype world() {
  byte i;
  do
  :: finished && !flying -> break
  :: atomic { !over && failures>0 -> failures--;
       if :: i = 0 :: NODES>1 -> i = NODE1 :: NODES>2 -> i = NODE2 fi;
       if
       :: lose(i,0); copy[i] = 0; forgive()                                   /* a restart without data, or a new shard */
       :: lose(i,0); forgive()                                                /* FUNCTION FLUSH */
       :: if :: lose(i,copy[i]) :: lose(i,text[i]) fi; forgive()              /* a failover, or a restart from an old file */
       :: up[i] = 0
       :: i==0 -> do :: i<NODES -> lose(i,0); i++ :: else -> break od; forgive()  /* all are empty */
       fi;
       i = 0; failed[0] = reading[0]; failed[1] = reading[1] }
  :: atomic { !over && !(up[0] && up[NODE1] && up[NODE2]) -> up[0] = 1; up[NODE1] = 1; up[NODE2] = 1 }
  :: atomic { flying && up[to] -> flying = 0;                    /* a late write arrives */
       if :: FENCE && ((fence[to]>>by)&1) :: else -> apply(to,load) fi; load = 0; to = 0; by = 0 }
  :: atomic { !over && expiries>0 && !expired[0] -> expiries--; expired[0] = 1 }
  :: atomic { !over && expiries>0 && !expired[1] -> expiries--; expired[1] = 1 }
  :: atomic { !over && back>0 && clock>2 -> back--; clock = 2 }
  :: atomic { !over && ended[0] && ended[1] && up[0] && up[NODE1] && up[NODE2] -> over = 1; lost = 0; late = 0 }
  od
}

#if TWO
proctype reader() { byte i; atomic { if :: i = 0 :: i = NODE1 :: i = NODE2 fi; assert(header[i]==text[i]) } }
#endif

init {
  byte i;
  atomic {
    for (i : 0 .. NODES-1) { text[i] = START; copy[i] = START; up[i] = 1;
#if TWO
      header[i] = START
#endif
    }
    goodNumber[0] = 1-ADDED; goodValue[0] = 1-ADDED; goodNumber[1] = 1; goodValue[1] = 1;
    run deployer(0,0,2,0,0);
#if SECOND==0
    run deployer(1,1,3,0,0);
#elif SECOND==1
    run deployer(1,0,3,0,0);
#elif SECOND==2
    run deployer(1,0,0,1,0);
#elif SECOND==3
    run deployer(1,0,2,0,0);
#else
    run deployer(1,0,0,0,1);
#endif
    run watch(); run world();
#if TWO
    run reader();
#endif
    i = 0
  };
  atomic { finished && !flying;
    i = 0;
    do
    :: i<NODES -> assert(text[i]==text[0]); i++                              /* the watch brings all nodes to one text */
    :: else -> break
    od;
    i = 0;
    do
    :: i<2 ->                                                                /* no successful deployment is lost */
       assert(goodNumber[i]==0 || NUMBER(text[0],i)>goodNumber[i] || (NUMBER(text[0],i)==goodNumber[i] && VALUE(text[0],i)==goodValue[i]));
       assert(goodNumber[i]==0 || SECOND==2 || VALUE(text[0],i)!=OLD);       /* the watch's old file replaces nothing */
       assert(goodNumber[i]==0 || SECOND==3 || !((undone>>VALUE(text[0],i))&1));          /* what was undone stays undone; here nobody else deploys it */
       i++
    :: else -> break
    od
  }
}
