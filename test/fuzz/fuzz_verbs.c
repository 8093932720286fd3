/* SPDX-License-Identifier: Apache-2.0 */

/* Request bodies of filter, prioritize, preempt and bind: the reply is always JSON. */

#include "fuzz/fuzz.h"

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/verb.h"
#include "fuzz/verbs_driver.h"

static void check(unsigned status, const struct buf *reply)
{
    json_error_t error;
    json_t *j = json_loadb(reply->p, reply->n, 0, &error);
    if (!j)
        fuzz_fail("the reply is not JSON");
    if (status != 200 && status != 400)
        fuzz_fail("an unexpected status");
    if (status == 400 && !json_is_string(json_object_get(j, "Error")))
        fuzz_fail("a reply without the member Error");
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* One driver and one set of buffers for many inputs, so that an input that corrupts
     * them affects the next ones. */
    static struct core_driver *driver;
    static struct verbs *v;
    static int64_t until_ms;
    if (clock_mono_ms() >= until_ms) {
        verbs_free(v);
        core_driver_free(driver);
        driver = verbs_driver_new();
        v = verbs_new(&(struct verbs_config){.driver = driver, .policy = SCORE_FGD});
        until_ms = clock_mono_ms() + VERBS_DRIVER_MS;
    }
    struct span body = {(const char *)data, size};
    cleanup_buf struct buf reply = {0};
    struct verb_call call = {.verbs = v, .body = body, .reply = &reply};
    check(filter_answer(&call), &reply);
    buf_clear(&reply);
    check(prioritize_answer(&call), &reply);
    buf_clear(&reply);
    check(preempt_answer(&call), &reply);
    buf_clear(&reply);
    check(bind_answer(&call), &reply);
    return 0;
}
