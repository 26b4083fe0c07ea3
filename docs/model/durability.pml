/* SPDX-License-Identifier: Apache-2.0 */

/* durability: what a crash of everything may take away (docs/PROTOCOL.md, 4, 7, 8).

   fence.pml once more, with two states of everything that is written: visible to all at once, and
   durable (names that end in D) after a sync. At any one moment everything may crash: every server dies,
   and of what was not synced each part is lost or kept. Servers then claim again.

   Safety: as in fence.pml; and what an answer told (obs: a read or a refusal that showed an
   operation) is true after the crash, too.

   Left out: torn frames and sectors (package wal and its tests), segments (segments.pml), two crashes.

   Mutants (-DMUT_...), each of which must be found wanting:
     NO_EPOCHS_FSYNC  does not sync epochs/ after the rename of a claim
     REDO_FIRST       writes protected files before its START is durable and checked
     ADOPT_NOSYNC     does not sync what it adopted before START
     START_NOSYNC     does not sync START before it serves
     READ_EARLY       tells of an operation before its record is durable: no basis */
#ifndef NS
#define NS 2
#endif
#ifndef ME
#define ME 4
#endif
#define K 2
bool dir[ME]; bool dirD[ME]; bool fence[ME]; bool est[ME]; bool estD[ME];
byte seg[16]; byte slen[ME]; byte dlen[ME]; byte file[4]; bool acked[4]; byte pos[4];
bool kill[4]; byte crashes=0; byte nm[ME]; /* unused: owner of the directory */
bool obs[4]; byte opos[4];
#define CHKALL op=1; do :: op<=K -> if :: acked[op] -> assert(pos[op]<n && seg[e*4+pos[op]]==op) :: else fi; if :: obs[op] -> assert(opos[op]<n && seg[e*4+opos[op]]==op) :: else fi; op++ :: op>K -> break od; op=0
proctype Server(byte id){
  byte e,f,n,i,op; bool bad; byte turns=0;
again:
  do
  :: turns<2 -> { turns++;
    e=1;
    do
    :: atomic{ e<ME && dir[e] -> e++ }
    :: atomic{ e<ME && !dir[e] -> dir[e]=1; fence[e]=0; est[e]=0; estD[e]=0; slen[e]=0; dlen[e]=0; break }
    :: e>=ME -> goto out
    od;
#ifndef MUT_NO_EPOCHS_FSYNC
    atomic{ i=1; do :: i<ME -> dirD[i]=dir[i]; i++ :: else -> break od; i=0 };
#endif
    f=e-1;
    do
    :: f>0 -> fence[f]=1; if :: est[f] -> break :: else -> f-- fi
    :: f==0 -> break
    od;
    n=slen[f]; i=0;
    do :: i<n -> atomic{ seg[e*4+i]=seg[f*4+i]; i++ } :: i>=n -> break od;
    slen[e]=n;
#ifdef MUT_REDO_FIRST
    i=0; if :: fence[e] -> goto again :: else fi;
    do :: i<n -> atomic{ assert(file[i]==0 || file[i]==seg[e*4+i]); file[i]=seg[e*4+i]; i++ } :: i>=n -> break od;
#endif
#ifndef MUT_ADOPT_NOSYNC
    dlen[e]=n;
#endif
    est[e]=1;
#ifndef MUT_START_NOSYNC
    estD[e]=1;
#endif
    atomic{ if :: fence[e] -> goto again :: else fi; CHKALL };
    i=0;
    do :: i<n -> atomic{ assert(file[i]==0 || file[i]==seg[e*4+i]); file[i]=seg[e*4+i]; i++ } :: i>=n -> break od;
    do
    :: slen[e]<K ->
       if :: op=1 :: op=2 fi;
       atomic{ bad=0; i=0; do :: i<slen[e] -> if :: seg[e*4+i]==op -> bad=1 :: else fi; i++ :: else -> break od };
       if :: bad -> skip
       :: else -> i=slen[e];
          atomic{ seg[e*4+i]=op; slen[e]=i+1 };
#ifdef MUT_READ_EARLY
          if :: atomic{ !fence[e] -> obs[op]=1; opos[op]=i } :: skip fi;
#endif
          dlen[e]=i+1;
          if :: fence[e] -> goto again :: else fi;
          atomic{ assert(file[i]==0 || file[i]==op); file[i]=op };
          atomic{ if :: acked[op] -> assert(pos[op]==i) :: else fi; acked[op]=1; pos[op]=i }
       fi
    :: break
    :: slen[e]>=K -> break
    od } unless { atomic{ kill[id] -> kill[id]=0 } }
  :: turns>=2 -> break
  od;
out: skip }
proctype Crash(){ byte i;
  atomic{ i=1;
  do :: i<ME -> 
     if :: dir[i] && !dirD[i] -> if :: dir[i]=0; fence[i]=0; est[i]=0; estD[i]=0; slen[i]=0; dlen[i]=0 :: dirD[i]=1 fi :: else fi;
     if :: est[i] && !estD[i] -> if :: est[i]=0 :: estD[i]=1 fi :: else fi;
     do :: slen[i]>dlen[i] -> if :: slen[i]=slen[i]-1; seg[i*4+slen[i]]=0 :: dlen[i]=slen[i] fi :: else -> break od;
     i++
  :: else -> break od;
  i=0; do :: i<K -> if :: file[i]=0 :: skip fi; i++ :: else -> break od;
  i=1; do :: i<=NS -> kill[i]=1; i++ :: else -> break od } }
init { est[0]=1; estD[0]=1; dir[0]=1; dirD[0]=1; byte s=1; atomic { do :: s<=NS -> run Server(s); s++ :: else -> break od; run Crash() } }
