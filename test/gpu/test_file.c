/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/fixture.h"
#include "gpu/gpu_priv.h"

static void write_cards(const char *text)
{
    cleanup_free char *copy = xstrdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    temp_write(dir, "cards", copy);
}

static void open_cards(const char *text)
{
    cleanup_free char *path = temp_path(dir, "cards");
    write_cards(text);
    gpu = gpu_file_new(path);
}

static void refused(const char *text, const char *words)
{
    write_cards(text);
    err = (struct err){0};
    ck_assert_msg(gpu_sample(gpu, &sample, &err) == -1, "taken: %s", text);
    ck_assert_int_eq(err.code, ERR_INVALID);
    ck_assert_has(err.msg, "/cards: ");
    ck_assert_has(err.msg, words);
    ck_assert_uint_eq(sample.n_cards, 0);
}

/* Cards are sorted, and their memory is made plausible. */
TEST(cards_are_read_from_a_file)
{
    open_cards(
        "{'driverVersion':'535.129.03','cudaVersion':'12.2','cards':["
        "{'index':3,'uuid':'GPU-3','model':'Tesla T4','busId':'00000000:3B:00.0',"
        "'memoryTotal':1000,'memoryUsed':100,'memoryReserved':40,'pcieWidthMax':16,"
        "'processes':[{'pid':9,'bytes':5,'sm':100},{'pid':8}],'colour':'red'},"
        "{'uuid':'GPU-1','memoryTotal':1000,'memoryFree':1000,'remapFailed':1},"
        "{'index':2,'model':'a \\\"b\\\" \\\\ \\u00e4','memoryTotal':9,'memoryFree':5,"
        "'memoryUsed':4,'memoryReserved':1,'processes':[{'pid':1,'bytes':2,'sm':0}]}]}");
    fixture_sample();
    ck_assert_str_eq(sample.driver, "535.129.03");
    ck_assert_str_eq(sample.cuda, "12.2");
    ck_assert_uint_eq(sample.n_cards, 3);
    card_is(0, "1|GPU-1|||ecc: row remapping failed| memoryTotal=1000 memoryFree=1000 "
               "remapFailed=1");
    card_is(1, "2||a \"b\" \\ \xc3\xa4||ok| memoryTotal=9 memoryFree=5 memoryUsed=3 "
               "memoryReserved=1 processes 1:2:0");
    card_is(2,
            "3|GPU-3|Tesla T4|00000000:3B:00.0|ok| memoryTotal=1000 memoryFree=860 "
            "memoryUsed=100 memoryReserved=40 pcieWidthMax=16 processes 8:-1:-1 9:5:100");
}

TEST(the_file_may_say_the_state_and_change)
{
    open_cards("{'cards':[{'state':'lost','why':'on purpose','remapFailed':1},"
               "{'state':'ok','remapFailed':1,'memoryTotal':1},{'state':'mig'},{}]}");
    fixture_sample();
    card_is(0, "0||||lost: on purpose| remapFailed=1");
    card_is(1, "1||||ok| memoryTotal=1 memoryFree=1 remapFailed=1");
    card_is(2, "2||||mig: set by the file|");
    card_is(3, "3||||unreadable: memory size is unknown|");
    write_cards("{'cards':null}");
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, 0);
    write_cards("{'error':'the driver is away','cards':[{}]}");
    ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_has(err.msg, "/cards: the driver is away");
    struct gpu_event event;
    ck_assert_int_eq(gpu_wait(gpu, 10000, &event, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    gpu_reopen(gpu);
    temp_remove(dir, "cards");
    ck_assert_int_eq(gpu_sample(gpu, &sample, &err), -1);
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    write_cards("{'cards':[{'memoryTotal':7}]}");
    fixture_sample();
    ck_assert_uint_eq(sample.n_cards, 1);
}

TEST(a_bad_file_is_refused_and_the_error_says_where)
{
    open_cards("{}");
    fixture_sample();
    refused("", "");
    refused("{'cards':[{'memoryTotal':1}", "");
    refused("[]", "the file");
    refused("{'cards':{}}", "cards");
    refused("{'cards':[7]}", "cards[]");
    refused("{'cards':[{'index':64}]}", "cards[].index: is not within 0..63");
    refused("{'cards':[{'index':-1}]}", "cards[].index: is not within 0..63");
    refused("{'cards':[{'index':0},{'index':0}]}", "cards[].index: is not unique");
    refused("{'cards':[{'index':1},{}]}", "cards[].index: is not unique");
    refused("{'cards':[{'uuid':'a,b'}]}", "cards[].uuid: is not a valid UUID");
    refused("{'cards':[{'uuid':7}]}", "cards[].uuid");
    refused("{'cards':[{'state':'fine'}]}", "cards[].state: is not one of ok");
    refused("{'cards':[{'memoryTotal':-1}]}", "memoryTotal: is negative or too large");
    refused("{'cards':[{'temperature':2305843009213693952}]}",
            "temperature: is negative or too large");
    refused("{'cards':[{'clockSmMax':1.5}]}", "clockSmMax");
    refused("{'cards':[{'processes':[{'bytes':1}]}]}", "cards[].processes[].pid");
    refused("{'cards':[{'processes':[{'pid':1,'bytes':-2}]}]}",
            "cards[].processes[].bytes");
    refused("{'cards':[{'processes':[{'pid':1,'sm':101}]}]}", "cards[].processes[].sm");
    refused("{'cudaVersion':12}", "cudaVersion");
    cleanup_buf struct buf many = {0};
    buf_adds(&many, "{'cards':[");
    for (int i = 0; i <= GPU_MAX_CARDS; i++)
        buf_printf(&many, "%s{'index':%d}", i ? "," : "", i % GPU_MAX_CARDS);
    buf_adds(&many, "]}");
    refused(many.p, "cards: has more than 64 cards");
}

/* The text is gone when a sample is read. */
TEST(a_sample_borrows_nothing_from_the_text)
{
    struct gpu_sample taken = {0};
    char text[] = "{\"cards\":[{\"uuid\":\"GPU-0\",\"links\":\"X SYS\"},"
                  "{\"uuid\":\"GPU-1\",\"links\":\"SYS X\"}]}";
    ck_assert_done(gpu_file_parse(span_of(text), &taken, &err), err);
    memset(text, '?', sizeof text);
    ck_assert_span_eq(taken.cards[0].links, "X SYS");
    ck_assert_str_eq(taken.cards[1].uuid, "GPU-1");
    gpu_sample_fini(&taken);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
