/* A model in memory: what the two forms of the C runtime (with a heap and threads, or without either) share. */
#ifndef NPU_MODEL_H
#define NPU_MODEL_H

#include "host.h"
#include "npu.h"
#include "npuc/reader.h"
#include "npuc/sim.h"

/* A block that is given out piece by piece. Without a base it only counts, so that one walk finds the size for the next. */
typedef struct npu_block {
    uint8_t *base;
    size_t size, used;
} npu_block;

/* The next piece, 64-byte aligned; NULL when it counts or is full. */
void *npu_take(npu_block *block, uint64_t size);

struct npu_session;

/* Who wants to know of the subgraphs of a run; NULL in the form without a heap, which has no clock. */
typedef npu_status npu_observer(struct npu_session *session, uint32_t subgraph, npu_status (*run)(struct npu_session *, uint32_t));

/* How long a part took, of all runs, in nanoseconds. */
typedef struct npu_total {
    int64_t runs, least, most, sum;
} npu_total;

/* The first member of every npu_model. */
typedef struct npu_session {
    npuc_file file;
    npuc_file_header part_header; /* of a part: that of the file, with the ends of its subgraph */
    uint32_t part;                /* 0: all subgraphs run; otherwise only that one, counted from 1 */
    int32_t cores;                /* the most that a subgraph uses */
    int32_t threads;
    int32_t proven; /* the weights have been compared with their checksums */
    npuc_sim *sim;
    npuc_sim_segment *segments;
    npuc_sim_program *programs; /* one a subgraph */
    npu_tensor *tensors;        /* inputs, then outputs */
    uint8_t *staging;           /* for conversions between two orders of axes */
    host_program *hosts;        /* one a subgraph; those of CPU subgraphs are open */
    uint8_t *host_arena;        /* for the host operators of one subgraph at a time */
    npu_observer *observer;
    int64_t *spent;    /* with an observer: nanoseconds of each subgraph in the last run */
    npu_total *totals; /* and of all runs; behind the last subgraph those of the whole */
} npu_session;

/* Open the bytes of a file, its first entry, and refuse what this runtime cannot run. */
npu_status npu_open(npu_session *session, const void *bytes, size_t size, const char *where);

/* Begin a session of a file that is open, and refuse what this runtime cannot run. */
npu_status npu_begin(npu_session *session, const char *where);

/* Make a session, which has the file of another, one of a single subgraph; npu_begin follows. */
npu_status npu_narrow(npu_session *session, uint32_t subgraph);

/* Whether a subgraph runs in a session. */
static inline int npu_has_subgraph(const npu_session *session, uint32_t subgraph)
{
    return !session->part || session->part == subgraph + 1;
}

/* The number of an entry, by its name or by the shapes of its inputs. */
npu_status npu_find_entry(const npu_model *model, const char *name, uint32_t *number);
npu_status npu_find_entry_for(const npu_model *model, const npu_tensor *inputs, int32_t count, uint32_t *number);

/* Give everything but the simulator a place in a block. The tables of a counting block cannot be used. */
void npu_place(npu_session *session, npu_block *block);

/* Compare the weights with their checksums on so many threads, unless that has been done. */
npu_status npu_prove(npu_session *session, int32_t threads);

/* All subgraphs, on what the inputs hold. */
npu_status npu_run_subgraphs(npu_session *session);

/* Free what operators of plugins keep. */
void npu_end_plugin_states(npu_session *session);
/* Whether one of them keeps a state: runs then take turns. */
int npu_keeps_plugin_states(const npu_session *session);

/* States begin with zero again. */
void npu_reset_states(npu_session *session);

/* The tensors of a run: dense ones, or else with gaps. */
typedef struct npu_ends {
    const void *const *inputs;
    void *const *outputs;
    const npu_view *input_views, *output_views;
} npu_ends;

/* One run of a model that is proven; no other may go on. */
npu_status npu_execute(npu_session *session, const npu_ends *ends);

/* The longest text of an error, with its zero. */
#define NPU_ERROR_BYTES 768

/* State an error for npu_error(); returns the status. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
npu_status npu_fail(npu_status status, const char *format, ...);

#endif /* NPU_MODEL_H */
