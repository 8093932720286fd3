/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Named faults for mutation testing. MUTANT(name) marks the place of one fault of
 * test/mutants.h. It is false, and costs nothing, in every build but SANITIZE=mutants, where
 * `walk --mutant=NAME` and `simulate --mutant=NAME` plant the fault and must find it
 * (`make mutants`). A fault may have several places. A name that test/mutants.h does not
 * list does not compile there.
 */

#ifdef MUTANTS
#include "mutants.h"
extern enum mutant mutant_planted;
#define MUTANT(name) (mutant_planted == MUTANT_##name)
#else
#define MUTANT(name) 0
#endif
