/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a target needs beside libFuzzer, which takes the place of driver.c (`make fuzz`).
 */

#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

/* libFuzzer catches the abort, writes the input to a file and says where it is. */
void fuzz_fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}
