/* What the program in the kernel and the one that fills its table agree on. */
#ifndef FRONT_H
#define FRONT_H

#include <linux/types.h>

/* Octets of a name in wire format, at most; longer ones go to the proxy. */
#define NAME_MAXIMUM 64
/* Octets of an answer's records, and how many of them, at most. */
#define RECORDS_MAXIMUM 256
#define TTLS_MAXIMUM 8
/* Names in the table. */
#define TABLE_SIZE 4096

struct question {
	__u8 name[NAME_MAXIMUM]; /* wire format, lower case, zeros behind it */
	__be16 type;
	__be16 class;
	__be32 server; /* who was asked */
};

struct answer {
	__u64 stored_ns; /* of CLOCK_MONOTONIC */
	__u32 lifetime_s; /* the least TTL */
	__u32 sum; /* ones' complement sum of the records, their TTLs taken as 0 */
	__be16 flags; /* of the message, RD not set */
	__be16 counts[3]; /* answer, authority, additional */
	__u16 length; /* of the records */
	__u16 ttls; /* how many TTLs they have */
	struct {
		__u32 at; /* octets from the first record */
		__u32 seconds;
	} ttl[TTLS_MAXIMUM];
	__u8 records[RECORDS_MAXIMUM];
};

#endif
