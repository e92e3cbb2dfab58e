/* Between the host's calls and the filter's functions: memory, and the names of the canonical ABI. */

#include "dnsweir.h"

#define PAGE 65536u

/* Memory is allocated from here upwards, and freed by going back to where a call began. */
extern uint8_t __heap_base;
static uintptr_t top, kept;

static void *take_aligned(size_t size, size_t align)
{
    if (top == 0)
        top = (uintptr_t)&__heap_base;
    uintptr_t at = (top + align - 1) & -align;
    uintptr_t end = at + size;
    uintptr_t have = __builtin_wasm_memory_size(0) * PAGE;
    if (end < at)
        __builtin_trap();
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + PAGE - 1) / PAGE) == (size_t)-1)
        __builtin_trap();
    top = end;
    return (void *)at;
}

void *take(size_t size)
{
    return take_aligned(size, 8);
}

/* The host allocates memory for its arguments, and never resizes it. */
/* The host allocates memory for its arguments, and never resizes it. */
__attribute__((export_name("cabi_realloc")))
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size)
{
    (void)old;
    if (old_size != 0)
        __builtin_trap();
    return take_aligned(size, align);
}

EXPORT("configure", "configure")
configured *export_configure(const char *name, uint32_t name_length, const node *config, uint32_t config_length,
                             const text *zones, uint32_t zones_length)
{
    static configured result;
    result = configure((setup){ { name, name_length }, { config, config_length }, { zones, zones_length } });
    kept = top;
    return &result;
}

/* The host has read a function's result. It ignores the functions of phases that a filter does not have. */
#define READ(interface, name) __attribute__((export_name("cabi_post_" INTERFACE(interface) "#" name)))

READ("queries", "on-queries") void read_on_queries(verdicts *said) { (void)said, top = kept; }
READ("responses", "on-responses") void read_on_responses(response_verdicts *said) { (void)said, top = kept; }
READ("query-answers", "on-query-answers") void read_on_query_answers(verdicts *said) { (void)said, top = kept; }
READ("response-answers", "on-response-answers")
void read_on_response_answers(response_verdicts *said) { (void)said, top = kept; }
READ("events", "on-events") void read_on_events(void) { top = kept; }
READ("refresh", "on-refresh") void read_on_refresh(refreshed *said) { (void)said, top = kept; }
