/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/audit.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/cluster.h"

enum { LOG_MAX = 1 << 30 };
#define SYSTEM "kube-system"

/* Calls fn for each request of the service account in the API server's audit log. Returns
 * their number. */
static size_t each_entry(const char *account, void (*fn)(const json_t *entry, void *ctx),
                         void *ctx)
{
    cleanup_free char *user = xasprintf("system:serviceaccount:" SYSTEM ":%s", account);
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    cleanup_buf struct buf log = {0};
    struct err err = {0};
    size_t n = 0;
    ck_assert_done(file_read(path, LOG_MAX, &log, &err), err);
    for (struct span rest = buf_span(&log); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (!memmem(line.p, line.n, user, strlen(user)))
            continue;
        cleanup_json json_t *entry = json_loadb(line.p, line.n, 0, NULL);
        if (strcmp(lib_str(entry, "user.username"), user) != 0)
            continue;
        fn(entry, ctx);
        n++;
    }
    return n;
}

static void check(const json_t *entry, void *ctx)
{
    const char *decision = lib_in(entry, "annotations", "authorization.k8s.io/decision");
    const char *reason = lib_in(entry, "annotations", "authorization.k8s.io/reason");
    json_int_t code = json_integer_value(lib_at(entry, "responseStatus.code"));
    cleanup_free char *subject =
        xasprintf("to ServiceAccount \"%s/" SYSTEM "\"", (const char *)ctx);
    ck_assert_msg(strcmp(decision, "allow") == 0 && strstr(reason, subject) &&
                      code != 401 && code != 403,
                  "%s %s: %d, %s, %s", lib_str(entry, "verb"),
                  lib_str(entry, "requestURI"), (int)code, decision, reason);
}

void audit_check(const char *account)
{
    ck_assert_uint_gt(each_entry(account, check, (void *)account), 0);
}

struct count {
    const char *verb, *resource;
    size_t n;
};

static void count(const json_t *entry, void *ctx)
{
    struct count *c = ctx;
    const char *sub = lib_str(entry, "objectRef.subresource");
    cleanup_free char *resource =
        xasprintf("%s%s%s", lib_str(entry, "objectRef.resource"), *sub ? "/" : "", sub);
    c->n += strcmp(lib_str(entry, "verb"), c->verb) == 0 &&
            strcmp(resource, c->resource) == 0;
}

size_t audit_count(const char *verb, const char *resource)
{
    struct count c = {verb, resource, 0};
    each_entry(AUDIT_EXTENDER, count, &c);
    return c.n;
}
