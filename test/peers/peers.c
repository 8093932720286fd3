/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/peers.h"

#include "base/mem.h"
#include "lib/unit.h"

void peers_node(struct program *p, const char *dir, const char *script,
                const char *const *args)
{
    enum { ARGS = 16 };
    const char *modules = getenv("GPUSHARE_PEERS");
    ck_assert_msg(modules != NULL, "run this with `make peers`");
    cleanup_free char *path = xasprintf("NODE_PATH=%s", modules);
    cleanup_free char *file = xasprintf("test/peers/%s", script);
    const char *argv[ARGS] = {"env", path, "node", file};
    size_t n = 4;
    for (; *args; args++) {
        ck_assert_uint_lt(n, ARGS - 1);
        argv[n++] = *args;
    }
    program_start(p, dir, argv);
}
