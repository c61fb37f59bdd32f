/* SPDX-License-Identifier: MIT */
/* An application that was built against the installed library: C and C++ alike. */
#include <stdio.h>
#include <strata/strata.h>

int main(int argc, char **argv)
{
    strata_context *context = NULL;
    strata_pack *pack = NULL;
    strata_session *session = NULL;
    if (strata_version_number() != STRATA_VERSION_NUMBER || argc != 2)
        return 2;
    if (strata_context_create(NULL, &context) || strata_pack_open_path(context, argv[1], &pack) ||
        strata_session_create(pack, NULL, &session))
        return 1;
    printf("%s: %llu logits\n", strata_version_string(),
           (unsigned long long)strata_session_logits_count(session));
    strata_session_destroy(session);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return 0;
}
