/* A filter with a handful of names: answers some, blocks others.
 *
 *     config {
 *         host "hello.example" "192.0.2.7"   // A queries for this name get this address
 *         block "ads.example"                // this name and all below it do not exist
 *     }
 */

#include "dnsweir.h"

#define LONGEST_NAME 255
#define LONGEST_LABEL 63
#define NXDOMAIN 3
#define TYPE_A 1
#define CLASS_IN 1
#define TTL 300

/* A node of the configuration. */
typedef struct {
    bool blocks;
    uint8_t name[LONGEST_NAME];
    uint32_t length;
    uint8_t address[4];
} rule;

static rule *rules;
static uint32_t rule_count;

static bool same(text a, text b)
{
    if (a.length != b.length)
        return false;
    for (uint32_t i = 0; i < a.length; i++)
        if (a.at[i] != b.at[i])
            return false;
    return true;
}

/* Wire format, lowercase, of a name in presentation format without escapes. */
static bool parse_name(text name, rule *into)
{
    if (name.length > 1 && name.at[name.length - 1] == '.')
        name.length--;
    if (name.length == 0 || name.length > LONGEST_NAME - 2)
        return false;
    uint32_t label = 0;
    for (uint32_t i = 0; i <= name.length; i++) {
        if (i == name.length || name.at[i] == '.') {
            uint32_t length = i - label;
            if (length == 0 || length > LONGEST_LABEL)
                return false;
            into->name[label] = (uint8_t)length;
            label = i + 1;
        } else {
            char c = name.at[i];
            into->name[i + 1] = (uint8_t)(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
        }
    }
    into->name[name.length + 1] = 0;
    into->length = name.length + 2;
    return true;
}

static bool parse_address(text address, uint8_t into[4])
{
    uint32_t at = 0;
    for (int part = 0; part < 4; part++) {
        uint32_t number = 0, digits = 0;
        while (at < address.length && address.at[at] >= '0' && address.at[at] <= '9' && digits < 3) {
            number = number * 10 + (uint32_t)(address.at[at++] - '0');
            digits++;
        }
        if (digits == 0 || number > 255)
            return false;
        into[part] = (uint8_t)number;
        if (part < 3 && (at == address.length || address.at[at++] != '.'))
            return false;
    }
    return at == address.length;
}

static const text *argument(const node *node, uint32_t index)
{
    if (index >= node->arguments.length || node->arguments.at[index].kind != IS_TEXT)
        return NULL;
    return &node->arguments.at[index].text;
}

/* What is wrong with a node; an empty message if nothing is. */
static config_error mistake(const node *node, rule *rule)
{
    config_error error = { .has_node = true, .place = THE_NODE };
    rule->blocks = same(node->name, TEXT("block"));
    if (!rule->blocks && !same(node->name, TEXT("host"))) {
        error.message = TEXT("there is no such setting");
        error.help = TEXT("valid here: `host`, `block`");
        return error;
    }
    const text *name = argument(node, 0), *address = argument(node, 1);
    if (!name || !parse_name(*name, rule)) {
        error.message = TEXT("this needs a domain name");
        error.help = TEXT("write: host \"hello.example\" \"192.0.2.7\", or block \"ads.example\"");
    } else if (!rule->blocks && (!address || !parse_address(*address, rule->address))) {
        error.message = TEXT("this needs an IPv4 address");
        error.help = TEXT("write it like \"192.0.2.7\"");
        if (address) {
            error.place = AN_ARGUMENT;
            error.argument = 1;
        }
    }
    return error;
}

configured configure(setup setup)
{
    config_error *errors = take(setup.config.length * sizeof *errors);
    text *suffixes = take(setup.config.length * sizeof *suffixes);
    uint32_t error_count = 0;
    rules = take(setup.config.length * sizeof *rules);
    for (uint32_t i = 0; i < setup.config.length; i++) {
        rule *rule = &rules[rule_count];
        config_error error = mistake(&setup.config.at[i], rule);
        if (error.message.length > 0) {
            error.node = i;
            errors[error_count++] = error;
        } else {
            suffixes[rule_count++] = *argument(&setup.config.at[i], 0);
        }
    }
    if (error_count > 0)
        return (configured){ .rejected = 1, .errors = { errors, error_count } };
    text ready = TEXT("the C filter is ready");
    host_log(INFO, ready.at, ready.length);
    return (configured){ .manifest = { .suffixes = { suffixes, rule_count }, .queries = true } };
}

/* Whether a name is at or below a rule's name. */
static bool ends_with(const uint8_t *name, uint32_t length, const rule *rule)
{
    /* Label by label, because a suffix of the bytes may begin inside a label. */
    while (length > rule->length) {
        uint32_t label = name[0] + 1u;
        name += label;
        length -= label;
    }
    if (length != rule->length)
        return false;
    for (uint32_t i = 0; i < length; i++)
        if (name[i] != rule->name[i])
            return false;
    return true;
}

static answer address_of(bytes name, const rule *rule)
{
    resource_record *record = take(sizeof *record);
    *record = (resource_record){
        .name = name, .rtype = TYPE_A, .class = CLASS_IN, .ttl = TTL, .rdata = { rule->address, 4 },
    };
    return (answer){ .answers = { record, 1 } };
}

verdicts *on_queries(uint64_t now, const query *batch, uint32_t length, const uint8_t *octets, uint32_t octet_count)
{
    static verdicts said;
    said = (verdicts){ take(length * sizeof *said.at), 0 };
    uint32_t blocked = 0;
    (void)now, (void)octet_count;
    for (uint32_t i = 0; i < length; i++) {
        const query *query = &batch[i];
        const uint8_t *name = octets + query->name_start;
        for (const rule *rule = rules; rule < rules + rule_count; rule++) {
            if (rule->blocks && ends_with(name, query->name_length, rule)) {
                said.at[said.length++] = (verdict){ .query = i, .decision = REFUSE, .refuse = { .rcode = NXDOMAIN } };
                blocked++;
                break;
            }
            if (!rule->blocks && query->qtype == TYPE_A && query->name_length == rule->length
                && ends_with(name, query->name_length, rule)) {
                answer answer = address_of((bytes){ name, query->name_length }, rule);
                said.at[said.length++] = (verdict){ .query = i, .decision = ANSWER, .answer = answer };
                break;
            }
        }
    }
    if (blocked > 0)
        host_count("blocked", 7, NULL, 0, blocked);
    return &said;
}
