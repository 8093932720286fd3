/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/audit.h"

#include "base/file.h"
#include "lib/cluster.h"

enum { LOG_MAX = 1 << 30 };

json_t *audit_requests(const char *account)
{
    const char *user = lib_fmt("system:serviceaccount:kube-system:%s", account);
    json_t *all = lib_own(json_array());
    cleanup_buf struct buf log = {0};
    struct err err = {0};
    ck_assert_done(
        file_read(lib_fmt("%s/log/audit.log", cluster.dir), LOG_MAX, &log, &err), err);
    for (struct span rest = buf_span(&log); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (!memmem(line.p, line.n, user, strlen(user)))
            continue;
        json_t *entry = json_loadb(line.p, line.n, 0, NULL); /* or half a line */
        if (strcmp(lib_str(entry, "user.username"), user) == 0)
            json_array_append(all, entry);
        json_decref(entry);
    }
    return all;
}

void audit_check(const char *account)
{
    const char *subject = lib_fmt("to ServiceAccount \"%s/kube-system\"", account);
    json_t *all = audit_requests(account), *entry;
    lib_each(entry, all) {
        json_int_t code = lib_int(entry, "responseStatus.code");
        ck_assert_msg(
            strcmp(lib_in(entry, "annotations", "authorization.k8s.io/decision"),
                   "allow") == 0 &&
                strstr(lib_in(entry, "annotations", "authorization.k8s.io/reason"),
                       subject) &&
                code != 401 && code != 403,
            "%s %s: %d, %s", lib_str(entry, "verb"), lib_str(entry, "requestURI"),
            (int)code, lib_text(entry, "annotations"));
    }
    ck_assert_uint_gt(json_array_size(all), 0);
}
