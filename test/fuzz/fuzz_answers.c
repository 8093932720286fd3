/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Responses of the API server, other than lists and watches. The first byte is "g" for a PodGroup
 * or Workload, or selects the status of a response; the rest is the content. Only a complete
 * object says how many members a gang needs. A response other than success gives an error code
 * that matches the status and a text without control characters.
 */

#include "fuzz/fuzz.h"

#include "base/clock.h"
#include "base/jread.h"
#include "kube/client.h"
#include "kube/pod_group.h"

/* Answers of other programs come into terminals. */
static void check_printable(const struct err *err)
{
    fuzz_check_error(err);
    for (const char *s = err->msg; *s; s++)
        fuzz_fail_if((unsigned char)*s < ' ' || *s == 0x7f,
                     "an error with control characters");
}

static void check_reply(unsigned status, struct span body)
{
    struct err err = {0};
    int rc = kube_reply_check(status, body, &err);
    bool html = span_starts(span_trim(body), SPAN("<")); /* of a login page */
    fuzz_fail_if((rc == 0) != (status / 100 == 2 && !html) || (!rc && err.code),
                 "the result contradicts the status");
    if (rc)
        check_printable(&err);
    fuzz_fail_if((status == 404 && err.code != ERR_NOT_FOUND) ||
                     (status == 410 && err.code != ERR_GONE) ||
                     (status == 401 && err.code != ERR_UNAUTHORIZED) ||
                     (status == 403 && err.code != ERR_FORBIDDEN),
                 "an error code that does not match the status");
}

static int answer(void *ctx, const struct kube_request *request,
                  struct httpc_reply *reply, struct err *err)
{
    (void)request, (void)err;
    *reply = (struct httpc_reply){.status = 200};
    buf_add_span(&reply->body, *(const struct span *)ctx);
    return 0;
}

static void check_group(struct span body)
{
    const struct pod_group_reader from = {answer, &body, clock_mono_ms};
    struct jread j;
    jread_init(&j, body.p, body.n);
    jread_skip(&j);
    bool whole = jread_finish(&j, NULL) == 0;
    for (int kind = GANG_POD_GROUP; kind <= GANG_VOLCANO; kind++) {
        const struct gang gang = {
            .kind = (enum gang_kind)kind, .name = SPAN("g"), .group = SPAN("all")};
        uint32_t minimum = 0;
        struct err err = {0};
        int rc = pod_group_read(&from, SPAN("ns"), &gang, 60000, &minimum, &err);
        fuzz_fail_if(
            rc && (minimum || (err.code != ERR_INVALID && err.code != ERR_INTERNAL)),
            "an answer was not read");
        fuzz_fail_if(minimum > INT32_MAX || (minimum && !whole),
                     "a number that the object does not say");
    }
}

void fuzz_input(struct span in)
{
    static const unsigned statuses[] = {200, 201, 400, 401, 403, 404, 409,
                                        410, 422, 429, 500, 503, 504, 302};
    unsigned kind = fuzz_take(&in);
    if (kind == 'g')
        check_group(in);
    else
        check_reply(statuses[kind % ARRAY_LEN(statuses)], in);
}
