/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/pod_defaults.h"

#include "domain/dialect.h"

#include "lib/lib.h"
#include "wire/base64.h"

/*
 * The webhook: AdmissionReviews in, patches out. test/e2e/test_scheduler.c shows that it and the
 * policy give each pod the same.
 */

#define API "\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\""
#define REQUEST(object)                                                                  \
    "{" API ",\"request\":{\"uid\":\"u-1\",\"kind\":{\"group\":\"\",\"version\":\"v1\"," \
    "\"kind\":\"Pod\"},\"operation\":\"CREATE\",\"dryRun\":true,\"object\":" object "}}"
#define SPEC(members) REQUEST("{\"metadata\":{},\"spec\":{" members "}}")

static char scheduler[] = "gpu", class[] = "nv\"", none[] = "";
static const struct pod_defaults hami = {scheduler, none, &dialect_hami},
                                 parts = {none, none, &dialect_hami},
                                 both = {scheduler, class, NULL},
                                 one = {scheduler, none, NULL},
                                 other = {NULL, class, NULL},
                                 nothing = {NULL, none, NULL};

/* The reply, kept. */
static const char *ask(const struct pod_defaults *d, struct span body, unsigned status)
{
    struct httpd_reply reply = {.status = 200};
    pod_defaults_answer(d, body, &reply);
    char *text = lib_fmt("%.*s", SPAN_ARG(buf_span(&reply.body)));
    ck_assert_msg(reply.status == status, "%.*s: %u %s", SPAN_ARG(body), reply.status,
                  text);
    buf_fini(&reply.body);
    return text;
}

static json_t *answer_of(const char *text)
{
    return lib_parse(text, strlen(text));
}

#define PUT(path, value)                                                                 \
    "{\"op\":\"add\",\"path\":\"/spec/" path "\",\"value\":\"" value "\"}"
#define CARD(list, i)                                                                    \
    "{\"op\":\"add\",\"path\":\"/spec/" list "/" #i                                      \
    "/resources/limits/nvidia.com~1gpu\","                                               \
    "\"value\":\"1\"}"
#define C(limits) "{\"name\":\"c\",\"resources\":{\"limits\":{" limits "}}}"
#define MEMORY    "\"nvidia.com/gpumem\":\"3k\""
#define NAME      PUT("schedulerName", "gpu")
#define CLASS     PUT("runtimeClassName", "nv\\\"")

TEST(what_a_pod_leaves_empty_is_set)
{
    static const struct {
        const struct pod_defaults *d;
        const char *body, *patch;
    } cases[] = {
        {&both, SPEC(""), NAME "," CLASS},
        {&one, SPEC(""), NAME},
        {&other, SPEC(""), CLASS},
        {&nothing, SPEC(""), ""},
        {&both, SPEC("\"schedulerName\":\"default-scheduler\""), NAME "," CLASS},
        {&both, SPEC("\"schedulerName\":\"\",\"runtimeClassName\":\"\""), NAME "," CLASS},
        {&both, SPEC("\"schedulerName\":null,\"runtimeClassName\":null"), NAME "," CLASS},
        {&both, SPEC("\"schedulerName\":\"mine\""), CLASS},
        {&both, SPEC("\"schedulerName\":\"default-scheduler2\""), CLASS},
        {&both, SPEC("\"runtimeClassName\":\"default-scheduler\""), NAME},
        {&both, SPEC("\"schedulerName\":\"mine\",\"runtimeClassName\":\"kata\""), ""},
        {&hami, SPEC("\"containers\":[" C(MEMORY) "]"), NAME "," CARD("containers", 0)},
        {&both, SPEC("\"containers\":[" C(MEMORY) "]"), NAME "," CLASS},
        {&parts,
         SPEC("\"containers\":[{\"name\":\"a\"},{\"resources\":null},{\"resources\":{"
              "\"limits\":"
              "null}}," C("\"cpu\":\"1\"") "," C(
                  "\"nvidia.com/gpucores\":\"0\"") "],"
                                                   "\"initContainers\":[" C(
                                                       "\"nvidia.com/"
                                                       "gpu\":"
                                                       "\"0\""
                                                       "," MEMORY) "," C("\"nvidia.com/"
                                                                         "gpumem-"
                                                                         "percentage\":"
                                                                         "\"50\"") "]"),
         CARD("containers", 4) "," CARD("initContainers", 1)},
        {&parts, SPEC("\"containers\":[" C("\"nvidia.com/gpu\":\"1\"") "]"), ""},
        /* Escapes are decoded. */
        {&one, SPEC("\"schedulerN\\u0061me\":\"d\\u0065fault-scheduler\""), NAME},
        {&one, SPEC("\"schedulerName\":\"min\\u0065\""), ""},
    };
    array_items(c, cases) {
        cleanup_buf struct buf patch = {0};
        json_t *answer = answer_of(ask(c->d, span_of(c->body), 200));
        ck_assert_at(answer, "apiVersion", "admission.k8s.io/v1");
        ck_assert_at(answer, "kind", "AdmissionReview");
        ck_assert_at(answer, "response.uid", "u-1");
        ck_assert(json_is_true(lib_at(answer, "response.allowed")));
        ck_assert_at(answer, "response.patchType", "JSONPatch");
        ck_assert(base64_decode(span_of(lib_str(answer, "response.patch")), &patch));
        ck_assert_msg(strcmp(patch.p, lib_fmt("[%s]", c->patch)) == 0, "%s: %s", c->body,
                      patch.p);
    }
}

TEST(an_object_of_another_kind_is_denied)
{
    static const char *const kinds[] = {"\"Deployment\"", "\"pod\"", "null", "\"\""};
    array_items(kind, kinds)
        ck_assert_str_eq(
            ask(&both,
                span_of(lib_fmt("{" API ",\"request\":{\"uid\":\"\\u0022\",\"kind\":{"
                                "\"kind\":%s},\"object\":{}}}",
                                *kind)),
                200),
            "{" API ",\"response\":{\"uid\":\"\\\"\",\"allowed\":false,\"status\":{"
            "\"message\":\"gpushare sets defaults of pods only\"}}}");
}

TEST(what_is_no_review_is_rejected)
{
    static const char *const bodies[][2] = {
        {"", "end of"},
        {"x", "byte 0"},
        {"[]", "expected"},
        {"null", "AdmissionReview"},
        {"{}", "AdmissionReview"},
        {SPEC("") "x", "byte"},
        {"{" API ",\"request\":{}}", "request.uid"},
        {"{" API ",\"request\":7}", "request"},
        {"{" API ",\"request\":{\"uid\":7}}", "request.uid"},
        {"{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\","
         "\"request\":{\"uid\":\"u\"}}",
         "admission.k8s.io/v1 "},
        {"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"Review\",\"request\":{"
         "\"uid\":\"u\"}}",
         "AdmissionReview"},
        {REQUEST("7"), "object"},
        {REQUEST("{\"spec\":[]}"), "object.spec"},
        {SPEC("\"containers\":{}"), "object.spec.containers"},
        {SPEC("\"schedulerName\":{}"), "object.spec.schedulerName"},
        {SPEC("\"schedulerName\":\"\\ud800\""), "byte"},
    };
    array_indices(i, bodies) {
        json_t *answer = answer_of(ask(&both, span_of(bodies[i][0]), 400));
        ck_assert_msg(strstr(lib_str(answer, "error"), bodies[i][1]), "%s: %s",
                      bodies[i][0], lib_str(answer, "error"));
    }
    /* The answer repeats the uid, so it is short. */
    static const char head[] =
        "{" API ",\"request\":{\"kind\":{\"kind\":\"Pod\"},\"uid\":\"";
    for (int n = 127; n < 130; n++)
        ask(&both, span_of(lib_fmt("%s%0*d\"}}", head, n, 0)), n > 128 ? 400 : 200);
}

/* Every prefix of a review, and each of its bytes replaced. */
TEST(no_body_does_harm)
{
    static const char body[] = SPEC("\"schedulerName\":\"a\\u0062\"");
    for (size_t i = 0; i + 1 < sizeof body; i++) {
        char *cut = xmemdup0(body, sizeof body - 1);
        ask(&both, (struct span){cut, i}, 400);
        for (const char *with = "\"{}[]\\,: \377"; *with; with++) {
            struct httpd_reply reply = {.status = 200};
            cut[i] = *with;
            pod_defaults_answer(&both, (struct span){cut, sizeof body - 1}, &reply);
            ck_assert(reply.status == 200 || reply.status == 400);
            lib_parse(reply.body.p, reply.body.n);
            buf_fini(&reply.body);
        }
        free(cut);
    }
}
