/* What Python alone is slow at: comparing values with what they were, looking through plain data and packed bytes, what
 * a packer asks for each date and enum, and building many data objects of their states.
 *
 * This module is optional: base/native.py loads it where it was built, and everything works without it.
 *
 * A *shot* remembers what one value consisted of. An immutable part (text, a number, True, None) is remembered as the
 * very object, which the shot holds, so that no other object can have its address. A list, dict or data object
 * is remembered by its type, how many parts it has, and those parts, in order; not by its address, because it can be
 * changed in place. So a value that consists of the same parts encodes to the same bytes. The reverse does not hold:
 * an equal text that is another object counts as changed, and whoever asks compares bytes then.
 *
 * Rules: a shot is taken and its value is packed in one step, in which no other code runs: not another thread, because
 * the interpreter's lock is held throughout, and no finalizer, because the garbage collector rests. Otherwise a change
 * that came in between would be in the shot and not in the bytes, and would never be noticed. Comparing is such a step,
 * too. Containers are read with their size checked at each step, and a part is held while it is looked at.
 */

#include "compiled.h"

#include <datetime.h>
#include <structmember.h>

/* What base/native.py expects: a module that was compiled of another version of this file is not used. */
#define INTERFACE 6

/* Values nested deeper, or with more parts, are left to the comparison by bytes. */
#define DEEPEST 32
#define MOST_PARTS 1024
/* Plain data that is nested deeper is left to Python, which needs no stack for it. */
#define DEEPEST_PLAIN 1000

/* The size of a part that is no container. */
#define IMMUTABLE (-1)

/* An immutable part is held. The type of a container is not: it is a type of Python's, or a class that `classes` holds,
 * and shots are never compared under another `classes` than they were taken under. So shots are in no cycle of
 * references, and the garbage collector need not look at them. */
typedef struct {
    PyObject *object;
    Py_ssize_t size;
} Part;

typedef struct {
    PyObject_VAR_HEAD
    Part parts[1];
} Shot;

static void
shot_dealloc(Shot *shot)
{
    for (Py_ssize_t at = 0; at < Py_SIZE(shot); at++)
        if (shot->parts[at].size == IMMUTABLE)
            Py_DECREF(shot->parts[at].object);
    PyTypeObject *type = Py_TYPE(shot);
    type->tp_free(shot);
    Py_DECREF(type);
}

static PyType_Slot shot_slots[] = {
    {Py_tp_dealloc, shot_dealloc},
    {Py_tp_doc, "What one value consisted of."},
    {0, NULL},
};

static PyType_Spec shot_spec = {
    .name = "threadline.base.compiled.Shot",
    .basicsize = offsetof(Shot, parts),
    .itemsize = sizeof(Part),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = shot_slots,
};

static int
is_immutable(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
           value == Py_None;
}

/* The slots of a class that `classes` describes; 0 if it is not there. Such a description is a pair of numbers. */
int
find_slots(PyObject *classes, PyTypeObject *type, Slots *slots)
{
    PyTypeObject *meta = Py_TYPE(type);
    if (meta->tp_hash != PyType_Type.tp_hash || meta->tp_richcompare != PyType_Type.tp_richcompare)
        return 0; /* looking for the class would run code of its metaclass */
    PyObject *described = PyDict_GetItemWithError(classes, (PyObject *)type); /* borrowed */
    if (described == NULL || !PyTuple_CheckExact(described) || PyTuple_GET_SIZE(described) != 2)
        return 0;
    slots->extra = PyLong_AsSsize_t(PyTuple_GET_ITEM(described, 0));
    slots->private_ = PyLong_AsSsize_t(PyTuple_GET_ITEM(described, 1));
    return !PyErr_Occurred();
}

static PyObject *
in_slot(PyObject *value, Py_ssize_t offset)
{
    return *(PyObject **)((char *)value + offset); /* borrowed; NULL where it was never set */
}

/* Whether a slot that may hold a dict holds nothing: then there is nothing of it to store. */
int
is_without(PyObject *value, Py_ssize_t offset)
{
    if (!offset)
        return 1;
    PyObject *held = in_slot(value, offset);
    return held == Py_None || (held != NULL && PyDict_CheckExact(held) && PyDict_GET_SIZE(held) == 0);
}

/* -- taking */

typedef struct {
    Part parts[MOST_PARTS];
    Py_ssize_t count;
    PyObject *classes;
    Py_ssize_t bytes; /* what all shots hold that are in no other shot, about */
} Taking;

static int
add_container(Taking *taking, PyTypeObject *type, Py_ssize_t size)
{
    if (taking->count == MOST_PARTS)
        return 0;
    taking->parts[taking->count].object = (PyObject *)type;
    taking->parts[taking->count++].size = size;
    return 1;
}

static int
add_immutable(Taking *taking, PyObject *object)
{
    if (taking->count == MOST_PARTS)
        return 0;
    taking->parts[taking->count].object = Py_NewRef(object);
    taking->parts[taking->count++].size = IMMUTABLE;
    return 1;
}

static void
let_go(Taking *taking)
{
    while (taking->count) {
        Part *part = &taking->parts[--taking->count];
        if (part->size == IMMUTABLE)
            Py_DECREF(part->object);
    }
}

/* What an immutable value takes in memory, about. */
static Py_ssize_t
bytes_of(PyObject *value)
{
    if (PyUnicode_CheckExact(value))
        return 64 + PyUnicode_GET_LENGTH(value) * PyUnicode_KIND(value);
    return 32;
}

static int take_value(Taking *taking, PyObject *value, int depth);

static int
take_held(Taking *taking, PyObject *value, int depth)
{
    Py_INCREF(value);
    int done = take_value(taking, value, depth);
    Py_DECREF(value);
    return done;
}

static int
take_dict(Taking *taking, PyObject *dict, int depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, size = PyDict_GET_SIZE(dict), seen = 0;
    if (!add_container(taking, &PyDict_Type, size))
        return 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        /* Names of fields are the same objects in all items, and are not counted. */
        if (!PyUnicode_CheckExact(key) || !add_immutable(taking, key) || !take_held(taking, value, depth + 1))
            return 0;
        seen++;
    }
    return seen == size && PyDict_GET_SIZE(dict) == size;
}

static int
take_value(Taking *taking, PyObject *value, int depth)
{
    if (is_immutable(value)) {
        taking->bytes += bytes_of(value);
        return add_immutable(taking, value);
    }
    if (depth > DEEPEST)
        return 0;
    if (PyList_CheckExact(value)) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        if (!add_container(taking, &PyList_Type, size))
            return 0;
        for (Py_ssize_t at = 0; at < size; at++)
            if (at >= PyList_GET_SIZE(value) || !take_held(taking, PyList_GET_ITEM(value, at), depth + 1))
                return 0;
        return PyList_GET_SIZE(value) == size;
    }
    if (PyDict_CheckExact(value))
        return take_dict(taking, value, depth);
    return 0; /* a tuple or an object in there: packing it calls a function of Python's */
}

/* An object has nothing to store but its __dict__, and that is what is packed for it: its state. */
static int
take_object(Taking *taking, PyObject *value, PyObject *state, const Slots *slots)
{
    if (!is_without(value, slots->extra) || !is_without(value, slots->private_))
        return 0;
    PyObject *dict = PyObject_GenericGetDict(value, NULL);
    int done = dict == state && PyDict_CheckExact(dict) && add_container(taking, Py_TYPE(value), 1) &&
               take_dict(taking, dict, 1);
    Py_XDECREF(dict);
    return done;
}

/* The shot of a value that was of a type when its state was made; NULL without an error where there can be none. */
static PyObject *
take_shot(State *own, Taking *taking, PyObject *value, PyObject *type, PyObject *state)
{
    Slots slots;
    Shot *shot = NULL;
    taking->count = 0;
    int done = (PyObject *)Py_TYPE(value) == type;
    if (done && find_slots(taking->classes, Py_TYPE(value), &slots))
        done = take_object(taking, value, state, &slots);
    else
        done = done && value == state && take_value(taking, value, 0);
    if (done) {
        shot = PyObject_NewVar(Shot, own->shot_type, taking->count);
        if (shot != NULL) {
            memcpy(shot->parts, taking->parts, taking->count * sizeof(Part));
            taking->bytes += (Py_ssize_t)sizeof(Shot) + taking->count * (Py_ssize_t)sizeof(Part);
            taking->count = 0; /* the shot has the references now */
        }
    }
    let_go(taking);
    return (PyObject *)shot;
}

/* Shots of some values, and what these hold; NULL without an error where one of the values can have none. */
static PyObject *
take(State *own, PyObject *values, PyObject *types, PyObject *states, PyObject *classes, Py_ssize_t start,
     Py_ssize_t end, Py_ssize_t *held)
{
    PyObject *shots = PyList_New(0);
    Taking *taking = PyMem_Malloc(sizeof(Taking));
    if (shots == NULL || taking == NULL) {
        Py_XDECREF(shots);
        PyMem_Free(taking);
        return PyErr_NoMemory();
    }
    taking->classes = classes;
    taking->bytes = 0;
    for (Py_ssize_t at = start; at < end && shots != NULL; at++) {
        PyObject *shot = take_shot(own, taking, PyList_GET_ITEM(values, at), PyList_GET_ITEM(types, at),
                                   PyList_GET_ITEM(states, at));
        if (shot == NULL || PyList_Append(shots, shot) < 0)
            Py_CLEAR(shots);
        Py_XDECREF(shot);
    }
    *held = taking->bytes;
    PyMem_Free(taking);
    return shots;
}

PyDoc_STRVAR(packed_doc, "packed(values, types, states, classes, start, end, pack, hook, options)\n--\n\n"
"What `pack(states[start:end], hook, options)` gives; shots of the values that these are the states of; and how many\n"
"bytes the shots hold.\n\n"
"The first two are of one moment. None instead of shots where a value has parts that shots know nothing of, or is not what it was\n"
"when its state was made. `types` are the types of the values then. `classes` has, for each class whose objects may be\n"
"among the values, the offsets of two slots, or zeros.");

static PyObject *
packed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 9 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyList_CheckExact(args[2]) ||
        !PyDict_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "packed() takes three lists, a dict, two numbers, and how to pack");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[4]), end = PyLong_AsSsize_t(args[5]), most = PyList_GET_SIZE(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (start < 0 || end < start || end > most || PyList_GET_SIZE(args[1]) != most ||
        PyList_GET_SIZE(args[2]) != most) {
        PyErr_SetString(PyExc_ValueError, "packed() takes lists of one length, and a stretch of them");
        return NULL;
    }
    PyObject *slice = PyList_GetSlice(args[2], start, end);
    if (slice == NULL)
        return NULL;
    Py_ssize_t held = 0;
    int collects = PyGC_Disable();
    PyObject *shots = take(PyModule_GetState(module), args[0], args[1], args[2], args[3], start, end, &held);
    if (shots == NULL && collects)
        PyGC_Enable(); /* packing may call Python now, and be long */
    PyObject *bytes = PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(args[6], slice, args[7], args[8], NULL);
    if (shots != NULL && collects)
        PyGC_Enable();
    Py_DECREF(slice);
    if (bytes == NULL) {
        Py_XDECREF(shots);
        return NULL;
    }
    return Py_BuildValue("NNn", bytes, shots != NULL ? shots : Py_NewRef(Py_None), held);
}

/* -- comparing */

typedef struct {
    const Part *next, *end;
    PyObject *classes;
} Comparing;

static int is_same(Comparing *comparing, PyObject *value);

static int
is_same_held(Comparing *comparing, PyObject *value)
{
    Py_INCREF(value);
    int same = is_same(comparing, value);
    Py_DECREF(value);
    return same;
}

static int
is_same_dict(Comparing *comparing, PyObject *dict, Py_ssize_t size)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, seen = 0;
    if (PyDict_GET_SIZE(dict) != size)
        return 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        /* Behind the part of a dict stands that of its first key: only a text can be the same. */
        if (seen++ == size || comparing->next == comparing->end || (comparing->next++)->object != key)
            return 0;
        if (!is_same_held(comparing, value))
            return 0;
    }
    return seen == size && PyDict_GET_SIZE(dict) == size;
}

static int
is_same_object(Comparing *comparing, PyObject *value)
{
    Slots slots;
    if (!find_slots(comparing->classes, Py_TYPE(value), &slots))
        return 0;
    if (!is_without(value, slots.extra) || !is_without(value, slots.private_))
        return 0;
    PyObject *dict = PyObject_GenericGetDict(value, NULL);
    int same = dict != NULL && PyDict_CheckExact(dict) && comparing->next != comparing->end &&
               comparing->next->object == (PyObject *)&PyDict_Type &&
               is_same_dict(comparing, dict, (comparing->next++)->size);
    Py_XDECREF(dict);
    return same;
}

static int
is_same(Comparing *comparing, PyObject *value)
{
    if (comparing->next == comparing->end)
        return 0;
    const Part *part = comparing->next++;
    if (part->size == IMMUTABLE)
        return part->object == value;
    if ((PyObject *)Py_TYPE(value) != part->object)
        return 0;
    if (PyList_CheckExact(value)) {
        if (PyList_GET_SIZE(value) != part->size)
            return 0;
        for (Py_ssize_t at = 0; at < part->size; at++)
            if (at >= PyList_GET_SIZE(value) || !is_same_held(comparing, PyList_GET_ITEM(value, at)))
                return 0;
        return PyList_GET_SIZE(value) == part->size;
    }
    if (PyDict_CheckExact(value))
        return is_same_dict(comparing, value, part->size);
    return is_same_object(comparing, value);
}

PyDoc_STRVAR(unchanged_doc, "unchanged(shots, values, classes)\n--\n\n"
"How many of the first values consist of just what their shots say.");

static PyObject *
unchanged(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    State *state = PyModule_GetState(module);
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyDict_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "unchanged() takes two lists and a dict");
        return NULL;
    }
    Py_ssize_t at = 0;
    int collects = PyGC_Disable(); /* making the __dict__ of an instance may run it, and it finalizers */
    for (; at < PyList_GET_SIZE(args[0]) && at < PyList_GET_SIZE(args[1]); at++) {
        Shot *shot = (Shot *)PyList_GET_ITEM(args[0], at);
        if (Py_TYPE(shot) != state->shot_type) {
            PyErr_SetString(PyExc_TypeError, "unchanged() takes a list of shots");
            break;
        }
        Py_INCREF(shot);
        Comparing comparing = {shot->parts, shot->parts + Py_SIZE(shot), args[2]};
        int same = is_same_held(&comparing, PyList_GET_ITEM(args[1], at)) && comparing.next == comparing.end;
        Py_DECREF(shot);
        if (!same)
            break;
    }
    if (collects)
        PyGC_Enable();
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromSsize_t(at);
}

/* -- bytes that can change */

/* Nearly all parts of plain data are texts and numbers: they are passed over without a call. */
static inline int
may_hold_mutable(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyDict_Type || type == &PyList_Type || type == &PyByteArray_Type || type == &PyMemoryView_Type;
}

static int
holds_mutable(PyObject *value, int depth)
{
    int found = 0;
    if (depth > DEEPEST_PLAIN) {
        PyErr_SetString(PyExc_RecursionError, "plain data is nested too deep");
        return -1;
    }
    if (PyList_CheckExact(value)) {
        for (Py_ssize_t at = 0; !found && at < PyList_GET_SIZE(value); at++) {
            PyObject *part = PyList_GET_ITEM(value, at);
            if (may_hold_mutable(part))
                found = holds_mutable(part, depth + 1);
        }
        return found;
    }
    if (PyDict_CheckExact(value)) {
        PyObject *key, *part;
        Py_ssize_t at = 0;
        while (!found && PyDict_Next(value, &at, &key, &part))
            if (may_hold_mutable(part))
                found = holds_mutable(part, depth + 1);
        return found;
    }
    return may_hold_mutable(value);
}

PyDoc_STRVAR(holds_mutable_bytes_doc, "holds_mutable_bytes(value)\n--\n\n"
"Whether a bytearray or memoryview is inside, at any depth of lists and dicts. RecursionError below a thousand levels.");

static PyObject *
holds_mutable_bytes(PyObject *module, PyObject *value)
{
    int found = holds_mutable(value, 0);
    if (found < 0)
        return NULL;
    return PyBool_FromLong(found);
}

PyDoc_STRVAR(slot_offset_doc, "slot_offset(descriptor)\n--\n\n"
"Where an instance has the value of a slot: the offset of the member that the descriptor stands for.");

static PyObject *
slot_offset(PyObject *module, PyObject *descriptor)
{
    if (Py_TYPE(descriptor) != &PyMemberDescr_Type) {
        PyErr_SetString(PyExc_TypeError, "slot_offset() takes the descriptor of a slot");
        return NULL;
    }
    PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
    if (member->type != T_OBJECT_EX && member->type != T_OBJECT) {
        PyErr_SetString(PyExc_TypeError, "slot_offset() takes the descriptor of a slot that holds an object");
        return NULL;
    }
    return PyLong_FromSsize_t(member->offset);
}

/* -- packed bytes */

/* How many bytes a value has whose marker this is, without what it holds, or whose length the marker says; 0 for bytes
 * and for what msgpack does not have, and the number of bytes that tell a length, as a negative number. */
static int
size_of(unsigned char marker)
{
    static const signed char sizes[] = {
        /* c0 */ 1, 0, 1, 1, 0, 0, 0, -1, -2, -4, 5, 9, 2, 3, 5, 9,
        /* d0 */ 2, 3, 5, 9, 3, 4, 6, 10, 18, -1, -2, -4, 3, 5, 3, 5,
    };
    if (marker >= 0xe0 || marker < 0xa0)
        return 1;
    return marker < 0xc0 ? 1 + (marker & 31) : sizes[marker - 0xc0];
}

/* Whether bytes are among packed values that stand side by side; see `holds_bytes`. What is frequent is told by branches,
 * which a processor foresees: looking up each size would have it wait for the one before. */
int
bytes_are_within(const unsigned char *packed, size_t length)
{
    size_t at = 0;
    while (at < length) {
        unsigned char marker = packed[at];
        if (marker == 0xcb) {
            at += 9;
            continue;
        }
        if (marker < 0xa0 || marker >= 0xe0) {
            at++;
            continue;
        }
        if (marker < 0xc0) {
            at += 1 + (marker & 31);
            continue;
        }
        if (marker == 0xd9 && length - at > 1) {
            at += 2 + packed[at + 1];
            continue;
        }
        int size = size_of(marker);
        if (size > 0) {
            at += (size_t)size;
            continue;
        }
        size_t width = (size_t)-size, inside = 0;
        if (!size || length - at <= width)
            return 1;
        for (size_t place = 1; place <= width; place++)
            inside = inside << 8 | packed[at + place];
        if (inside > length - at)
            return 1; /* and the sum below cannot overflow */
        at += 1 + width + inside + (marker < 0xd0); /* an extension has its type beside its length */
    }
    return at != length; /* the last one is cut short */
}

PyDoc_STRVAR(holds_bytes_doc, "holds_bytes(packed)\n--\n\n"
"Whether msgpack's bytes are among values that stand side by side, at any depth; not within extensions. True for what is\n"
"cut short, or is not msgpack.");

static PyObject *
holds_bytes(PyObject *module, PyObject *packed)
{
    if (!PyBytes_CheckExact(packed)) {
        PyErr_SetString(PyExc_TypeError, "holds_bytes() takes bytes");
        return NULL;
    }
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(packed);
    return PyBool_FromLong(bytes_are_within(at, (size_t)PyBytes_GET_SIZE(packed)));
}

/* -- what a packer asks */

/* Answers for the objects that a packer does not know: moments in UTC and members that were packed before at once,
 * everything else by asking `other`. */
typedef struct {
    PyObject_HEAD
    PyObject *members; /* the id of a member -> what it is packed as */
    PyObject *other, *packb, *extension, *type, *header;
    vectorcallfunc call;
} Hook;

static PyObject *
packed_moment(Hook *hook, PyObject *moment)
{
    PyObject *made = NULL, *packed = PyObject_CallOneArg(hook->packb, moment);
    if (packed != NULL && PyBytes_CheckExact(packed)) {
        PyObject *content = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(hook->header) + PyBytes_GET_SIZE(packed));
        if (content != NULL) {
            char *into = PyBytes_AS_STRING(content);
            memcpy(into, PyBytes_AS_STRING(hook->header), (size_t)PyBytes_GET_SIZE(hook->header));
            memcpy(into + PyBytes_GET_SIZE(hook->header), PyBytes_AS_STRING(packed), (size_t)PyBytes_GET_SIZE(packed));
            PyObject *arguments[] = {hook->type, content};
            made = PyObject_Vectorcall(hook->extension, arguments, 2, NULL);
            Py_DECREF(content);
        }
    } else if (packed != NULL) {
        PyErr_SetString(PyExc_TypeError, "a moment was not packed to bytes");
    }
    Py_XDECREF(packed);
    return made;
}

static PyObject *
hook_call(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    Hook *hook = (Hook *)self;
    if (PyVectorcall_NARGS(count) != 1 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a hook takes one value");
        return NULL;
    }
    if (hook->members == NULL || hook->other == NULL || hook->packb == NULL || hook->extension == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the garbage collector has taken this hook apart");
        return NULL;
    }
    PyObject *value = arguments[0];
    if (Py_TYPE(value) == PyDateTimeAPI->DateTimeType) {
        int has_zone = ((PyDateTime_DateTime *)value)->hastzinfo;
        PyObject *zone = has_zone ? ((PyDateTime_DateTime *)value)->tzinfo : NULL;
        if ((zone == NULL || zone == PyDateTime_TimeZone_UTC) && !PyDateTime_DATE_GET_FOLD(value))
            return packed_moment(hook, value);
    } else {
        PyObject *id = PyLong_FromVoidPtr(value);
        if (id == NULL)
            return NULL;
        PyObject *member = PyDict_GetItemWithError(hook->members, id); /* borrowed */
        Py_DECREF(id);
        if (member != NULL || PyErr_Occurred())
            return Py_XNewRef(member);
    }
    return PyObject_CallOneArg(hook->other, value);
}

static int
hook_traverse(Hook *hook, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(hook));
    Py_VISIT(hook->members);
    Py_VISIT(hook->other);
    Py_VISIT(hook->packb);
    Py_VISIT(hook->extension);
    return 0;
}

static int
hook_clear(Hook *hook)
{
    Py_CLEAR(hook->members);
    Py_CLEAR(hook->other);
    Py_CLEAR(hook->packb);
    Py_CLEAR(hook->extension);
    return 0;
}

static void
hook_dealloc(Hook *hook)
{
    PyTypeObject *type = Py_TYPE(hook);
    PyObject_GC_UnTrack(hook);
    hook_clear(hook);
    Py_XDECREF(hook->type);
    Py_XDECREF(hook->header);
    type->tp_free(hook);
    Py_DECREF(type);
}

static PyMemberDef hook_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Hook, call), READONLY},
    {NULL},
};

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, hook_members},
    {Py_tp_doc, "Answers a packer that asks what to do with an object."},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "threadline.base.compiled.Hook",
    .basicsize = sizeof(Hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = hook_slots,
};

PyDoc_STRVAR(hook_doc, "hook(members, other, packb, extension, type, header)\n--\n\n"
"A function for a packer. A value whose id is in `members` is what stands there; a datetime in UTC, or without a zone,\n"
"is extension(type, header + packb(value)); for all else `other` is asked. Whoever makes it keeps the members alive.");

static PyObject *
make_hook(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6 || !PyDict_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[5])) {
        PyErr_SetString(PyExc_TypeError, "hook() takes a dict, three functions, a number and bytes");
        return NULL;
    }
    State *state = PyModule_GetState(module);
    Hook *hook = (Hook *)state->hook_type->tp_alloc(state->hook_type, 0);
    if (hook == NULL)
        return NULL;
    hook->members = Py_NewRef(arguments[0]);
    hook->other = Py_NewRef(arguments[1]);
    hook->packb = Py_NewRef(arguments[2]);
    hook->extension = Py_NewRef(arguments[3]);
    hook->type = Py_NewRef(arguments[4]);
    hook->header = Py_NewRef(arguments[5]);
    hook->call = hook_call;
    return (PyObject *)hook;
}

/* -- data objects of their states */

/* How instances of one class are built: a tuple that codec/data_classes.py makes. The descriptors are those of the
 * class, so that each checks what it is asked to set. Only models have the last five parts; others have None there. */
enum { CLASS, NAMES, DICT, GIVEN_SLOT, EXTRA_SLOT, PRIVATE_SLOT, GIVEN, HAS_EXTRA, PLAN_PARTS };

static int
is_plan(PyObject *plan)
{
    if (plan == NULL || !PyTuple_CheckExact(plan) || PyTuple_GET_SIZE(plan) != PLAN_PARTS)
        return 0;
    if (!PyType_Check(PyTuple_GET_ITEM(plan, CLASS)) || !PyFrozenSet_CheckExact(PyTuple_GET_ITEM(plan, NAMES)))
        return 0;
    if (Py_TYPE(PyTuple_GET_ITEM(plan, DICT)) != &PyGetSetDescr_Type)
        return 0;
    if (PyTuple_GET_ITEM(plan, GIVEN) == Py_None)
        return 1;
    for (int part = GIVEN_SLOT; part <= PRIVATE_SLOT; part++)
        if (Py_TYPE(PyTuple_GET_ITEM(plan, part)) != &PyMemberDescr_Type)
            return 0;
    return 1;
}

/* Whether a state has exactly these fields; -1 with an error set. */
static int
has_fields(PyObject *state, PyObject *names)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!PyDict_CheckExact(state) || PyDict_GET_SIZE(state) != PySet_GET_SIZE(names))
        return 0;
    while (PyDict_Next(state, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return 0; /* another key may have code that compares it */
        int found = PySet_Contains(names, key);
        if (found <= 0)
            return found;
    }
    return 1;
}

/* Set a part of an instance by the descriptor of its class; takes the reference to the value. */
static int
set_part(PyObject *plan, int part, PyObject *instance, PyObject *value)
{
    PyObject *descriptor = PyTuple_GET_ITEM(plan, part);
    int failed = value == NULL || Py_TYPE(descriptor)->tp_descr_set(descriptor, instance, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

static PyObject *
built_one(PyObject *plan, PyObject *state, PyObject *nothing)
{
    PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(plan, CLASS);
    PyObject *given = PyTuple_GET_ITEM(plan, GIVEN);
    PyObject *made = PyBaseObject_Type.tp_new(type, nothing, NULL);
    if (made == NULL)
        return NULL;
    if (given == Py_None) {
        /* Into the dict that it has, which shares its keys with those of other instances. */
        PyObject *descriptor = PyTuple_GET_ITEM(plan, DICT);
        PyObject *held = Py_TYPE(descriptor)->tp_descr_get(descriptor, made, (PyObject *)type);
        int failed = held == NULL || PyDict_Update(held, state) < 0;
        Py_XDECREF(held);
        if (failed)
            goto error;
        return made;
    }
    PyObject *extra = PyTuple_GET_ITEM(plan, HAS_EXTRA) == Py_True ? PyDict_New() : Py_NewRef(Py_None);
    if (set_part(plan, EXTRA_SLOT, made, extra) < 0 || set_part(plan, GIVEN_SLOT, made, PySet_New(given)) < 0 ||
        set_part(plan, PRIVATE_SLOT, made, Py_NewRef(Py_None)) < 0 ||
        set_part(plan, DICT, made, Py_NewRef(state)) < 0)
        goto error;
    return made;
error:
    Py_DECREF(made);
    return NULL;
}

PyDoc_STRVAR(built_doc, "built(names, states, plans)\n--\n\n"
"The instances of these states, each by the plan of its name; None where a state has other fields than its class.");

static PyObject *
built(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyDict_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "built() takes two lists and a dict");
        return NULL;
    }
    PyObject *names = args[0], *states = args[1], *plan = NULL, *name = NULL;
    Py_ssize_t length = PyList_GET_SIZE(names);
    if (length != PyList_GET_SIZE(states)) {
        PyErr_SetString(PyExc_ValueError, "there are more names than states, or fewer");
        return NULL;
    }
    PyObject *nothing = PyTuple_New(0), *made = PyList_New(0);
    if (nothing == NULL || made == NULL)
        goto error;
    /* A finalizer that the garbage collector runs in between could change the lists: their sizes are asked each time,
     * and what is looked at is held. */
    for (Py_ssize_t at = 0; at < length; at++) {
        if (at >= PyList_GET_SIZE(names) || at >= PyList_GET_SIZE(states)) {
            PyErr_SetString(PyExc_RuntimeError, "a list was changed while it was read");
            goto error;
        }
        PyObject *next = PyList_GET_ITEM(names, at);
        if (next != name) {
            PyObject *found = PyDict_GetItemWithError(args[2], next); /* borrowed */
            if (!is_plan(found)) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_ValueError, "there is no plan for a name");
                goto error;
            }
            Py_XSETREF(name, Py_NewRef(next));
            Py_XSETREF(plan, Py_NewRef(found));
        }
        PyObject *state = Py_NewRef(PyList_GET_ITEM(states, at));
        int fits = has_fields(state, PyTuple_GET_ITEM(plan, NAMES));
        PyObject *instance = fits > 0 ? built_one(plan, state, nothing) : NULL;
        Py_DECREF(state);
        if (fits == 0) {
            Py_SETREF(made, Py_NewRef(Py_None));
            break;
        }
        if (instance == NULL || PyList_Append(made, instance) < 0) {
            Py_XDECREF(instance);
            goto error;
        }
        Py_DECREF(instance);
    }
    Py_DECREF(nothing);
    Py_XDECREF(name);
    Py_XDECREF(plan);
    return made;
error:
    Py_XDECREF(nothing);
    Py_XDECREF(made);
    Py_XDECREF(name);
    Py_XDECREF(plan);
    return NULL;
}

/* -- files */

#ifndef _WIN32
#include <sys/stat.h>
#ifdef __APPLE__
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

PyDoc_STRVAR(times_of_doc, "times_of(name)\n--\n\n"
"Device, inode, and in nanoseconds when content and inode were changed, of what a name leads to; None where it cannot be\n"
"told. The name is given as bytes.");

static PyObject *
times_of(PyObject *module, PyObject *name)
{
    struct stat found;
    int failed;
    if (!PyBytes_CheckExact(name)) {
        PyErr_SetString(PyExc_TypeError, "times_of() takes bytes");
        return NULL;
    }
    /* The interpreter is kept: what others would do meanwhile takes longer than this, and it would have to wait for them. */
    failed = stat(PyBytes_AS_STRING(name), &found);
    if (failed)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "KKLL", (unsigned long long)found.st_dev, (unsigned long long)found.st_ino,
        (long long)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec,
        (long long)found.st_ctim.tv_sec * 1000000000 + found.st_ctim.tv_nsec);
}
#endif

#include "lanes.h"
#include "values.h"

static PyMethodDef methods[] = {
    {"built", (PyCFunction)(void (*)(void))built, METH_FASTCALL, built_doc},
    {"packed", (PyCFunction)(void (*)(void))packed, METH_FASTCALL, packed_doc},
    {"unchanged", (PyCFunction)(void (*)(void))unchanged, METH_FASTCALL, unchanged_doc},
    {"holds_bytes", holds_bytes, METH_O, holds_bytes_doc},
    {"holds_mutable_bytes", holds_mutable_bytes, METH_O, holds_mutable_bytes_doc},
    {"hook", (PyCFunction)(void (*)(void))make_hook, METH_FASTCALL, hook_doc},
    {"slot_offset", slot_offset, METH_O, slot_offset_doc},
#ifndef _WIN32
    {"times_of", times_of, METH_O, times_of_doc},
#endif
    {"hashed", hashed, METH_VARARGS, hashed_doc},
    {"values", (PyCFunction)(void (*)(void))values, METH_FASTCALL, values_doc},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL)
        return -1;
    state->hook_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    state->shot_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &shot_spec, NULL);
    if (state->hook_type == NULL || state->shot_type == NULL || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        return -1;
    if (straight_prepare(state) < 0 || PyModule_AddFunctions(module, straight_methods) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "LANES", lanes_here()) < 0)
        return -1;
    return PyModule_AddType(module, state->shot_type);
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->shot_type);
    Py_VISIT(state->hook_type);
    return 0;
}

static int
clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->shot_type);
    Py_CLEAR(state->hook_type);
    return 0;
}

static void
release(void *module)
{
    clear((PyObject *)module);
    State *state = PyModule_GetState((PyObject *)module);
    for (int place = 0; place < KEYS_HELD; place++)
        Py_CLEAR(state->keys[place]);
    straight_release(PyModule_GetState((PyObject *)module));
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "compiled",
    .m_doc = "Comparing values with what they were, looking through plain data, building data objects, and more. Optional.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = module_slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC
PyInit_compiled(void)
{
    return PyModuleDef_Init(&definition);
}
