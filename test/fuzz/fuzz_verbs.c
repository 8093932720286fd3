/* SPDX-License-Identifier: Apache-2.0 */

/* Request bodies of filter, prioritize, preempt and bind: the reply is always JSON. */

#include "fuzz/fuzz.h"

#include <jansson.h>

#include "base/clock.h"
#include "extender/verb.h"
#include "fuzz/verbs_driver.h"

static void check(unsigned status, const struct buf *reply)
{
    json_error_t error;
    json_t *j = json_loadb(reply->p, reply->n, 0, &error);
    fuzz_fail_if(!j, "the reply is not JSON");
    fuzz_fail_if(status != 200 && status != 400, "an unexpected status");
    fuzz_fail_if(status == 400 && !json_is_string(json_object_get(j, "Error")),
                 "a reply without the member Error");
    json_decref(j);
}

void fuzz_input(struct span in)
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
    cleanup_buf struct buf reply = {0};
    struct verb_call call = {.verbs = v, .body = in, .reply = &reply};
    check(filter_answer(&call), &reply);
    buf_clear(&reply);
    check(prioritize_answer(&call), &reply);
    buf_clear(&reply);
    check(preempt_answer(&call), &reply);
    buf_clear(&reply);
    check(bind_answer(&call), &reply);
}
