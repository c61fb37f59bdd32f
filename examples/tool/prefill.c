/* SPDX-License-Identifier: MIT */
#include "prefill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "progress.h"

strata_status prefill_answer_start(prefill_answer *answer, const strata_pack *pack,
                                   const char *pack_path, const char *device)
{
    answer->pack = pack;
    answer->pack_path = pack_path;
    answer->device = device ? device : "cpu";
    answer->info.struct_size = sizeof answer->info;
    return strata_pack_info_get(pack, &answer->info);
}

static strata_status run(prefill_answer *answer, strata_prefill *prefill, bool all_logits)
{
    progress_bar bar;
    strata_prefill_request request;
    strata_status status;
    strata_prefill_request_init(&request, sizeof request);
    request.tokens = answer->tokens.ids;
    request.token_count = answer->tokens.count;
    request.logits = answer->logits;
    request.logits_capacity = answer->positions * answer->logits_count;
    request.logits_mode = all_logits ? STRATA_LOGITS_ALL : STRATA_LOGITS_LAST;
    request.progress_fn = progress_update;
    request.progress_user_data = &bar;
    answer->result.struct_size = sizeof answer->result;
    progress_start(&bar);
    status = strata_prefill_run(prefill, &request, &answer->result);
    progress_finish(&bar);
    return status;
}

/* Paths of the band that the first chunk belongs to. */
static strata_status find_paths(prefill_answer *answer, const strata_plan *plan)
{
    strata_plan_info info = {.struct_size = sizeof info};
    strata_plan_band band = {.struct_size = sizeof band};
    strata_plan_layer layer = {.struct_size = sizeof layer};
    uint32_t index = 0;
    strata_status status = strata_plan_info_get(plan, &info);
    answer->layers = calloc(answer->info.layer_count + 1, sizeof *answer->layers);
    if (!answer->layers)
        return tool_own(STRATA_ERR_NO_MEMORY);
    for (; status == STRATA_OK && index + 1 < info.band_count; index++) {
        status = strata_plan_band_get(plan, index, &band);
        if (band.rows >= answer->tokens.count)
            break;
    }
    for (uint32_t i = 0; status == STRATA_OK && i < answer->info.layer_count; i++) {
        status = strata_plan_layer_get(plan, i, index, &layer);
        answer->layers[i] = (layer_path){layer.path_name, layer.reason};
    }
    return status;
}

strata_status prefill_answer_read(prefill_answer *answer, strata_session *session,
                                  strata_prefill *prefill, bool all_logits)
{
    strata_status status;
    answer->logits_count = strata_session_logits_count(session);
    answer->positions = all_logits ? answer->tokens.count : 1;
    answer->logits = calloc(answer->positions, answer->logits_count * sizeof *answer->logits);
    if (!answer->logits)
        return tool_own(STRATA_ERR_NO_MEMORY);
    status = run(answer, prefill, all_logits);
    if (status == STRATA_OK)
        status = find_paths(answer, strata_session_plan(session));
    answer->stats.struct_size = sizeof answer->stats;
    if (status == STRATA_OK)
        status = strata_session_stats_get(session, &answer->stats);
    return status;
}

static void write_little_endian(const float *values, uint64_t count, file_writer *writer)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        unsigned char bytes[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                                  (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
        file_write(writer, bytes, sizeof bytes);
    }
}

void prefill_answer_save(const prefill_answer *answer, const char *path, failure *out)
{
    file_writer writer;
    file_fault fault;
    bool good = file_create(&writer, path, &fault);
    if (good) {
        write_little_endian(answer->logits, answer->positions * answer->logits_count, &writer);
        good = file_finish(&writer, &fault);
    }
    if (!good)
        failure_of_tool(out, fault.status, "%s: %s", path, fault.text);
}

void prefill_answer_free(prefill_answer *answer)
{
    free(answer->tokens.ids);
    free(answer->logits);
    free(answer->layers);
}

static double sum_of_exponentials(const float *logits, uint64_t count, float largest)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return sum;
}

uint64_t likeliest(const float *logits, uint64_t count, uint64_t top, candidate *out)
{
    uint64_t found = 0;
    double sum;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = found < top ? found++ : top;
        while (place > 0 && logits[i] > out[place - 1].logit) {
            if (place < top)
                out[place] = out[place - 1];
            place--;
        }
        if (place < top)
            out[place] = (candidate){(uint32_t)i, logits[i], 0};
    }
    if (!found)
        return 0;
    sum = sum_of_exponentials(logits, count, out[0].logit);
    for (uint64_t i = 0; i < found; i++)
        out[i].probability = exp((double)out[i].logit - out[0].logit) / sum;
    return found;
}
