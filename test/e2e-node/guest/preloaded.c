/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A library that an image preloads: every program of the image exits with 40 more, so that its
 * exit status tells whether the library was loaded.
 */

#include <stdlib.h>
#include <unistd.h>

static void add(int status, void *arg)
{
    (void)arg;
    _exit(status + 40);
}

__attribute__((constructor)) static void begin(void)
{
    on_exit(add, NULL);
}
