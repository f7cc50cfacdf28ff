#!/usr/bin/env bash
# Runs Spin to search all states of batches.pml. The property must hold for the protocol, and must
# fail for each variant with a fault.
source "$(dirname "$0")/../spin.sh"

check holds "2 processes, a limit of 2, one unit a tick, ttl 2"
check holds "2 processes, a limit of 2, one unit in 2 ticks, ttl 3" -DT=2 -DTTL=3
check holds "2 processes, a limit of 3, batches of 3, ttl 3" -DB=3 -DBATCH=3 -DTTL=3
check holds "3 processes, a limit of 2, batches of 1, ttl 1" -DPROCS=3 -DTTL=1 -DBATCH=1
check holds "3 processes, a limit of 2, batches of 2, ttl 1, refunds that arrive at once" -DPROCS=3 -DTTL=1 -DDELAY=0
check fails "a bound that is lower by one tick" -DLESS=1
check fails "spends after ttl" -DSPEND_LATE
check fails "spends before the units are charged" -DSPEND_FIRST
check fails "counts ttl from the reply" -DTTL_FROM_REPLY
check fails "spends what it has given back" -DSPEND_GIVEN
check fails "gives back all that is left, also what has come back by itself" -DGIVE_ALL -DDELAY=0
check fails "repeats a refund whose reply is lost" -DGIVE_TWICE
check fails "sends a refund that arrives after its bound" -DGIVE_LATE
exit $failed
