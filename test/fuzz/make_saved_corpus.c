/* SPDX-License-Identifier: MIT */
/* Writes the seeds of corpus/saved: fuzz-make-saved-corpus FOLDER */
#include <stdio.h>
#include <stdlib.h>

#include "saved_sequence.h"

static int write_seed(const char *folder, strata_session *session, uint64_t tokens, uint8_t repair)
{
    static uint8_t data[1 << 17];
    char path[512];
    uint64_t bytes, length;
    FILE *file;
    int failed;
    if (strata__session_truncate(session, 0, 0, &length) != STRATA_OK)
        return 1;
    if (tokens)
        fuzz_read(session, 0, tokens);
    if (strata__session_save_memory(session, 0, data, sizeof data, &bytes) != STRATA_OK)
        return 1;
    snprintf(path, sizeof path, "%s/%llu-tokens", folder, (unsigned long long)tokens);
    file = fopen(path, "wb");
    failed = !file || fputc(repair, file) == EOF || fwrite(data, 1, bytes, file) != bytes;
    if (file && fclose(file) != 0)
        failed = 1;
    printf("%s: %llu bytes\n", path, (unsigned long long)bytes + 1);
    return failed;
}

int main(int argc, char **argv)
{
    const uint8_t all = FUZZ_REPAIR_PACK | FUZZ_REPAIR_HEADER | FUZZ_REPAIR_END;
    strata_session *session = fuzz_session();
    if (argc != 2)
        return 2;
    return write_seed(argv[1], session, 0, all) || write_seed(argv[1], session, 5, all) ||
           write_seed(argv[1], session, 64, FUZZ_REPAIR_PACK) ||
           write_seed(argv[1], session, 70, FUZZ_REPAIR_PACK | FUZZ_REPAIR_END);
}
