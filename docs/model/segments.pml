/* SPDX-License-Identifier: Apache-2.0 */

/* segments: adoption with segments, checkpoints and hard links (docs/PROTOCOL.md, 7 and 9).

   Epoch 1 is a term that began, whose owner goes on appending, closing, rotating, publishing a
   checkpoint and unlinking at any later time, that is, however long it was paused. NC claimants fence,
   scan, link, log the open segment's tail again, write START, serve, checkpoint, unlink, and
   remove what other epochs below left. Every access to the shared directory is one step.
   An inode is a segment file (first LSN in its header, records, CLOSE). A directory slot holds an inode
   or nothing, so a hard link is two slots with one inode, and a late write through the old
   directory is seen in the new one.

   Safety: an acknowledged operation is in every later term at its LSN.
   Refusal: a claimant whose scan failed twice is itself fenced by then; else a healthy volume
   would be refused for ever.

   "Closed" is more than "a CLOSE is there": a segment is linked only when its successor has
   a header, and a segment without a header counts only behind a closed one.

   -DCRASH adds visible against durable, one crash of everything, and one sync of a CLOSE that fails
   (visible, never durable). It is run with -DSMALL: no checkpoints and no removal.

   Left out: three claimants with checkpoints under crash, warm tables, stale caches of names, torn
   frames; the simulation (faulttests/sim) covers these.

   Mutants (-DMUT_...), each of which must be found wanting:
     READ_BEFORE_FENCE    looks whether the older term began before it sets its fence
     LINK_OPEN            links the open segment, too, and goes on in it
     CLOSED_AT_LINK       links what is closed when it links, not what was when it scanned
     CLOSE_FIRST          writes CLOSE before the successor's name is there
     UNLINK_FIRST         removes segments before the checkpoint that replaces them is there
     BASE_FROM_START      begins at the checkpoint that START names, which may be gone
     REMOVE_SOURCE_EARLY  removes segments of the term that it adopts from
     NO_CHECK             answers without a check
     LINK_BY_CLOSE        (with CRASH and SMALL) links a segment for its CLOSE alone
   To try by hand, not run by run.sh: UNLINK_NO_CHECK, REMOVE_SOURCE and HEADERLESS leave one more rule
   out each; with CRASH and SMALL, NO_LINK_FSYNC (a claimant's sync does not commit what another host
   wrote) is clean: 120 million states, 5.5 GB. */
#ifndef NC
#define NC 2     /* claimants besides the owner of epoch 1 */
#endif
#define ME (NC+2)
#ifndef K
#define K 2      /* operations, ids 1..K, one LSN each */
#endif
#ifndef CAP
#define CAP 1    /* records per segment */
#endif
#define MS (K+1) /* segment slots per directory */
#define NI (ME*MS+1)
bool fence[ME]; bool est[ME]; byte top=1;
byte d[ME*MS];                                   /* directory slots: inode or 0 */
byte r[NI*CAP]; byte ilen[NI]; byte ihdr[NI]; bool iclosed[NI];
byte ckl[ME]; byte ckc[ME*K]; byte sb[ME];       /* newest checkpoint, its content; base named by START */
bool acked[K+1]; byte pos[K+1];
#ifdef SMALL /* no checkpoints and no removal, for the crash runs */
#define CKS 2
#else
#define CKS 0
#endif
#ifdef CRASH
byte ilenD[NI]; byte ihdrD[NI]; bool iclosedD[NI]; bool gone[ME]; bool estD[ME]; bool eio;
#endif

proctype Server(bool owner){
  byte e, s, n, b, i, j, id, op, lsn, fails, cur, fo, pf, cks; bool bad, pc, cl;
  byte t[K]; bool lk[MS]; bool done;
  {
  if
  :: owner -> e=1; s=0; cur=0; cks=CKS; goto serve
  :: else -> atomic{ top++; e=top }
  fi;
  s=e-1;
  cks=CKS;
  do
  :: s>0 ->
#ifdef MUT_READ_BEFORE_FENCE
     if :: est[s] -> fence[s]=1; break :: else -> fence[s]=1; s-- fi
#else
     fence[s]=1;
     if :: est[s] -> break :: else -> s-- fi
#endif
  od;
scan:
  if :: fails>=2 -> assert(fence[e]); goto out :: else fi;
  atomic{
#ifdef MUT_BASE_FROM_START
    b=sb[s];
#else
    b=ckl[s];
#endif
    n=0; do :: n<K -> if :: n<b -> t[n]=ckc[s*K+n] :: else -> t[n]=0 fi; n++ :: else -> break od; n=b;
    j=0; do :: j<MS -> lk[j]=0; j++ :: else -> break od; j=0; pc=0 };
  do
  :: j>=MS -> fails++; goto scan                 /* no open segment found */
  :: j<MS ->
     atomic{ id=d[s*MS+j]; i=0; cl=0; bad=0;
       if :: id!=0 && ihdr[id]>n+1 -> bad=1 :: else fi };
     if
     :: id==0 && pc -> fails++; goto scan        /* CLOSE without its successor */
     :: id==0 && !pc -> j++
     :: id!=0 && bad -> fails++; goto scan       /* gap */
#ifndef MUT_HEADERLESS
     :: id!=0 && !bad && ihdr[id]==0 && !pc -> fails++; goto scan /* a header-less segment proves nothing without its closed predecessor */
     :: id!=0 && !bad && ihdr[id]==0 && pc -> fo=n+1; break
#else
     :: id!=0 && !bad && ihdr[id]==0 -> fo=n+1; break
#endif
     :: id!=0 && !bad && ihdr[id]!=0 ->
        fo=ihdr[id];
        do
        :: atomic{ i<ilen[id] -> lsn=fo+i;
             if :: lsn==n+1 -> t[n]=r[id*CAP+i]; n++
                :: lsn<=n -> if :: t[lsn-1]!=r[id*CAP+i] -> bad=1 :: else fi
                :: lsn>n+1 -> bad=1 fi; i++ }
        :: atomic{ i>=ilen[id] && iclosed[id] -> cl=1; break }
        :: atomic{ i>=ilen[id] && !iclosed[id] -> break }
        od;
        if :: bad -> fails++; goto scan :: else fi;
        if
        :: cl -> pf=fo; if :: fo+i-1>b -> lk[j]=1 :: else fi; pc=1; j++
        :: else -> break                         /* the open segment */
        fi
     fi
  od;
#ifndef MUT_LINK_BY_CLOSE
  /* a segment is linked only when its successor has a header (so its CLOSE was durable); else it counts as the open one: re-logged */
  if :: ihdr[id]==0 && j>0 && lk[j-1] -> atomic{ j--; lk[j]=0; fo=pf } :: else fi;
#endif
  cur=j;
#ifdef MUT_REMOVE_SOURCE_EARLY
  j=0; do :: j<cur -> d[s*MS+j]=0; j++ :: else -> break od;
#endif
  /* adopt: base */
  atomic{ if :: ckl[s]<b -> bad=1 :: else -> bad=0; ckl[e]=b; sb[e]=b; j=0; do :: j<b -> ckc[e*K+j]=t[j]; j++ :: else -> break od fi };
  if :: bad -> fails++; goto scan :: else fi;
  /* adopt: hard links */
  j=0;
  do
  :: j<MS ->
     if
#ifdef MUT_CLOSED_AT_LINK
     :: atomic{ d[s*MS+j]!=0 && iclosed[d[s*MS+j]] -> d[e*MS+j]=d[s*MS+j] }
     :: atomic{ !(d[s*MS+j]!=0 && iclosed[d[s*MS+j]]) -> skip }
#else
     :: lk[j] -> atomic{ id=d[s*MS+j]; if :: id!=0 -> d[e*MS+j]=id :: else -> bad=1 fi }
#if defined(CRASH) && !defined(MUT_NO_LINK_FSYNC) /* fsync of a linked file; vacuous for a CLOSE whose owner's fdatasync failed (clean page) */
        if :: id!=0 -> atomic{ ilenD[id]=ilen[id]; ihdrD[id]=ihdr[id]; if :: eio -> skip :: else -> iclosedD[id]=iclosed[id] fi } :: else fi
#endif
     :: !lk[j]
#endif
     fi;
     if :: bad -> fails++; goto scan :: else fi;
     j++
  :: else -> break
  od;
#ifdef MUT_CLOSED_AT_LINK
  j=0; do :: j<MS && d[e*MS+j]!=0 -> j++ :: else -> break od; if :: j>cur -> cur=j; fo=n+1 :: else fi;
#endif
#ifdef MUT_LINK_OPEN
  atomic{ if :: d[s*MS+cur]!=0 -> d[e*MS+cur]=d[s*MS+cur]; if :: ihdr[d[e*MS+cur]]==0 -> ihdr[d[e*MS+cur]]=n+1 :: else fi :: else fails++; goto scan fi };
#else
  atomic{ /* the tail of the open segment goes into a segment of my own */
    id=e*MS+cur+1; d[e*MS+cur]=id; if :: fo<=b -> fo=b+1 :: else fi; ihdr[id]=fo; ilen[id]=0;
    do :: fo+ilen[id]<=n -> r[id*CAP+ilen[id]]=t[fo+ilen[id]-1]; ilen[id]++ :: else -> break od
#ifdef CRASH
    ; ilenD[id]=ilen[id]; ihdrD[id]=ihdr[id]
#endif
  };
#endif
  est[e]=1;
#ifdef CRASH
  estD[e]=1;
#endif
  atomic{ if :: fence[e] -> goto out :: else fi; op=1;
    do :: op<=K -> if :: acked[op] -> assert(pos[op]<n && t[pos[op]]==op) :: else fi; op++ :: op>K -> break od; op=0 };
serve:
  do
  :: n<K && !done && ilen[d[e*MS+cur]]<CAP -> /* append */
     id=d[e*MS+cur];
     if :: op=1 :: op=2 :: (K>2) -> op=3 fi;
     atomic{ bad=0; i=0; do :: i<n -> if :: t[i]==op -> bad=1 :: else fi; i++ :: else -> break od; i=0 };
     if
     :: bad
     :: else ->
        if :: ihdr[id]==0 -> ihdr[id]=n+1 :: else fi;
        atomic{ r[id*CAP+ilen[id]]=op; ilen[id]++ };
#ifdef CRASH
        atomic{ ilenD[id]=ilen[id]; ihdrD[id]=ihdr[id] };
#endif
#ifndef MUT_NO_CHECK
        if :: fence[e] -> done=1 :: else fi;
#endif
        if :: !done -> atomic{ if :: acked[op] -> assert(pos[op]==n) :: else fi; acked[op]=1; pos[op]=n; t[n]=op; n++ }
           :: done -> goto late fi
     fi
  :: !done && cur<MS-1 && ilen[d[e*MS+cur]]==CAP -> /* rotate */
late:
     if :: ilen[d[e*MS+cur]]<CAP || cur>=MS-1 -> goto out :: else fi; /* a deposed owner may still close and rotate late */
#ifdef MUT_CLOSE_FIRST
     iclosed[d[e*MS+cur]]=1;
     atomic{ id=e*MS+cur+2; d[e*MS+cur+1]=id };
#else
     atomic{ id=e*MS+cur+2; d[e*MS+cur+1]=id };
     iclosed[d[e*MS+cur]]=1;
#endif
#ifdef CRASH
     if :: atomic{ iclosedD[d[e*MS+cur]]=1 }
        :: atomic{ !eio -> eio=1; goto out } fi; /* fdatasync of CLOSE fails, its page is clean: visible, never durable */
#endif
     cur++;
     if :: done -> goto out :: else fi
  :: !done && cks==0 && n>ckl[e] -> cks++; /* checkpoint, then check, then unlink */
#ifdef MUT_UNLINK_FIRST
     j=0; do :: j<cur -> d[e*MS+j]=0; j++ :: else -> break od;
#endif
     atomic{ ckl[e]=n; i=0; do :: i<n -> ckc[e*K+i]=t[i]; i++ :: else -> break od; i=0 };
#ifndef MUT_UNLINK_NO_CHECK
     if :: fence[e] -> goto out :: else fi;
#endif
#ifndef MUT_HEADERLESS
     j=0; do :: j<cur && (j+1<cur || ihdr[d[e*MS+cur]]!=0) -> d[e*MS+j]=0; j++ :: else -> break od;
#else
     j=0; do :: j<cur -> d[e*MS+j]=0; j++ :: else -> break od;
#endif
     j=0
  :: !done && e>2 && cks<2 -> cks=2; /* remove the contents of all epochs below but the source */
     if :: fence[e] -> goto out :: else fi;
     i=1; do
#ifdef MUT_REMOVE_SOURCE
     :: i<e ->
#else
     :: i==s -> i++
     :: i<e && i!=s ->
#endif
        ckl[i]=0; j=0; do :: j<MS -> d[i*MS+j]=0; j++ :: else -> break od; i++
     :: else -> break od;
     i=0; j=0
  :: break
  od;
out: skip
#ifdef CRASH
  } unless { e!=0 && gone[e] }
#else
  }
#endif
}
#ifdef CRASH
proctype Crash(){ byte i;
  atomic{ i=1; do :: i<=top -> gone[i]=1; if :: est[i] && !estD[i] -> if :: est[i]=0 :: estD[i]=1 fi :: else fi; i++ :: else -> break od;
    i=1; do :: i<NI -> if :: iclosed[i] && !iclosedD[i] -> if :: iclosed[i]=0 :: iclosedD[i]=1 fi :: else fi;
      if :: ilen[i]>ilenD[i] -> if :: iclosed[i] -> skip :: ilen[i]=ilenD[i] :: ilenD[i]=ilen[i] fi :: else fi;
      if :: ihdr[i]!=0 && ihdrD[i]==0 && ilen[i]==0 -> if :: ihdr[i]=0 :: ihdrD[i]=ihdr[i] fi :: else fi;
      i++ :: else -> break od; i=0 } }
#endif
init { atomic{ est[1]=1; d[MS]=MS+1; ihdr[MS+1]=1; byte c=0; run Server(1);
  do :: c<NC -> run Server(0); c++ :: else -> break od
#ifdef CRASH
  ; estD[1]=1; ihdrD[MS+1]=1; run Crash()
#endif
  } }
