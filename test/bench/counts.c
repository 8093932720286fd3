/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/count.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct counts *counts_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct counts)) == 0)
        p = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror("bench: the file of counts");
        exit(1);
    }
    close(fd);
    return p;
}

void counts_close(struct counts *counts)
{
    munmap(counts, sizeof *counts);
}

static struct allocations run(const struct counts *counts, struct load *load,
                              size_t calls)
{
    struct load_result r;
    uint64_t program = counts->program, libraries = counts->libraries;
    load->calls = calls;
    load_run(load, &r);
    load_result_fini(&r);
    load->first += calls;
    return (struct allocations){(double)(counts->program - program),
                                (double)(counts->libraries - libraries)};
}

struct allocations counts_measure(const struct counts *counts, const struct load *load)
{
    enum { SOME = COUNTS_CALLS / 4 };
    struct load l = *load;
    run(counts, &l, SOME);
    struct allocations once = run(counts, &l, SOME), twice = run(counts, &l, 2 * SOME);
    return (struct allocations){(twice.program - once.program) / SOME,
                                (twice.libraries - once.libraries) / SOME};
}
