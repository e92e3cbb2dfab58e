/* The filter interface (wit/types.wit, wit/filter.wit) as C sees it.
 *
 * On wasm32, a C compiler lays these structures out exactly as the component model's canonical ABI wants them, so
 * a filter reads and writes them in place. What each field means is said in wit/. */

#ifndef DNSWEIR_H
#define DNSWEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERFACE(name) "dnsweir:filter/" name "@0.1.0"

/* Lists and strings: where they are and how many. Strings have no zero at their end. */
typedef struct { const char *at; uint32_t length; } text;
typedef struct { const uint8_t *at; uint32_t length; } bytes;
typedef struct { const uint16_t *at; uint32_t length; } numbers;
typedef struct { const bytes *at; uint32_t length; } names;
typedef struct { const text *at; uint32_t length; } texts;

#define TEXT(literal) ((text){ literal, sizeof(literal) - 1 })

/* --- What comes in --- */

enum { UDP, TCP, TLS, HTTPS, QUIC, INTERNAL };

typedef struct {
    uint64_t client_high, client_low;
    uint32_t name_start;
    uint16_t name_length, qtype, qclass, header, udp_size, edns_flags, client_port, zone;
    uint8_t transport;
    bool edns;
    uint16_t details_length;
} query;

/* What `kind` says is in a value. */
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

typedef struct { const node *at; uint32_t length; } nodes;

/* --- What goes out --- */

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

/* What `order` says the records are put in. */
enum { ROTATE, SHUFFLE, PERMUTE };

typedef struct {
    uint8_t order;
    union { uint32_t rotate; struct { const uint32_t *at; uint32_t length; } permute; };
} order;

/* What `kind` says is done with records. */
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

/* From where `path` says that a lookup is made. */
enum { TOP, BELOW, ZONE };

typedef struct {
    bytes name;
    uint16_t qtype;
    _Alignas(4) uint8_t path;
    text zone;
} lookup;

/* The answers come to `on-query-answers`, which dnsweir.c leaves out. */
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

/* What `decision` says is done with a query. */
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

/* What `place` says is wrong in a node. */
enum { THE_NODE, AN_ARGUMENT, A_PROPERTY };

typedef struct {
    bool has_node;
    uint32_t node;
    uint8_t place;
    union { uint32_t argument; text property; };
    text message, help;
} config_error;

typedef struct { text name; uint32_t octets; bool shown; } table;

/* What `kind` says a filter wants to know of queries. */
enum {
    EDNS_OPTION, EDNS_OPTIONS, LISTENER, SERVER_NAME, IDENTITY, POD_LABEL, POD_ANNOTATION, NAMESPACE_LABEL,
    NAMESPACE_ANNOTATION
};

typedef struct {
    uint8_t kind;
    union { uint16_t edns_option; text label; };
} detail;

typedef struct {
    numbers qtypes;
    texts suffixes;
    bool queries, responses, events, messages, asks;
    struct { const table *at; uint32_t length; } tables;
    struct { const detail *at; uint32_t length; } details;
    texts sources;
    struct { const uint8_t *at; uint32_t length; } outcomes;
} manifest;

/* A manifest, or mistakes. */
typedef struct {
    uint8_t rejected;
    union {
        manifest manifest;
        struct { const config_error *at; uint32_t length; } errors;
    };
} configured;

_Static_assert(sizeof(query) == 40 && sizeof(verdict) == 160 && offsetof(verdict, edit) == 60, "wit/types.wit");
_Static_assert(sizeof(record_edit) == 40 && offsetof(record_edit, replace.records) == 32, "wit/types.wit");
_Static_assert(sizeof(node) == 32 && sizeof(property) == 24 && sizeof(config_error) == 36, "wit/types.wit");

/* --- What a filter may call --- */

#define HOST(name) __attribute__((import_module(INTERFACE("host")), import_name(name)))

enum { ERROR, WARN, INFO, DEBUG };

HOST("log") void host_log(uint32_t level, const char *message, uint32_t length);
HOST("print") void host_print(const char *lines, uint32_t length);
/* A label of a counter: its name and its value. */
typedef struct { text name, value; } label;

HOST("count") void host_count(const char *name, uint32_t length, const label *labels, uint32_t label_count, uint64_t by);

/* Room that lasts until the call is over; what `configure` takes lasts as long as the filter. */
void *take(size_t size);

/* --- What a filter has: see names.c --- */

configured configure(nodes config);
verdicts on_queries(uint64_t now, const query *batch, uint32_t length, const uint8_t *names);

#endif
