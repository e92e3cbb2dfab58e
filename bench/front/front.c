/*
 * An answer cache in front of the network stack: an XDP program that answers the questions in its table
 * where the driver hands packets over, and lets all else through to the proxy.
 *
 * An experiment (docs/decisions/0016-beyond-sockets.md). What it refuses to do is what the proxy does and it cannot: EDNS, CD, AD,
 * filters, logs, any answer that is not in the table. IPv4 over Ethernet only.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "front.h"

#define SEC(name) __attribute__((section(name), used))
#define be16(number) __builtin_bswap16(number)
#define be32(number) __builtin_bswap32(number)

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*adjust_tail)(struct xdp_md *context, int by) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*store_bytes)(struct xdp_md *context, __u32 at, const void *from, __u32 length) =
	(void *)BPF_FUNC_xdp_store_bytes;

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[TABLE_SIZE];
	struct question *key;
	struct answer *value;
} hot SEC(".maps");

/* RFC 1035 section 4.1.1. */
struct header {
	__be16 id;
	__be16 flags;
	__be16 questions;
	__be16 counts[3];
};

#define RD 0x0100

/* RFC 1071. */
static __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Reads name (in lower case), type and class; how many octets they take, 0 if the name is none of ours. */
static __u32 read_question(const __u8 *at, const void *end, struct question *question)
{
	__u32 left = 0;
	for (__u32 i = 0; i < NAME_MAXIMUM; i++, at++) {
		if ((void *)(at + 1) > end)
			return 0;
		__u8 octet = *at;
		if (left == 0) {
			if (octet == 0) {
				at++;
				if ((void *)(at + 4) > end)
					return 0;
				__builtin_memcpy(&question->type, at, 4);
				return i + 5;
			}
			if (octet > 63)
				return 0;
			left = octet;
		} else {
			left--;
			if ((__u8)(octet - 'A') < 26)
				octet |= 0x20;
		}
		question->name[i] = octet;
	}
	return 0;
}

SEC("xdp")
int front(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = (void *)(long)context->data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct header *dns = (void *)(udp + 1);
	if ((void *)(dns + 1) > end)
		return XDP_PASS;
	/* No options, no fragment, and to the port of DNS. */
	if (ethernet->h_proto != be16(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP || ip->frag_off & ~be16(0x4000) || udp->dest != be16(53))
		return XDP_PASS;
	/* A standard query with RD at most; nothing but a question, so no EDNS either. */
	if (dns->flags & ~be16(RD) || dns->questions != be16(1) || dns->counts[0] || dns->counts[1] ||
	    dns->counts[2])
		return XDP_PASS;
	struct question question = {.server = ip->daddr};
	__u32 length = read_question((void *)(dns + 1), end, &question);
	__u16 datagram = sizeof *udp + sizeof *dns + length;
	if (!length || be16(udp->len) != datagram || be16(ip->tot_len) != sizeof *ip + datagram)
		return XDP_PASS;
	struct answer *answer = map_lookup(&hot, &question);
	if (!answer)
		return XDP_PASS;
	__u32 age = (ktime_get_ns() - answer->stored_ns) / 1000000000;
	__u32 size = answer->length;
	if (age >= answer->lifetime_s || size == 0 || size > RECORDS_MAXIMUM)
		return XDP_PASS;

	/*
	 * The checksum follows what changes (RFC 1624): flags, counts, the length in two places, the records.
	 * Addresses and ports change places, which is the same sum. 0 stands for none, and stays.
	 */
	__u32 records = sizeof *ethernet + sizeof *ip + sizeof *udp + sizeof *dns + length;
	__u64 sum = answer->sum;
	for (int i = 0; i < TTLS_MAXIMUM && i < answer->ttls; i++) {
		__u16 part = fold(be32(answer->ttl[i].seconds - age));
		sum += answer->ttl[i].at & 1 ? be16(part) : part;
	}
	if (length & 1)
		sum = be16(fold(sum));
	__be16 flags = answer->flags | (dns->flags & be16(RD));
	__be16 long_before = udp->len;
	__be16 long_after = be16(datagram + size);
	sum += flags + (__u16)~dns->flags + answer->counts[0] + answer->counts[1] + answer->counts[2];
	sum += 2 * ((__u32)long_after + (__u16)~long_before);
	if (udp->check) {
		__u16 check = ~fold(sum + (__u16)~udp->check);
		udp->check = check ? check : 0xffff;
	}
	udp->len = long_after;
	dns->flags = flags;
	__builtin_memcpy(dns->counts, answer->counts, sizeof dns->counts);

	struct ethhdr before = *ethernet;
	__builtin_memcpy(ethernet->h_dest, before.h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, before.h_dest, ETH_ALEN);
	__be32 client = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = client;
	__be16 port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	ip->tot_len = be16(sizeof *ip + datagram + size);
	ip->ttl = 64;
	ip->check = 0;
	__u16 *words = (void *)ip;
	sum = 0;
	for (int i = 0; i < 10; i++)
		sum += words[i];
	ip->check = ~fold(sum);

	/* From here on the packet is changed: it leaves, or it is lost like any other. */
	if (adjust_tail(context, size) || store_bytes(context, records, answer->records, size))
		return XDP_DROP;
	for (int i = 0; i < TTLS_MAXIMUM && i < answer->ttls; i++) {
		__be32 seconds = be32(answer->ttl[i].seconds - age);
		if (store_bytes(context, records + answer->ttl[i].at, &seconds, sizeof seconds))
			return XDP_DROP;
	}
	return XDP_TX;
}

/* For the client's end of a veth pair: a program is what has the kernel wake it for packets of XDP_TX. */
SEC("xdp")
int pass_all(struct xdp_md *context)
{
	(void)context;
	return XDP_PASS;
}

char licence[] SEC("license") = "Apache-2.0";
