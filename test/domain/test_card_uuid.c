/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ids.h"

#include "base/mem.h"
#include "lib/unit.h"

#define CANONICAL "GPU-01234567-89ab-cdef-0123-456789abcdef"

/* The form of the text, which it gives back unchanged: 1: canonical, 2: on the heap. */
static int form_of(const char *s)
{
    char text[CARD_UUID_TEXT];
    struct card_uuid uuid = card_uuid_of(span_of(s));
    int form = uuid.bytes[0];
    struct span back = card_uuid_text(&uuid, text);
    ck_assert_span_eq(back, s);
    ck_assert_int_eq(card_uuid_is_empty(&uuid), !*s);
    card_uuid_fini(&uuid);
    ck_assert(card_uuid_is_empty(&uuid));
    return form;
}

START_TEST(the_form_of_nvml_takes_no_heap)
{
    ck_assert_int_eq(form_of(CANONICAL), 1);
    ck_assert_int_eq(form_of("GPU-00000000-0000-0000-0000-000000000000"), 1);
    ck_assert_int_eq(form_of("GPU-ffffffff-ffff-ffff-ffff-ffffffffffff"), 1);
}
END_TEST

/* An Scv can have any text. */
START_TEST(any_text_is_given_back)
{
    static const char *const others[] = {
        "GPU-0",
        "GPU-01234567-89AB-cdef-0123-456789abcdef",
        "GPU-01234567+89ab-cdef-0123-456789abcdef",
        "GPU-0123456-789ab-cdef-0123-456789abcdef",
        "GPU-01234567-89ab-cdef-0123-456789abcde",
        "GPU-01234567-89ab-cdef-0123-456789abcdef0",
        "gpu-01234567-89ab-cdef-0123-456789abcdef",
        "GPU-01234567-89ab-cdef-0123-456789abcdeg",
        "MIG-01234567-89ab-cdef-0123-456789abcdef",
        "\xff\xfe",
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        ck_assert_int_eq(form_of(others[i]), 2);
    ck_assert_int_eq(form_of(""), 0);
}
END_TEST

/* Every byte that is changed in the canonical text gives another UUID, or another form. */
START_TEST(different_texts_differ)
{
    struct card_uuid whole = card_uuid_of(SPAN(CANONICAL));
    for (size_t i = 0; i < CARD_UUID_TEXT; i++) {
        char text[] = CANONICAL, back[CARD_UUID_TEXT];
        for (int c = 1; c < 256; c++) {
            text[i] = (char)c;
            struct card_uuid uuid = card_uuid_of(span_of(text));
            ck_assert_span_eq(card_uuid_text(&uuid, back), text);
            ck_assert_int_eq(memcmp(&uuid, &whole, sizeof uuid) == 0,
                             strcmp(text, CANONICAL) == 0);
            card_uuid_fini(&uuid);
        }
    }
}
END_TEST

UNIT_MAIN("card_uuid", the_form_of_nvml_takes_no_heap, any_text_is_given_back,
          different_texts_differ)
