/* The filter of tests/filters/released in C: every phase, every kind of verdict, everything that it may call. What it is
 * given is as the test gives it, and it looks for no mistakes. */

#include "dnsweir.h"

#define TYPE_A 1
#define TYPE_NS 2
#define CLASS_IN 1
#define TTL 300
#define OPTION 65001
#define AA 0x0400
#define AD 0x0020
#define MINUTE 60000

static bytes target, address;
static uint32_t list, copied, whole;

/* Octets of any kind. */
#define OCTETS(octets, count) ((bytes){ (const uint8_t *)(octets), count })
#define LITERAL(literal) OCTETS(literal, sizeof(literal) - 1)
static const text reason = TEXT("told to");
#define BECAUSE(number) .has_error = true, .error = { number, reason }

static bool same(bytes a, bytes b)
{
    if (a.length != b.length)
        return false;
    for (uint32_t i = 0; i < a.length; i++)
        if (a.at[i] != b.at[i])
            return false;
    return true;
}

static bytes octets_of(text text)
{
    return OCTETS(text.at, text.length);
}

/* The wire format of a name without escapes. */
static bytes wire(text name)
{
    uint8_t *wire = take(name.length + 2);
    uint32_t label = 0;
    for (uint32_t i = 0; i <= name.length; i++)
        if (i == name.length || name.at[i] == '.') {
            wire[label] = (uint8_t)(i - label);
            label = i + 1;
        } else {
            wire[i + 1] = (uint8_t)name.at[i];
        }
    wire[label] = 0;
    return (bytes){ wire, label + 1 };
}

static bytes parse_address(text text)
{
    uint8_t *parts = take(4);
    for (uint32_t i = 0, part = parts[0] = 0; i < text.length; i++)
        if (text.at[i] == '.')
            parts[++part] = 0;
        else
            parts[part] = (uint8_t)(parts[part] * 10 + text.at[i] - '0');
    return (bytes){ parts, 4 };
}

/* Puts a text into room that is large enough. */
static char *put(char *at, text text)
{
    for (uint32_t i = 0; i < text.length; i++)
        *at++ = text.at[i];
    return at;
}

static bytes name_of(const query *query, const uint8_t *octets)
{
    return OCTETS(octets + query->name_start, query->name_length);
}

static bool is(const query *query, const uint8_t *octets, const char *label)
{
    const uint8_t *name = octets + query->name_start;
    uint32_t i = 0;
    while (i < name[0] && label[i] == (char)name[1 + i])
        i++;
    return i == name[0] && label[i] == 0;
}

configured configure(setup setup)
{
    static const table_shape tables[] = { { TEXT("values"), 1 << 16, false }, { TEXT("numbers"), 1 << 16, true } };
    static const detail details[] = { { .kind = LISTENER }, { .kind = EDNS_OPTION, .edns_option = OPTION } };
    static const text sources[] = { TEXT("other") };
    static const uint8_t outcomes[] = { SUCCESS, DENIAL };
    for (uint32_t i = 0; i < setup.config.length; i++) {
        const node *node = &setup.config.at[i];
        const value *value = node->arguments.at;
        if (same(octets_of(node->name), LITERAL("address")))
            address = parse_address(value->text);
        else if (same(octets_of(node->name), LITERAL("target")))
            target = wire(value->text);
        else
            list = value->data;
    }
    copied = data_published("copied", 6);
    whole = data_published("whole", 5);
    text name = setup.name, zone = setup.zones.at[0], says = TEXT(" is configured for [");
    char *line = take(name.length + says.length + zone.length + 1);
    char *end = put(put(put(put(line, name), says), zone), TEXT("]"));
    host_log(INFO, line, (uint32_t)(end - line));
    return (configured){ .manifest = {
        .queries = true, .responses = true, .events = true, .messages = true, .asks = true,
        .tables = { tables, 2 }, .details = { details, 2 }, .sources = { sources, 1 }, .outcomes = { outcomes, 2 },
    } };
}

/* --- What verdicts are made of --- */

static records one(bytes name, uint16_t rtype, bytes rdata)
{
    resource_record *record = take(sizeof *record);
    *record = (resource_record){ .name = name, .rtype = rtype, .class = CLASS_IN, .ttl = TTL, .rdata = rdata };
    return (records){ record, 1 };
}

/* The address, if all is as it should be. */
static answer answer_if(bytes name, bool right)
{
    return (answer){ .answers = one(name, TYPE_A, right ? address : LITERAL("\0\0\0\0")) };
}

static answer sections(bytes name)
{
    return (answer){
        .authoritative = true, .answers = one(name, TYPE_A, address), .authority = one(name, TYPE_NS, target),
        .additional = one(target, TYPE_A, address), BECAUSE(4),
    };
}

static ask ask_twice(uint16_t qtype)
{
    lookup *lookups = take(2 * sizeof *lookups);
    lookups[0] = (lookup){ .name = target, .qtype = qtype, .path = BELOW };
    lookups[1] = (lookup){ .name = target, .qtype = qtype, .path = TOP };
    return (ask){ .lookups = { lookups, 2 }, .time = 10000, .state = LITERAL("state") };
}

static bool are_found(const lookup_answer *answers, uint32_t count, bytes state)
{
    bool found = count == 2 && same(state, LITERAL("state"));
    for (uint32_t i = 0; i < count; i++)
        found &= answers[i].status == ANSWERED && answers[i].answer_count == 1 && answers[i].message_length > 0;
    return found;
}

static const response_edit no_change = { .ttl_maximum = UINT32_MAX, .store = true, .stale = true };

static response_edit at_most(uint32_t ttl)
{
    response_edit edit = no_change;
    edit.ttl_maximum = ttl;
    return edit;
}

static response_edit marks(void)
{
    static const rcodes rcodes[] = { { 3, 0 } };
    return (response_edit){
        .rcodes = { rcodes, 1 }, .header_set = AA, .header_clear = AD, BECAUSE(17), .ttl_minimum = 1,
        .ttl_maximum = UINT32_MAX,
    };
}

static response_edit edit_records(const record_edit *edits, uint32_t count)
{
    response_edit edit = no_change;
    edit.records.at = edits;
    edit.records.length = count;
    return edit;
}

/* Of three addresses, 1, 2 and 3, it makes 8, 2 and 7, and another in the last section. */
static response_edit other_records(bytes name)
{
    static const uint32_t order[] = { 1, 0, 2 };
    static const uint8_t addresses[][4] = { { 192, 0, 2, 7 }, { 192, 0, 2, 8 }, { 192, 0, 2, 9 } };
    selector third = { .has_section = true, .section = IN_ANSWER, .has_rtype = true, .rtype = TYPE_A,
                       .has_index = true, .index = 2 };
    selector first = third;
    first.index = 0;
    first.has_name = true;
    first.name = name;
    record_edit *edits = take(6 * sizeof *edits);
    edits[0] = (record_edit){ .kind = REMOVE, .remove = third };
    edits[1] = (record_edit){ .kind = REPLACE, .replace = { first, one(name, TYPE_A, OCTETS(addresses[0], 4)) } };
    edits[2] = (record_edit){ .kind = APPEND, .append = { IN_ANSWER, *one(name, TYPE_A, OCTETS(addresses[1], 4)).at } };
    edits[3] = (record_edit){ .kind = APPEND,
                              .append = { IN_ADDITIONAL, *one(target, TYPE_A, OCTETS(addresses[2], 4)).at } };
    edits[4] = (record_edit){ .kind = REORDER, .order = { PERMUTE, .permute = { order, 3 } } };
    edits[5] = (record_edit){ .kind = REORDER, .order = { ROTATE, .rotate = 2 } };
    return edit_records(edits, 6);
}

/* --- What a filter may call --- */

static bool tables_work(bytes key)
{
    enum { VALUES, NUMBERS };
    const uint8_t *k = key.at;
    uint32_t n = key.length;
    maybe_bytes old, none;
    table_add(NUMBERS, "asked", 5, 1, 0);
    bool work = table_put(VALUES, k, n, "old", 3, MINUTE);
    table_get(VALUES, k, n, &old);
    work &= old.there && same(old.octets, LITERAL("old"));
    work &= table_compare_and_swap(VALUES, k, n, true, "old", 3, true, "new", 3, MINUTE);
    work &= !table_compare_and_swap(VALUES, k, n, true, "old", 3, false, NULL, 0, 0);
    work &= table_remove(VALUES, k, n);
    table_get(VALUES, k, n, &none);
    work &= !none.there && table_take(VALUES, k, n, 1, 0.001, 1) && !table_take(VALUES, k, n, 1, 0.001, 1);
    return work && table_add(NUMBERS, "asked", 5, 1, 0) == 2;
}

static bool has_line(uint32_t data)
{
    maybe_bytes line;
    data_find_line(data, "key", 3, ' ', &line);
    return line.there && same(line.octets, LITERAL("key value"));
}

static bool data_is_there(void)
{
    maybe_size size;
    bytes value;
    maybe_bytes line;
    data_size(list, &size);
    data_read(list, 4, 5, &value);
    data_find_line(whole, "value", 5, ' ', &line);
    return size.there && size.size == 10 && same(value, LITERAL("value")) && has_line(list) && has_line(copied)
        && has_line(whole) && !line.there && data_revision() > 0;
}

static bool details_are_told(const query *query, const uint8_t *octets)
{
    const uint8_t *at = octets + query->name_start + query->name_length, *end = at + query->details_length;
    bool option = false, listener = false;
    for (; at < end; at += 4 + (at[2] << 8) + at[3]) {
        uint32_t kind = (uint32_t)(at[0] << 8) + at[1], length = (uint32_t)(at[2] << 8) + at[3];
        option |= kind == IS_EDNS_OPTION && same(OCTETS(at + 4, length), LITERAL("\xfd\xe9told"));
        listener |= kind == IS_LISTENER && length > 0;
    }
    return option && listener;
}

/* --- The phases --- */

static verdict decide(const query *query, const uint8_t *octets)
{
    static const record_edit shuffle = { .kind = REORDER, .order = { .order = SHUFFLE } };
    bytes name = name_of(query, octets);
    verdict said = { .remember = 1000, .decision = ANSWER };
    if (is(query, octets, "answer"))
        said.answer = sections(name);
    else if (is(query, octets, "alias"))
        said.decision = ALIAS, said.alias = (names){ &target, 1 };
    else if (is(query, octets, "rename"))
        said.decision = REWRITE, said.rewrite = (rewrite){ .has_name = true, .name = target, .revert = true };
    else if (is(query, octets, "refuse"))
        said.decision = REFUSE, said.refuse = (refusal){ .rcode = 5, BECAUSE(18) };
    else if (is(query, octets, "drop"))
        said.decision = DROP, said.drop = reason;
    else if (is(query, octets, "edit"))
        said.decision = PASS, said.has_edit = true, said.edit = at_most(7);
    else if (is(query, octets, "records"))
        said.decision = PASS, said.has_edit = true, said.edit = other_records(name);
    else if (is(query, octets, "shuffle"))
        said.decision = PASS, said.has_edit = true, said.edit = edit_records(&shuffle, 1);
    else if (is(query, octets, "mark"))
        said.decision = PASS, said.has_edit = true, said.edit = marks();
    else if (is(query, octets, "route"))
        said.decision = PASS, said.has_route = true, said.route = (route){
            .has_source = true, .source = 0, .has_client_subnet = true, .client_subnet = { 0, 0xffffc0000200, 24 },
        };
    else if (is(query, octets, "late"))
        said.answer = answer_if(name, true), said.delay = 20;
    else if (is(query, octets, "skip"))
        said.decision = PASS, said.skip_response = true;
    else if (is(query, octets, "ask"))
        said.decision = ASK, said.ask = ask_twice(query->qtype);
    else if (is(query, octets, "table"))
        said.answer = answer_if(name, tables_work(name));
    else if (is(query, octets, "data"))
        said.answer = answer_if(name, data_is_there());
    else if (is(query, octets, "details"))
        said.answer = answer_if(name, details_are_told(query, octets));
    else
        said = (verdict){ .decision = PASS };
    return said;
}

verdicts *on_queries(uint64_t now, const query *batch, uint32_t length, const uint8_t *octets, uint32_t octet_count)
{
    static verdicts said;
    (void)now, (void)octet_count;
    said = (verdicts){ take(length * sizeof *said.at), length };
    for (uint32_t i = 0; i < length; i++) {
        const uint8_t *name = octets + batch[i].name_start;
        label label = { TEXT("label"), { (const char *)name + 1, name[0] } };
        host_count("queries", 7, NULL, 0, 1);
        host_count("labels", 6, &label, 1, 1);
        if (is(&batch[i], octets, "trap")) {
            text says = TEXT("told to panic at trap.test");
            host_log(ERROR, says.at, says.length);
            __builtin_trap();
        }
        said.at[i] = decide(&batch[i], octets);
        said.at[i].query = i;
    }
    return &said;
}

response_verdicts *on_responses(uint64_t now, const response *batch, uint32_t length, const uint8_t *octets,
                                uint32_t octet_count)
{
    static response_verdicts said;
    (void)now, (void)octet_count;
    said = (response_verdicts){ take(length * sizeof *said.at), length };
    for (uint32_t i = 0; i < length; i++) {
        const query *query = &batch[i].query;
        response_verdict *verdict = &said.at[i];
        *verdict = (response_verdict){ .response = i };
        if (is(query, octets, "shorten"))
            verdict->has_edit = true, verdict->edit = at_most(9);
        else if (is(query, octets, "reask"))
            verdict->decision = RESPONSE_ASK, verdict->ask = ask_twice(query->qtype);
        else if (is(query, octets, "silence"))
            verdict->decision = RESPONSE_DROP, verdict->drop = reason;
        else if (is(query, octets, "later"))
            verdict->delay = 20;
        else if (is(query, octets, "replace") || is(query, octets, "skip"))
            verdict->decision = RESPONSE_REPLACE,
            verdict->replace = answer_if(name_of(query, octets), batch[i].message_length > 0);
    }
    return &said;
}

verdicts *on_query_answers(uint64_t now, const asked_query *batch, uint32_t length, const lookup_answer *answers,
                           uint32_t answer_count, const uint8_t *octets, uint32_t octet_count)
{
    static verdicts said;
    (void)now, (void)answer_count, (void)octet_count;
    said = (verdicts){ take(length * sizeof *said.at), length };
    for (uint32_t i = 0; i < length; i++) {
        const asked_query *asked = &batch[i];
        bool found = are_found(answers + asked->first, asked->count, OCTETS(octets + asked->state_start, asked->state_length));
        said.at[i] = (verdict){
            .query = i, .decision = ANSWER, .answer = answer_if(name_of(&asked->query, octets), found),
        };
    }
    return &said;
}

response_verdicts *on_response_answers(uint64_t now, const asked_response *batch, uint32_t length,
                                       const lookup_answer *answers, uint32_t answer_count, const uint8_t *octets,
                                       uint32_t octet_count)
{
    static response_verdicts said;
    (void)now, (void)answer_count, (void)octet_count;
    said = (response_verdicts){ take(length * sizeof *said.at), length };
    for (uint32_t i = 0; i < length; i++) {
        const asked_response *asked = &batch[i];
        bool found = are_found(answers + asked->first, asked->count, OCTETS(octets + asked->state_start, asked->state_length));
        said.at[i] = (response_verdict){
            .response = i, .decision = RESPONSE_REPLACE,
            .replace = answer_if(name_of(&asked->response.query, octets), found),
        };
    }
    return &said;
}

void on_events(const event *batch, uint32_t length, const uint8_t *octets, uint32_t octet_count)
{
    (void)octet_count;
    for (uint32_t i = 0; i < length; i++) {
        const event *event = &batch[i];
        bool all = event->message_length > 0 && event->message_length == event->response_size;
        char *line = take(32 + event->query.name_length), *end = put(line, all ? TEXT("heard of ") : TEXT("heard a part of "));
        for (const uint8_t *at = octets + event->query.name_start; *at > 0; at += 1 + *at)
            end = put(put(end, (text){ (const char *)at + 1, *at }), TEXT("."));
        end = put(end, TEXT("\n"));
        host_print(line, (uint32_t)(end - line));
    }
}

refreshed *on_refresh(uint64_t now, const source *sources, uint32_t length)
{
    static refreshed said;
    said = (refreshed){ .failed = true, .message = TEXT("there is something else") };
    (void)now;
    for (uint32_t i = 0; i < length; i++) {
        bytes octets;
        if (!same(octets_of(sources[i].name), LITERAL("list")) || sources[i].file.length > 0)
            return &said;
        data_read(sources[i].data, 0, 1 << 16, &octets);
        if (!output_append("copied", 6, octets.at, octets.length) || !output_publish("whole", 5, sources[i].data))
            return &said;
    }
    said.failed = false;
    return &said;
}
