/* What the two sources of the native module share. */

#ifndef THREADLINE_COMPILED_H
#define THREADLINE_COMPILED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Names that the straight line of a put looks up in dicts, and methods that it calls. */
enum {
    N_CHANNEL_VALUES, N_CHANNEL_VERSIONS, N_CHECKPOINT_ID, N_CHECKPOINT_NS, N_CONFIGURABLE, N_DOCUMENT,
    N_ID, N_MAPS, N_METADATA, N_PARENTS, N_RUN_ID, N_SIZE, N_SOURCE, N_STEP, N_THREAD_ID, N_TS, N_UPDATED_CHANNELS, N_V,
    N_VERSIONS_SEEN, N_WRITE, N_NAMES
};

/* How many keys of dicts are held, to be used again. */
#define KEYS_HELD 512

typedef struct {
    PyTypeObject *shot_type;
    PyTypeObject *hook_type;
    PyObject *names[N_NAMES];
    PyObject *keys[KEYS_HELD];
    PyObject *unsaid; /* keys of a config that are no metadata */
    PyObject *chain_type, *deque_type; /* what LangGraph's loop gives for a dict and for a list */
} State;

/* Where a pydantic model keeps what is not in its __dict__: offsets of its slots, 0 for none. */
typedef struct {
    Py_ssize_t extra, private_;
} Slots;

/* compiled.c */
int find_slots(PyObject *classes, PyTypeObject *type, Slots *slots);
int is_without(PyObject *value, Py_ssize_t offset);
int bytes_are_within(const unsigned char *packed, size_t length);

/* straight.c */
extern PyMethodDef straight_methods[];
int straight_prepare(State *state);
void straight_release(State *state);

#endif
