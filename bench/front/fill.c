/*
 * Asks a server for names and puts its answers into the table of the XDP program with a given ID.
 *
 *     fill PROGRAM SERVER < NAMES
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "front.h"

#define HEADER 12

static void fail(const char *what)
{
	fprintf(stderr, "fill: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int bpf(int command, union bpf_attr *attributes)
{
	return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static int by_id(int command, __u32 id)
{
	union bpf_attr attributes = {.map_id = id};
	int file = bpf(command, &attributes);
	if (file < 0)
		fail("open by ID");
	return file;
}

static void describe(int file, void *info, __u32 size)
{
	union bpf_attr attributes = {.info = {.bpf_fd = file, .info_len = size, .info = (__u64)(long)info}};
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attributes))
		fail("describe");
}

/* The table among the maps of a program. */
static int table_of(__u32 program)
{
	__u32 ids[8] = {0};
	struct bpf_prog_info info = {.nr_map_ids = 8, .map_ids = (__u64)(long)ids};
	describe(by_id(BPF_PROG_GET_FD_BY_ID, program), &info, sizeof info);
	for (__u32 i = 0; i < info.nr_map_ids; i++) {
		struct bpf_map_info map = {0};
		int file = by_id(BPF_MAP_GET_FD_BY_ID, ids[i]);
		describe(file, &map, sizeof map);
		if (!strcmp(map.name, "hot"))
			return file;
		close(file);
	}
	fprintf(stderr, "fill: the program has no table\n");
	exit(1);
}

/* Writes a question for an address; how long it is. */
static int write_query(unsigned char *query, const char *name, struct question *question)
{
	static const unsigned char header[HEADER] = {0x12, 0x34, 1, 0, 0, 1};
	unsigned char *at = question->name;
	memset(question->name, 0, sizeof question->name);
	for (const char *label = name; *label;) {
		size_t length = strcspn(label, ".");
		if (length == 0 || length > 63 || at + length + 2 > question->name + NAME_MAXIMUM)
			return 0;
		*at++ = length;
		while (length--)
			*at++ = *label++;
		label += *label == '.';
	}
	int length = at + 1 - question->name;
	question->type = question->class = htons(1);
	memcpy(query, header, HEADER);
	memcpy(query + HEADER, question->name, length);
	memcpy(query + HEADER + length, &question->type, 4);
	return HEADER + length + 4;
}

/* The answer in a reply whose records begin at `from`; false if it is none for the table. */
static int read_answer(const unsigned char *reply, int length, int from, struct answer *answer)
{
	if (length <= from || length - from > RECORDS_MAXIMUM || reply[2] & 2)
		return 0;
	memset(answer, 0, sizeof *answer);
	answer->flags = htons((reply[2] & ~1) << 8 | reply[3]);
	memcpy(answer->counts, reply + 6, sizeof answer->counts);
	answer->length = length - from;
	memcpy(answer->records, reply + from, answer->length);
	answer->lifetime_s = ~0u;
	for (unsigned char *at = answer->records, *end = at + answer->length; at < end;) {
		for (; at < end && *at && *at < 0xc0; at += 1 + *at)
			;
		at += at < end && *at ? 2 : 1;
		if (at + 10 > end || answer->ttls == TTLS_MAXIMUM)
			return 0;
		__u32 seconds;
		memcpy(&seconds, at + 4, 4);
		memset(at + 4, 0, 4);
		seconds = ntohl(seconds);
		if (seconds < answer->lifetime_s)
			answer->lifetime_s = seconds;
		answer->ttl[answer->ttls].at = at + 4 - answer->records;
		answer->ttl[answer->ttls++].seconds = seconds;
		at += 10 + at[8] * 256 + at[9];
	}
	for (int i = 0; i < answer->length; i += 2)
		answer->sum += *(__u16 *)(answer->records + i);
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	answer->stored_ns = now.tv_sec * 1000000000ull + now.tv_nsec;
	return 1;
}

int main(int count, char **words)
{
	if (count != 3) {
		fprintf(stderr, "fill PROGRAM SERVER < NAMES\n");
		return 64;
	}
	int table = table_of(atoi(words[1]));
	struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(53)};
	if (!inet_aton(words[2], &server.sin_addr)) {
		fprintf(stderr, "fill: %s is no address\n", words[2]);
		return 64;
	}
	int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
	struct timeval patience = {.tv_sec = 2};
	setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (connect(socket_, (struct sockaddr *)&server, sizeof server))
		fail("connect");

	char name[256];
	int stored = 0;
	while (scanf("%255s", name) == 1) {
		unsigned char query[HEADER + NAME_MAXIMUM + 4], reply[4096];
		struct question question = {.server = server.sin_addr.s_addr};
		static struct answer answer;
		int length = write_query(query, name, &question);
		if (!length || send(socket_, query, length, 0) < 0)
			continue;
		int received = recv(socket_, reply, sizeof reply, 0);
		if (received < 0)
			fail(name);
		if (!read_answer(reply, received, length, &answer))
			continue;
		union bpf_attr attributes = {
			.map_fd = table, .key = (__u64)(long)&question, .value = (__u64)(long)&answer};
		if (bpf(BPF_MAP_UPDATE_ELEM, &attributes))
			fail("store");
		stored++;
	}
	printf("%d answers stored\n", stored);
	return 0;
}
