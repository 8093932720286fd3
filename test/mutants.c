/* SPDX-License-Identifier: Apache-2.0 */
#include "mutants.h"

#include <string.h>

/* Plants a fault of mutants.h in the walk or the simulator, in the build SANITIZE=mutants. */

#ifdef MUTANTS
extern enum mutant mutant_planted;
enum mutant mutant_planted;

bool mutants_plant(const char *name)
{
#define IF_NAMED(fault, about)                                                           \
    if (strcmp(name, #fault) == 0)                                                       \
        mutant_planted = MUTANT_##fault;
    MUTANT_LIST(IF_NAMED)
    return mutant_planted != MUTANT_NONE;
}
#else
bool mutants_plant(const char *name)
{
    (void)name;
    return false;
}
#endif
