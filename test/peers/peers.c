/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/peers.h"

#include "lib/unit.h"

void peers_node(struct program *p, const char *dir, const char *script,
                const char *const *args)
{
    const char *modules = getenv("GPUSHARE_PEERS");
    ck_assert_msg(modules != NULL, "run this with `make peers`");
    cleanup_free char *path = xasprintf("NODE_PATH=%s", modules);
    cleanup_free char *file = xasprintf("test/peers/%s", script);
    const char *argv[PROGRAM_ARGS] = {"env", path, "node", file};
    program_args(argv, 4, args);
    program_start(p, dir, argv);
}
