/* SPDX-License-Identifier: Apache-2.0 */

/* members: servers come and go (docs/PROTOCOL.md, 22).

   The terms of fence.pml, by servers of which the list changes. Servers 1 and 2 are listed at first, server 3 is added, server 1
   removed; a list is one record, and MEMBERS shows, some time later, one that was committed. There is no election here: every
   server that MEMBERS lets claim claims whenever it likes, so nobody needs to agree on who may vote. A server may stand still
   between any two steps, also before it replaces MEMBERS, which thereby goes back; and now and then it cannot read MEMBERS.

   Safety: an acknowledged record is at its place in the log of every later term; a server of which the removal was acknowledged
   begins no term and acknowledges nothing; whoever MEMBERS ends for ever is never listed again; MEMBERS shows no list that a
   term which is not fenced finds missing in the log that it adopts.

   Left out: what fence.pml has beside (the protected file, removal of old epochs), feature levels, and that a new server joins
   first: it counts for nothing then, and so it is not there.

   Mutants (-DMUT_...), each of which must be found wanting:
     NO_CHECK         answers without a check
     ADOPTS_UNLISTED  begins though the log that it adopts does not list it
     SHOWN_EARLY      shows a list before the check
     BLAMES_THE_LOG   takes a list that the log lacks for a loss although its own term is fenced
     ID_AGAIN         gives a removed server's ID again */
#ifndef ME
#define ME 5      /* epochs 1..ME-1 may be claimed; 0 is the empty beginning */
#endif
#ifndef TURNS
#define TURNS 2   /* claims of one server */
#endif
#define NS 3
#define APPEND 1  /* records */
#define REMOVE 2  /* server 1 */
#define ADD 3     /* server 3 */
#define AGAIN 4   /* server 1, by a mutant */
#define K 4

/* A list is a byte: bit s where server s is listed, and its version in the upper half. */
#define LISTED(l,s) ((l>>s)&1)
#define VERSION(l) (l>>4)
#define FIRST ((1<<4)|2|4)
#ifdef MUT_ID_AGAIN
#define MAY_BEGIN skip
#else
#define MAY_BEGIN assert(!(acked[REMOVE] && me==1))
#endif
#define KNOWN(l,s) (s<3 || LISTED(l,3)) /* some version up to l listed it; nobody removes server 3 */

bool dir[ME], fence[ME], est[ME];
byte seg[24]; /* seg[e*4+i] */
byte slen[ME];
byte list[ME]; /* that of the log of each epoch */
byte shown=FIRST; /* MEMBERS */
bool acked[8]; byte pos[8];
bool gone[4];  /* the server has ended for ever */

proctype Server(byte me){
  byte e, f, i, op, l; bool bad;
  byte turns=0;
again:
  do
  :: turns<TURNS ->
    turns++;
    if
    :: l=shown; /* MEMBERS before a claim */
       if
       :: !LISTED(l,me) && !KNOWN(l,me) -> goto again /* not added yet: it waits */
       :: !LISTED(l,me) && KNOWN(l,me) ->
          gone[me]=1; goto out
       :: else
       fi
    :: me<3 -> skip /* it cannot be read: the claim goes on */
    fi;
    e=1;
    do
    :: atomic{ e<ME && dir[e] -> e++ }
    :: atomic{ e<ME && !dir[e] -> dir[e]=1; break }
    :: e>=ME -> goto out
    od;
    f=e-1;
    do
    :: f>0 -> fence[f]=1; if :: est[f] -> break :: else -> f-- fi
    :: f==0 -> break
    od;
    atomic{ i=0; do :: i<slen[f] -> seg[e*4+i]=seg[f*4+i]; i++ :: else -> break od; slen[e]=slen[f]; list[e]=list[f] };
#ifndef MUT_ADOPTS_UNLISTED
    if :: !LISTED(list[e],me) -> goto again :: else fi;
#endif
    l=shown; /* MEMBERS again: a newer list than the log's shows that the log lost it, unless this term is fenced */
    if
    :: VERSION(l)>VERSION(list[e]) ->
#ifdef MUT_BLAMES_THE_LOG
       assert(false)
#else
       atomic{ assert(fence[e]); goto again }
#endif
    :: else
    fi;
    est[e]=1; /* START */
    atomic{ if :: fence[e] -> goto again :: else fi;
      MAY_BEGIN;
      op=1; do :: op<=K -> if :: acked[op] -> assert(pos[op]<slen[e] && seg[e*4+pos[op]]==op) :: else fi; op++ :: else -> break od; op=0 };
    do
    :: shown!=list[e] -> l=list[e]; shown=l /* MEMBERS, perhaps late: all of this log is checked here */
    :: slen[e]<3 ->
       if
       :: op=APPEND
       :: me!=1 && LISTED(list[e],1) -> op=REMOVE
       :: !LISTED(list[e],3) -> op=ADD
#ifdef MUT_ID_AGAIN
       :: !LISTED(list[e],1) -> op=AGAIN
#endif
       fi;
       atomic{ bad=0; i=0; do :: i<slen[e] -> if :: seg[e*4+i]==op -> bad=1 :: else fi; i++ :: else -> break od };
       if
       :: bad
       :: else ->
          l=list[e];
          if
          :: op==REMOVE -> l=(l+16)&(255-2)
          :: op==ADD -> l=(l+16)|8
          :: op==AGAIN -> l=(l+16)|2
          :: else
          fi;
          atomic{ i=slen[e]; seg[e*4+i]=op; slen[e]=i+1; list[e]=l };
#ifdef MUT_SHOWN_EARLY
          shown=l;
#endif
          atomic{
#ifndef MUT_NO_CHECK
            if :: fence[e] -> goto again :: else fi;
#endif
            /* what the check proves, however late the answer is told */
            MAY_BEGIN;
            i=1; do :: i<=NS -> assert(!(gone[i] && LISTED(list[e],i))); i++ :: else -> break od
          };
          atomic{ i=slen[e]-1; if :: acked[op] -> assert(pos[op]==i) :: else fi; acked[op]=1; pos[op]=i }
       fi
    :: break
    od
  :: turns>=TURNS -> break
  od;
out: skip
}
init { est[0]=1; list[0]=FIRST; atomic { run Server(1); run Server(2); run Server(3) } }
