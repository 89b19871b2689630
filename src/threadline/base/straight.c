/* The straight line of a put: what is checked, packed and bound for nearly every put and put_writes.
 *
 * Each function does what a few functions of Python do elsewhere, for arguments of the usual kinds, to the same bytes.
 * For all others it returns None, and whoever called it goes the careful way, which says what is wrong if anything is. So
 * no function here refuses anything, or decides what a value becomes: ormsgpack packs.
 *
 * Rules: containers of the caller are read without calling Python in between, or are copied before. What is looked up is
 * held. An error that is raised here is one of memory, or of the caller's own code.
 */

#include "compiled.h"

#include <stddef.h>

#include "blake.h"

/* As core/requests.py, core/rows.py, chunks/cutting.py and codec/envelope.py have them. */
#define LATEST_FORMAT 4
#define EARLIEST_STEP (-2)
#define LARGEST_STEP ((1LL << 62) - 1)
#define LONGEST_INDEXED 512
#define WORTH_COMPRESSING 2000
#define CHECK_BYTES 8
/* Of a place, before its links; what is longer is for the careful way. Of these, the headers behind a text. */
#define MOST_BOUND_BYTES 1024
#define BOUND_HEADERS 16
#define DIGEST_BYTES 16
#define INLINE_BYTES 128
#define LARGE_ITEM_BYTES (32 * 1024)
#define FEWEST_IN_RUN 8
#define MOST_IN_RUN 128
#define RUN_MASK 7
#define ROOT_BYTES 160
#define OBJECT 32
/* As chunks/encode.py has them. */
#define FEW 64
#define FEW_LETTERS 64
/* And a dict of at most so many names. */
#define FEW_NAMES 8

static const char *const texts[N_NAMES] = {
    "channel_values", "channel_versions", "checkpoint_id", "checkpoint_ns", "configurable", "document",
    "id", "maps", "metadata", "parents", "run_id", "size", "source", "step", "thread_id", "ts", "updated_channels", "v",
    "versions_seen", "write",
};
static const char *const unsaid[] = {
    "thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "langgraph_step", "langgraph_node",
    "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns",
};

/* What a helper found: an error, something unusual, or what was looked for. */
enum { FAILED = -1, UNUSUAL = 0, USUAL = 1 };

static State *
state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static PyObject *
unusual(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static int
is_ascii(PyObject *value)
{
#if PY_VERSION_HEX < 0x030C0000
    return PyUnicode_CheckExact(value) && PyUnicode_READY(value) == 0 && PyUnicode_IS_ASCII(value);
#else
    return PyUnicode_CheckExact(value) && PyUnicode_IS_ASCII(value);
#endif
}

static int
is_number(PyObject *value)
{
    return PyLong_CheckExact(value) || PyFloat_CheckExact(value);
}

static int
has_nul(PyObject *text)
{
    return PyUnicode_FindChar(text, 0, 0, PyUnicode_GET_LENGTH(text), 1) >= 0;
}

/* What a dict has under a name, held; NULL, with or without an error. */
static PyObject *
got(PyObject *dict, PyObject *name)
{
    return Py_XNewRef(PyDict_GetItemWithError(dict, name));
}

/* Whether all keys of a dict are plain texts, and its values of the kind that a function tells. */
static int
is_of(PyObject *dict, int (*is_fitting)(PyObject *))
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value))
        if (!PyUnicode_CheckExact(key) || !is_fitting(value))
            return 0;
    return 1;
}

static int
is_any(PyObject *value)
{
    return value != NULL;
}

static int
is_version(PyObject *value)
{
    return is_number(value) || PyUnicode_CheckExact(value);
}

static int
is_dict(PyObject *value)
{
    return PyDict_CheckExact(value);
}

/* A named tuple of some parts, whose references it takes; all of them are let go if one is missing. */
static PyObject *
make_named(PyObject *type, PyObject **parts, Py_ssize_t count)
{
    PyObject *made = NULL;
    int is_whole = 1;
    for (Py_ssize_t at = 0; at < count; at++)
        is_whole = is_whole && parts[at] != NULL;
    if (is_whole && PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, count);
    else if (is_whole)
        PyErr_SetString(PyExc_TypeError, "rows are named tuples");
#if PY_VERSION_HEX >= 0x030E0000
    if (made != NULL)
        ((PyTupleObject *)made)->ob_hash = -1; /* not computed yet */
#endif
    for (Py_ssize_t at = 0; at < count; at++) {
        if (made != NULL)
            PyTuple_SET_ITEM(made, at, parts[at]);
        else
            Py_XDECREF(parts[at]);
    }
    return made;
}

/* The list of some parts, whose references it takes. */
static PyObject *
make_list(PyObject **parts, Py_ssize_t count)
{
    PyObject *made = PyList_New(count);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (made != NULL && parts[at] != NULL)
            PyList_SET_ITEM(made, at, parts[at]);
        else {
            Py_XDECREF(parts[at]);
            Py_CLEAR(made);
        }
    }
    return made;
}

/* What a packer makes of a value; NULL with an error, also where that is not bytes. */
static PyObject *
pack(PyObject *packb, PyObject *value, PyObject *hook, PyObject *options)
{
    PyObject *arguments[] = {value, hook, options};
    PyObject *made = PyObject_Vectorcall(packb, arguments, hook != NULL ? 3 : 1, NULL);
    if (made != NULL && !PyBytes_CheckExact(made)) {
        Py_CLEAR(made);
        PyErr_SetString(PyExc_TypeError, "a packer gave no bytes");
    }
    return made;
}

/* Whether what a packer raised is for the careful way to say better. */
static int
is_for_careful_way(void)
{
    int is_theirs = PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
                    PyErr_ExceptionMatches(PyExc_RecursionError);
    if (is_theirs)
        PyErr_Clear();
    return is_theirs;
}

/* Whether bytes, which a bytearray packs to as well, may be among what was packed; not within extensions. */
static int
may_hold_bytes(const char *packed, Py_ssize_t size)
{
    if (memchr(packed, 0xC4, (size_t)size) == NULL && memchr(packed, 0xC5, (size_t)size) == NULL &&
        memchr(packed, 0xC6, (size_t)size) == NULL)
        return 0;
    return bytes_are_within((const unsigned char *)packed, (size_t)size);
}

/* -- rows, bound to their places */

/* Some bytes, borrowed. */
typedef struct {
    const char *at;
    size_t size;
} Span;

static Span
span_of(PyObject *bytes, Py_ssize_t from)
{
    return (Span){PyBytes_AS_STRING(bytes) + from, (size_t)(PyBytes_GET_SIZE(bytes) - from)};
}

/* Two parts and so many bytes more, which are for the caller to fill. */
static PyObject *
joined(Span first, Span second, size_t more)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(first.size + second.size + more));
    if (made != NULL) {
        memcpy(PyBytes_AS_STRING(made), first.at, first.size);
        memcpy(PyBytes_AS_STRING(made) + first.size, second.at, second.size);
    }
    return made;
}

/* What a row is bound to, packed as ormsgpack packs a list of it: texts and a small number, and behind them the links. */
typedef struct {
    Span links;
    size_t size;
    int is_whole;
    char bytes[MOST_BOUND_BYTES];
} Binding;

static const Span no_bytes = {"", 0};

/* Begin with what is packed already. */
static void
bind_first(Binding *to, const char *packed, size_t size)
{
    to->links = no_bytes;
    to->is_whole = 1;
    to->size = size;
    memcpy(to->bytes, packed, size);
}

/* The header of so many bytes: in one byte if they are fewer than `limit`, else behind the first of three kinds. */
static void
bind_header(Binding *to, int few, size_t limit, int kind, size_t size)
{
    int width = size < limit ? 0 : size < 256 ? 1 : size < 65536 ? 2 : 4;
    to->bytes[to->size++] = (char)(width ? kind + (width == 1 ? 0 : width == 2 ? 1 : 2) : few | (int)size);
    while (width--)
        to->bytes[to->size++] = (char)(size >> (8 * width));
}

/* A text, or None where there is none. It is not whole any more where that is too long, or not ASCII. */
static void
bind_text(Binding *to, PyObject *text)
{
    size_t size = is_ascii(text) ? (size_t)PyUnicode_GET_LENGTH(text) : 0;
    if ((text != Py_None && !is_ascii(text)) || to->size + size + BOUND_HEADERS > MOST_BOUND_BYTES) {
        to->is_whole = 0;
    } else if (text == Py_None) {
        to->bytes[to->size++] = (char)0xC0;
    } else {
        bind_header(to, 0xA0, 32, 0xD9, size);
        memcpy(to->bytes + to->size, PyUnicode_1BYTE_DATA(text), size);
        to->size += size;
    }
}

/* A number from -32 to 65,535. */
static void
bind_number(Binding *to, Py_ssize_t number)
{
    if (number > 127)
        to->bytes[to->size++] = (char)(number < 256 ? 0xCC : 0xCD);
    if (number > 255)
        to->bytes[to->size++] = (char)(number >> 8);
    to->bytes[to->size++] = (char)number;
    to->is_whole = to->is_whole && number >= -32 && number < 65536;
}

static void
bind_links(Binding *to, PyObject *links)
{
    to->links = span_of(links, 0);
    bind_header(to, 0, 0, 0xC4, to->links.size);
}

/* The checksum that binds a row's bytes to a place, as codec/envelope.py has it. */
static void
check_of(Span place, Span links, Span content, unsigned char *check)
{
    Hash hash;
    hash_begin(&hash, CHECK_BYTES, "row", NULL, 0);
    hash_part(&hash, place.at, place.size);
    hash_part(&hash, links.at, links.size);
    hash_part(&hash, content.at, content.size);
    hash_end(&hash, check, CHECK_BYTES);
}

/* A row's bytes, in two parts, as they are stored, bound to a place: as `Envelope.wrap_row` has it, which `wrap` is. */
static PyObject *
wrapped(Span head, Span content, Binding *to, PyObject *begun, PyObject *wrap, PyObject **form)
{
    size_t size = head.size + content.size;
    PyObject *stored = NULL;
    *form = NULL;
    if (begun != Py_None && size < WORTH_COMPRESSING) {
        stored = joined(head, content, CHECK_BYTES);
        if (stored != NULL) {
            char *into = PyBytes_AS_STRING(stored);
            check_of((Span){to->bytes, to->size}, to->links, (Span){into, size}, (unsigned char *)into + size);
            *form = PyLong_FromLong(0);
        }
        return stored;
    }
    PyObject *arguments[] = {joined(head, content, 0), joined((Span){to->bytes, to->size}, to->links, 0)}, *made = NULL;
    if (arguments[0] != NULL && arguments[1] != NULL)
        made = PyObject_Vectorcall(wrap, arguments, 2, NULL);
    if (made != NULL && PyTuple_CheckExact(made) && PyTuple_GET_SIZE(made) == 2) {
        *form = Py_NewRef(PyTuple_GET_ITEM(made, 0));
        stored = Py_NewRef(PyTuple_GET_ITEM(made, 1));
    } else if (made != NULL) {
        PyErr_SetString(PyExc_TypeError, "an envelope gave no form and bytes");
    }
    Py_XDECREF(arguments[0]);
    Py_XDECREF(arguments[1]);
    Py_XDECREF(made);
    return stored;
}

/* -- what a put is given */

/* The place that a config names, NULL without an error where it is for the careful way. */
static PyObject *
place_in(State *state, PyObject *config, PyObject *type, PyObject **configurable)
{
    PyObject *parts[3] = {NULL, NULL, NULL};
    *configurable = NULL;
    if (!PyDict_CheckExact(config))
        return NULL;
    PyObject *named = *configurable = got(config, state->names[N_CONFIGURABLE]);
    if (named == NULL || !PyDict_CheckExact(named))
        return NULL;
    parts[0] = got(named, state->names[N_THREAD_ID]);
    parts[1] = got(named, state->names[N_CHECKPOINT_NS]);
    parts[2] = got(named, state->names[N_CHECKPOINT_ID]);
    if (PyErr_Occurred())
        goto careful;
    if (parts[1] == NULL || parts[1] == Py_None)
        Py_XSETREF(parts[1], PyUnicode_FromStringAndSize(NULL, 0));
    if (parts[2] == NULL)
        parts[2] = Py_NewRef(Py_None);
    if (parts[0] == NULL || !is_ascii(parts[0]) || !PyUnicode_GET_LENGTH(parts[0]) || parts[1] == NULL ||
        !is_ascii(parts[1]) || (parts[2] != Py_None && !is_ascii(parts[2])))
        goto careful;
    if (parts[2] != Py_None && !PyUnicode_GET_LENGTH(parts[2]))
        Py_SETREF(parts[2], Py_NewRef(Py_None));
    return make_named(type, parts, 3);
careful:
    for (int at = 0; at < 3; at++)
        Py_XDECREF(parts[at]);
    return NULL;
}

PyDoc_STRVAR(place_doc, "place(config, Place)\n--\n\n"
"The place that a config names; None where that is not for this function to say.");

static PyObject *
place(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "place() takes a config and a type");
        return NULL;
    }
    PyObject *configurable, *made = place_in(state_of(module), args[0], args[1], &configurable);
    Py_XDECREF(configurable);
    return made != NULL ? made : unusual();
}

static int
is_plain_text(PyObject *value)
{
    return PyUnicode_CheckExact(value) && !has_nul(value);
}

/* Whether a value of metadata is stored as it is. Of dicts those of texts, as a subgraph's `parents` are. */
static int
is_plain_metadata(PyObject *value)
{
    PyObject *key, *held;
    Py_ssize_t at = 0;
    if (is_number(value) || PyBool_Check(value) || value == Py_None || is_plain_text(value))
        return 1;
    if (!PyDict_CheckExact(value))
        return 0;
    while (PyDict_Next(value, &at, &key, &held))
        if (!is_plain_text(key) || !is_plain_text(held))
            return 0;
    return 1;
}

/* Add what a config says to metadata. */
static int
add_said(State *state, PyObject *merged, PyObject *said)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(said, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return UNUSUAL;
        int skips = PySet_Contains(state->unsaid, key);
        if (!skips && is_ascii(key) && PyUnicode_GET_LENGTH(key) > 1)
            skips = memcmp(PyUnicode_1BYTE_DATA(key), "__", 2) == 0;
        if (!skips)
            skips = PyDict_Contains(merged, key);
        if (skips < 0)
            return FAILED;
        if (skips)
            continue;
        if (!is_ascii(key))
            return UNUSUAL;
        if (PyUnicode_Check(value) || PyLong_Check(value) || PyFloat_Check(value)) {
            if (!is_plain_metadata(value))
                return UNUSUAL; /* of a subclass, or with a NUL */
            if (PyDict_SetItem(merged, key, value) < 0)
                return FAILED;
        }
    }
    return USUAL;
}

/* What a config says as metadata, held: a dict where it can be had without calling Python. LangGraph's loop gives a
 * ChainMap of dicts. */
static PyObject *
said_by(State *state, PyObject *config)
{
    PyObject *said = got(config, state->names[N_METADATA]);
    if (said == NULL || Py_TYPE(said) != (PyTypeObject *)state->chain_type)
        return said;
    PyObject *maps = PyObject_GetAttr(said, state->names[N_MAPS]), *merged = maps != NULL ? PyDict_New() : NULL;
    int is_plain = merged != NULL && PyList_CheckExact(maps);
    /* The first of them counts most. Keys that compare by Python might change the list. */
    for (Py_ssize_t at = is_plain ? PyList_GET_SIZE(maps) : 0; is_plain && at > 0; at--) {
        PyObject *one = at <= PyList_GET_SIZE(maps) ? Py_NewRef(PyList_GET_ITEM(maps, at - 1)) : NULL;
        is_plain = one != NULL && PyDict_CheckExact(one) && PyDict_Update(merged, one) == 0;
        Py_XDECREF(one);
    }
    if (is_plain)
        Py_SETREF(said, Py_NewRef(merged));
    Py_XDECREF(maps);
    Py_XDECREF(merged);
    return said;
}

/* The metadata of a put, as `get_checkpoint_metadata` makes it; None where that is for Python. */
static PyObject *
merged_metadata(State *state, PyObject *metadata, PyObject *of_config, PyObject *configurable)
{
    PyObject *key, *value, *merged = PyDict_New();
    Py_ssize_t at = 0;
    int found = merged != NULL ? USUAL : FAILED;
    while (found == USUAL && PyDict_Next(metadata, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || !is_plain_metadata(value)) {
            found = UNUSUAL;
            continue;
        }
        /* A dict of the caller's is packed later, after Python has run; finalizers may run while it is copied. */
        PyObject *name = Py_NewRef(key), *given = Py_NewRef(value);
        PyObject *held = PyDict_CheckExact(given) ? PyDict_Copy(given) : Py_NewRef(given);
        if (held == NULL || PyDict_SetItem(merged, name, held) < 0)
            found = FAILED;
        Py_XDECREF(held);
        Py_DECREF(given);
        Py_DECREF(name);
    }
    if (found == USUAL && of_config != NULL)
        found = add_said(state, merged, of_config);
    if (found == USUAL)
        found = add_said(state, merged, configurable);
    if (found == USUAL)
        return merged;
    Py_XDECREF(merged);
    return found == FAILED ? NULL : Py_NewRef(Py_None);
}

typedef struct {
    PyObject *id, *ts, *versions, *values, *seen, *updated, *v, *step, *of_config;
} Given;

static void
let_given_go(Given *given)
{
    PyObject **parts = (PyObject **)given;
    for (size_t at = 0; at < sizeof(Given) / sizeof(PyObject *); at++)
        Py_XDECREF(parts[at]);
}

/* Whether a checkpoint has what nearly all have, and nothing else. */
static int
is_usual_checkpoint(Given *given, PyObject *checkpoint)
{
    if (given->id == NULL || given->ts == NULL || given->versions == NULL || given->values == NULL ||
        given->seen == NULL || given->v == NULL)
        return 0;
    if (PyDict_GET_SIZE(checkpoint) != 6 + (given->updated != NULL))
        return 0;
    if (!is_ascii(given->id) || !PyUnicode_GET_LENGTH(given->id) || !PyUnicode_CheckExact(given->ts))
        return 0;
    if (!PyDict_CheckExact(given->versions) || !PyDict_CheckExact(given->values) || !PyDict_CheckExact(given->seen))
        return 0;
    if (given->updated != NULL && given->updated != Py_None && !PyList_CheckExact(given->updated))
        return 0;
    int overflows = 0;
    long long v = PyLong_CheckExact(given->v) ? PyLong_AsLongLongAndOverflow(given->v, &overflows) : 0;
    return !overflows && v >= 1 && v <= LATEST_FORMAT && is_of(given->values, is_any) &&
           is_of(given->versions, is_version) && is_of(given->seen, is_dict);
}

static int
is_usual_step(PyObject *step)
{
    int overflows = 0;
    if (step == NULL || step == Py_None)
        return 1;
    long long number = PyLong_CheckExact(step) ? PyLong_AsLongLongAndOverflow(step, &overflows) : EARLIEST_STEP - 1;
    return !overflows && number >= EARLIEST_STEP;
}

/* What stands in front of the channels, and the metadata, packed; None where that is for Python to do. It takes the
 * references of both. */
static PyObject *
draft_of(PyObject *head, PyObject *merged, PyObject *packb, PyObject *options, PyObject *type)
{
    PyObject *made = NULL, *encoded = NULL, *described = NULL;
    if (head != NULL && merged != NULL && merged != Py_None) {
        encoded = pack(packb, head, Py_None, options);
        described = encoded != NULL ? pack(packb, merged, Py_None, options) : NULL;
        if (described != NULL && PyBytes_GET_SIZE(encoded) > 1 &&
            !may_hold_bytes(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded)) &&
            !may_hold_bytes(PyBytes_AS_STRING(described), PyBytes_GET_SIZE(described))) {
            PyObject *parts[3] = {joined((Span){"\x96", 1}, span_of(encoded, 1), 0), Py_NewRef(described), Py_NewRef(merged)};
            made = make_named(type, parts, 3);
        } else if (described == NULL) {
            is_for_careful_way();
        }
    }
    Py_XDECREF(encoded);
    Py_XDECREF(described);
    Py_XDECREF(head);
    Py_XDECREF(merged);
    return made != NULL ? made : unusual();
}

/* -- the row of a checkpoint */

/* The links of some channels, side by side; NULL without an error where they are not pairs. */
static PyObject *
links_of(PyObject *pairs)
{
    PyObject *name, *pair;
    Py_ssize_t at = 0, size = 0;
    while (PyDict_Next(pairs, &at, &name, &pair)) {
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0)))
            return NULL;
        size += PyBytes_GET_SIZE(PyTuple_GET_ITEM(pair, 0));
    }
    PyObject *links = PyBytes_FromStringAndSize(NULL, size);
    char *into = links != NULL ? PyBytes_AS_STRING(links) : NULL;
    at = 0;
    while (links != NULL && PyDict_Next(pairs, &at, &name, &pair)) {
        PyObject *part = PyTuple_GET_ITEM(pair, 0);
        memcpy(into, PyBytes_AS_STRING(part), (size_t)PyBytes_GET_SIZE(part));
        into += PyBytes_GET_SIZE(part);
    }
    return links;
}

/* Each channel's version and reference, in the order of the links: channels with values first. */
static PyObject *
channels_of(PyObject *versions, PyObject *pairs)
{
    PyObject *name, *found, *channels = PyDict_New();
    Py_ssize_t at = 0;
    while (channels != NULL && PyDict_Next(pairs, &at, &name, &found)) {
        PyObject *version = PyDict_GetItemWithError(versions, name); /* borrowed */
        if (version == NULL && PyErr_Occurred()) {
            Py_CLEAR(channels);
            break;
        }
        PyObject *parts[] = {Py_NewRef(version != NULL ? version : Py_None), Py_NewRef(PyTuple_GET_ITEM(found, 1))};
        PyObject *entry = make_list(parts, 2);
        if (entry == NULL || PyDict_SetItem(channels, name, entry) < 0)
            Py_CLEAR(channels);
        Py_XDECREF(entry);
    }
    at = 0;
    while (channels != NULL && PyDict_GET_SIZE(channels) < PyDict_GET_SIZE(versions) &&
           PyDict_Next(versions, &at, &name, &found)) {
        int is_there = PyDict_Contains(channels, name);
        PyObject *parts[] = {Py_NewRef(found)}, *entry = is_there == 0 ? make_list(parts, 1) : NULL;
        if (is_there)
            Py_DECREF(found);
        if (is_there < 0 || (!is_there && (entry == NULL || PyDict_SetItem(channels, name, entry) < 0)))
            Py_CLEAR(channels);
        Py_XDECREF(entry);
    }
    return channels;
}

/* The value of an index column, where it is the one of the metadata; NULL without an error where Python must see. */
static PyObject *
column_of(PyObject *metadata, PyObject *name, int is_text)
{
    PyObject *value = got(metadata, name);
    int overflows = 0, fits;
    if (value == NULL && PyErr_Occurred())
        return NULL;
    if (value == NULL || value == Py_None) {
        Py_XDECREF(value);
        return Py_NewRef(Py_None);
    }
    if (is_text) {
        fits = is_ascii(value) && PyUnicode_GET_LENGTH(value) <= LONGEST_INDEXED && !has_nul(value);
    } else {
        long long number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflows) : -1;
        fits = PyLong_CheckExact(value) && !overflows && number <= LARGEST_STEP && number >= -LARGEST_STEP;
    }
    if (!fits)
        Py_CLEAR(value);
    return value;
}

/* What a row of a checkpoint is made of, all of it borrowed. */
typedef struct {
    PyObject *place, *id, *head, *described, *metadata, *versions, *pairs, *now, *searched, *packb, *begun, *wrap, *type;
} Rowing;

/* The row of a checkpoint; NULL, without an error where something is not of the usual kind. */
static PyObject *
make_row(State *state, Rowing *of)
{
    PyObject *made = NULL, *channels = NULL, *packed = NULL, *form, *stored, *form_of, *said;
    Binding to;
    PyObject *step = column_of(of->metadata, state->names[N_STEP], 0);
    PyObject *source = column_of(of->metadata, state->names[N_SOURCE], 1);
    PyObject *run_id = column_of(of->metadata, state->names[N_RUN_ID], 1), *links = links_of(of->pairs);
    if (step == NULL || source == NULL || run_id == NULL || links == NULL || PyErr_Occurred())
        goto finish;
    channels = channels_of(of->versions, of->pairs);
    packed = channels != NULL ? pack(of->packb, channels, NULL, NULL) : NULL;
    if (packed == NULL) {
        if (channels != NULL && PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Clear(); /* names and versions that msgpack cannot say */
        goto finish;
    }
    /* The list of "document", the place, the parent and the links. */
    bind_first(&to, "\x96\xa8" "document", 10);
    bind_text(&to, PyTuple_GET_ITEM(of->place, 0));
    bind_text(&to, PyTuple_GET_ITEM(of->place, 1));
    bind_text(&to, of->id);
    bind_text(&to, PyTuple_GET_ITEM(of->place, 2));
    bind_links(&to, links);
    if (!to.is_whole)
        goto finish;
    stored = wrapped(span_of(of->head, 0), span_of(packed, 0), &to, of->begun, of->wrap, &form);
    said = form_of = NULL;
    if (stored != NULL) { /* else its error stands, and nothing may run */
        memcpy(to.bytes + 2, "metadata", 8);
        said = wrapped(span_of(of->described, 0), no_bytes, &to, of->begun, of->wrap, &form_of);
    }
    PyObject *parts[13] = {
        Py_NewRef(PyTuple_GET_ITEM(of->place, 1)), Py_NewRef(of->id), Py_NewRef(PyTuple_GET_ITEM(of->place, 2)), links,
        form, stored, form_of, said, step, source, run_id, Py_NewRef(of->now), Py_NewRef(of->searched),
    };
    links = step = source = run_id = NULL;
    made = make_named(of->type, parts, 13);
finish:
    Py_XDECREF(step);
    Py_XDECREF(source);
    Py_XDECREF(run_id);
    Py_XDECREF(links);
    Py_XDECREF(channels);
    Py_XDECREF(packed);
    return made;
}

PyDoc_STRVAR(row_doc, "row(place, checkpoint_id, head, described, metadata, versions, pairs, now, searched, packb, begun,\n"
"    wrap, CheckpointRow)\n--\n\n"
"The row of a checkpoint, as core/rows.py makes it; None where something is not of the usual kind. `begun` is None\n"
"where rows are sealed, `wrap` what wraps all other rows.");

static PyObject *
row(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 13 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != 3 || !PyBytes_CheckExact(args[2]) ||
        !PyBytes_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "row() takes a place, an id, bytes, dicts, and how to make a row");
        return NULL;
    }
    Rowing of = {args[0], args[1], args[2], args[3], args[4],  args[5], args[6],
                 args[7], args[8], args[9], args[10], args[11], args[12]};
    if (!PyDict_CheckExact(of.metadata) || !PyDict_CheckExact(of.versions) || !PyDict_CheckExact(of.pairs))
        Py_RETURN_NONE;
    PyObject *made = make_row(state_of(module), &of);
    return made != NULL ? made : unusual();
}

PyDoc_STRVAR(checked_doc, "checked(place, stored, packb, begun)\n--\n\n"
"The content of a row without the checksum that binds it to its place; None where that does not fit, where rows are\n"
"sealed (`begun` is None), and for long ones.");

static PyObject *
checked(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "checked() takes a place, bytes, and how to check them");
        return NULL;
    }
    PyObject *stored = args[1];
    if (args[3] == Py_None || !PyBytes_CheckExact(stored) || PyBytes_GET_SIZE(stored) <= CHECK_BYTES ||
        PyBytes_GET_SIZE(stored) >= WORTH_COMPRESSING)
        Py_RETURN_NONE;
    Py_ssize_t size = PyBytes_GET_SIZE(stored) - CHECK_BYTES;
    PyObject *packed = pack(args[2], args[0], NULL, NULL), *content = NULL;
    if (packed == NULL)
        return is_for_careful_way() ? unusual() : NULL;
    unsigned char check[CHECK_BYTES];
    check_of(span_of(packed, 0), no_bytes, (Span){PyBytes_AS_STRING(stored), (size_t)size}, check);
    Py_DECREF(packed);
    if (memcmp(check, PyBytes_AS_STRING(stored) + size, CHECK_BYTES) == 0)
        content = PyBytes_FromStringAndSize(PyBytes_AS_STRING(stored), size);
    return content != NULL ? content : unusual();
}

/* -- items */

/* An item as it is named and stored: the state behind the header of its type, in the frame of an extension; the state
 * itself where it has none. */
static PyObject *
item_of(PyObject *head, const char *packed, Py_ssize_t size)
{
    unsigned char frame[6];
    Py_ssize_t length = PyBytes_GET_SIZE(head) + size, width;
    if (!PyBytes_GET_SIZE(head))
        return PyBytes_FromStringAndSize(packed, size);
    if (length == 1 || length == 2 || length == 4 || length == 8 || length == 16) {
        frame[0] = (unsigned char)(length == 1 ? 0xD4 : length == 2 ? 0xD5 : length == 4 ? 0xD6 : length == 8 ? 0xD7 : 0xD8);
        width = 1;
    } else if (length < 256) {
        frame[0] = 0xC7;
        frame[1] = (unsigned char)length;
        width = 2;
    } else {
        int wide = length >= 65536;
        frame[0] = wide ? 0xC9 : 0xC8;
        width = wide ? 5 : 3;
        for (Py_ssize_t at = 1; at < width; at++)
            frame[at] = (unsigned char)((size_t)length >> (8 * (width - 1 - at)));
    }
    frame[width++] = OBJECT;
    PyObject *made = PyBytes_FromStringAndSize(NULL, width + length);
    if (made != NULL) {
        char *into = PyBytes_AS_STRING(made);
        memcpy(into, frame, (size_t)width);
        memcpy(into + width, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
        memcpy(into + width + PyBytes_GET_SIZE(head), packed, (size_t)size);
    }
    return made;
}

/* Note the chunk of an item by its name, which is returned, held; as `Digester.item` names it. */
static PyObject *
add_chunk(PyObject *chunks, PyObject *content, PyObject *key)
{
    Hash hash;
    PyObject *digest = PyBytes_FromStringAndSize(NULL, DIGEST_BYTES);
    if (digest == NULL)
        return NULL;
    hash_begin(&hash, DIGEST_BYTES, "item", PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key));
    hash_part(&hash, PyBytes_AS_STRING(content), (size_t)PyBytes_GET_SIZE(content));
    hash_end(&hash, (unsigned char *)PyBytes_AS_STRING(digest), DIGEST_BYTES);
    PyObject *links = PyBytes_FromStringAndSize(NULL, 0), *chunk = links != NULL ? PyTuple_Pack(2, links, content) : NULL;
    if (chunk == NULL || PyDict_SetItem(chunks, digest, chunk) < 0)
        Py_CLEAR(digest);
    Py_XDECREF(links);
    Py_XDECREF(chunk);
    return digest;
}

/* Whether this is the key of a pool's names, which may be empty. */
static int
is_key(PyObject *key)
{
    return PyBytes_CheckExact(key) && PyBytes_GET_SIZE(key) <= MOST_KEY_BYTES;
}

/* The state of an item and the header of its type, both held; NULL without an error where Python must see to it. */
static PyObject *
state_of_item(PyObject *value, PyObject *classes, PyObject *headers, PyObject *counts, PyObject *nothing, PyObject **head)
{
    PyTypeObject *type = Py_TYPE(value);
    Slots slots;
    *head = NULL;
    if (type == &PyUnicode_Type || type == &PyDict_Type || type == &PyLong_Type || type == &PyList_Type ||
        type == &PyFloat_Type || type == &PyBool_Type || value == Py_None) {
        *head = Py_NewRef(nothing);
        return Py_NewRef(value);
    }
    if (!find_slots(classes, type, &slots) || !slots.extra)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(headers, (PyObject *)type); /* both borrowed */
    PyObject *fields = found != NULL ? PyDict_GetItemWithError(counts, (PyObject *)type) : NULL;
    if (fields == NULL || !PyBytes_CheckExact(found) || !is_without(value, slots.extra) || !is_without(value, slots.private_))
        return NULL;
    Py_ssize_t size = PyLong_AsSsize_t(fields);
    PyObject *dict = PyObject_GenericGetDict(value, NULL);
    if (dict == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear(); /* an instance that was never set up */
    if (dict != NULL && (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) != size))
        Py_CLEAR(dict);
    if (dict != NULL)
        *head = Py_NewRef(found);
    return dict;
}

/* -- a put */

/* What a put is given, what is known of its thread, and how it becomes a row. All of it is held by the caller. */
typedef struct {
    State *state;
    PyObject *place, *config, *checkpoint, *metadata, *new_versions;
    PyObject *versions_before, *pairs_before, *sources_before; /* of the parent, None; and of the line */
    PyObject *encode, *batch, *now;
    int is_settled, is_plain; /* whether the parent is known, and whether a given serializer does not encode values */
    PyObject *packb, *options, *searchable, *indexed, *begun, *wrap, *row_type, *draft_type, *none;
} Putting;

/* What a put becomes, all of it held. */
typedef struct {
    PyObject *draft, *merged, *versions, *values, *inherits, *kept, *pairs, *sources, *whole, *searched, *row;
    Py_ssize_t size;
} Made;

static void
let_made_go(Made *made)
{
    PyObject **parts = (PyObject **)made;
    for (size_t at = 0; at < offsetof(Made, size) / sizeof(PyObject *); at++)
        Py_XDECREF(parts[at]);
}

/* Whether a value takes a few bytes and packs in a moment. */
static int
is_short(PyObject *value)
{
    int overflows = 0;
    if (PyFloat_CheckExact(value) || PyBool_Check(value))
        return 1;
    if (PyLong_CheckExact(value)) {
        PyLong_AsLongLongAndOverflow(value, &overflows);
        return !overflows;
    }
    return is_ascii(value) && PyUnicode_GET_LENGTH(value) < FEW_LETTERS;
}

/* Whether a value is a list of a few plain values. */
static int
is_short_list(PyObject *value)
{
    if (!PyList_CheckExact(value) || PyList_GET_SIZE(value) == 0 || PyList_GET_SIZE(value) > FEW)
        return 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(value); at++) {
        PyObject *one = PyList_GET_ITEM(value, at);
        if (!is_number(one) && !PyUnicode_CheckExact(one) && !PyBool_Check(one) && one != Py_None)
            return 0;
    }
    return 1;
}

/* Whether a value is a dict of a few names and short values, as the input of a turn often is. */
static int
is_short_dict(PyObject *value)
{
    PyObject *key, *one;
    Py_ssize_t at = 0;
    if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) == 0 || PyDict_GET_SIZE(value) > FEW_NAMES)
        return 0;
    while (PyDict_Next(value, &at, &key, &one)) {
        int is_empty = (PyList_CheckExact(one) && PyList_GET_SIZE(one) == 0) ||
                       (PyDict_CheckExact(one) && PyDict_GET_SIZE(one) == 0);
        if (!is_ascii(key) || PyUnicode_GET_LENGTH(key) >= FEW_LETTERS || !(is_empty || one == Py_None || is_short(one)))
            return 0;
    }
    return 1;
}

/* The reference to a value and what it can be encoded from again, held; as `Encoder.value` has them, which is asked for
 * all that is longer. */
static int
encode_channel(Putting *of, PyObject *name, PyObject *value, PyObject **pair, PyObject **source)
{
    *pair = *source = NULL;
    if (of->is_plain && value == Py_None) {
        *pair = Py_NewRef(PyTuple_GET_ITEM(of->none, 0));
        *source = Py_NewRef(PyTuple_GET_ITEM(of->none, 1));
        return USUAL;
    }
    int is_few = of->is_plain && (is_short_list(value) || is_short_dict(value));
    if (is_few || (of->is_plain && is_short(value))) {
        PyObject *content = pack(of->packb, value, is_few ? Py_None : NULL, of->options);
        if (content == NULL && !is_for_careful_way())
            return FAILED;
        if (content != NULL && PyBytes_GET_SIZE(content) < INLINE_BYTES) {
            *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(PyTuple_GET_ITEM(of->none, 0), 0), content);
            *source = content;
            return *pair != NULL ? USUAL : FAILED;
        }
        Py_XDECREF(content);
    }
    PyObject *before = PyDict_GetItemWithError(of->sources_before, name); /* borrowed */
    if (before == NULL && PyErr_Occurred())
        return FAILED;
    before = Py_NewRef(before != NULL ? before : Py_None);
    PyObject *arguments[] = {value, name, of->batch, before};
    PyObject *made = PyObject_Vectorcall(of->encode, arguments, 4, NULL);
    Py_DECREF(before);
    if (made != NULL && PyTuple_CheckExact(made) && PyTuple_GET_SIZE(made) == 2) {
        *pair = Py_NewRef(PyTuple_GET_ITEM(made, 0));
        *source = Py_NewRef(PyTuple_GET_ITEM(made, 1));
    } else if (made != NULL) {
        PyErr_SetString(PyExc_TypeError, "an encoder gave no pair and source");
    }
    Py_XDECREF(made);
    return *pair != NULL ? USUAL : FAILED;
}

static Py_ssize_t
size_of_source(State *state, PyObject *source)
{
    if (PyBytes_CheckExact(source))
        return PyBytes_GET_SIZE(source);
    PyObject *number = PyObject_GetAttr(source, state->names[N_SIZE]);
    Py_ssize_t size = number != NULL ? PyLong_AsSsize_t(number) : -1;
    Py_XDECREF(number);
    return size;
}

/* Encode the values of all channels but those that keep the parent's reference. */
static int
encode_channels(Putting *of, Made *made)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    made->pairs = PyDict_New();
    made->sources = PyDict_New();
    if (made->pairs == NULL || made->sources == NULL)
        return FAILED;
    while (PyDict_Next(made->values, &at, &name, &value)) { /* a dict of this function alone */
        int keeps = made->kept != NULL ? PyDict_Contains(made->kept, name) : 0;
        if (keeps < 0)
            return FAILED;
        if (keeps)
            continue;
        PyObject *pair, *source;
        int found = encode_channel(of, name, value, &pair, &source);
        Py_ssize_t size = found == USUAL ? size_of_source(of->state, source) : -1;
        if (size < 0 || PyDict_SetItem(made->pairs, name, pair) < 0 || PyDict_SetItem(made->sources, name, source) < 0)
            found = FAILED;
        Py_XDECREF(pair);
        Py_XDECREF(source);
        if (found != USUAL)
            return FAILED;
        made->size += size;
    }
    return USUAL;
}

/* The channels that are not among the new ones; and of these, what the parent has under the same version. */
static int
find_inherited(Putting *of, Made *made)
{
    PyObject *name, *version;
    Py_ssize_t at = 0;
    made->inherits = PyList_New(0);
    if (made->inherits == NULL)
        return FAILED;
    while (PyTuple_GET_ITEM(of->place, 2) != Py_None && PyDict_Next(made->versions, &at, &name, &version)) {
        int is_new = PyDict_Contains(of->new_versions, name);
        if (is_new < 0 || (!is_new && PyList_Append(made->inherits, name) < 0))
            return FAILED;
        if (is_new || of->pairs_before == Py_None)
            continue;
        PyObject *pair = got(of->pairs_before, name), *since = got(of->versions_before, name), *equal = NULL;
        if (pair != NULL && since != NULL)
            equal = PyObject_RichCompare(since, version, Py_EQ);
        int is_same = equal != NULL ? PyObject_IsTrue(equal) : PyErr_Occurred() ? -1 : 0;
        if (is_same > 0 && made->kept == NULL)
            made->kept = PyDict_New();
        if (is_same > 0 && (made->kept == NULL || PyDict_SetItem(made->kept, name, pair) < 0))
            is_same = -1;
        Py_XDECREF(pair);
        Py_XDECREF(since);
        Py_XDECREF(equal);
        if (is_same < 0)
            return FAILED;
    }
    return USUAL;
}

/* What can be packed before the parent is looked at; UNUSUAL where any of it is for the careful way. */
static int
begin_put(Putting *of, Given *given, Made *made)
{
    PyObject *configurable = got(of->config, of->state->names[N_CONFIGURABLE]);
    if (PyErr_Occurred() || configurable == NULL || !PyDict_CheckExact(configurable)) {
        Py_XDECREF(configurable);
        return PyErr_Occurred() ? FAILED : UNUSUAL;
    }
    PyObject *head[5] = {
        Py_NewRef(given->v), Py_NewRef(given->ts), Py_NewRef(given->seen),
        Py_NewRef(given->updated != NULL ? given->updated : Py_False), PyDict_New(),
    };
    made->values = PyDict_Copy(given->values);
    made->versions = PyDict_Copy(given->versions);
    made->merged = merged_metadata(of->state, of->metadata, given->of_config, configurable);
    Py_DECREF(configurable);
    made->draft = draft_of(make_list(head, 5), Py_XNewRef(made->merged), of->packb, of->options, of->draft_type);
    if (made->draft == NULL || made->values == NULL || made->versions == NULL)
        return FAILED;
    return made->draft != Py_None ? USUAL : UNUSUAL;
}

/* The text by which a database can look for a checkpoint; None where there is nothing to look for. */
static PyObject *
searched_by(Putting *of, PyObject *metadata)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    State *state = of->state;
    PyObject *unsearched[] = {state->names[N_STEP], state->names[N_SOURCE], state->names[N_RUN_ID], state->names[N_PARENTS]};
    while (PyDict_Next(metadata, &at, &key, &value)) {
        int is_searched = 1;
        for (size_t one = 0; is_searched && one < sizeof(unsearched) / sizeof(unsearched[0]); one++)
            is_searched = key != unsearched[one] && PyUnicode_Compare(key, unsearched[one]) != 0;
        if (is_searched) {
            PyObject *arguments[] = {metadata, of->indexed};
            return PyObject_Vectorcall(of->searchable, arguments, 2, NULL);
        }
    }
    return Py_NewRef(Py_None);
}

/* All channels of a checkpoint, those that it keeps included; and its row, or None. */
static int
settle_put(Putting *of, Given *given, Made *made)
{
    made->whole = made->kept == NULL ? Py_NewRef(made->pairs) : PyDict_Copy(made->pairs);
    if (made->whole == NULL || (made->kept != NULL && PyDict_Update(made->whole, made->kept) < 0))
        return FAILED;
    if (of->is_settled) {
        made->searched = searched_by(of, made->merged);
        if (made->searched == NULL)
            return FAILED;
        Rowing row = {of->place, given->id, PyTuple_GET_ITEM(made->draft, 0), PyTuple_GET_ITEM(made->draft, 1),
                      made->merged, made->versions, made->whole, of->now, made->searched, of->packb, of->begun, of->wrap,
                      of->row_type};
        made->row = make_row(of->state, &row);
        if (made->row == NULL && PyErr_Occurred())
            return FAILED;
    }
    if (made->row == NULL)
        made->row = Py_NewRef(Py_None);
    return USUAL;
}

/* Whether all parts of how puts are made are there, which the caller makes once. */
static int
take_how(Putting *of, PyObject *how)
{
    if (!PyTuple_CheckExact(how) || PyTuple_GET_SIZE(how) != 9)
        return 0;
    PyObject **parts[] = {&of->packb, &of->options, &of->searchable, &of->indexed, &of->begun,
                          &of->wrap,  &of->row_type, &of->draft_type, &of->none};
    for (Py_ssize_t at = 0; at < 9; at++)
        *parts[at] = PyTuple_GET_ITEM(how, at);
    PyObject *none = of->none;
    return PyTuple_CheckExact(none) && PyTuple_GET_SIZE(none) == 2 && PyTuple_CheckExact(PyTuple_GET_ITEM(none, 0)) &&
           PyTuple_GET_SIZE(PyTuple_GET_ITEM(none, 0)) == 2;
}

PyDoc_STRVAR(put_doc, "put(place, config, checkpoint, metadata, new_versions, versions, pairs, is_settled, sources, encode,\n"
"    is_plain, batch, now, how)\n--\n\n"
"A put, checked and encoded: the checkpoint's id, its draft, its versions, the channels that may be its parent's, references\n"
"and sources of what was encoded, the size of that, the references of all channels, and its row, which is None where it\n"
"is for Python to make. `versions` and `pairs` are the parent's or None, `is_settled` whether the row can be made now.\n"
"None where something that a put is given is not of the usual kind: then nothing was encoded.");

static PyObject *
put(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Putting of = {state_of(module)};
    if (count != 14 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != 3 || !take_how(&of, args[13]) ||
        !PyDict_CheckExact(args[8]) || (args[5] != Py_None) != (args[6] != Py_None) ||
        (args[5] != Py_None && (!PyDict_CheckExact(args[5]) || !PyDict_CheckExact(args[6])))) {
        PyErr_SetString(PyExc_TypeError, "put() takes a place, what a put is given, what is known, and how to make a row");
        return NULL;
    }
    of.place = args[0], of.config = args[1], of.checkpoint = args[2], of.metadata = args[3], of.new_versions = args[4];
    of.versions_before = args[5], of.pairs_before = args[6], of.sources_before = args[8], of.encode = args[9];
    of.is_settled = args[7] == Py_True, of.is_plain = args[10] == Py_True, of.batch = args[11], of.now = args[12];
    if (!PyDict_CheckExact(of.config) || !PyDict_CheckExact(of.checkpoint) || !PyDict_CheckExact(of.metadata) ||
        !PyDict_CheckExact(of.new_versions))
        Py_RETURN_NONE;
    PyObject **names = of.state->names, *result = NULL;
    Given given = {
        got(of.checkpoint, names[N_ID]), got(of.checkpoint, names[N_TS]), got(of.checkpoint, names[N_CHANNEL_VERSIONS]),
        got(of.checkpoint, names[N_CHANNEL_VALUES]), got(of.checkpoint, names[N_VERSIONS_SEEN]),
        got(of.checkpoint, names[N_UPDATED_CHANNELS]), got(of.checkpoint, names[N_V]), got(of.metadata, names[N_STEP]),
        said_by(of.state, of.config),
    };
    Made made = {0};
    PyObject *parent = PyTuple_GET_ITEM(of.place, 2);
    if (PyErr_Occurred() || !is_usual_checkpoint(&given, of.checkpoint) || !is_usual_step(given.step) ||
        (given.of_config != NULL && !PyDict_CheckExact(given.of_config)) ||
        (parent != Py_None && PyUnicode_Compare(parent, given.id) == 0))
        goto finish;
    if (begin_put(&of, &given, &made) == USUAL && find_inherited(&of, &made) == USUAL &&
        encode_channels(&of, &made) == USUAL && settle_put(&of, &given, &made) == USUAL)
        result = Py_BuildValue("OOOOOOnOO", given.id, made.draft, made.versions, made.inherits, made.pairs, made.sources,
                               made.size, made.whole, made.row);
finish:
    let_given_go(&given);
    let_made_go(&made);
    return result != NULL ? result : unusual();
}

/* -- pending writes */

typedef struct {
    State *state;
    PyObject *alone, *known, *chunks, *key, *nothing;
    PyObject *batch; /* of `chunks`: NULL until something needs it */
    PyObject *packb, *hook, *within, *options, *classes, *headers, *counts; /* of `Codec.how` */
    PyObject *place, *task_id, *task_path, *indexes, *type, *begun, *wrap, *batches;
} Encoding;

/* Whether this is how a codec encodes, which is taken apart. */
static int
take_codec(PyObject *how, PyObject **parts[7])
{
    if (!PyTuple_CheckExact(how) || PyTuple_GET_SIZE(how) != 7)
        return 0;
    for (Py_ssize_t at = 0; at < 7; at++)
        *parts[at] = PyTuple_GET_ITEM(how, at);
    return PyDict_CheckExact(*parts[4]) && PyDict_CheckExact(*parts[5]) && PyDict_CheckExact(*parts[6]);
}

/* The bytes of one value, as `Codec.encode_natively` makes them. */
static int
encode(Encoding *how, PyObject *value, PyObject **content)
{
    PyObject *head, *state = state_of_item(value, how->classes, how->headers, how->counts, how->nothing, &head);
    *content = NULL;
    if (state == NULL && PyErr_Occurred())
        return FAILED;
    int is_object = state != NULL && PyBytes_GET_SIZE(head) > 0, found = USUAL;
    PyObject *packed = pack(how->packb, is_object ? state : value, is_object ? how->within : how->hook, how->options);
    if (packed == NULL) {
        found = is_for_careful_way() ? UNUSUAL : FAILED;
    } else {
        Py_ssize_t size = PyBytes_GET_SIZE(packed);
        if (size > LARGE_ITEM_BYTES || may_hold_bytes(PyBytes_AS_STRING(packed), size))
            found = UNUSUAL;
        else
            *content = is_object ? item_of(head, PyBytes_AS_STRING(packed), size) : Py_NewRef(packed);
        if (found == USUAL && *content == NULL)
            found = FAILED;
        if (found == USUAL && PyBytes_GET_SIZE(*content) > LARGE_ITEM_BYTES) {
            Py_CLEAR(*content);
            found = UNUSUAL;
        }
    }
    Py_XDECREF(packed);
    Py_XDECREF(state);
    Py_XDECREF(head);
    return found;
}

/* What a list of few items is, that are each one chunk or inline, as `Encoder.alone` has it. */
static int
root_of_few(Encoding *how, PyObject *links, PyObject *entries, Py_ssize_t linked, PyObject **pair)
{
    Py_ssize_t count = PyList_GET_SIZE(entries);
    PyObject *root[3] = {PyLong_FromLong(0), PyList_New(0), NULL};
    root[2] = linked == count ? PyLong_FromSsize_t(count) : Py_NewRef(entries);
    PyObject *parts = make_list(root, 3), *packed = parts != NULL ? pack(how->packb, parts, NULL, NULL) : NULL;
    int found = packed != NULL ? USUAL : FAILED;
    if (packed != NULL && PyBytes_GET_SIZE(links) + PyBytes_GET_SIZE(packed) > ROOT_BYTES)
        found = UNUSUAL;
    else if (packed != NULL)
        *pair = PyTuple_Pack(2, links, parts);
    Py_XDECREF(parts);
    Py_XDECREF(packed);
    return found;
}

static int
encode_list(Encoding *how, PyObject *list, PyObject **pair, PyObject **source)
{
    Py_ssize_t count = PyList_GET_SIZE(list), linked = 0;
    PyObject *values = PyList_GetSlice(list, 0, count), *entries = PyList_New(0), *fresh = PyDict_New();
    PyObject *links = PyBytes_FromStringAndSize("", 0), *whole = PyBytes_FromFormat("%c", 0x90 | (int)count);
    int found = values != NULL && entries != NULL && fresh != NULL && links != NULL && whole != NULL ? USUAL : FAILED;
    for (Py_ssize_t at = 0; found == USUAL && at < count; at++) {
        PyObject *content, *entry;
        found = encode(how, PyList_GET_ITEM(values, at), &content);
        if (found != USUAL)
            break;
        if (PyBytes_GET_SIZE(content) < INLINE_BYTES) {
            entry = Py_NewRef(content);
        } else {
            PyObject *digest = add_chunk(fresh, content, how->key);
            entry = digest != NULL ? Py_NewRef(Py_None) : NULL;
            if (digest != NULL)
                PyBytes_ConcatAndDel(&links, digest);
            linked++;
        }
        PyBytes_Concat(&whole, content);
        if (entry == NULL || whole == NULL || links == NULL || PyList_Append(entries, entry) < 0)
            found = FAILED;
        Py_XDECREF(entry);
        Py_DECREF(content);
    }
    if (found == USUAL && !linked && PyBytes_GET_SIZE(whole) < INLINE_BYTES)
        *pair = PyTuple_Pack(2, links, whole);
    else if (found == USUAL)
        found = root_of_few(how, links, entries, linked, pair);
    if (found == USUAL && (*pair == NULL || PyDict_Update(how->chunks, fresh) < 0))
        found = FAILED;
    *source = found == USUAL ? Py_NewRef(whole) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(entries);
    Py_XDECREF(fresh);
    Py_XDECREF(links);
    Py_XDECREF(whole);
    return found;
}

static int
encode_one(Encoding *how, PyObject *value, PyObject **pair, PyObject **source)
{
    PyObject *content;
    int found = encode(how, value, &content);
    if (found != USUAL)
        return found;
    if (PyBytes_GET_SIZE(content) < INLINE_BYTES) {
        *pair = PyTuple_Pack(2, how->nothing, content);
    } else {
        PyObject *digest = add_chunk(how->chunks, content, how->key);
        *pair = digest != NULL ? PyTuple_Pack(2, digest, Py_None) : NULL;
        Py_XDECREF(digest);
    }
    *source = content;
    return *pair != NULL ? USUAL : FAILED;
}

/* One value, encoded; by `alone`, which is the encoder's, where it is not of the usual kind. */
static int
encode_write(Encoding *how, PyObject *channel, PyObject *value, PyObject **pair, PyObject **source)
{
    int found = UNUSUAL;
    *pair = *source = NULL;
    if (PyList_CheckExact(value) && PyList_GET_SIZE(value) > 0) {
        if (PyList_GET_SIZE(value) < FEWEST_IN_RUN)
            found = encode_list(how, value, pair, source);
    } else if (!PyDict_CheckExact(value)) {
        found = encode_one(how, value, pair, source);
    }
    if (found == USUAL)
        return USUAL;
    Py_CLEAR(*pair);
    Py_CLEAR(*source);
    if (found == FAILED)
        return FAILED;
    if (how->batch == NULL)
        how->batch = PyObject_CallFunctionObjArgs(how->batches, how->known, how->chunks, NULL);
    PyObject *path = how->batch != NULL ? PyUnicode_FromFormat("write %U", channel) : NULL;
    PyObject *arguments[] = {value, path, how->batch};
    PyObject *made = path != NULL ? PyObject_Vectorcall(how->alone, arguments, 3, NULL) : NULL;
    Py_XDECREF(path);
    if (made != NULL && PyTuple_CheckExact(made) && PyTuple_GET_SIZE(made) == 2) {
        *pair = Py_NewRef(PyTuple_GET_ITEM(made, 0));
        *source = Py_NewRef(PyTuple_GET_ITEM(made, 1));
    }
    if (made != NULL && (*pair == NULL || !PyTuple_CheckExact(*pair) || PyTuple_GET_SIZE(*pair) != 2 ||
                         !PyBytes_CheckExact(PyTuple_GET_ITEM(*pair, 0)))) {
        PyErr_SetString(PyExc_TypeError, "an encoder gave no pair and source");
        Py_CLEAR(*pair);
        Py_CLEAR(*source);
    }
    Py_XDECREF(made);
    return *pair != NULL ? USUAL : FAILED;
}

/* Whether all are pairs of a channel's name and a value. */
static int
are_pairs(PyObject *writes)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(writes); at++) {
        PyObject *write = PyList_GET_ITEM(writes, at);
        if (!PyTuple_CheckExact(write) || PyTuple_GET_SIZE(write) != 2 || !is_ascii(PyTuple_GET_ITEM(write, 0)))
            return 0;
    }
    return 1;
}

/* What a row of a write is bound to, as `write_place` in core/rows.py has it. */
static void
bind_write(Encoding *how, Binding *to, Py_ssize_t index, PyObject *channel, PyObject *links)
{
    bind_first(to, "\x99\xa5" "write", 7);
    for (Py_ssize_t at = 0; at < 3; at++)
        bind_text(to, PyTuple_GET_ITEM(how->place, at));
    bind_text(to, how->task_id);
    bind_number(to, index);
    bind_text(to, how->task_path);
    bind_text(to, channel);
    bind_links(to, links);
}

/* The bytes of a reference as they are stored, bound to the place of a write. */
static PyObject *
wrapped_write(Encoding *how, Binding *to, PyObject *ref, PyObject **form)
{
    if (how->begun == Py_None || !PyBytes_CheckExact(ref) || PyBytes_GET_SIZE(ref) > 255) {
        PyObject *packed = pack(how->packb, ref, NULL, NULL), *stored = packed;
        *form = packed != NULL ? PyLong_FromLong(0) : NULL;
        if (packed != NULL && how->begun != Py_None) {
            Py_CLEAR(*form);
            stored = wrapped(span_of(packed, 0), no_bytes, to, how->begun, how->wrap, form);
            Py_DECREF(packed);
        }
        return stored;
    }
    char header[2] = {(char)0xC4, (char)PyBytes_GET_SIZE(ref)};
    return wrapped((Span){header, 2}, span_of(ref, 0), to, how->begun, how->wrap, form);
}

/* Encode a write and add its row and its source; whether its channel is a special one. */
static int
add_write(Encoding *how, PyObject *write, Py_ssize_t at, PyObject *rows, PyObject *sources)
{
    PyObject *channel = PyTuple_GET_ITEM(write, 0), *pair, *source, *form, *stored;
    PyObject *known = PyDict_GetItemWithError(how->indexes, channel); /* borrowed */
    Py_ssize_t index = known != NULL ? PyLong_AsSsize_t(known) : at;
    if (PyErr_Occurred() || encode_write(how, channel, PyTuple_GET_ITEM(write, 1), &pair, &source) != USUAL)
        return -1;
    PyObject *links = PyTuple_GET_ITEM(pair, 0);
    Binding to;
    bind_write(how, &to, index, channel, links);
    form = stored = NULL;
    if (to.is_whole)
        stored = wrapped_write(how, &to, PyTuple_GET_ITEM(pair, 1), &form);
    PyObject *parts[10] = {
        Py_NewRef(PyTuple_GET_ITEM(how->place, 1)), Py_NewRef(PyTuple_GET_ITEM(how->place, 2)), Py_NewRef(how->task_id),
        PyLong_FromSsize_t(index), Py_NewRef(how->task_path), Py_NewRef(channel), Py_NewRef(links), form, stored,
        Py_NewRef(known != NULL ? Py_True : Py_False),
    };
    PyObject *made = make_named(how->type, parts, 10);
    int failed = made == NULL || PyList_Append(rows, made) < 0 || PyList_Append(sources, source) < 0;
    Py_XDECREF(made);
    Py_DECREF(pair);
    Py_DECREF(source);
    return failed ? -1 : known != NULL;
}

PyDoc_STRVAR(writes_doc, "writes(place, writes, task_id, task_path, encoder, known, chunks, key, codec, how)\n--\n\n"
"The rows of what a task wrote, the sources of its values, whether it wrote to a channel that has a place of its own, and the\n"
"batch of its chunks, None where they are all in `chunks`. `encoder` is `Encoder.alone`, `known` the digests that are stored,\n"
"`key` that of the names of items, `codec` is `Codec.how`, `how` those places, the type of rows, None where rows are not\n"
"bound to their places here, what binds long ones, and the type of batches. None where something is not of the usual kind.");

static PyObject *
writes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Encoding how = {state_of(module)};
    PyObject **parts[7] = {&how.packb, &how.hook, &how.within, &how.options, &how.classes, &how.headers, &how.counts};
    if (count != 10 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != 3 || !PyDict_CheckExact(args[6]) ||
        !is_key(args[7]) || !take_codec(args[8], parts) || !PyTuple_CheckExact(args[9]) || PyTuple_GET_SIZE(args[9]) != 5 ||
        !PyDict_CheckExact(PyTuple_GET_ITEM(args[9], 0))) {
        PyErr_SetString(PyExc_TypeError, "writes() takes a place, a list, and how to make rows");
        return NULL;
    }
    how.place = args[0], how.task_id = args[2], how.task_path = args[3];
    how.alone = args[4], how.known = args[5], how.chunks = args[6], how.key = args[7];
    how.indexes = PyTuple_GET_ITEM(args[9], 0), how.type = PyTuple_GET_ITEM(args[9], 1);
    how.begun = PyTuple_GET_ITEM(args[9], 2), how.wrap = PyTuple_GET_ITEM(args[9], 3);
    how.batches = PyTuple_GET_ITEM(args[9], 4);
    int is_plain = PyList_CheckExact(args[1]) || Py_TYPE(args[1]) == (PyTypeObject *)how.state->deque_type;
    if (!is_plain || !is_ascii(args[2]) || !PyUnicode_GET_LENGTH(args[2]) || !is_ascii(args[3]) ||
        PyTuple_GET_ITEM(args[0], 2) == Py_None)
        Py_RETURN_NONE;
    PyObject *made = NULL, *list = PySequence_List(args[1]), *rows = PyList_New(0), *sources = PyList_New(0);
    how.nothing = PyBytes_FromStringAndSize("", 0);
    int special = 0, done = list != NULL && rows != NULL && sources != NULL && how.nothing != NULL && are_pairs(list);
    for (Py_ssize_t at = 0; done && at < PyList_GET_SIZE(list); at++) {
        int found = add_write(&how, PyList_GET_ITEM(list, at), at, rows, sources);
        done = found >= 0;
        special |= found > 0;
    }
    if (done)
        made = PyTuple_Pack(4, rows, sources, special ? Py_True : Py_False, how.batch != NULL ? how.batch : Py_None);
    Py_XDECREF(list);
    Py_XDECREF(rows);
    Py_XDECREF(sources);
    Py_XDECREF(how.nothing);
    Py_XDECREF(how.batch);
    return made != NULL ? made : unusual();
}

/* -- a list that grew */

/* The headers and states of some items; USUAL where all are of the usual kind. */
static int
take_apart(PyObject *values, PyObject *const *args, PyObject *nothing, PyObject *heads, PyObject *states)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(values); at++) {
        PyObject *head, *value = Py_NewRef(PyList_GET_ITEM(values, at));
        PyObject *state = state_of_item(value, args[0], args[1], args[2], nothing, &head);
        Py_DECREF(value);
        if (state == NULL)
            return PyErr_Occurred() ? FAILED : UNUSUAL;
        int failed = PyList_Append(states, state) < 0 || PyList_Append(heads, head) < 0;
        Py_DECREF(state);
        Py_DECREF(head);
        if (failed)
            return FAILED;
    }
    return USUAL;
}

/* Whether the first headers are those of before, from a place on. */
static int
begins_with(PyObject *heads, PyObject *before, Py_ssize_t from)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(before) - from; at++) {
        PyObject *one = PyList_GET_ITEM(heads, at), *other = PyList_GET_ITEM(before, from + at);
        if (one == other)
            continue;
        if (!PyBytes_CheckExact(other) || PyBytes_GET_SIZE(one) != PyBytes_GET_SIZE(other) ||
            memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), (size_t)PyBytes_GET_SIZE(one)) != 0)
            return 0;
    }
    return 1;
}

/* The states of the items from a place on, each by itself, where together they are the bytes at `added`. */
static int
apart(PyObject *states, Py_ssize_t first, PyObject *const *how, const char *added, Py_ssize_t size, PyObject *sizes)
{
    for (Py_ssize_t at = first, end = PyList_GET_SIZE(states); at < end; at++) {
        Py_ssize_t length = size;
        if (at < end - 1) {
            PyObject *packed = pack(how[0], PyList_GET_ITEM(states, at), how[1], how[2]);
            if (packed == NULL)
                return is_for_careful_way() ? UNUSUAL : FAILED;
            length = PyBytes_GET_SIZE(packed);
            int fits = length <= size && memcmp(PyBytes_AS_STRING(packed), added, (size_t)length) == 0;
            Py_DECREF(packed);
            if (!fits)
                return UNUSUAL; /* it was changed meanwhile, or packs to other bytes each time */
        }
        PyObject *number = PyLong_FromSsize_t(length);
        if (number == NULL || PyList_Append(sizes, number) < 0) {
            Py_XDECREF(number);
            return FAILED;
        }
        Py_DECREF(number);
        added += length;
        size -= length;
    }
    return USUAL;
}

/* Whether a run of so many items ends with one of this name, as chunks/cutting.py has it. */
static int
ends_run(PyObject *digest, Py_ssize_t length)
{
    return length >= FEWEST_IN_RUN && (length >= MOST_IN_RUN || !(PyBytes_AS_STRING(digest)[0] & RUN_MASK));
}

/* The chunks of new items that close no run; the ends and references of all items, and the links of the open run. */
typedef struct {
    PyObject *fresh, *ends, *pairs, *links;
    Py_ssize_t length;
} Added;

static int
add_items(Added *into, PyObject *heads, Py_ssize_t first, PyObject *sizes, const char *added, Py_ssize_t offset,
          PyObject *key)
{
    Py_ssize_t at = 0;
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(sizes); place++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyList_GET_ITEM(sizes, place));
        PyObject *content = item_of(PyList_GET_ITEM(heads, first + place), added + at, size);
        if (content == NULL)
            return FAILED;
        if (PyBytes_GET_SIZE(content) < INLINE_BYTES || PyBytes_GET_SIZE(content) > LARGE_ITEM_BYTES) {
            Py_DECREF(content);
            return UNUSUAL;
        }
        PyObject *digest = add_chunk(into->fresh, content, key);
        Py_DECREF(content);
        if (digest == NULL)
            return FAILED;
        at += size;
        int closes = ends_run(digest, ++into->length);
        PyObject *end = PyLong_FromSsize_t(offset + at), *pair = PyTuple_Pack(2, digest, Py_None);
        int failed = end == NULL || pair == NULL || PyList_Append(into->ends, end) < 0 || PyList_Append(into->pairs, pair) < 0;
        Py_XDECREF(end);
        Py_XDECREF(pair);
        PyBytes_ConcatAndDel(&into->links, digest);
        if (failed || into->links == NULL)
            return FAILED;
        if (closes)
            return UNUSUAL;
    }
    return USUAL;
}

/* What a list was before: headers, states, ends and references of its items, and how many are in the open run. */
typedef struct {
    PyObject *heads, *body, *ends, *pairs;
    Py_ssize_t count, open;
} Former;

static int
take_former(Former *was, PyObject *const *args)
{
    *was = (Former){args[0], args[1], args[2], args[3], 0, -1};
    if (!PyList_CheckExact(was->heads) || !PyBytes_CheckExact(was->body) || !PyList_CheckExact(was->ends) ||
        !PyList_CheckExact(was->pairs))
        return 0;
    was->count = PyList_GET_SIZE(was->heads);
    return 1;
}

/* Where the item at a place ended, -1 where nobody can tell. */
static Py_ssize_t
end_of(Former *was, Py_ssize_t place)
{
    PyObject *end = PyList_GET_ITEM(was->ends, place);
    Py_ssize_t found = PyLong_CheckExact(end) ? PyLong_AsSsize_t(end) : -1;
    return found <= PyBytes_GET_SIZE(was->body) ? found : -1;
}

/* How many items are gone from the beginning of a list that has all others still, before those that it got; -1 where
 * others are gone too, or closed runs would have to be cut anew. `start` is where the states begin that stayed. */
static Py_ssize_t
gone_from(Former *was, PyObject *heads, const char *at, Py_ssize_t left, Py_ssize_t *start)
{
    Py_ssize_t most = was->open == was->count ? was->count - 1 : 0;
    for (Py_ssize_t gone = 0; gone <= most || !gone; gone++) {
        *start = gone ? end_of(was, gone - 1) : 0;
        Py_ssize_t size = PyBytes_GET_SIZE(was->body) - *start;
        if (*start < 0 || PyErr_Occurred())
            return -1;
        if (was->count - gone <= PyList_GET_SIZE(heads) && size <= left &&
            memcmp(at, PyBytes_AS_STRING(was->body) + *start, (size_t)size) == 0 && begins_with(heads, was->heads, gone))
            return gone;
    }
    return -1;
}

/* Begin with the items that stayed. Without the first ones, each has another place in the open run. */
static int
add_former(Added *into, Former *was, PyObject *links, Py_ssize_t gone, Py_ssize_t start)
{
    into->ends = PyList_GetSlice(was->ends, gone, was->count);
    into->pairs = PyList_GetSlice(was->pairs, gone, was->count);
    into->links = gone ? PyBytes_FromStringAndSize(NULL, 0) : Py_NewRef(links);
    into->length = gone ? 0 : was->open;
    if (into->ends == NULL || into->pairs == NULL || into->links == NULL)
        return FAILED;
    for (Py_ssize_t at = 0; gone && at < was->count - gone; at++) {
        PyObject *end = PyLong_FromSsize_t(end_of(was, gone + at) - start), *pair = PyList_GET_ITEM(into->pairs, at);
        if (PyErr_Occurred() || PyList_SetItem(into->ends, at, end) < 0)
            return FAILED;
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || PyTuple_GET_ITEM(pair, 1) != Py_None ||
            !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(pair, 0)) != DIGEST_BYTES ||
            ends_run(PyTuple_GET_ITEM(pair, 0), ++into->length))
            return UNUSUAL;
        PyBytes_Concat(&into->links, PyTuple_GET_ITEM(pair, 0));
        if (into->links == NULL)
            return FAILED;
    }
    return USUAL;
}

PyDoc_STRVAR(grown_doc, "grown(values, heads, body, ends, pairs, links, length, key, codec)\n--\n\n"
"What a list became whose items had these headers, states, ends and references, and whose open run had these links and so many\n"
"items: all of these anew, the chunks of the items that it got, and how many items stayed. It may have lost its first items,\n"
"where it has no closed run. True where nothing changed. None where it changed otherwise, closes a run, or has items of\n"
"another kind.");

static PyObject *
grown(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *packb, *hook, *within, *options, *known[3];
    PyObject **parts[7] = {&packb, &hook, &within, &options, &known[0], &known[1], &known[2]};
    Former was;
    if (count != 9 || !PyList_CheckExact(args[0]) || !take_former(&was, args + 1) || !PyBytes_CheckExact(args[5]) ||
        !is_key(args[7]) || !take_codec(args[8], parts)) {
        PyErr_SetString(PyExc_TypeError, "grown() takes a list, what it was, and how to pack it");
        return NULL;
    }
    PyObject *values = args[0], *made = NULL, *packed = NULL, *states_packed = NULL, *how[] = {packb, within, options};
    Py_ssize_t size = PyList_GET_SIZE(values), first;
    was.open = PyLong_AsSsize_t(args[6]);
    if (was.open < 0 || size >= 65536 || PyList_GET_SIZE(was.ends) != was.count || PyList_GET_SIZE(was.pairs) != was.count)
        return unusual();
    PyObject *heads = PyList_New(0), *states = PyList_New(0), *sizes = PyList_New(0);
    PyObject *nothing = PyBytes_FromStringAndSize("", 0);
    Added into = {PyDict_New(), NULL, NULL, NULL, 0};
    if (heads == NULL || states == NULL || sizes == NULL || nothing == NULL || into.fresh == NULL)
        goto finish;
    if (take_apart(values, known, nothing, heads, states) != USUAL)
        goto finish;
    packed = pack(packb, states, within, options);
    if (packed == NULL) {
        is_for_careful_way();
        goto finish;
    }
    Py_ssize_t header = size < 16 ? 1 : 3, left = PyBytes_GET_SIZE(packed) - header, start;
    const char *at = PyBytes_AS_STRING(packed) + header;
    Py_ssize_t gone = gone_from(&was, heads, at, left, &start), kept = PyBytes_GET_SIZE(was.body) - start;
    if (gone < 0)
        goto finish;
    first = was.count - gone, at += kept, left -= kept;
    if (!gone && size == first && left == 0) {
        made = Py_NewRef(Py_True);
        goto finish;
    }
    if ((size == first && (left || !gone)) || may_hold_bytes(at, left) || apart(states, first, how, at, left, sizes) != USUAL)
        goto finish;
    if (add_former(&into, &was, args[5], gone, start) != USUAL ||
        add_items(&into, heads, first, sizes, at, kept, args[7]) != USUAL)
        goto finish;
    states_packed = joined(span_of(packed, header), no_bytes, 0);
    if (states_packed != NULL)
        made = Py_BuildValue("OOOOOnOn", heads, states_packed, into.ends, into.pairs, into.links, into.length, into.fresh,
                             first);
finish:
    Py_XDECREF(heads);
    Py_XDECREF(states);
    Py_XDECREF(sizes);
    Py_XDECREF(nothing);
    Py_XDECREF(packed);
    Py_XDECREF(states_packed);
    Py_XDECREF(into.fresh);
    Py_XDECREF(into.ends);
    Py_XDECREF(into.pairs);
    Py_XDECREF(into.links);
    return made != NULL ? made : unusual();
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, name##_doc}

PyMethodDef straight_methods[] = {
    METHOD(checked), METHOD(grown), METHOD(place), METHOD(put), METHOD(row), METHOD(writes), {NULL, NULL, 0, NULL},
};

int
straight_prepare(State *state)
{
    for (int at = 0; at < N_NAMES; at++) {
        state->names[at] = PyUnicode_InternFromString(texts[at]);
        if (state->names[at] == NULL)
            return -1;
    }
    PyObject *collections = PyImport_ImportModule("collections");
    if (collections == NULL)
        return -1;
    state->chain_type = PyObject_GetAttrString(collections, "ChainMap");
    state->deque_type = PyObject_GetAttrString(collections, "deque");
    Py_DECREF(collections);
    if (state->chain_type == NULL || state->deque_type == NULL)
        return -1;
    state->unsaid = PyFrozenSet_New(NULL);
    for (size_t at = 0; state->unsaid != NULL && at < sizeof(unsaid) / sizeof(unsaid[0]); at++) {
        PyObject *name = PyUnicode_InternFromString(unsaid[at]);
        int failed = name == NULL || PySet_Add(state->unsaid, name) < 0; /* nobody else has seen the set yet */
        Py_XDECREF(name);
        if (failed)
            return -1;
    }
    return state->unsaid != NULL ? 0 : -1;
}

void
straight_release(State *state)
{
    for (int at = 0; at < N_NAMES; at++)
        Py_CLEAR(state->names[at]);
    Py_CLEAR(state->chain_type);
    Py_CLEAR(state->deque_type);
    Py_CLEAR(state->unsaid);
}
