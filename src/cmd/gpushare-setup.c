/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"

int main(int argc, char **argv)
{
    return setup_main(argc, argv);
}
