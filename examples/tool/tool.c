/* SPDX-License-Identifier: MIT */
#include "tool.h"

#include <stdarg.h>
#include <string.h>

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

/* Texts that came from files, by the word that the library calls them. */
static struct {
    const char *word;
    const char *path;
} files[4];

void tool_names_file(const char *word, const char *path)
{
    size_t i = 0;
    while (files[i].word && strcmp(files[i].word, word) != 0 &&
           i + 1 < sizeof files / sizeof files[0])
        i++;
    files[i].word = word;
    files[i].path = path;
}

/* The library's last text, with files by their names. */
static void take_detail(char *out, size_t bytes)
{
    char text[1024] = "";
    strata_last_error(text, sizeof text);
    for (size_t i = 0; i < sizeof files / sizeof files[0] && files[i].word; i++) {
        size_t length = strlen(files[i].word);
        if (strncmp(text, files[i].word, length) == 0 && text[length] == ':') {
            snprintf(out, bytes, "%s%s", files[i].path, text + length);
            return;
        }
    }
    snprintf(out, bytes, "%s", text);
}

static void keep(failure *out, const failure *one)
{
    if (out->status == STRATA_OK)
        *out = *one;
}

void failure_of_call(failure *out, const char *what, strata_status status)
{
    failure one = {.status = status};
    snprintf(one.what, sizeof one.what, "%s", what);
    if (!is_own)
        take_detail(one.detail, sizeof one.detail);
    is_own = false;
    tool_message("%s: %s (%s)", what, one.detail[0] ? one.detail : strata_status_string(status),
                 strata_status_name(status));
    keep(out, &one);
}

static void fail_own(failure *out, strata_status status, const char *format, va_list args)
{
    failure one = {.status = status};
    vsnprintf(one.what, sizeof one.what, format, args);
    tool_message("%s", one.what);
    keep(out, &one);
}

void failure_of_tool(failure *out, strata_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_own(out, status, format, args);
    va_end(args);
}

void failure_json(json_writer *json, const failure *what)
{
    if (what->status == STRATA_OK)
        return;
    json_object(json, "error");
    json_string(json, "what", what->what);
    json_string(json, "status", strata_status_name(what->status));
    json_string(json, "detail", what->detail);
    json_end(json);
}

/* An object of the failure alone. */
static int answer_failure(const failure *what, bool json)
{
    json_writer writer;
    if (!json)
        return TOOL_FAILED;
    json_start(&writer, stdout);
    json_object(&writer, NULL);
    failure_json(&writer, what);
    json_end(&writer);
    return TOOL_FAILED;
}

int tool_fail(const char *what, strata_status status, bool json)
{
    failure one = {0};
    failure_of_call(&one, what, status);
    return answer_failure(&one, json);
}

int tool_refuse(strata_status status, bool json, const char *format, ...)
{
    failure one = {0};
    va_list args;
    va_start(args, format);
    fail_own(&one, status, format, args);
    va_end(args);
    return answer_failure(&one, json);
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
