/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The CUDA process of gpushare-card-check. It needs no CUDA toolkit, and is built without a
 * sanitizer, as programs of users are.
 *
 *     gpushare-card-guest MIB [hold|size]    exits with the code of CUDA: 0, 2 (out of memory), ...
 *
 * With `hold` it prints "held" once it has the memory, and waits until it is killed; with `size`
 * the MiB of the card.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    unsigned long long bytes = strtoull(argc > 1 ? argv[1] : "0", NULL, 10) << 20, p = 0;
    if (!cuda) {
        printf("%s\n", dlerror());
        return 127;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) =
        (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    if (!init || !retain || !use || !allocate) {
        printf("libcuda.so.1 lacks a function\n");
        return 127;
    }
    int rc = init(0);
    rc = rc ? rc : retain(&context, 0);
    rc = rc ? rc : use(context);
    rc = rc ? rc : allocate(&p, (size_t)bytes);
    if (rc || argc < 3)
        return rc;
    if (strcmp(argv[2], "size") == 0) {
        int (*info)(size_t *, size_t *) =
            (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
        size_t left = 0, total = 0;
        rc = info ? info(&left, &total) : 127;
        printf("%zu\n", total >> 20);
        return rc;
    }
    puts("held");
    fflush(stdout);
    for (;;)
        pause();
}
