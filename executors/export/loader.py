"""The C text of an exported plan: the header that a program includes, and the loader that walks the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

C_TYPES = {
    "u8": "uint8_t", "s8": "int8_t", "u16": "uint16_t", "s16": "int16_t", "u32": "uint32_t", "s32": "int32_t",
    "u64": "uint64_t", "s64": "int64_t", "f32": "float", "f64": "double", "bool": "uint8_t", "f16": "uint16_t",
    "bf16": "uint16_t",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """One array that the exported function takes: its C name, element type, stored shape, and whether it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    written: bool

    @property
    def declared(self) -> str:
        kind = C_TYPES.get(self.dtype, "uint8_t")
        return f"{'' if self.written else 'const '}{kind} *{self.name}"


@dataclass(frozen=True)
class LevelObject:
    """One instruction set's object: the level, the symbol of its layout, and the features a processor must have."""

    level: str
    symbol: str
    features: tuple[str, ...]


def header(name: str, arguments: Sequence[Argument], files: Sequence[str]) -> str:
    """The text of NAME.h."""
    rows = "\n".join(
        f" *   {a.name:14} {a.dtype} ({', '.join(map(str, a.shape))}){', written' if a.written else ''}"
        for a in arguments
    )
    taken = ", ".join([*(a.declared for a in arguments), "void *memory"])
    return f"""/* Written by tilework: {name}, ready to be called from C. Link with
 *   cc -c {name}.c && cc your_program.c {name}.o {" ".join(files)} -lm
 *
{rows}
 *
 * Arrays are contiguous, in C order. Sizes are those that the plan was exported for.
 */
#ifndef TILEWORK_{name.upper()}_H
#define TILEWORK_{name.upper()}_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

/* Bytes of memory that one call uses. */
size_t {name}_memory(void);

/* The instruction set that is used here, or NULL if this processor has none of those that were exported. */
const char *{name}_level(void);

/* Hold calls to one of the exported instruction sets; 0, or -1 if the processor lacks it. */
int {name}_use(const char *level);

/* Run once. memory: {name}_memory() bytes of the caller's, so that several threads may call at once; NULL: malloc.
 * Returns 0; the status of a step that failed (above 0); -1: no instruction set fits; -2: no memory. */
int {name}_run({taken});

#ifdef __cplusplus
}}
#endif
#endif
"""


def loader(name: str, arguments: Sequence[Argument], levels: Sequence[LevelObject]) -> str:
    """The text of NAME.c. `levels`: the preferred one first."""
    taken = ", ".join([*(a.declared for a in arguments), "void *memory"])
    externs = "\n".join(f"extern int64_t {found.symbol}[];" for found in levels)
    table = "\n".join(f'    {{"{x.level}", {x.symbol}, {_test(x.features)}}},' for x in levels)
    given = ", ".join(f"(int64_t)(intptr_t){a.name}" for a in arguments) or "0"
    return _LOADER.format(name=name, taken=taken, externs=externs, table=table, given=given, count=len(arguments))


_GCC = {"avx512bf16": "avx512bf16", "avxvnni": "avxvnni"}


def _test(features: Sequence[str]) -> str:
    """The features as one string that the loader asks the compiler's runtime about, one after another."""
    return '"' + " ".join(features) + '"'


_LOADER = """/* Written by tilework: the loader of {name}. It walks the tables of the objects on the calling thread. */
#include "{name}.h"
#include <stdlib.h>
#include <string.h>

typedef int32_t (*entry)(const int64_t *bases, const int64_t *block, const int64_t *ranges);

{externs}

static const struct {{ const char *name; int64_t *layout; const char *features; }} levels[] = {{
{table}
}};
enum {{ LEVELS = sizeof levels / sizeof levels[0] }};
static int chosen = -2;

static int has(const char *feature) {{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
#define TEST(x) if (!strcmp(feature, x)) return __builtin_cpu_supports(x);
    TEST("avx2") TEST("fma") TEST("avx512f") TEST("avx512bw") TEST("avx512vl") TEST("avx512dq") TEST("avx512vnni")
    TEST("avx512bf16")
#if defined(__clang__) || __GNUC__ >= 11
    TEST("avxvnni")
#endif
    return 0;
#else
    (void)feature;
    return 1; /* built for this architecture, which has what every level of it needs */
#endif
}}

static int fits(int level) {{
    char word[32];
    const char *at = levels[level].features;
    while (*at) {{
        size_t n = strcspn(at, " ");
        if (n >= sizeof word) return 0;
        memcpy(word, at, n);
        word[n] = 0;
        if (!has(word)) return 0;
        at += n + (at[n] == ' ');
    }}
    return 1;
}}

/* A layout's words: facts (bases, arena, local, alignment, then the base of each argument), program, tables, patches. */
static void prepare(int64_t *layout) {{
    int64_t *at = layout + 2 + layout[0], bases[1];
    int64_t tables = *at++;
    for (int64_t n = 0; n < tables; n++, at += 2) {{
        bases[0] = at[1];
        ((entry)(intptr_t)at[0])(bases, bases, bases);
    }}
    int64_t patches = *at++;
    for (int64_t n = 0; n < patches; n++, at += 2) *(int64_t *)(intptr_t)at[0] = *(int64_t *)(intptr_t)at[1];
}}

static int choose(void) {{
    if (chosen == -2) {{
        int found = -1;
        for (int n = LEVELS - 1; n >= 0; n--) if (fits(n)) {{ prepare(levels[n].layout); found = n; }}
        chosen = found;
    }}
    return chosen;
}}

const char *{name}_level(void) {{ return choose() < 0 ? NULL : levels[chosen].name; }}

int {name}_use(const char *level) {{
    choose();
    for (int n = 0; n < LEVELS; n++) if (!strcmp(level, levels[n].name) && fits(n)) {{ chosen = n; return 0; }}
    return -1;
}}

static size_t memory_of(const int64_t *facts) {{
    return (size_t)(8 * facts[0] + facts[1] + facts[2] + 4 * facts[3]);
}}

size_t {name}_memory(void) {{
    size_t most = 0;
    for (int n = 0; n < LEVELS; n++)
        if (fits(n) && memory_of(levels[n].layout + 1) > most) most = memory_of(levels[n].layout + 1);
    return most;
}}

static int walk(const int64_t *program, int64_t *bases) {{
    const int64_t *stages = (const int64_t *)(intptr_t)program[1];
    const int64_t *rows = (const int64_t *)(intptr_t)program[2], *fixes = (const int64_t *)(intptr_t)program[3];
    for (int64_t s = 0; s < program[0]; s++, stages += 7) {{
        int64_t tiles = stages[0], first = stages[1], count = stages[2], spread = count * stages[5];
        for (int64_t tile = 0; tile < tiles; tile++) {{
            for (int64_t n = 0; n < stages[4]; n++) {{
                const int64_t *fix = fixes + 3 * (stages[3] + n);
                bases[fix[0]] = bases[program[4]] + fix[1] - ((const int64_t *)(intptr_t)fix[2])[tile];
            }}
            for (int64_t n = 0; n < count; n++) {{
                const int64_t *row = rows + 4 * (first + tile * spread + n);
                const int64_t *ranges = (const int64_t *)(intptr_t)(row[2] + tile * row[3]);
                int32_t status = ((entry)(intptr_t)row[0])(bases, (const int64_t *)(intptr_t)row[1], ranges);
                if (status) return status;
            }}
        }}
    }}
    return 0;
}}

int {name}_run({taken}) {{
    if (choose() < 0) return -1;
    const int64_t *layout = levels[chosen].layout, *facts = layout + 1;
    const int64_t given[] = {{ {given} }};
    void *own = memory ? NULL : malloc(memory_of(facts));
    if (!memory && !own) return -2;
    int64_t align = facts[3], at = (int64_t)(intptr_t)(memory ? memory : own);
    at = (at + align - 1) / align * align;
    int64_t *bases = (int64_t *)(intptr_t)at;
    memset(bases, 0, (size_t)(8 * facts[0]));
    at = (at + 8 * facts[0] + align - 1) / align * align;
    bases[1] = at;
    bases[2] = (at + facts[1] + align - 1) / align * align;
    for (int n = 0; n < {count}; n++) bases[facts[4 + n]] = given[n];
    int status = walk((const int64_t *)(intptr_t)layout[1 + layout[0]], bases);
    free(own);
    return status;
}}
"""
