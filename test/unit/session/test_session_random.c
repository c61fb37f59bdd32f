/* SPDX-License-Identifier: MIT */
/*
 * Sessions under random calls, in step with a model of them: prompts, steps of several sequences,
 * cuts, shared beginnings, saved sequences, budgets, policies, cancels and devices that fail. What
 * must hold after each call: lengths are the model's, every logit has the bits that its text has
 * when it is read from the start, and pages are counted right. A seed and a number of calls may be
 * given as arguments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "device/delaying.h"
#include "session/decode.h"
#include "session/state.h"
#include "support/ok.h"
#include "support/tiny_pack.h"

enum { VOCABULARY = 96, CONTEXT = 200, SEQUENCES = 4, TEXTS = 4, KEPT = 3, MOST_ROWS = 16 };
enum { EXPERTS = 12, LAYERS = 3, PLACES_BYTES = 700 << 10 /* of the most experts with places */ };

/* Text t is text 0 up to its fork. */
static const uint64_t forks[TEXTS] = {0, 30, 64, 101};

typedef struct kept {
    uint8_t *data;
    uint64_t bytes;
    uint64_t tokens;
    int text;
} kept;

typedef struct model {
    uint64_t random;
    uint64_t score_random;
    uint8_t *image;
    uint64_t image_bytes;
    strata_context *context;
    strata__pack *pack;
    strata_plan_options plan;
    int32_t texts[TEXTS][CONTEXT];
    float expected[TEXTS][CONTEXT * VOCABULARY];
    strata__device *device; /* the session's, or NULL: the CPU */
    strata_session *session;
    strata_prefill *prefill;
    int text_of[SEQUENCES];
    uint64_t length[SEQUENCES];
    kept saved[KEPT];
    bool streams, shrinks, asks;
    uint64_t stop_after; /* calls of the progress function; 0: none stops */
    bool stop_by_cancel;
    uint64_t ask_fails; /* calls of the expert function from now; 0: none fails */
    bool ask_cancels;
    uint64_t calls[16];
    uint64_t failures;
    const char *last;
    float logits[CONTEXT * VOCABULARY];
} model;

static uint64_t pick(model *m, uint64_t count)
{
    return tiny_random(&m->random) % count;
}

static bool chance(model *m, uint32_t percent)
{
    return pick(m, 100) < percent;
}

static strata_status give(void *user_data, uint32_t layer, uint32_t expert, strata_expert_blob *out)
{
    model *m = user_data;
    const strata__geometry *geometry;
    const strata__layer *layers;
    const void *at[3];
    ok(strata__pack_model(m->pack, &geometry, &layers));
    if (m->ask_fails && --m->ask_fails == 0) {
        if (!m->ask_cancels)
            return STRATA_ERR_IO;
        strata__session_cancel(m->session);
    }
    const strata__projection *from[3] = {&layers[layer].expert_gate, &layers[layer].expert_up,
                                         &layers[layer].expert_down};
    for (int i = 0; i < 3; ++i)
        at[i] = (const uint8_t *)from[i]->data + expert * from[i]->stride_bytes;
    *out = (strata_expert_blob){at[0], at[1], at[2]};
    return STRATA_OK;
}

static int32_t on_progress(void *user_data, const strata_progress *progress)
{
    model *m = user_data;
    uint64_t tokens;
    ok(strata__session_length(m->session, 0, &tokens));
    assert_true(progress->done_tokens <= progress->total_tokens);
    if (!m->stop_after || --m->stop_after)
        return 0;
    if (!m->stop_by_cancel)
        return 1;
    strata__session_cancel(m->session);
    return 0;
}

static double nonsense(void *user_data, uint32_t layer, uint32_t expert, uint64_t uses,
                       double decayed)
{
    uint64_t random = tiny_random(user_data);
    const double zero = layer + expert > 1000 ? (double)uses : 0;
    switch (random % 6) {
    case 0:
        return zero / zero;
    case 1:
        return 1 / zero;
    case 2:
        return -1 / zero;
    case 3:
        return -decayed;
    case 4:
        return 1e308;
    default:
        return (double)(random % 1000);
    }
}

static void close_prefill(model *m)
{
    strata__prefill_destroy(m->prefill);
    m->prefill = NULL;
}

static void close_session(model *m)
{
    if (m->prefill && chance(m, 50)) {
        strata__session_release(m->session);
        close_prefill(m);
    } else {
        close_prefill(m);
        strata__session_release(m->session);
    }
    m->session = NULL;
    memset(m->length, 0, sizeof m->length);
}

static void open_prefill(model *m)
{
    strata_prefill_options options = {.struct_size = sizeof options};
    strata_status status;
    if (m->session->layout->loan_bytes && chance(m, 80)) {
        options.memory_kind = STRATA_MEMORY_LOAN;
        options.keep_loan = chance(m, 50);
    }
    ok(strata__prefill_create(m->session, &options, &m->prefill));
    status = strata__prefill_create(m->session, &options, &(strata_prefill *){NULL});
    assert_int_equal(status, STRATA_ERR_STATE);
}

/* The device has given what the session tells, and no more than planned. */
static void check_memory(const model *m)
{
    const strata__layout *layout = m->session->layout;
    strata__delaying_usage usage;
    strata_session_stats stats;
    uint64_t planned = layout->session_bytes;
    if (!m->device)
        return;
    strata__session_stats(m->session, &stats);
    strata__delaying_usage_get(m->device, &usage);
    if (m->prefill && m->prefill->memory.owned)
        planned += layout->prompt_bytes;
    if (usage.device_bytes != stats.device_bytes || usage.device_bytes > planned)
        fail_msg("%s: %llu bytes on the device, told %llu, planned %llu", m->last,
                 (unsigned long long)usage.device_bytes, (unsigned long long)stats.device_bytes,
                 (unsigned long long)planned);
    assert_int_equal(usage.host_bytes, stats.host_bytes);
}

/* A session with this budget, if it is enough. */
static bool try_session(model *m, const strata_session_options *options,
                        const strata__delaying_options *delaying, uint64_t budget)
{
    strata_status status;
    m->plan.device_budget_bytes = budget;
    m->device = NULL;
    if (delaying)
        ok(strata__delaying_device_open(m->context, delaying, &m->device));
    status = m->device ? strata__session_create_on(m->device, m->pack, options, &m->session)
                       : strata__session_create(m->pack, options, &m->session);
    if (status != STRATA_OK)
        assert_int_equal(status, STRATA_ERR_PLAN_INFEASIBLE);
    return status == STRATA_OK;
}

/* Within a kilobyte of the least that is enough. */
static uint64_t least_budget(model *m, const strata_session_options *options,
                             const strata__delaying_options *delaying)
{
    uint64_t low = 0, high = 8u << 20;
    while (high - low > 1024) {
        uint64_t middle = low + (high - low) / 2;
        if (try_session(m, options, delaying, middle)) {
            strata__session_release(m->session);
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

static void choose_policy(model *m)
{
    strata_cache_policy policy = {.margin = 1e-9, .margin_uses = 1e-9};
    if (chance(m, 70))
        policy.score_fn = nonsense;
    policy.user_data = &m->score_random;
    policy.admit_bytes = chance(m, 50) ? 0 : 1 + pick(m, 100000);
    policy.half_life_tokens = chance(m, 50) ? 0 : 1e-9;
    policy.frozen = chance(m, 10);
    ok(strata__session_set_cache_policy(m->session, &policy));
}

/* With other chunks, budgets, and places each time. */
static void open_session(model *m)
{
    strata_session_options options = {.struct_size = sizeof options, .thread_count = 1, .blas = 1};
    strata__delaying_options delaying = {.policy = (uint32_t)pick(m, STRATA__DELAYING_POLICY_COUNT),
                                         .seed = m->random,
                                         .no_reads = chance(m, 25),
                                         .graphs = chance(m, 50)};
    const strata__delaying_options *device = chance(m, 15) ? NULL : &delaying;
    strata_plan_options *plan = &m->plan;
    uint64_t budget = 0;
    m->asks = chance(m, 30);
    if (m->asks) {
        options.expert_fn = give;
        options.expert_user_data = m;
    }
    m->ask_fails = 0;
    plan->chunk_tokens = 1 + pick(m, 70);
    plan->sequence_count = SEQUENCES;
    plan->kv_tokens = chance(m, 50) ? 0 : CONTEXT + pick(m, 3 * CONTEXT);
    plan->experts = chance(m, 70) ? STRATA_EXPERTS_AUTO : 1 + (uint32_t)pick(m, 2);
    plan->decode_rows = MOST_ROWS;
    plan->lend_cache = 0;
    m->last = "open";
    options.plan_options = plan;
    if (plan->experts == STRATA_EXPERTS_AUTO && device) {
        plan->lend_cache = chance(m, 50);
        if (chance(m, 75))
            budget = least_budget(m, &options, device) + pick(m, PLACES_BYTES);
    }
    while (!try_session(m, &options, device, budget))
        budget += PLACES_BYTES / 8;
    m->streams = m->session->experts.source == STRATA__SOURCE_STREAMED;
    m->shrinks = m->device && strata__layout_find_ring(m->session->layout) != NULL;
    check_memory(m);
    if (m->streams && chance(m, 60))
        choose_policy(m);
}

static void model_open(model *m, uint64_t seed)
{
    static const char *const names[] = {"qwen3moe", "qwen2moe", "ernie4_5-moe"};
    const strata_context_options none = {.struct_size = sizeof none};
    strata_session_options options = {.struct_size = sizeof options, .thread_count = 1, .blas = 1};
    const strata_prefill_options prefill = {.struct_size = sizeof prefill};
    tiny_spec spec = tiny_spec_default();
    memset(m, 0, sizeof *m);
    m->random = seed;
    spec.architecture = names[pick(m, 3)];
    spec.layers = LAYERS;
    spec.experts = EXPERTS;
    spec.top_k = 1 + (uint32_t)pick(m, 3);
    spec.gate_format = 8;
    spec.vocabulary = VOCABULARY;
    if (strcmp(spec.architecture, "qwen3moe") != 0)
        spec.shared_width = 32;
    if (strcmp(spec.architecture, "ernie4_5-moe") == 0) {
        spec.dense_layers = 1;
        spec.dense_width = 96;
    }
    m->image = tiny_pack_make(&spec, &m->image_bytes);
    ok(strata__context_create(&none, &m->context));
    ok(strata__pack_open_memory(m->context, m->image, m->image_bytes, &m->pack));
    m->plan = (strata_plan_options){.struct_size = sizeof m->plan,
                                    .context_tokens = CONTEXT,
                                    .path = "fp16",
                                    .kv_format = (uint32_t)pick(m, 3)};
    options.plan_options = &m->plan;
    ok(strata__session_create(m->pack, &options, &m->session));
    ok(strata__prefill_create(m->session, &prefill, &m->prefill));
    for (int t = 0; t < TEXTS; ++t) {
        strata_prefill_request request = {.struct_size = sizeof request};
        strata_prefill_result result = {0};
        for (uint64_t i = 0; i < CONTEXT; ++i)
            m->texts[t][i] = i < forks[t] ? m->texts[0][i] : (int32_t)pick(m, VOCABULARY);
        request.tokens = m->texts[t];
        request.token_count = CONTEXT;
        request.logits = m->expected[t];
        request.logits_capacity = (uint64_t)CONTEXT * VOCABULARY;
        request.logits_mode = STRATA_LOGITS_ALL;
        ok(strata__session_truncate(m->session, 0, 0, &(uint64_t){0}));
        ok(strata__prefill_run(m->prefill, &request, &result));
    }
    close_session(m);
    open_session(m);
}

static void model_close(model *m)
{
    close_session(m);
    for (int i = 0; i < KEPT; ++i)
        free(m->saved[i].data);
    strata__pack_release(m->pack);
    strata__context_release(m->context);
    free(m->image);
}

/* Row `row` of the logits is that of a position of a sequence's text. */
static void check_row(const model *m, uint64_t row, int sequence, uint64_t position)
{
    const float *expected = m->expected[m->text_of[sequence]] + position * VOCABULARY;
    if (memcmp(m->logits + row * VOCABULARY, expected, VOCABULARY * sizeof *expected) != 0)
        fail_msg("%s: sequence %d, position %llu: other bits", m->last, sequence,
                 (unsigned long long)position);
}

static void check_pages(const model *m)
{
    const strata__kv *kv = &m->session->kv;
    uint32_t users[SEQUENCES * 8 + 8] = {0}, used = 0;
    assert_true(kv->page_count <= sizeof users / sizeof *users);
    for (uint32_t s = 0; s < SEQUENCES; ++s) {
        uint64_t tokens;
        ok(strata__session_length(m->session, (int32_t)s, &tokens));
        if (tokens != m->length[s])
            fail_msg("%s: sequence %u has %llu tokens, not %llu", m->last, s,
                     (unsigned long long)tokens, (unsigned long long)m->length[s]);
        assert_int_equal(kv->sequences[s].pages, (tokens + 63) / 64);
        for (uint32_t p = 0; p < kv->sequences[s].pages; ++p)
            users[kv->table[s * kv->table_stride + p]]++;
    }
    for (uint32_t p = 0; p < kv->page_count; ++p) {
        assert_int_equal(users[p], kv->page_users[p]);
        used += users[p] > 0;
    }
    assert_int_equal(kv->free_count, kv->page_count - used);
}

/* A sequence that holds fewer tokens than its text's fork may go on as another text. */
static void choose_text(model *m, int sequence)
{
    int text = (int)pick(m, TEXTS);
    uint64_t fork =
        forks[text] < forks[m->text_of[sequence]] ? forks[text] : forks[m->text_of[sequence]];
    if (text == 0)
        fork = forks[m->text_of[sequence]];
    if (m->text_of[sequence] == 0)
        fork = forks[text];
    if (m->text_of[sequence] == text || m->length[sequence] <= fork)
        m->text_of[sequence] = text;
}

static void arm_fault(model *m)
{
    static const uint32_t faults[] = {
        STRATA__FAULT_ALLOC,  STRATA__FAULT_HOST_ALLOC, STRATA__FAULT_COPY, STRATA__FAULT_EVENT,
        STRATA__FAULT_STREAM, STRATA__FAULT_GRAPH,      STRATA__FAULT_QUERY};
    if (m->device && chance(m, 10))
        strata__delaying_fail(m->device, faults[pick(m, 7)], 1 + pick(m, 40), 0);
    if (m->asks && chance(m, 10)) {
        m->ask_fails = 1 + pick(m, 10);
        m->ask_cancels = chance(m, 50);
    }
}

/* Whether the call failed for a reason that it may have. */
static bool failed(model *m, strata_status status)
{
    bool may_fail = m->ask_fails == 0;
    if (m->device)
        strata__delaying_fail(m->device, 0, 0, 0);
    m->ask_fails = 0;
    m->failures += status != STRATA_OK;
    if (status == STRATA_OK)
        return false;
    (void)may_fail;
    if (status != STRATA_ERR_CANCELLED && status != STRATA_ERR_DRIVER && status != STRATA_ERR_IO &&
        status != STRATA_ERR_CAPACITY && status != STRATA_ERR_NO_MEMORY &&
        status != STRATA_ERR_DEVICE_MEMORY)
        fail_msg("%s: %d: %s", m->last, (int)status, strata__error_text());
    assert_true(strata__error_text()[0] != '\0');
    return true;
}

static void read_prompt(model *m)
{
    strata_prefill_request request = {.struct_size = sizeof request};
    strata_prefill_result result = {0};
    int s = (int)pick(m, SEQUENCES);
    uint64_t start, count;
    strata_status status;
    m->last = "prompt";
    if (!m->prefill)
        open_prefill(m);
    choose_text(m, s);
    start = m->length[s];
    count = 1 + pick(m, chance(m, 30) ? CONTEXT : 50);
    request.sequence_id = s;
    request.tokens = m->texts[m->text_of[s]] + start;
    request.token_count = count;
    request.logits = m->logits;
    request.logits_capacity = count * VOCABULARY;
    request.logits_mode = (uint32_t)pick(m, 3);
    request.progress_fn = on_progress;
    request.progress_user_data = m;
    m->stop_after = chance(m, 20) ? 1 + pick(m, 10) : 0;
    m->stop_by_cancel = chance(m, 50);
    memset(m->logits, 0x7b, sizeof m->logits);
    if (start + count > CONTEXT) {
        request.token_count = CONTEXT - start + 1;
        request.tokens = m->texts[0];
        status = strata__prefill_run(m->prefill, &request, &result);
        assert_int_equal(status, STRATA_ERR_INVALID_ARGUMENT);
        return;
    }
    arm_fault(m);
    status = strata__prefill_run(m->prefill, &request, &result);
    m->length[s] += result.read_tokens;
    assert_true(result.read_tokens <= count);
    if (result.read_tokens || status == STRATA_OK)
        assert_int_equal(result.sequence_tokens, m->length[s]);
    if (failed(m, status))
        return;
    assert_int_equal(result.read_tokens, count);
    for (uint64_t i = 0; request.logits_mode == STRATA_LOGITS_ALL && i < count; ++i)
        check_row(m, i, s, start + i);
    if (request.logits_mode == STRATA_LOGITS_LAST)
        check_row(m, 0, s, start + count - 1);
}

static void decode(model *m)
{
    strata_decode_part parts[SEQUENCES];
    strata_decode_request request = {.struct_size = sizeof request, .parts = parts};
    strata_decode_result result = {0};
    uint32_t rows = 0, count = 0, row = 0, left = (1u << SEQUENCES) - 1;
    strata_status status;
    m->last = "step";
    while (left && (count == 0 || chance(m, 60))) {
        int s = (int)pick(m, SEQUENCES);
        uint64_t most = CONTEXT - m->length[s];
        if (!(left >> s & 1))
            continue;
        left &= ~(1u << s);
        choose_text(m, s);
        if (most > MOST_ROWS - rows)
            most = MOST_ROWS - rows;
        if (!most)
            continue;
        parts[count] = (strata_decode_part){s, 1 + (uint32_t)pick(m, most),
                                            m->texts[m->text_of[s]] + m->length[s]};
        rows += parts[count++].token_count;
    }
    if (!count)
        return;
    request.part_count = count;
    request.logits = m->logits;
    request.logits_mode = (uint32_t)pick(m, 3);
    request.logits_capacity = (uint64_t)rows * VOCABULARY;
    memset(m->logits, 0x7b, sizeof m->logits);
    arm_fault(m);
    status = strata__session_decode(m->session, &request, &result);
    if (failed(m, status)) {
        assert_int_equal(result.row_count, 0);
        assert_int_equal(result.logits_count, 0);
        return;
    }
    assert_int_equal(result.row_count, rows);
    for (uint32_t i = 0; i < count; ++i) {
        int s = parts[i].sequence_id;
        for (uint32_t t = 0; t < parts[i].token_count; ++t, ++row)
            if (request.logits_mode == STRATA_LOGITS_ALL)
                check_row(m, row, s, m->length[s] + t);
        m->length[s] += parts[i].token_count;
        if (request.logits_mode == STRATA_LOGITS_LAST)
            check_row(m, i, s, m->length[s] - 1);
        assert_int_equal(result.sequence_tokens[i], m->length[s]);
    }
}

static void cut(model *m)
{
    int s = (int)pick(m, SEQUENCES);
    uint64_t to = chance(m, 40) ? 0 : pick(m, CONTEXT + 10), reached;
    m->last = "cut";
    ok(strata__session_truncate(m->session, s, to, &reached));
    if (to < m->length[s])
        m->length[s] = to;
    assert_int_equal(reached, m->length[s]);
}

static void share(model *m)
{
    int from = (int)pick(m, SEQUENCES), to = (int)pick(m, SEQUENCES);
    uint64_t count = chance(m, 20) ? UINT64_MAX : pick(m, CONTEXT), reached = 12345;
    strata_status status = strata__session_share(m->session, from, to, count, &reached);
    m->last = "share";
    if (from == to) {
        assert_int_equal(status, STRATA_ERR_INVALID_ARGUMENT);
    } else if (m->length[to]) {
        assert_int_equal(status, STRATA_ERR_STATE);
    } else {
        ok(status);
        m->length[to] = count < m->length[from] ? count : m->length[from];
        m->text_of[to] = m->text_of[from];
        assert_int_equal(reached, m->length[to]);
    }
}

static void save(model *m)
{
    int s = (int)pick(m, SEQUENCES);
    kept *k = &m->saved[pick(m, KEPT)];
    strata_status status;
    uint64_t bytes;
    m->last = "save";
    ok(strata__session_save_memory(m->session, s, NULL, 0, &bytes));
    free(k->data);
    k->data = malloc(bytes);
    k->bytes = bytes;
    assert_non_null(k->data);
    arm_fault(m);
    status = strata__session_save_memory(m->session, s, k->data, bytes, &bytes);
    assert_int_equal(bytes, k->bytes);
    if (failed(m, status)) {
        free(k->data);
        k->data = NULL;
        return;
    }
    k->tokens = m->length[s];
    k->text = m->text_of[s];
}

static void restore(model *m)
{
    int s = (int)pick(m, SEQUENCES);
    const kept *k = &m->saved[pick(m, KEPT)];
    strata_status status;
    uint8_t damage = (uint8_t)(chance(m, 20) << pick(m, 8));
    uint64_t at;
    m->last = "restore";
    if (!k->data)
        return;
    at = pick(m, k->bytes);
    k->data[at] ^= damage;
    arm_fault(m);
    status = strata__session_restore_memory(m->session, s, k->data, k->bytes);
    k->data[at] ^= damage;
    if (m->device)
        strata__delaying_fail(m->device, 0, 0, 0);
    if (m->length[s]) {
        assert_int_equal(status, STRATA_ERR_STATE);
        return;
    }
    if (damage) {
        assert_int_not_equal(status, STRATA_OK);
        return;
    }
    if (failed(m, status))
        return;
    m->length[s] = k->tokens;
    m->text_of[s] = k->text;
}

static void settings(model *m)
{
    strata_status status = STRATA_OK;
    m->last = "settings";
    if (m->shrinks && chance(m, 50)) {
        uint64_t least = m->session->memory.bytes + m->session->loan_memory.bytes +
                         (m->prefill && m->prefill->memory.owned ? m->prefill->memory.bytes : 0);
        arm_fault(m);
        status = strata__session_set_budget(m->session,
                                            chance(m, 30) ? 0 : least + pick(m, PLACES_BYTES));
        (void)failed(m, status);
    } else if (chance(m, 50)) {
        arm_fault(m);
        status = strata__session_drop_experts(m->session);
        (void)failed(m, status);
    } else {
        strata__session_cancel(m->session);
    }
}

static void nonsensical(model *m)
{
    const int32_t bad[] = {VOCABULARY, -1, INT32_MAX, INT32_MIN}, good[32] = {1};
    strata_decode_part parts[] = {{0, 1, good}, {0, 1, good}};
    strata_decode_request request = {.struct_size = sizeof request,
                                     .parts = parts,
                                     .part_count = 1,
                                     .logits_mode = STRATA_LOGITS_NONE};
    strata_decode_result result = {0};
    strata_status status;
    m->last = "nonsense";
    switch (pick(m, 7)) {
    case 0:
        parts[0].tokens = &bad[pick(m, 4)];
        break;
    case 1:
        request.part_count = 2;
        break;
    case 2:
        parts[0].sequence_id = chance(m, 50) ? INT32_MIN : SEQUENCES;
        break;
    case 3:
        parts[0].token_count = chance(m, 50) ? UINT32_MAX : 17;
        break;
    case 4:
        parts[0].token_count = 0;
        break;
    case 5:
        request.part_count = chance(m, 50) ? UINT32_MAX : 0;
        break;
    default:
        request.logits_mode = STRATA_LOGITS_LAST;
        request.logits = m->logits;
        request.logits_capacity = VOCABULARY - 1;
    }
    status = strata__session_decode(m->session, &request, &result);
    assert_int_not_equal(status, STRATA_OK);
}

static void one_call(model *m)
{
    uint64_t what = pick(m, 100);
    if (what < 35)
        decode(m);
    else if (what < 53)
        read_prompt(m);
    else if (what < 64)
        cut(m);
    else if (what < 73)
        share(m);
    else if (what < 77)
        save(m);
    else if (what < 82)
        restore(m);
    else if (what < 92)
        settings(m);
    else if (what < 95)
        nonsensical(m);
    else if (what < 97)
        close_prefill(m);
    else if (what < 98) {
        close_session(m);
        open_session(m);
    }
    check_pages(m);
    check_memory(m);
}

static void run(uint64_t seed, uint64_t calls)
{
    model *m = malloc(sizeof *m);
    assert_non_null(m);
    model_open(m, seed);
    for (uint64_t i = 0; i < calls; ++i)
        one_call(m);
    model_close(m);
    free(m);
}

static uint64_t first_seed = 1, seed_count = 12, call_count = 150;

static void random_calls(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seed_count; ++i) {
        if (seed_count > 100)
            fprintf(stderr, "seed %llu\n", (unsigned long long)(first_seed + i));
        run(first_seed + i, call_count);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls)};
    if (argc > 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        seed_count = strtoull(argv[2], NULL, 10);
        call_count = strtoull(argv[3], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
