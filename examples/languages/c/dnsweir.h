/* The whole filter interface (wit/) in C.
 *
 * On wasm32, a C compiler lays out these structures exactly as the component model's canonical ABI requires, so a
 * filter reads and writes them in place. wit/ documents each field and function.
 *
 * A filter is compiled together with dnsweir.c, and defines the functions at the end of this file that it needs. */

#ifndef DNSWEIR_H
#define DNSWEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERFACE(name) "dnsweir:filter/" name "@0.1.0"

/* Lists and strings: pointer and length. Strings are not null-terminated. */
typedef struct { const char *at; uint32_t length; } text;
typedef struct { const uint8_t *at; uint32_t length; } bytes;
typedef struct { const uint16_t *at; uint32_t length; } numbers;
typedef struct { const bytes *at; uint32_t length; } names;
typedef struct { const text *at; uint32_t length; } texts;

#define TEXT(literal) ((text){ literal, sizeof(literal) - 1 })

/* --- Input --- */

/* How a query arrived: its `transport`. */
enum { UDP, TCP, TLS, HTTPS, QUIC, INTERNAL };

/* Kinds of the details after the name of a query. Each detail has kind and length, two bytes each, then its content. */
enum {
    IS_EDNS_OPTION = 1, IS_LISTENER, IS_SERVER_NAME, IS_HOST, IS_POD, IS_POD_LABEL, IS_POD_ANNOTATION,
    IS_NAMESPACE_LABEL, IS_NAMESPACE_ANNOTATION
};

typedef struct {
    uint64_t client_high, client_low;
    uint32_t name_start;
    uint16_t name_length, qtype, qclass, header, udp_size, edns_flags, client_port, zone;
    uint8_t transport;
    bool edns;
    uint16_t details_length;
} query;

/* The origin of a response or of the answer to a lookup: its `source`. */
enum { FROM_UPSTREAM, FROM_CACHE, FROM_STALE, FROM_FILTER, FROM_PROXY };

typedef struct {
    query query;
    uint16_t rcode;
    uint8_t source;
    uint16_t answer_count;
    uint32_t ttl, message_start, message_length;
} response;

/* The result of a lookup: its `status`. */
enum { ANSWERED, FAILED, TIMED_OUT, LIMITED };

typedef struct {
    uint8_t status;
    uint16_t rcode;
    uint8_t source;
    uint32_t ttl;
    uint16_t answer_count;
    uint32_t message_start, message_length;
} lookup_answer;

typedef struct {
    query query;
    uint32_t state_start, state_length, first, count;
} asked_query;

typedef struct {
    response response;
    uint32_t state_start, state_length, first, count;
} asked_response;

typedef struct {
    query query;
    uint64_t time;
    uint32_t duration;
    uint16_t id, query_size;
    uint32_t response_size;
    uint16_t rcode, response_header;
    uint8_t has_answers, source;
    uint32_t message_start, message_length;
} event;

/* A file of a refresh's source. */
typedef struct {
    text name, file;
    uint32_t data;
} source;

/* The `kind` of a value. */
enum { IS_NULL, IS_BOOLEAN, IS_INTEGER, IS_DECIMAL, IS_TEXT, IS_DATA };

typedef struct {
    uint8_t kind;
    union { bool boolean; int64_t integer; double decimal; text text; uint32_t data; };
} value;

typedef struct { text name; value value; } property;

typedef struct {
    text name;
    struct { const value *at; uint32_t length; } arguments;
    struct { const property *at; uint32_t length; } properties;
    bool has_parent;
    uint32_t parent;
} node;

typedef struct {
    text name;
    struct { const node *at; uint32_t length; } config;
    texts zones;
} setup;

/* --- Output --- */

typedef struct {
    bytes name;
    uint16_t rtype, class;
    uint32_t ttl;
    bytes rdata;
} resource_record;

typedef struct { const resource_record *at; uint32_t length; } records;

typedef struct {
    uint16_t code;
    text text;
} extended_error;

typedef struct {
    uint16_t rcode;
    bool authoritative;
    records answers, authority, additional;
    bool has_error;
    extended_error error;
} answer;

typedef struct {
    uint16_t rcode;
    _Alignas(4) bool has_error;
    extended_error error;
} refusal;

typedef struct {
    bool has_name;
    bytes name;
    bool has_qtype;
    uint16_t qtype;
    bool has_qclass;
    uint16_t qclass;
    bool revert;
} rewrite;

typedef struct { uint16_t found, instead; } rcodes;

enum { IN_ANSWER, IN_AUTHORITY, IN_ADDITIONAL };

typedef struct {
    bool has_section;
    uint8_t section;
    _Alignas(4) bool has_name;
    bytes name;
    bool has_rtype;
    uint16_t rtype;
    bool has_index;
    uint32_t index;
} selector;

/* The kind of an order: its `order`. */
enum { ROTATE, SHUFFLE, PERMUTE };

typedef struct {
    uint8_t order;
    union { uint32_t rotate; struct { const uint32_t *at; uint32_t length; } permute; };
} order;

/* The `kind` of a record edit. */
enum { REMOVE, REPLACE, APPEND, REORDER };

typedef struct {
    uint8_t kind;
    union {
        selector remove;
        struct { selector selector; records records; } replace;
        struct { uint8_t section; resource_record record; } append;
        order order;
    };
} record_edit;

typedef struct {
    struct { const rcodes *at; uint32_t length; } rcodes;
    struct { const record_edit *at; uint32_t length; } records;
    uint16_t header_set, header_clear;
    bool has_error;
    extended_error error;
    uint32_t ttl_minimum, ttl_maximum;
    bool store, stale;
} response_edit;

/* Where a lookup starts: its `path`. */
enum { TOP, BELOW, ZONE };

typedef struct {
    bytes name;
    uint16_t qtype;
    _Alignas(4) uint8_t path;
    text zone;
} lookup;

/* `on_query_answers` or `on_response_answers` gets the answers. */
typedef struct {
    struct { const lookup *at; uint32_t length; } lookups;
    uint32_t time;
    bytes state;
} ask;

typedef struct {
    uint64_t high, low;
    uint8_t length;
} subnet;

typedef struct {
    bool has_source;
    uint16_t source;
    _Alignas(8) bool has_client_subnet;
    subnet client_subnet;
} route;

/* The `decision` about a query. */
enum { PASS, REWRITE, ANSWER, ALIAS, REFUSE, DROP, ASK };

typedef struct {
    uint32_t query;
    uint32_t remember;
    uint8_t decision;
    union { rewrite rewrite; answer answer; names alias; refusal refuse; text drop; ask ask; };
    bool has_edit;
    response_edit edit;
    bool skip_response;
    uint16_t delay;
    _Alignas(8) bool has_route;
    route route;
} verdict;

typedef struct { verdict *at; uint32_t length; } verdicts;

/* The `decision` about a response. */
enum { RESPONSE_PASS, RESPONSE_REPLACE, RESPONSE_DROP, RESPONSE_ASK };

typedef struct {
    uint32_t response;
    uint8_t decision;
    union { answer replace; text drop; ask ask; };
    bool has_edit;
    response_edit edit;
    uint16_t delay;
} response_verdict;

typedef struct { response_verdict *at; uint32_t length; } response_verdicts;

/* The part of a node that is wrong: its `place`. */
enum { THE_NODE, AN_ARGUMENT, A_PROPERTY };

typedef struct {
    bool has_node;
    uint32_t node;
    uint8_t place;
    union { uint32_t argument; text property; };
    text message, help;
} config_error;

typedef struct { text name; uint32_t octets; bool shown; } table_shape;

/* The `kind` of a detail that a filter requests. */
enum {
    EDNS_OPTION, EDNS_OPTIONS, LISTENER, SERVER_NAME, IDENTITY, POD_LABEL, POD_ANNOTATION, NAMESPACE_LABEL,
    NAMESPACE_ANNOTATION
};

typedef struct {
    uint8_t kind;
    union { uint16_t edns_option; text label; };
} detail;

/* Outcomes of a query, for the `outcomes` of a manifest. */
enum { SUCCESS, DENIAL, NO_SUCCESS };

typedef struct {
    numbers qtypes;
    texts suffixes;
    bool queries, responses, events, messages, asks;
    struct { const table_shape *at; uint32_t length; } tables;
    struct { const detail *at; uint32_t length; } details;
    texts sources;
    struct { const uint8_t *at; uint32_t length; } outcomes;
} manifest;

/* A manifest, or all mistakes. */
typedef struct {
    uint8_t rejected;
    union {
        manifest manifest;
        struct { const config_error *at; uint32_t length; } errors;
    };
} configured;

/* Nothing, or what is wrong with the sources. */
typedef struct { uint8_t failed; text message; } refreshed;

_Static_assert(sizeof(query) == 40 && sizeof(verdict) == 160 && offsetof(verdict, edit) == 60, "wit/types.wit");
_Static_assert(sizeof(response) == 64 && sizeof(response_verdict) == 108, "wit/types.wit");
_Static_assert(sizeof(asked_query) == 56 && sizeof(asked_response) == 80, "wit/types.wit");
_Static_assert(sizeof(lookup_answer) == 24 && sizeof(lookup) == 24 && sizeof(event) == 80, "wit/types.wit");
_Static_assert(sizeof(record_edit) == 40 && offsetof(record_edit, replace.records) == 32, "wit/types.wit");
_Static_assert(sizeof(node) == 32 && sizeof(property) == 24 && sizeof(config_error) == 36, "wit/types.wit");
_Static_assert(sizeof(configured) == 60 && sizeof(detail) == 12 && sizeof(table_shape) == 16, "wit/types.wit");
_Static_assert(sizeof(source) == 20 && sizeof(refreshed) == 12, "wit/refresh.wit");

/* --- Functions that a filter may call: wit/filter.wit, wit/tables.wit, wit/data.wit, wit/refresh.wit --- */

#define IMPORT(interface, name) __attribute__((import_module(INTERFACE(interface)), import_name(name)))

enum { ERROR, WARN, INFO, DEBUG };

/* A label of a counter. */
typedef struct { text name, value; } label;

IMPORT("host", "log") void host_log(uint32_t level, const char *message, uint32_t length);
IMPORT("host", "print") void host_print(const char *lines, uint32_t length);
IMPORT("host", "count")
void host_count(const char *name, uint32_t length, const label *labels, uint32_t label_count, uint64_t by);

/* A value, or none. */
typedef struct { bool there; bytes octets; } maybe_bytes;
typedef struct { bool there; uint64_t size; } maybe_size;

IMPORT("tables", "get")
void table_get(uint32_t table, const void *key, uint32_t key_length, maybe_bytes *value);
IMPORT("tables", "put")
bool table_put(uint32_t table, const void *key, uint32_t key_length, const void *value, uint32_t length, uint64_t ttl);
IMPORT("tables", "remove")
bool table_remove(uint32_t table, const void *key, uint32_t key_length);
IMPORT("tables", "add")
int64_t table_add(uint32_t table, const void *key, uint32_t key_length, int64_t by, uint64_t ttl);
IMPORT("tables", "compare-and-swap")
bool table_compare_and_swap(uint32_t table, const void *key, uint32_t key_length, bool is_expected,
                            const void *expected, uint32_t expected_length, bool is_new, const void *new,
                            uint32_t new_length, uint64_t ttl);
IMPORT("tables", "take")
bool table_take(uint32_t table, const void *key, uint32_t key_length, uint32_t tokens, double rate, uint32_t burst);

IMPORT("data", "size") void data_size(uint32_t index, maybe_size *size);
IMPORT("data", "read") void data_read(uint32_t index, uint64_t offset, uint32_t length, bytes *octets);
IMPORT("data", "find-line")
void data_find_line(uint32_t index, const void *key, uint32_t key_length, uint8_t separator, maybe_bytes *line);
IMPORT("data", "published") uint32_t data_published(const char *name, uint32_t length);
IMPORT("data", "revision") uint64_t data_revision(void);

IMPORT("output", "append")
bool output_append(const char *name, uint32_t name_length, const void *octets, uint32_t length);
IMPORT("output", "publish") bool output_publish(const char *name, uint32_t name_length, uint32_t index);

/* Allocates memory until the end of the call, which is also how long the results of the functions above last. Memory
 * taken in `configure` lasts as long as the filter. */
void *take(size_t size);

/* --- Functions that a filter defines: `configure`, and those of the phases it takes part in. What it defines is
 *     exported, and called if its manifest says so. Offsets are into `octets`. --- */

#define EXPORT(interface, name) __attribute__((export_name(INTERFACE(interface) "#" name)))

configured configure(setup setup);

EXPORT("queries", "on-queries")
verdicts *on_queries(uint64_t now, const query *batch, uint32_t length, const uint8_t *octets, uint32_t octet_count);

EXPORT("responses", "on-responses")
response_verdicts *on_responses(uint64_t now, const response *batch, uint32_t length, const uint8_t *octets,
                                uint32_t octet_count);

EXPORT("query-answers", "on-query-answers")
verdicts *on_query_answers(uint64_t now, const asked_query *batch, uint32_t length, const lookup_answer *answers,
                           uint32_t answer_count, const uint8_t *octets, uint32_t octet_count);

EXPORT("response-answers", "on-response-answers")
response_verdicts *on_response_answers(uint64_t now, const asked_response *batch, uint32_t length,
                                       const lookup_answer *answers, uint32_t answer_count, const uint8_t *octets,
                                       uint32_t octet_count);

EXPORT("events", "on-events")
void on_events(const event *batch, uint32_t length, const uint8_t *octets, uint32_t octet_count);

EXPORT("refresh", "on-refresh")
refreshed *on_refresh(uint64_t now, const source *sources, uint32_t length);

#endif
