/* What Python alone is slow at: comparing values with what they were, and looking through plain data.
 *
 * This module is optional: base/native.py loads it where it was built, and everything works without it.
 *
 * A *shot* remembers what one value consisted of. An immutable part (text, a number, True, None) is remembered as the
 * very object, which the shot holds, so that no other object can have its address. A list, tuple, dict or data object
 * is remembered by its type, how many parts it has, and those parts, in order; not by its address, because it can be
 * changed in place. So a value that consists of the same parts encodes to the same bytes. The reverse does not hold:
 * an equal text that is another object counts as changed, and whoever asks compares bytes then.
 *
 * Rules: no function here runs code of a program. Containers are read with their size checked at each step, and a part
 * is held while it is looked at: an allocation may run the garbage collector, and that finalizers.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* Values nested deeper, or with more parts, are left to the comparison by bytes. */
#define DEEPEST 32
#define MOST_PARTS 4096
/* Plain data that is nested deeper is left to Python, which needs no stack for it. */
#define DEEPEST_PLAIN 1000

/* The size of a part that is no container. */
#define IMMUTABLE (-1)

typedef struct {
    PyObject *object; /* the part itself, or the type of a container */
    Py_ssize_t size;
} Part;

typedef struct {
    PyObject_VAR_HEAD
    Part parts[1];
} Shot;

/* Where a pydantic model keeps what is not in its __dict__: offsets of its slots, 0 for none. */
typedef struct {
    Py_ssize_t extra, private_;
} Slots;

static void
shot_dealloc(Shot *shot)
{
    for (Py_ssize_t at = 0; at < Py_SIZE(shot); at++)
        Py_XDECREF(shot->parts[at].object);
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

typedef struct {
    PyTypeObject *shot_type;
} State;

static int
is_immutable(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
           value == Py_None;
}

/* The slots of a class that `classes` describes; 0 if it is not there. Such a description is a pair of numbers. */
static int
find_slots(PyObject *classes, PyTypeObject *type, Slots *slots)
{
    if (Py_TYPE(type)->tp_hash != PyType_Type.tp_hash)
        return 0; /* hashing the class would run code of its metaclass */
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
static int
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
} Taking;

static int
add(Taking *taking, PyObject *object, Py_ssize_t size)
{
    if (taking->count == MOST_PARTS)
        return 0;
    taking->parts[taking->count].object = Py_NewRef(object);
    taking->parts[taking->count++].size = size;
    return 1;
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
    if (!add(taking, (PyObject *)&PyDict_Type, size))
        return 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || !add(taking, key, IMMUTABLE) || !take_held(taking, value, depth + 1))
            return 0;
        seen++;
    }
    return seen == size && PyDict_GET_SIZE(dict) == size;
}

/* An object that has nothing to store but its __dict__. */
static int
take_object(Taking *taking, PyObject *value, int depth)
{
    Slots slots;
    if (depth || !find_slots(taking->classes, Py_TYPE(value), &slots))
        return 0;
    if (!is_without(value, slots.extra) || !is_without(value, slots.private_))
        return 0;
    if (!add(taking, (PyObject *)Py_TYPE(value), 1))
        return 0;
    PyObject *dict = PyObject_GenericGetDict(value, NULL);
    int done = dict != NULL && PyDict_CheckExact(dict) && take_dict(taking, dict, depth + 1);
    Py_XDECREF(dict);
    return done;
}

static int
take_value(Taking *taking, PyObject *value, int depth)
{
    if (is_immutable(value))
        return add(taking, value, IMMUTABLE);
    if (depth > DEEPEST)
        return 0;
    if (PyList_CheckExact(value)) {
        Py_ssize_t size = PyList_GET_SIZE(value);
        if (!add(taking, (PyObject *)&PyList_Type, size))
            return 0;
        for (Py_ssize_t at = 0; at < size; at++)
            if (at >= PyList_GET_SIZE(value) || !take_held(taking, PyList_GET_ITEM(value, at), depth + 1))
                return 0;
        return PyList_GET_SIZE(value) == size;
    }
    if (PyDict_CheckExact(value))
        return take_dict(taking, value, depth);
    if (PyTuple_CheckExact(value)) {
        Py_ssize_t size = PyTuple_GET_SIZE(value);
        if (!add(taking, (PyObject *)&PyTuple_Type, size))
            return 0;
        for (Py_ssize_t at = 0; at < size; at++)
            if (!take_value(taking, PyTuple_GET_ITEM(value, at), depth + 1))
                return 0;
        return 1;
    }
    return take_object(taking, value, depth);
}

static PyObject *
take_shot(State *state, Taking *taking, PyObject *value)
{
    taking->count = 0;
    Shot *shot = NULL;
    if (take_held(taking, value, 0)) {
        shot = PyObject_NewVar(Shot, state->shot_type, taking->count);
        if (shot != NULL) {
            memcpy(shot->parts, taking->parts, taking->count * sizeof(Part));
            taking->count = 0; /* the shot has the references now */
        }
    }
    while (taking->count)
        Py_DECREF(taking->parts[--taking->count].object);
    return (PyObject *)shot;
}

PyDoc_STRVAR(take_doc, "take(values, classes, start)\n--\n\n"
"Shots of the values of a list from a place on; None where one of them has parts that shots know nothing of.\n\n"
"`classes` has, for each class whose objects may be among the values, the offsets of two slots, or zeros.");

static PyObject *
take(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "take() takes a list, a dict and a number");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[2]);
    if (start < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "take() begins at 0 or later");
        return NULL;
    }
    PyObject *shots = PyList_New(0);
    Taking *taking = PyMem_Malloc(sizeof(Taking));
    if (shots == NULL || taking == NULL) {
        Py_XDECREF(shots);
        PyMem_Free(taking);
        return PyErr_NoMemory();
    }
    taking->classes = args[1];
    for (Py_ssize_t at = start; at < PyList_GET_SIZE(args[0]); at++) {
        PyObject *shot = take_shot(PyModule_GetState(module), taking, PyList_GET_ITEM(args[0], at));
        int added = shot != NULL && PyList_Append(shots, shot) == 0;
        Py_XDECREF(shot);
        if (!added) {
            Py_CLEAR(shots);
            break;
        }
    }
    PyMem_Free(taking);
    if (shots != NULL || PyErr_Occurred())
        return shots;
    Py_RETURN_NONE;
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
    if (PyTuple_CheckExact(value)) {
        if (PyTuple_GET_SIZE(value) != part->size)
            return 0;
        for (Py_ssize_t at = 0; at < part->size; at++)
            if (!is_same(comparing, PyTuple_GET_ITEM(value, at)))
                return 0;
        return 1;
    }
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
    for (; at < PyList_GET_SIZE(args[0]) && at < PyList_GET_SIZE(args[1]); at++) {
        Shot *shot = (Shot *)PyList_GET_ITEM(args[0], at);
        if (Py_TYPE(shot) != state->shot_type) {
            PyErr_SetString(PyExc_TypeError, "unchanged() takes a list of shots");
            return NULL;
        }
        Py_INCREF(shot);
        Comparing comparing = {shot->parts, shot->parts + Py_SIZE(shot), args[2]};
        int same = is_same_held(&comparing, PyList_GET_ITEM(args[1], at)) && comparing.next == comparing.end;
        Py_DECREF(shot);
        if (!same)
            break;
    }
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

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {"unchanged", (PyCFunction)(void (*)(void))unchanged, METH_FASTCALL, unchanged_doc},
    {"holds_mutable_bytes", holds_mutable_bytes, METH_O, holds_mutable_bytes_doc},
    {"slot_offset", slot_offset, METH_O, slot_offset_doc},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->shot_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &shot_spec, NULL);
    return state->shot_type == NULL ? -1 : PyModule_AddType(module, state->shot_type);
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->shot_type);
    return 0;
}

static int
clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->shot_type);
    return 0;
}

static void
release(void *module)
{
    clear((PyObject *)module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "compiled",
    .m_doc = "Comparing values with what they were, and looking through plain data. Optional.",
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
