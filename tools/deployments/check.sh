#!/usr/bin/env bash
# Runs Spin to search all states of deployments.pml. The properties must hold for the protocol, and must fail for
# each variant that breaks one of its rules.
source "$(dirname "$0")/../spin.sh"

faults="-DLOST=1 -DLATE=1 -DCRASHES=1 -DEXPIRED=1" # a lost reply or command, a late write, a death, an expired lease

check holds "two namespaces, each fault once" $faults
check holds "two views of the leader, each fault once" $faults -DVIEW=1
check holds "one namespace, each fault once" $faults -DSECOND=1
check holds "a rollback, each fault once" $faults -DSECOND=2
check holds "twice the same value, each fault once" $faults -DSECOND=3
check holds "a delete, each fault once" $faults -DSECOND=4
check holds "a first deployment of a namespace, each fault once" $faults -DADDED=1
check holds "a watch, each fault once" $faults -DROUNDS=1
check holds "two primaries, each fault and a failed primary once" $faults -DNODES=2 -DFAILURES=1
check holds "a watch, one failed primary, a lost reply, a death" -DFAILURES=1 -DLOST=1 -DCRASHES=1 -DROUNDS=1
check holds "two failed primaries, a lost reply" -DFAILURES=2 -DLOST=1
check holds "a rollback, one failed primary, a lost reply, a death" -DSECOND=2 -DFAILURES=1 -DLOST=1 -DCRASHES=1
check holds "a delete, one failed primary, a lost reply, a death" -DSECOND=4 -DFAILURES=1 -DLOST=1 -DCRASHES=1
check holds "two failed primaries, a clock set back" -DBACK=1 -DFAILURES=2
check fails "two libraries, for header and body (rule 1)" -DTWO=1
check fails "one number for the whole text (rule 2)" -DPARTS=0 -DFAILURES=2
check fails "no leases (rule 3)" -DLEASES=0
check fails "a lease on the leader only, and two views of the leader (rule 3)" -DLEASES=1 -DVIEW=1 -DLOST=1
check fails "a lease on the leader only, and its failure (rule 3)" -DLEASES=1 -DFAILURES=1 -DLATE=1
check fails "a lease on the leader only that expires (rule 3)" -DLEASES=1 -DEXPIRED=1 -DLATE=1 -DLOST=1
check fails "the nodes are read before the leases are taken (rule 4)" -DREAD=0
check fails "a number without the leader's clock (rule 5)" -DCLOCK=0 -DFAILURES=2 -DSECOND=1
check fails "a part does not keep what it replaced (rule 6)" -DKEEP=0 -DSECOND=2
check fails "a lost lease is taken again unseen (rule 7)" -DLOOK=0 -DFAILURES=1 -DLOST=1 -DROUNDS=1
check fails "success is reported without reading again (rule 8)" -DVERIFY=0 -DFAILURES=1
check fails "an undo writes the old number (rule 9)" -DUNDO=0 -DFAILURES=1 -DLOST=1
check fails "an undo only where something was written (rule 9)" -DUNDO=1 -DVERIFY=0 -DLOST=1 -DROUNDS=1 -DFAILURES=1
check fails "an undo records the failed value (rule 9)" -DRECORD=1 -DSECOND=2 -DLOST=1
check fails "no fences (rule 10)" $faults -DFENCE=0
check fails "no fence before an undo (rule 10)" $faults -DFENCE=1
check fails "no fence when a lease is taken over (rule 10)" $faults -DFENCE=2
check fails "a watch writes to empty primaries only (rule 11)" -DFILL=1 -DCRASHES=1
check fails "a watch without leases (rule 11)" -DGUARD=0 -DROUNDS=1
check fails "a watch gives its file a new number (rule 11)" -DFILE=1 -DFAILURES=1 -DROUNDS=1
check fails "a watch writes its file wherever the text differs (rule 11)" -DFILE=2 -DROUNDS=1
check fails "a delete leaves no tombstone (rule 12)" -DTOMB=0 -DSECOND=4
exit $failed
