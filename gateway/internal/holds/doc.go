// Package holds reserves units before it is known how many are used, and settles them afterwards.
//
// [Holds.Reserve] charges an estimate at once, so every other call on the keys sees it.
// [Holds.Commit] replaces the estimate with what was used. If no Commit comes within the ttl,
// [Holds.Sweep] of any gateway gives the estimate back.
//
// # What is stored
//
// A reservation has a random id R. Its first character names one of 16 shards, each in one hash slot,
// so that in a cluster the shards are spread over the nodes, and every gateway knows their names:
//
//	ratelimit:{holds:7}:R        string: the record, with the keys, limits, amount and ttl
//	ratelimit:{holds:7}:R:end    string: the decision, "commit 30" or "sweep", and " done" if it was carried out
//	ratelimit:{holds:7}:ends     sorted set: each R whose decision was not carried out; the score is its end
//	KEY:hold:R:1:take            the reply to the take of the first part (ONCE)
//	KEY:hold:R:1:take:settle:1   the reply to its correction (ONCE); one for each limit if one is a shadow policy
//
// A part is what one call charges. The keys with its replies are in the slot of its limited keys. All
// commands have one key, so nothing needs a transaction, a script, or rights that an application
// lacks. The order of the commands makes every crash harmless.
//
// # Reserve
//
//	R1  SET the record; ZADD its end
//	R2  take each part with ONCE
//	R3  if denied: ZREM, DEL (or, if an earlier part was charged, what Commit does, with "sweep")
//
// If the gateway dies before R1, nothing has happened. After R1 or during R2, a sweep finds the
// record and gives back what was charged. A lost reply to R2 is the same: the caller gets an error and
// no id, and the units are held until the end.
//
// # Commit and sweep
//
//	C1  read the record. If there is none, the id is unknown, and nothing changes
//	C2  SET R:end NX GET: the first decision stays, whoever made it; ZADD XX now
//	C3  ask for each part what was charged
//	C4  refund or force the difference, with ONCE
//	C5  shorten the record's life; SET R:end done; ZREM
//	C6  shorten the lives of the replies of ONCE
//
// C2 is the only race, and one command decides it. A Commit that finds the decision "sweep" charges
// what was used by force, as a Report does, once for each id. A second Commit finds the first one's
// decision, and carries that out, if this is still to be done.
//
// If a gateway dies before C2, the reservation stays open. After C2, the end is now, so the next
// sweep of any gateway carries the same decision out. Every step after C2 can be repeated: C4 has
// ONCE, and C5 comes only after C4. The record expires before the decision, so no decision is made
// twice. The replies of ONCE outlive the record until C5 is done, and then nothing repeats C4.
//
// # What was charged
//
// After a crash or a lost reply, only the servers know whether R2 charged a part, and a delayed take
// may still arrive. C3 answers both: it takes 2 units from a key of its own with UPTO, and with the
// request key of R2. If R2 charged the part, the reply is that of R2, which allows 1. Otherwise it is
// 2, and from then on a delayed take gets this reply, and charges nothing. Such a take finds the limit
// of that key in its reply, and Reserve fails. A part that R2 has not charged, such as one under a shadow
// policy that would have denied it, is not corrected.
//
// # What remains
//
//   - A record is kept for a day after its end, or after the last attempt to correct a blocked key. If no gateway runs for so long, the units of the
//     reservation are not given back; they return as the limit refills.
//   - If a failover loses a record, its units are not given back either. If it loses the charge, the
//     reply of ONCE is lost with it, because one call wrote both, and nothing is given back.
//   - A decision is repeated for 10 minutes after it was carried out. After that, the id is unknown.
package holds
