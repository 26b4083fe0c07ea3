/* SPDX-License-Identifier: Apache-2.0 */

/* fence: who may answer (docs/PROTOCOL.md, 4 to 8).

   NS servers share a directory. Each claims an epoch (one rename that fails where the name is
   taken), sets the fence of every older epoch before it looks whether that one began, copies the log of
   the newest one that began, writes START, checks its own fence, writes what the protected file may
   lack, perhaps removes what older epochs left, and then serves: log, check, file, answer.
   Every access to the shared directory is one step, so a server that is paused, for however long, is
   one that is not scheduled; and a server that claims again has forgotten everything.

   Safety: an acknowledged operation is in the log of every later term at its place, it is
   acknowledged at one place only, and the protected file has it there.

   Left out: time (no rule here needs a clock), crashes that lose what was not synced
   (durability.pml), segments, checkpoints and hard links (segments.pml), damage, an operator.

   Mutants (-DMUT_...), each of which must be found wanting:
     NO_CHECK           answers without a check
     CHECK_FIRST        checks before the record is in the log, not after it
     READ_BEFORE_FENCE  looks whether an older term began before it sets its fence
     PWRITE_EARLY       writes the protected file before the check
     FREE_NAME          removes the directory of an old epoch, so its number can be claimed again */
#ifndef NS
#define NS 2
#endif
#ifndef ME
#define ME 4      /* epochs 1..ME-1 may be claimed; 0 is the empty beginning */
#endif
#ifndef K
#define K 2       /* client operations, ids 1..K */
#endif
bool dir[ME];   /* the name epochs/<e> is taken */
bool fence[ME]; /* its fence is set */
bool est[ME];   /* its START is there: it began */
byte seg[16];   /* its log: seg[e*4+i] */
byte slen[ME];
byte file[4];   /* the protected file */
bool acked[4]; byte pos[4];

proctype Server(){
  byte e, f, n, i, op; bool bad;
  byte turns=0;
again:
  do
  :: turns<2 ->
    turns++;
    e=1;
    do /* claim: one rename of a complete directory, fails if the name is taken */
    :: atomic{ e<ME && dir[e] -> e++ }
    :: atomic{ e<ME && !dir[e] -> dir[e]=1; break }
    :: e>=ME -> goto out
    od;
    f=e-1;
    do /* fence every older epoch BEFORE reading whether it began */
    :: f>0 ->
#ifndef MUT_READ_BEFORE_FENCE
       fence[f]=1;
       if :: est[f] -> break :: else -> f-- fi
#else
       if :: est[f] -> fence[f]=1; break :: else -> fence[f]=1; f-- fi
#endif
    :: f==0 -> break
    od;
    if :: !est[f] -> goto again :: else fi; /* nothing below me began: refuse, never begin from nothing */
    n=slen[f]; i=0;
    do :: i<n -> atomic{ seg[e*4+i]=seg[f*4+i]; i++ } :: i>=n -> break od;
    if :: !est[f] -> goto again :: else fi; /* removed while I read it: files are missing, refuse */
    atomic{ slen[e]=n; est[e]=1 };
    atomic{ if :: fence[e] -> goto again :: else fi; op=1;
      do :: op<=K -> if :: acked[op] -> assert(pos[op]<n && seg[e*4+pos[op]]==op) :: else fi; op++ :: op>K -> break od; op=0 };
    i=0;
    do :: i<n -> atomic{ assert(file[i]==0 || file[i]==seg[e*4+i]); file[i]=seg[e*4+i]; i++ } :: i>=n -> break od;
    /* remove the contents of epochs older than the one I adopted; their names stay taken, their fences set */
    if
    :: i=0; do :: i<f -> atomic{ est[i]=0; slen[i]=0
#ifdef MUT_FREE_NAME
         ; dir[i]=0; fence[i]=0
#endif
         ; i++ } :: i>=f -> break od
    :: skip
    fi;
    do
    :: slen[e]<K ->
       if :: op=1 :: op=2 :: (K>2) -> op=3 fi;
       atomic{ bad=0; i=0; do :: i<slen[e] -> if :: seg[e*4+i]==op -> bad=1 :: else fi; i++ :: else -> break od };
       if
       :: bad -> skip
       :: else ->
          i=slen[e];
#ifdef MUT_PWRITE_EARLY
          atomic{ assert(file[i]==0 || file[i]==op); file[i]=op };
#endif
#ifdef MUT_CHECK_FIRST
          if :: fence[e] -> goto again :: else fi;
#endif
          atomic{ seg[e*4+i]=op; slen[e]=i+1 };
#if !defined(MUT_NO_CHECK) && !defined(MUT_CHECK_FIRST)
          if :: fence[e] -> goto again :: else fi;
#endif
#ifndef MUT_PWRITE_EARLY
          atomic{ assert(file[i]==0 || file[i]==op); file[i]=op };
#endif
          atomic{ if :: acked[op] -> assert(pos[op]==i) :: else fi; acked[op]=1; pos[op]=i };
       fi
    :: break
    :: slen[e]>=K -> break
    od
  :: turns>=2 -> break
  od;
out: skip
}
init { est[0]=1; byte s=1; atomic { do :: s<=NS -> run Server(); s++ :: else -> break od } }
