/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "lib/network.h"
#include "lib/unit.h"
#include "wire/httpc.h"
#include "wire/httpd.h"

/* Listeners and clients of IPv4 and IPv6, and the texts of their addresses. */

static void on_get(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    buf_adds(&reply->body, httpd_header(req, "Host"));
}

static const struct httpd_route routes[] = {{"GET", "/", on_get}, {0}};
static struct httpd *server;
static unsigned port;

static bool listens(const char *address, enum httpd_mode mode, unsigned at,
                    struct err *err)
{
    const struct httpd_listener_config config = {
        .address = address, .mode = mode, .port = at, .routes = routes};
    return httpd_listen(server, &config, &port, err) == 0;
}

/* GET from this host, which may have an IPv6 address in brackets: the Host header as the
 * server got it, kept; NULL without a connection. */
static char *asks(const char *host, struct err *err)
{
    static const struct httpc_request get = {
        .method = "GET", .path = "/", .timeout_ms = LIB_WAIT_MS};
    const struct httpc_config config = {.url = lib_fmt("http://%s:%u", host, port),
                                        .connect_ms = LIB_WAIT_MS};
    cleanup_reply struct httpc_reply reply = {0};
    struct httpc *c = httpc_new(&config, err);
    ck_assert_msg(c, "%s", err->msg);
    int rc = httpc_call(c, &get, 4096, &reply, err);
    httpc_free(c);
    return rc ? NULL : lib_fmt("%.*s", SPAN_ARG(buf_span(&reply.body)));
}

static void check(const char *address, bool ipv4, bool ipv6)
{
    for (enum httpd_mode mode = HTTPD_THREADS; mode <= HTTPD_EVENTS; mode++) {
        struct err err = {0};
        server = httpd_new(NULL);
        ck_assert_msg(listens(address, mode, 0, &err), "%s: %s", address, err.msg);
        ck_assert_msg(!asks("127.0.0.1", &err) == !ipv4, "%s and IPv4: %s", address,
                      err.msg);
        ck_assert_msg(!asks("[::1]", &err) == !ipv6, "%s and IPv6: %s", address, err.msg);
        httpd_free(server);
    }
}

/* A namespace with both families; false, with a line, on a machine without them. */
static bool has_both(void)
{
    struct err err = {0};
    if (network_own_ipv6(&err)) {
        printf("measured: not tested: %s\n", err.msg);
        return false;
    }
    network_set_ipv4(true);
    return true;
}

TEST(the_wildcard_of_ipv6_serves_both_families)
{
    static const struct {
        const char *address;
        bool ipv4, ipv6;
    } cases[] = {
        {"::", true, true},          {"0.0.0.0", true, false},
        {"::1", false, true},        {"127.0.0.1", true, false},
        {"0::0", true, true},        {"::ffff:127.0.0.1", true, false},
        {NETWORK_POD, false, false}, {NETWORK_LINK "%lo", false, false},
        {"127.0.0.2", false, false},
    };
    if (!has_both())
        return;
    array_items(c, cases)
        check(c->address, c->ipv4, c->ipv6);
}

TEST(without_addresses_of_ipv4_the_wildcard_serves_ipv6)
{
    struct err err = {0};
    if (!has_both())
        return;
    network_set_ipv4(false);
    check("::", false, true);
    check("0.0.0.0", false, false);
    server = httpd_new(NULL);
    ck_assert(!listens("127.0.0.1", HTTPD_EVENTS, 0, &err));
    ck_assert_contains(err.msg, "listen on 127.0.0.1:0: Cannot assign requested address");
    httpd_free(server);
}

/* As a kernel with ipv6.disable=1. */
static void forbid_ipv6(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {ARRAY_LEN(code), code};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(a_kernel_without_ipv6_serves_ipv4)
{
    struct err err = {0};
    forbid_ipv6();
    check("::", true, false);
    server = httpd_new(NULL);
    ck_assert(!listens("::1", HTTPD_EVENTS, 0, &err));
    ck_assert_str_eq(err.msg,
                     "listen on [::1]:0: Address family not supported by protocol");
    httpd_free(server);
}

TEST(what_is_no_address_is_refused)
{
    static const char *const addresses[] = {
        "",       "[::1]",       "[::]", "localhost", "127.0.0.1:80", "[::1]:80", "::1:x",
        "fe80::", "::1%nowhere", "%lo",  "1.2.3.4.5", "::ffff:1.2.3", ":::"};
    server = httpd_new(NULL);
    array_items(address, addresses) {
        struct err err = {0};
        ck_assert_msg(!listens(*address, HTTPD_EVENTS, 0, &err), "%s", *address);
        ck_assert_msg(strstr(err.msg, "listen on ") == err.msg, "%s", err.msg);
    }
    struct err err = {0};
    ck_assert(!listens("::", HTTPD_EVENTS, 65536, &err));
    ck_assert_str_eq(err.msg, "listen on [::]:65536: port: expected at most 65535");
    ck_assert(listens("::", HTTPD_EVENTS, 0, &err));
    unsigned taken = port;
    ck_assert(!listens("::", HTTPD_EVENTS, taken, &err));
    ck_assert_str_eq(err.msg,
                     lib_fmt("listen on [::]:%u: Address already in use", taken));
    httpd_free(server);
}

/* -- the client -- */

TEST(a_url_has_an_ipv6_address_with_or_without_a_zone)
{
    static const struct {
        const char *host, *header; /* NULL: it cannot connect */
    } cases[] = {
        {"[::1]", "[::1]"},
        {"[0:0:0:0:0:0:0:1]", "[::1]"},
        {"[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"},
        {"[FD00:10:0::7]", "[fd00:10::7]"},
        {"[" NETWORK_LINK "%25lo]", "[" NETWORK_LINK "]"},
        {"[" NETWORK_LINK "%lo]", "[" NETWORK_LINK "]"},
        {"[" NETWORK_LINK "]", NULL}, /* on which link? */
        {"[" NETWORK_LINK "%25nowhere]", NULL},
        {"[fd00::8]", NULL},
    };
    struct err err = {0};
    if (!has_both())
        return;
    server = httpd_new(NULL);
    ck_assert_msg(listens("::", HTTPD_EVENTS, 0, &err), "%s", err.msg);
    array_items(c, cases) {
        const char *got = asks(c->host, &err);
        if (c->header)
            ck_assert_msg(got, "%s: %s", c->host, err.msg);
        ck_assert_pstr_eq(got, c->header ? lib_fmt("%s:%u", c->header, port) : NULL);
    }
    httpd_free(server);
}

TEST(a_url_with_another_host_is_refused)
{
    static const char *const urls[] = {
        "http://::1:80",       "http://[::1",       "http://[]:80",
        "http://[1.2.3.4]:80", "http://[::1]80",    "http://[::1]:65536",
        "http://[::1]:80:80",  "http://u@[::1]:80", "http://[::1]:80/p",
        "http://[fe80::1%]:1", "http://[::1%25lo",
    };
    array_items(url, urls) {
        const struct httpc_config config = {.url = *url};
        struct err err = {0};
        struct httpc *c = httpc_new(&config, &err);
        ck_assert_msg(!c, "%s", *url);
        ck_assert_int_eq(err.code, ERR_INVALID);
    }
}

TEST(only_a_host_with_colons_gets_brackets)
{
    static const char *const hosts[][2] = {
        {"::", "[::]:1"},
        {"fe80::1%lo", "[fe80::1%lo]:1"},
        {"::ffff:1.2.3.4", "[::ffff:1.2.3.4]:1"},
        {"1.2.3.4", "1.2.3.4:1"},
        {"h.example", "h.example:1"},
        {"", ":1"},
    };
    array_items(h, hosts)
        ck_assert_str_eq(lib_fmt(STR_HOST ":%d", STR_HOST_ARG((*h)[0]), 1), (*h)[1]);
}
