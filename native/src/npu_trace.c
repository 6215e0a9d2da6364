/*
 * What runs do and how long it takes: a trace of all of it if NPUC_TRACE names a file, and the times of a model's parts.
 *
 * NPUC_TRACE=FILE.json is a trace for chrome://tracing and Perfetto, an event as soon as it is over, so that a program that is
 * killed leaves what it had. Any other file has to be there: it is that of `npuc trace`, which makes the trace of its lines
 * (src/npuc/runtime/record.py writes the same for Python). Nothing here fails: a program must not because it is watched.
 */
#define _GNU_SOURCE /* program_invocation_short_name, syscall */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "npu_hosted.h"

#define LIMIT (256 << 20) /* bytes that a process writes at most */
#define LINE 1024
#define NAME 400 /* bytes of a name, as JSON */

static struct {
    int file; /* -1: nobody watches */
    int json, events;
    pid_t process; /* that opened it; one that was forked off does not close it */
    int64_t begin;
} trace = {.file = -1};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static int64_t left = LIMIT, numbers;
static _Thread_local int thread_is_known;

int64_t npu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t thread_number(void)
{
#if defined(__linux__)
    return (int64_t)syscall(SYS_gettid);
#else
    return (int64_t)(uintptr_t)pthread_self();
#endif
}

static const char *program_name(void)
{
#if defined(__GLIBC__)
    return program_invocation_short_name;
#else
    return "program";
#endif
}

/*
 * A whole line or nothing; what does not fit the limit is left out. Events of a JSON array are apart by commas before them, in one
 * write: processes that were forked off write to the same file.
 */
static void append(const char *line, int length)
{
    char text[LINE + 2];
    if (length <= 0 || length >= LINE) return;
    pthread_mutex_lock(&writing);
    const size_t before = trace.json ? 2 : 0, all = before + (size_t)length;
    memcpy(text, trace.events ? ",\n" : "[\n", before);
    memcpy(text + before, line, (size_t)length);
    left -= (int64_t)all;
    if (left > 0 && write(trace.file, text, all) != (ssize_t)all) left = 0;
    trace.events = 1;
    pthread_mutex_unlock(&writing);
}

/* The end of the array. Viewers do without it, if the program is killed. */
static void close_trace(void)
{
    if (trace.process != getpid()) return;
    pthread_mutex_lock(&writing);
    if (trace.events && left > 0 && write(trace.file, "\n]\n", 3) != 3) left = 0;
    left = 0;
    pthread_mutex_unlock(&writing);
}

/* Around fork(): the child would inherit the lock from a thread that it does not have. Its own thread is another one, too. */
static void before_fork(void) { pthread_mutex_lock(&writing); }
static void in_parent(void) { pthread_mutex_unlock(&writing); }
static void in_child(void)
{
    pthread_mutex_unlock(&writing);
    thread_is_known = 0;
}

static void open_trace(void)
{
    const char *path = getenv("NPUC_TRACE");
    if (!path || !*path) return;
    const size_t length = strlen(path);
    trace.json = length > 5 && strcmp(path + length - 5, ".json") == 0;
    trace.file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | (trace.json ? O_CREAT | O_TRUNC : 0), 0666);
    if (trace.file < 0) {
        if (trace.json) fprintf(stderr, "npu: NPUC_TRACE: %s cannot be written: %s\n", path, strerror(errno));
        return;
    }
    trace.begin = npu_now();
    trace.process = getpid();
    pthread_atfork(before_fork, in_parent, in_child);
    if (trace.json) atexit(close_trace);
}

/* Text as a JSON string, cut where it is too long; bytes of UTF-8 stay as they are. */
static const char *quoted(const char *text, char *to)
{
    size_t at = 0;
    to[at++] = '"';
    for (; *text && at < NAME - 8; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') to[at++] = '\\', to[at++] = (char)c;
        else if (c < 0x20) at += (size_t)snprintf(to + at, NAME - at, "\\u%04x", c);
        else to[at++] = (char)c;
    }
    /* A character that is cut goes as a whole. */
    if (*text)
        while (at > 1 && ((unsigned char)to[at - 1] & 0xC0) == 0x80) at--;
    if (*text && at > 1 && (unsigned char)to[at - 1] >= 0xC0) at--;
    to[at++] = '"';
    to[at] = 0;
    return to;
}

/* The first event of a thread says who it is. */
static void introduce(int64_t now, int64_t thread)
{
    char line[LINE], name[NAME];
    if (thread_is_known) return;
    thread_is_known = 1;
    const int process = (int)getpid();
    quoted(program_name(), name);
    if (trace.json) {
        append(line, snprintf(line, LINE, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":%" PRId64 ",\"args\":{\"name\":%s}}", process,
                              thread, name));
        append(line, snprintf(line, LINE, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%" PRId64 ",\"args\":{\"name\":\"%s\"}}", process,
                              thread, process == thread ? "main" : "worker"));
    } else {
        append(line, snprintf(line, LINE, "[\"P\",%" PRId64 ",%d,%" PRId64 ",%s]\n", now, process, thread, name));
        append(line, snprintf(line, LINE, "[\"T\",%" PRId64 ",%d,%" PRId64 ",\"%s\"]\n", now, process, thread, process == thread ? "main" : "worker"));
    }
}

npu_span npu_begin_span(const char *category, const char *name)
{
    pthread_once(&once, open_trace);
    npu_span span = {category, name, 0, npu_now()};
    if (trace.file < 0) return span;
    introduce(span.begin, thread_number());
    if (trace.json) return span;
    char line[LINE], text[NAME];
    pthread_mutex_lock(&writing);
    span.number = ++numbers;
    pthread_mutex_unlock(&writing);
    append(line, snprintf(line, LINE, "[\"B\",%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",\"%s\",%s,{}]\n", span.begin, (int)getpid(), thread_number(),
                          span.number, category, quoted(name, text)));
    return span;
}

int64_t npu_end_span(const npu_span *span, npu_status status)
{
    const int64_t now = npu_now();
    if (trace.file < 0) return now - span->begin;
    char line[LINE], text[NAME], notes[32] = "{}";
    if (status) snprintf(notes, sizeof notes, "{\"error\":%d}", (int)status);
    /* In microseconds, with a digit more than nanoseconds have: readers that multiply a double and cut off the rest get them again. */
    const int64_t at = span->begin - trace.begin, taken = now - span->begin;
    if (trace.json)
        append(line, snprintf(line, LINE,
                              "{\"ph\":\"X\",\"name\":%s,\"cat\":\"%s\",\"pid\":%d,\"tid\":%" PRId64 ",\"ts\":%" PRId64 ".%03d2,\"dur\":%" PRId64
                              ".%03d2,\"args\":%s}",
                              quoted(span->name, text), span->category, (int)getpid(), thread_number(), at / 1000, (int)(at % 1000), taken / 1000,
                              (int)(taken % 1000), notes));
    else
        append(line, snprintf(line, LINE, "[\"E\",%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%s]\n", now, (int)getpid(), thread_number(), span->number, notes));
    return now - span->begin;
}

/* ---- times ---- */

void npu_note_times(npu_model *model, const npu_session *s, int64_t whole)
{
    const uint32_t parts = s->file.subgraph_count;
    npu_total *totals = model->first.session.totals;
    for (uint32_t i = 0; i <= parts; i++) {
        if (i < parts && !npu_has_subgraph(s, i)) continue;
        const int64_t spent = i < parts ? s->spent[i] : whole;
        npu_total *t = &totals[i];
        if (!t->runs || spent < t->least) t->least = spent;
        if (spent > t->most) t->most = spent;
        t->sum += spent;
        t->runs++;
    }
}

int32_t npu_time_count(const npu_model *model) { return model ? (int32_t)model->first.session.file.subgraph_count + 1 : 0; }

npu_status npu_times(npu_model *model, int32_t index, npu_time *time)
{
    if (!model || !time) return npu_fail(NPU_BAD_ARGUMENT, "there is no model, or no place for the times");
    const npu_session *s = &model->first.session;
    const int32_t parts = (int32_t)s->file.subgraph_count;
    if (index < 0 || index > parts) return npu_fail(NPU_BAD_ARGUMENT, "there is no part %d", index);
    pthread_mutex_lock(&model->lock);
    /* The whole comes first for callers. */
    const npu_total t = s->totals[index ? index - 1 : parts];
    pthread_mutex_unlock(&model->lock);
    *time = (npu_time){.name = index ? npuc_file_string(&s->file, s->file.subgraphs[index - 1].name) : npu_name(model),
                       .device = index ? (int32_t)s->file.subgraphs[index - 1].kind : -1,
                       .runs = t.runs,
                       .least = (double)t.least / 1e9,
                       .mean = t.runs ? (double)t.sum / 1e9 / (double)t.runs : 0,
                       .most = (double)t.most / 1e9};
    return NPU_OK;
}

npu_status npu_reset_times(npu_model *model)
{
    if (!model) return npu_fail(NPU_BAD_ARGUMENT, "there is no model");
    const npu_session *s = &model->first.session;
    pthread_mutex_lock(&model->lock);
    memset(s->totals, 0, (s->file.subgraph_count + 1) * sizeof *s->totals);
    pthread_mutex_unlock(&model->lock);
    return NPU_OK;
}

int64_t npu_summary(npu_model *model, char *text, size_t size)
{
    static const char *const devices[] = {"NPU", "CPU", "conversion"};
    size_t at = 0;
    if (text && size) text[0] = 0;
    for (int32_t i = 0; i < npu_time_count(model); i++) {
        npu_time t;
        char line[LINE];
        npu_times(model, i, &t);
        const char *device = t.device >= 0 && t.device < 3 ? devices[t.device] : "run";
        if (!i)
            snprintf(line, LINE, "%" PRId64 " runs of '%.200s', times in ms\n  %-24s %-10s %10s %10s %10s\n", t.runs, t.name, "", "", "min", "mean", "max");
        else line[0] = 0;
        const size_t length = strlen(line);
        snprintf(line + length, LINE - length, "  %-24.60s %-10s %10.3f %10.3f %10.3f\n", i ? t.name : "all", device, 1e3 * t.least, 1e3 * t.mean, 1e3 * t.most);
        if (text && at < size) snprintf(text + at, size - at, "%s", line);
        at += strlen(line);
    }
    return (int64_t)at;
}
