/* Between the host's calls and the filter's functions: memory, and the names that the canonical ABI gives. */

#include "dnsweir.h"

#define EXPORT(name) __attribute__((export_name(name)))
#define PAGE 65536u

/* Memory is taken from here upwards, and given back by going back to where a call began. */
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

/* The host takes room for what it hands in. It never makes any larger. */
EXPORT("cabi_realloc")
void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size)
{
    (void)old;
    if (old_size != 0)
        __builtin_trap();
    return take_aligned(size, align);
}

EXPORT(INTERFACE("configure") "#configure")
configured *export_configure(const char *name, uint32_t name_length, const node *config, uint32_t config_length,
                             const text *zones, uint32_t zones_length)
{
    static configured result;
    (void)name, (void)name_length, (void)zones, (void)zones_length;
    result = configure((nodes){ config, config_length });
    kept = top;
    return &result;
}

EXPORT(INTERFACE("queries") "#on-queries")
verdicts *export_on_queries(uint64_t now, const query *batch, uint32_t length, const uint8_t *names,
                            uint32_t names_length)
{
    static verdicts result;
    (void)names_length;
    result = on_queries(now, batch, length, names);
    return &result;
}

/* The host has read the result. */
EXPORT("cabi_post_" INTERFACE("queries") "#on-queries")
void read_on_queries(verdicts *result)
{
    (void)result;
    top = kept;
}
