/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a saved sequence. What must hold: no crash; a refusal has a text and leaves no page
 * taken; the sequence that the session holds is untouched; what is accepted has the length that it
 * tells.
 *
 * Input: a byte of what is put right (FUZZ_REPAIR_*), then the bytes.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_MODULES
#include "base/checksum.h"
#include "fuzz_target.h"
#include "must.h"
#include "saved_sequence.h"

static void repair(const strata_session *session, uint8_t what, uint8_t *data, size_t bytes)
{
    strata__saved_header header, own;
    uint64_t checksum;
    if (bytes < sizeof header + sizeof checksum)
        return;
    memcpy(&header, data, sizeof header);
    strata__saved_header_make(session, 0, &own);
    if (what & FUZZ_REPAIR_PACK) {
        header.pack = own.pack;
        header.weights = own.weights;
    }
    if (what & FUZZ_REPAIR_HEADER)
        header.checksum = strata__checksum_of(&header, offsetof(strata__saved_header, checksum), 0);
    memcpy(data, &header, sizeof header);
    checksum = strata__checksum_of(data, bytes - sizeof checksum, 0);
    if (what & FUZZ_REPAIR_END)
        memcpy(data + bytes - sizeof checksum, &checksum, sizeof checksum);
}

static void is_untouched(strata_session *session, const uint8_t *held, uint64_t held_bytes)
{
    static uint8_t again[1 << 17];
    uint64_t bytes;
    must(strata__session_save_memory(session, 0, again, sizeof again, &bytes) == STRATA_OK,
         "saving");
    must(bytes == held_bytes && memcmp(again, held, bytes) == 0, "the other sequence as it was");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static strata_session *session;
    static uint8_t held[1 << 17];
    static uint64_t held_bytes;
    static uint32_t free_pages;
    strata_state_info info = {0};
    strata_status status, told;
    uint64_t length;
    uint8_t *copy;
    if (!session) {
        session = fuzz_session();
        fuzz_read(session, 0, FUZZ_HELD_TOKENS);
        must(strata__session_save_memory(session, 0, held, sizeof held, &held_bytes) == STRATA_OK,
             "saving");
        free_pages = session->kv.free_count;
    }
    copy = malloc(bytes + 1);
    must(copy != NULL, "memory");
    if (bytes > 1) {
        memcpy(copy, data + 1, bytes - 1);
        repair(session, data[0], copy, bytes - 1);
    }
    told = strata__state_info_memory(copy, bytes > 1 ? bytes - 1 : 0, &info);
    strata__fail(STRATA_OK, "%s", "");
    status = strata__session_restore_memory(session, 1, copy, bytes > 1 ? bytes - 1 : 0);
    must(strata__session_length(session, 1, &length) == STRATA_OK, "a length");
    if (status == STRATA_OK) {
        strata__saved_header header;
        memcpy(&header, copy, sizeof header);
        must(length == header.tokens, "the length that it tells");
        must(told == STRATA_OK && info.tokens == length,
             "the same that it tells without a session");
        must(strata__session_truncate(session, 1, 0, &length) == STRATA_OK, "emptying");
    } else {
        must_have_text(status);
        must(length == 0, "no tokens on refusal");
    }
    must(session->kv.free_count == free_pages, "all pages given back");
    is_untouched(session, held, held_bytes);
    free(copy);
    return 0;
}
