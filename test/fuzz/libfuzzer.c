/* SPDX-License-Identifier: Apache-2.0 */

/* What a target needs besides libFuzzer, which replaces driver.c (`make fuzz`). */

#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

/* libFuzzer catches the abort, saves the input and prints its path. */
void fuzz_fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}
