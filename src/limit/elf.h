/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The objects that the dynamic linker loaded into this program, and their symbols, read from
 * their ELF tables. dlsym cannot be asked: the library exports a dlsym itself. The objects come
 * from dl_iterate_phdr, which glibc and musl have and which locks out dlopen meanwhile.
 */

struct elf_library {
    uintptr_t start, end; /* addresses of its segments; 0: not loaded */
    uintptr_t base;
    const void *dynamic;
};

/* The object whose DT_SONAME is `soname`. False: not loaded. */
bool elf_find(const char *soname, struct elf_library *found);

/* A function that the object exports, or NULL. */
void *elf_symbol(const struct elf_library *l, const char *name);

/* The first object after the one with the address `caller`, in the order of loading, that
 * exports the name: what RTLD_NEXT means there. NULL: none does. `from`: that object. */
void *elf_next(const void *caller, const char *name, struct elf_library *from);

/* The path of this library as the dynamic linker loaded it, copied. False: not found or too
 * long. */
bool elf_own_path(char *into, uint32_t max);
