/* libdormouse: byte-level language models that `dormouse export` wrote, from C. How to use it, with an example: docs/library.md.
 *
 * Every function that can fail returns a dormouse_status, 0 when all went well; the sentence that belongs to the last one of this thread
 * is dormouse_last_error(). A failed call leaves its outputs alone, but for handles, which become NULL. No call ends the process,
 * lets a C++ exception out, writes on stdout or stderr, changes a signal or the locale.
 *
 * Threads: any thread may call at any time; one computes, the others wait their turn, in order. A session serves one call at a time, and a
 * second one gets DORMOUSE_BUSY. Freeing a handle that another thread is using is an error of the program, as with free().
 * Callbacks run in the thread that called, outside the turn: they may call everything here, but not with the same session.
 */
#ifndef DORMOUSE_H
#define DORMOUSE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DORMOUSE_API __attribute__((visibility("default")))
#else
#define DORMOUSE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dormouse_status {
  DORMOUSE_OK = 0,
  DORMOUSE_USAGE = 1,   /* an argument is wrong: NULL, out of range, of an unknown size */
  DORMOUSE_REFUSED = 2, /* a file is missing or of another kind, an archive of another model, threads do not start, ... */
  DORMOUSE_DAMAGED = 3, /* a file or an archive was cut short or changed */
  DORMOUSE_MEMORY = 4,  /* out of memory */
  DORMOUSE_STOPPED = 5, /* a callback returned something else than 0 */
  DORMOUSE_BUSY = 6     /* the session is in another call */
} dormouse_status;

/* "0.1.0" */
DORMOUSE_API const char* dormouse_version(void);

/* One line: what was wrong, where, the way out; it names a value as the program's flags do (--temp, --depth). "" after a success. Valid
 * until the next call of this thread. */
DORMOUSE_API const char* dormouse_last_error(void);

/* How many threads compute a call, 1 to 4096; 0, the default: as many as the affinity and the CPU quota of the process give. No result
 * depends on it. */
DORMOUSE_API int dormouse_set_threads(int threads);

/* ---- models ---- */

typedef struct dormouse_model dormouse_model;

/* Reads an export (.dmexp), or the model.dmexp of a run directory, whole; the file may go afterwards. Refuses what the program refuses. */
DORMOUSE_API int dormouse_open(const char* path, dormouse_model** model);

/* Sessions of the model go on; its memory goes with the last of them. NULL: nothing happens. */
DORMOUSE_API void dormouse_close(dormouse_model* model);

/* Of NULL: 0 and "". */
DORMOUSE_API int64_t dormouse_depth(const dormouse_model* model);            /* the most iterations a byte gets */
DORMOUSE_API uint64_t dormouse_parameters(const dormouse_model* model);      /* how many numbers it learned */
DORMOUSE_API uint64_t dormouse_parameter_bytes(const dormouse_model* model); /* what they take in the file */
DORMOUSE_API const char* dormouse_dtype(const dormouse_model* model);        /* f32, f16, bf16, int8, ternary; lives as long as the model */

/* ---- sessions: one text each, read and continued byte by byte ---- */

typedef struct dormouse_session dormouse_session;

/* depth: 1 to dormouse_depth(), 0: that. */
DORMOUSE_API int dormouse_session_new(const dormouse_model* model, int64_t depth, dormouse_session** session);
DORMOUSE_API void dormouse_session_free(dormouse_session* session); /* NULL: nothing happens */
/* Back before the first byte. Also the way on after a call that failed halfway, which the next one says. */
DORMOUSE_API int dormouse_session_restart(dormouse_session* session);

/* The session reads `count` bytes, at most 2^30 a call. How a text is cut into calls changes nothing. */
DORMOUSE_API int dormouse_read(dormouse_session* session, const unsigned char* bytes, size_t count);

/* Of the byte that comes next; at least one must have been read. */
DORMOUSE_API int dormouse_logits(dormouse_session* session, float logits[256]);

typedef struct dormouse_options {
  size_t size;              /* of this struct, as the caller knows it */
  double temperature;       /* 0: always the likeliest byte; at most 100 */
  int64_t top_k;            /* only the k likeliest bytes; 0: off */
  double top_p;             /* only the likeliest bytes that together reach this probability, above 0; 1: off */
  double min_p;             /* only bytes above this share of the likeliest; 0: off */
  double repeat_penalty;    /* above 1: against bytes among the last 64; 1: off; at most 100 */
  uint64_t seed;            /* the same seed, the same bytes, which are those of `dormouse generate -s SEED` */
  const char* const* stops; /* dormouse_generate ends before any of these strings; NULL when there are none */
  size_t stop_count;        /* at most 4096 */
  int text;                 /* not 0: whole UTF-8 characters only, control bytes and invalid UTF-8 written as \x1b */
} dormouse_options;

/* Temperature 0.8, seed 0, all else off. size: sizeof(dormouse_options). */
DORMOUSE_API int dormouse_options_init(dormouse_options* options, size_t size);

/* Draws the next byte; does not read it. options->seed moves on with every draw, so that sampling and reading in turns gives the bytes of
 * dormouse_generate. Stop strings and `text` do not matter here. */
DORMOUSE_API int dormouse_sample(dormouse_session* session, dormouse_options* options, unsigned char* byte);

/* Takes bytes; 0: go on. */
typedef int (*dormouse_sink)(void* user, const unsigned char* bytes, size_t count);

typedef struct dormouse_generated {
  size_t size; /* of this struct: set it before the call */
  uint64_t prompt_bytes, written_bytes;
  double prompt_seconds, write_seconds;
  int at_stop; /* 1: a stop string was reached */
} dormouse_generated;

/* Reads a prompt where the session stands, then writes up to max_bytes bytes (-1: until stopped), each into `sink` as it comes, but for
 * those that may begin a stop string. Before the first byte of a session an empty prompt becomes a newline. The session has read all that
 * was written, a stop string too, and can go on. options NULL: the defaults. stats may be NULL.
 * DORMOUSE_STOPPED: the sink said so; stats are filled in then too. */
DORMOUSE_API int dormouse_generate(dormouse_session* session, const dormouse_options* options, const unsigned char* prompt, size_t count,
                                   int64_t max_bytes, dormouse_sink sink, void* user, dormouse_generated* stats);

/* ---- compression: any bytes in the bits the model needs to predict them (.dmz) ---- */

/* Fills up to `capacity` bytes and says how many in *count, 0 at the end; returns 0 to go on. */
typedef int (*dormouse_source)(void* user, unsigned char* bytes, size_t capacity, size_t* count);

typedef struct dormouse_archived {
  size_t size; /* of this struct: set it before the call */
  uint64_t original_bytes, archive_bytes;
  uint64_t coded_bytes, message_bytes; /* of the blocks that were coded: their original, and what it became */
  uint64_t blocks, raw_blocks;         /* raw: stored as they are */
} dormouse_archived;

/* block: bytes coded from one state, at most 2^20; 0: 16 KiB. The archive is whole when this returns DORMOUSE_OK. stats may be NULL. */
DORMOUSE_API int dormouse_compress(dormouse_model* model, uint32_t block, dormouse_source source, void* source_user, dormouse_sink sink,
                                   void* sink_user, dormouse_archived* stats);

/* Needs the model that compressed, and the same arithmetic (CPU level), and refuses others before it writes. A block is written when its
 * checksum holds; the original is complete when this returns DORMOUSE_OK. stats may be NULL. */
DORMOUSE_API int dormouse_decompress(dormouse_model* model, dormouse_source source, void* source_user, dormouse_sink sink, void* sink_user,
                                     dormouse_archived* stats);

#ifdef __cplusplus
}
#endif

#endif
