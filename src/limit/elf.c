/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the symbol tables of loaded objects. */
#include "limit/limit.h"

#include "limit/sys.h"

#include <link.h>

/* Weak: a program without a dynamic linker has none. */
extern int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg)
    __attribute__((weak));

/* The start of this library: the linker defines it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

static struct elf_library library_of(const struct dl_phdr_info *info)
{
    struct elf_library l = {
        .start = UINTPTR_MAX, .base = info->dlpi_addr, .path = info->dlpi_name};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        uintptr_t at = l.base + ph->p_vaddr;
        if (ph->p_type == PT_DYNAMIC)
            l.dynamic = (const void *)at;
        if (ph->p_type != PT_LOAD)
            continue;
        l.start = at < l.start ? at : l.start;
        l.end = at + ph->p_memsz > l.end ? at + ph->p_memsz : l.end;
    }
    return l;
}

/* What the dynamic section points to. glibc writes addresses into it, musl leaves offsets. */
struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash, *gnu_hash;
    const ElfW(Half) * versions;
    uint64_t soname;
};

static const void *address(const struct elf_library *l, ElfW(Addr) at)
{
    return (const void *)(at < l->base ? at + l->base : at);
}

static bool read_tables(const struct elf_library *l, struct tables *t)
{
    *t = (struct tables){0};
    if (!l->dynamic)
        return false;
    for (const ElfW(Dyn) *d = l->dynamic; d->d_tag != DT_NULL; d++) {
        const void *at = address(l, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            t->symbols = at;
        else if (d->d_tag == DT_STRTAB)
            t->strings = at;
        else if (d->d_tag == DT_HASH)
            t->hash = at;
        else if (d->d_tag == DT_GNU_HASH)
            t->gnu_hash = at;
        else if (d->d_tag == DT_VERSYM)
            t->versions = at;
        else if (d->d_tag == DT_SONAME)
            t->soname = d->d_un.d_val;
    }
    return t->symbols && t->strings;
}

/* A definition of the name. Of several versions the default one, whose high bit is clear. */
struct match {
    const char *name;
    const ElfW(Sym) * symbol;
    bool is_default;
};

static void consider(const struct tables *t, uint32_t i, struct match *m)
{
    const ElfW(Sym) *s = &t->symbols[i];
    int type = ELF64_ST_TYPE(s->st_info);
    if (s->st_shndx == SHN_UNDEF || !s->st_value || m->is_default ||
        (type != STT_FUNC && type != STT_NOTYPE) ||
        !text_eq(t->strings + s->st_name, m->name))
        return;
    m->symbol = s;
    m->is_default = !t->versions || !(t->versions[i] & 0x8000);
}

static void search_hash(const struct tables *t, struct match *m)
{
    uint32_t h = 0;
    for (const char *c = m->name; *c; c++) {
        h = (h << 4) + (unsigned char)*c;
        h = (h ^ (h >> 24 & 0xf0)) & 0xfffffff;
    }
    const uint32_t *buckets = t->hash + 2, *chain = buckets + t->hash[0];
    for (uint32_t i = t->hash[0] ? buckets[h % t->hash[0]] : 0; i; i = chain[i])
        consider(t, i, m);
}

/* Header: buckets, first symbol, words of the filter, shift. A chain ends with an odd value. */
static void search_gnu_hash(const struct tables *t, struct match *m)
{
    uint32_t h = 5381;
    for (const char *c = m->name; *c; c++)
        h = h * 33 + (unsigned char)*c;
    uint32_t n = t->gnu_hash[0], first = t->gnu_hash[1];
    const uint32_t *buckets = t->gnu_hash + 4 + t->gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = buckets + n;
    uint32_t i = n ? buckets[h % n] : 0;
    for (bool last = i < first; !last; i++) {
        if ((chain[i - first] | 1) == (h | 1))
            consider(t, i, m);
        last = chain[i - first] & 1;
    }
}

void *elf_symbol(const struct elf_library *l, const char *name)
{
    struct tables t;
    struct match m = {.name = name};
    if (!read_tables(l, &t))
        return NULL;
    if (t.gnu_hash)
        search_gnu_hash(&t, &m);
    else if (t.hash)
        search_hash(&t, &m);
    return m.symbol ? (void *)(l->base + m.symbol->st_value) : NULL;
}

/* Linkers put the names behind the symbols. What stands between them is no address. */
bool elf_exports(const struct elf_library *l, const void *address)
{
    struct tables t;
    if (!read_tables(l, &t))
        return false;
    for (const ElfW(Sym) *s = t.symbols; (const char *)(s + 1) <= t.strings; s++)
        if (s->st_shndx != SHN_UNDEF && (const void *)(l->base + s->st_value) == address)
            return true;
    return false;
}

struct search {
    const char *name; /* a DT_SONAME or a symbol; NULL: any object */
    uintptr_t caller; /* an address; 0: any */
    bool passed;      /* the object of `caller` */
    struct elf_library found;
    void *symbol;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct search *s = arg;
    struct tables t;
    struct elf_library l = library_of(info);
    if (s->name &&
        (!read_tables(&l, &t) || !t.soname || !text_eq(t.strings + t.soname, s->name)))
        return 0;
    if (s->caller && (s->caller < l.start || s->caller >= l.end))
        return 0;
    s->found = l;
    return 1;
}

bool elf_find(const char *soname, struct elf_library *found)
{
    struct search s = {.name = soname};
    if (!dl_iterate_phdr || !dl_iterate_phdr(visit_object, &s))
        return false;
    *found = s.found;
    return true;
}

bool elf_holds(const char *soname, const void *address)
{
    struct search s = {.name = soname, .caller = (uintptr_t)address};
    return dl_iterate_phdr && dl_iterate_phdr(visit_object, &s);
}

static int visit_next(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    struct search *s = arg;
    struct elf_library l = library_of(info);
    if (s->passed && (s->symbol = elf_symbol(&l, s->name)))
        s->found = l;
    s->passed |= s->caller >= l.start && s->caller < l.end;
    return s->symbol != NULL;
}

void *elf_next(const void *caller, const char *name, struct elf_library *from)
{
    struct search s = {.name = name,
                       .caller = (uintptr_t)(caller ? caller : __ehdr_start)};
    if (dl_iterate_phdr)
        dl_iterate_phdr(visit_next, &s);
    *from = s.found;
    return s.symbol;
}

bool elf_at(const void *address, struct elf_library *found)
{
    struct search s = {.caller = (uintptr_t)address};
    bool is = dl_iterate_phdr && dl_iterate_phdr(visit_object, &s);
    *found = s.found;
    return is;
}

bool elf_own_path(char *into, uint32_t max)
{
    struct elf_library l;
    into[0] = '\0';
    return elf_at(__ehdr_start, &l) && l.path && text_add(into, max, l.path);
}
