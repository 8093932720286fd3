/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>

#include "integration/suite.h"

/* An extender whose standard error is a pipe that nobody reads. */

enum { PIPE_BYTES = 4096, PODS = 200 };

/* Reads the pipe up to the line that says the port, and no further than needed. */
static unsigned port_of(int fd, const char *mark)
{
    cleanup_buf struct buf said = {0};
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    for (;;) {
        char c;
        ck_assert_msg(lib_now_ms() < end, "no %s in %s", mark, said.p);
        if (read(fd, &c, 1) != 1) {
            lib_pause();
            continue;
        }
        buf_addc(&said, c);
        const char *at = c == '\n' ? strstr(said.p, mark) : NULL;
        if (at)
            return (unsigned)strtoul(strrchr(at, ':') + 1, NULL, 10);
    }
}

TEST(binds_go_on_when_standard_error_is_not_read)
{
    const char *fifo = lib_path("stderr");
    sim_add_node(&sim, "n1", 1, PODS);
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_eq(fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    program_start(&extender.program, lib_dir,
                  ARGV("sh", "-c", lib_fmt("exec \"$@\" 2>'%s'", fifo), "sh",
                       lib_built("gpushare-extender"), "--listen", "127.0.0.1", "--port",
                       "0", "--observe-port", "0", "--log-level", "debug", "--kubeconfig",
                       sim_kubeconfig(&sim)));
    peer_init(&extender.observers, port_of(fd, "observing on "));
    peer_init(&extender.verbs, port_of(fd, "listening on "));
    extender_wait_ready(&extender);
    int64_t from = lib_now_ms();
    for (int i = 0; i < PODS; i++) {
        cleanup_buf struct buf why = {0};
        const char *name = lib_fmt("p%03d", i);
        sim_add_pod(&sim, name, 1);
        ck_assert_msg(extender_bind(&extender, name, "n1", &why), "%s: %s", name, why.p);
    }
    ck_assert_int_lt(lib_now_ms() - from, LIB_WAIT_MS / 2);
    extender_stop(&extender);
    close(fd);
}

SUITE_MAIN(120, NULL)
