/* SPDX-License-Identifier: MIT */
#include "tool.h"

#include <stdarg.h>

#include "json.h"
#include "text.h"

void tool_message(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs("strata: ", stderr);
    text_show(stderr, text);
    fputc('\n', stderr);
}

/* Whether the status that is about to be reported is the tool's own. */
static bool is_own;

strata_status tool_own(strata_status status)
{
    is_own = true;
    return status;
}

static void write_error(const char *what, strata_status status, const char *detail)
{
    json_writer writer;
    json_start(&writer, stdout);
    json_object(&writer, NULL);
    json_object(&writer, "error");
    json_string(&writer, "what", what);
    json_string(&writer, "status", strata_status_name(status));
    json_string(&writer, "detail", detail);
    json_end(&writer);
    json_end(&writer);
}

int tool_fail(const char *what, strata_status status, bool json)
{
    char detail[1024] = "";
    if (!is_own)
        strata_last_error(detail, sizeof detail);
    is_own = false;
    tool_message("%s: %s (%s)", what, detail[0] ? detail : strata_status_string(status),
                 strata_status_name(status));
    if (json)
        write_error(what, status, detail);
    return TOOL_FAILED;
}

int tool_refuse(strata_status status, bool json, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tool_message("%s", text);
    if (json)
        write_error(text, status, "");
    return TOOL_FAILED;
}

bool tool_open_pack(const char *path, bool json, strata_context **out_context,
                    strata_pack **out_pack)
{
    strata_status status = strata_context_create(NULL, out_context);
    *out_pack = NULL;
    if (status != STRATA_OK) {
        tool_fail("cannot start", status, json);
        return false;
    }
    status = strata_pack_open_path(*out_context, path, out_pack);
    if (status == STRATA_OK)
        return true;
    tool_fail("cannot open the pack", status, json);
    strata_context_destroy(*out_context);
    *out_context = NULL;
    return false;
}
