/* SPDX-License-Identifier: Apache-2.0 */
#include "node/registration.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/dispatcher.h"

/*
 * Scripts: commands separated by commas, each at the last time "@MS".
 *
 *     kubelet ID                 its registration socket; 0: there is none
 *     serves, unreachable        the endpoint is served; its socket does not lead to it
 *     accepted, rejected         the kubelet's answer to Register
 *     opened, closed             a stream
 *     yields                     a newer plugin serves the resource: no call of Register
 *     serve, register, nothing   the expected next action
 *     up                         the expected state
 */

static struct registration reg;

static void play(const char *script)
{
    static const char *const actions[] = {"nothing", "serve", "register"};
    struct span rest = span_of(script);
    int64_t now = 0, id;
    while (rest.p) {
        struct span line = span_trim(span_cut(&rest, ',')), number = line;
        struct span verb = span_cut(&number, ' ');
#define IS(text) span_eq(verb, SPAN(text))
        if (verb.p[0] == '@')
            ck_assert(span_i64((struct span){verb.p + 1, verb.n - 1}, &now));
        else if (IS("kubelet")) {
            ck_assert(span_i64(number, &id));
            registration_kubelet_socket(&reg, now, (uint64_t)id);
        } else if (IS("serves") || IS("unreachable"))
            registration_serving(&reg, now, IS("serves"));
        else if (IS("accepted") || IS("rejected"))
            registration_answered(&reg, now, IS("accepted"));
        else if (IS("opened") || IS("closed"))
            registration_stream(&reg, now, IS("opened"));
        else if (IS("yields"))
            registration_yield(&reg, now);
        else if (IS("up"))
            ck_assert_int_eq(reg.state, REGISTRATION_REGISTERED);
        else {
            const char *is = actions[registration_next(&reg, now)];
            ck_assert_msg(span_eq(verb, span_of(is)), "at %lld: %s, not %.*s",
                          (long long)now, is, SPAN_ARG(verb));
        }
#undef IS
    }
}

/* Wanted, and nothing known yet. */
static void begin(void)
{
    registration_init(&reg);
    reg.wanted = true;
}

#define SERVED "kubelet 7, serve, serves"
#define UP     SERVED ", register, nothing, @10, accepted, @20, opened, up"

#define SCRIPT(name, script)                                                             \
    TEST(name)                                                                           \
    {                                                                                    \
        play(script);                                                                    \
    }

TEST(the_endpoint_is_served_before_register)
{
    reg.wanted = false;
    play("nothing, kubelet 7, nothing");
    begin();
    play("nothing");
    ck_assert(registration_due(&reg) == INT64_MAX);
    play(UP ", @100000, nothing");
}

SCRIPT(the_stream_can_open_before_the_answer,
       SERVED ", register, @5, opened, @10, accepted, up")

TEST(a_rejected_registration_is_retried_with_backoff)
{
    int64_t now = 0, wait = REGISTRATION_FIRST_RETRY_MS;
    play(SERVED);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(registration_next(&reg, now), REGISTRATION_REGISTER);
        registration_answered(&reg, now, false);
        ck_assert_int_eq(registration_next(&reg, now + wait - 1), REGISTRATION_NOTHING);
        ck_assert_int_eq(registration_due(&reg), now + wait);
        now += wait;
        wait =
            wait * 2 > REGISTRATION_LAST_RETRY_MS ? REGISTRATION_LAST_RETRY_MS : wait * 2;
    }
    ck_assert_int_eq(wait, REGISTRATION_LAST_RETRY_MS);
}

TEST(a_registration_without_a_stream_is_retried)
{
    play(SERVED ", register, accepted");
    ck_assert_int_eq(registration_due(&reg), REGISTRATION_STREAM_MS);
    play("@10000, nothing, @10050, register");
}

SCRIPT(a_closed_stream_is_followed_by_a_delayed_registration,
       UP ", @1000, closed, @1999, nothing, @2000, register")

SCRIPT(a_second_stream_keeps_it_up, UP ", @1000, opened, @1001, closed, up")

/* It registered with a kubelet whose new socket it had not seen yet. */
SCRIPT(a_connected_plugin_does_not_register_again, UP
       ", @1000, closed, @2000, register, accepted, opened, up, @2500, kubelet 8, "
       "nothing, up, "
       "@60000, nothing, closed, @61000, register, opened, rejected, up, closed, @62000, "
       "register, rejected, @62050, register")

/* It stops; a starting kubelet removes the endpoints. */
SCRIPT(a_new_kubelet_gets_a_new_endpoint,
       UP ", @1000, kubelet 0, @1001, closed, @1002, unreachable, @60000, nothing, "
          "kubelet 8, serve, serves, register")

/* Serving fails once. */
SCRIPT(a_removed_endpoint_is_served_again,
       UP ", @1000, unreachable, serve, unreachable, nothing, @1050, serve")

SCRIPT(an_older_plugin_yields_to_a_newer_one,
       UP ", @1000, closed, @2000, register, yields, nothing, @2999, nothing, "
          "@3000, register, yields, @4000, register, accepted, opened, up")

SCRIPT(a_new_kubelet_ends_the_yielding,
       UP ", @1000, closed, @2000, register, yields, @2500, kubelet 9, register")

SCRIPT(a_kubelet_restart_during_register_is_retried,
       SERVED ", register, @5, kubelet 8, @6, rejected, @56, register")

TEST(the_missing_step_is_named)
{
    static const char *const steps[][2] = {
        {"nothing", "waiting for the kubelet"},
        {"kubelet 7", "retrying"},
        {"serves, register", "waiting for the kubelet to answer Register"},
        {"@10, accepted", "waiting for the kubelet to open ListAndWatch"},
        {"@20, opened", NULL},
        {"@1000, closed, @2000, register, yields",
         "a newer plugin of this node serves it"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        play(steps[i][0]);
        ck_assert_pstr_eq(registration_missing(&reg), steps[i][1]);
    }
}

/* Metrics and health checks can be read before the dispatcher's first step. */
TEST(nothing_is_registered_before_the_first_step)
{
    char *dir = temp_dir(), *file = temp_path(dir, "state.json");
    struct err err = {0};
    struct dispatcher_stats stats;
    const struct node_options options = {
        .node_name = (char[]){"n1"}, .plugin_dir = dir, .state = file};
    struct dispatcher *d = dispatcher_new(
        &options, &(struct alloc_settings){.node = "n1", .slots = 1}, &err);
    ck_assert_msg(d != NULL, "%s", err.msg);
    dispatcher_stats(d, &stats);
    for (int r = 0; r < IDS_RESOURCES; r++)
        ck_assert_str_eq(stats.resources[r].err.msg, "not registered: no card found yet");
    dispatcher_free(d);
    temp_dir_remove(dir);
    free(file);
    free(dir);
}

static int unix_socket(const char *path, bool listens)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(fd, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (listens) {
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
        ck_assert_int_eq(listen(fd, 0), 0);
    } else if (connect(fd, (struct sockaddr *)&at, sizeof at)) {
        ck_assert_int_eq(errno, EAGAIN);
        close(fd);
        fd = -1;
    }
    return fd;
}

/* EAGAIN: it listens, and is too busy to accept. */
TEST(the_socket_of_a_busy_plugin_is_not_removed)
{
    cleanup_free char *dir = temp_dir(),
                      *busy = temp_path(dir, "gpushare-mem-9999999999999-1.sock"),
                      *dead = temp_path(dir, "gpushare-mem-0000000000001-1.sock");
    struct registration_dir d;
    struct err err = {0};
    int fds[8] = {unix_socket(busy, true)}, n = 1;
    close(unix_socket(dead, true));
    while (n < 8 && (fds[n] = unix_socket(busy, false)) >= 0)
        n++;
    ck_assert_int_lt(n, 8);
    ck_assert_done(registration_dir_open(&d, dir, &err), err);
    ck_assert_int_eq(access(busy, F_OK), 0);
    ck_assert_int_eq(access(dead, F_OK), -1);
    ck_assert(registration_dir_has_newer(&d, IDS_MEM));
    while (n)
        close(fds[--n]);
    ck_assert(!registration_dir_has_newer(&d, IDS_MEM));
    temp_dir_remove(dir);
}

TEST(a_directory_that_is_none_is_named_with_its_reason)
{
    cleanup_free char *dir = temp_dir(), *file = temp_path(dir, "f"),
                      *none = temp_path(dir, "none");
    struct registration_dir d;
    struct err err;
    temp_write(dir, "f", "");
    errno = EIO; /* of an earlier call */
    ck_assert_int_eq(registration_dir_open(&d, file, &err), -1);
    ck_assert_contains(err.msg, "f: Not a directory");
    ck_assert_int_eq(registration_dir_open(&d, none, &err), -1);
    ck_assert_contains(err.msg, "none: No such file or directory");
    temp_dir_remove(dir);
}

UNIT_MAIN_AROUND(begin, NULL)
