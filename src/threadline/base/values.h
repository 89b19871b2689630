/* Packed values to Python's, in one pass: msgpack is unpacked, and objects are built of their states on the way.
 *
 * Strict, and not alone: whatever is not as it should be, or goes deeper than values usually do, ends the pass without a
 * result, and the codec takes its other way (codec/codec.py), which says what is wrong. So what this gives is what the
 * other way gives. An extension that no plan is known for is built by the function that the codec has for its name, or
 * given to the codec's hook.
 *
 * Bytes are hostile. Nothing is read behind their end, and nothing is allocated that they cannot fill: the values which
 * containers still lack, counted together, are no more than there are bytes left.
 */

/* A container is a level, an object is two. The other way goes deeper. */
#define DEEPEST_READ 100
/* So many names of types are looked up once. */
#define MOST_MADE 16
/* Keys that are longer are no names of fields. */
#define LONGEST_KEY 40
#define EXT_OBJECT 32

/* How objects of one name are built. */
typedef struct {
    PyObject *name, *builder, *plan;
    PyObject *keys, *template; /* the fields of the state before, and a dict that has them: the next is likely to be alike */
} Made;

typedef struct {
    const unsigned char *at, *end;
    size_t owed; /* values that containers lack, without the one that is read */
    int depth, collects, count;
    int is_alike; /* whether the map read last has the fields that were known */
    State *own;
    PyObject *builders, *together, *hook, *nothing;
    Made made[MOST_MADE];
} Reading;

static PyObject *read_value(Reading *reading);

/* What is called may be long, and may need the collector. */
static PyObject *
call_out(Reading *reading, PyObject *callable, PyObject *first, PyObject *second)
{
    if (reading->collects)
        PyGC_Enable();
    PyObject *found = PyObject_CallFunctionObjArgs(callable, first, second, NULL);
    if (reading->collects)
        reading->collects = PyGC_Disable();
    return found;
}

static inline size_t
left_of(const Reading *reading)
{
    return (size_t)(reading->end - reading->at);
}

/* A big-endian number of so many bytes, behind the marker; 0 where they are not there. */
static int
read_number(Reading *reading, int width, uint64_t *number)
{
    if (left_of(reading) < (size_t)width + 1)
        return 0;
    *number = 0;
    for (int place = 1; place <= width; place++)
        *number = *number << 8 | reading->at[place];
    reading->at += width + 1;
    return 1;
}

static PyObject *
read_text(Reading *reading, size_t size)
{
    if (size > left_of(reading))
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)reading->at, (Py_ssize_t)size, NULL);
    reading->at += size;
    return text;
}

/* How long a text is whose marker comes next; 0 where there is none. */
static int
size_of_text(Reading *reading, size_t *size)
{
    if (reading->at == reading->end)
        return 0;
    unsigned char marker = *reading->at;
    if (marker >= 0xa0 && marker < 0xc0) {
        *size = marker & 31;
        reading->at++;
        return 1;
    }
    uint64_t length;
    if (marker < 0xd9 || marker > 0xdb || !read_number(reading, 1 << (marker - 0xd9), &length))
        return 0;
    *size = (size_t)length;
    return 1;
}

static inline int
is_text(PyObject *text, const unsigned char *at, size_t size)
{
    return (size_t)PyUnicode_GET_LENGTH(text) == size && !memcmp(PyUnicode_DATA(text), at, size);
}

/* A key, the same object each time: few names are the keys of most dicts, and comparing shots asks for the object. */
static PyObject *
read_key(Reading *reading)
{
    size_t size;
    if (!size_of_text(reading, &size) || size > left_of(reading))
        return NULL;
    if (!size || size > LONGEST_KEY)
        return read_text(reading, size);
    const unsigned char *at = reading->at;
    unsigned int place = (unsigned int)size * 7;
    for (size_t byte = 0; byte < size; byte++)
        place = place * 33 + at[byte];
    PyObject **held = &reading->own->keys[place % KEYS_HELD];
    if (*held != NULL && is_text(*held, at, size)) {
        reading->at += size;
        return Py_NewRef(*held);
    }
    PyObject *key = read_text(reading, size);
    if (key != NULL && PyUnicode_IS_ASCII(key))
        Py_XSETREF(*held, Py_NewRef(key));
    return key;
}

/* Begin a container of so many values; 0 where there cannot be as many, or it stands too deep. */
static int
enter(Reading *reading, uint64_t count)
{
    size_t left = left_of(reading);
    if (count > left || reading->owed > left - (size_t)count || reading->depth >= DEEPEST_READ)
        return 0;
    reading->owed += (size_t)count;
    reading->depth++;
    return 1;
}

static PyObject *
read_array(Reading *reading, uint64_t count)
{
    if (!enter(reading, count))
        return NULL;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (Py_ssize_t at = 0; list != NULL && at < (Py_ssize_t)count; at++) {
        reading->owed--;
        PyObject *value = read_value(reading);
        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, at, value);
    }
    reading->depth--;
    return list;
}

/* The key that is expected next; NULL, and nothing is read, where it is another. */
static PyObject *
read_expected(Reading *reading, PyObject *key)
{
    const unsigned char *before = reading->at;
    size_t size;
    if (size_of_text(reading, &size) && size <= left_of(reading) && is_text(key, reading->at, size)) {
        reading->at += size;
        return Py_NewRef(key);
    }
    reading->at = before;
    return NULL;
}

/* A dict of the first entries of another. */
static PyObject *
first_of(PyObject *dict, Py_ssize_t count)
{
    PyObject *key, *value, *found = PyDict_New();
    Py_ssize_t at = 0;
    while (found != NULL && count-- && PyDict_Next(dict, &at, &key, &value))
        if (PyDict_SetItem(found, key, value) < 0)
            Py_CLEAR(found);
    return found;
}

/* A map; where the fields of an object are known, as a copy of the state before with other values. */
static PyObject *
read_map(Reading *reading, uint64_t count, Made *made)
{
    if (count > left_of(reading) || !enter(reading, 2 * count))
        return NULL;
    PyObject *keys = made != NULL && made->keys != NULL && (uint64_t)PyTuple_GET_SIZE(made->keys) == count
                         ? Py_NewRef(made->keys) : NULL;
    PyObject *dict = keys == NULL ? PyDict_New() : PyDict_Copy(made->template);
    for (Py_ssize_t place = 0; dict != NULL && place < (Py_ssize_t)count; place++) {
        reading->owed -= 2;
        PyObject *key = keys == NULL ? NULL : read_expected(reading, PyTuple_GET_ITEM(keys, place));
        if (key == NULL && keys != NULL) {
            Py_SETREF(dict, first_of(dict, place));
            Py_CLEAR(keys);
        }
        if (key == NULL && dict != NULL)
            key = read_key(reading);
        PyObject *value = key == NULL ? NULL : read_value(reading);
        if (value == NULL || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    reading->is_alike = keys != NULL;
    Py_XDECREF(keys);
    reading->depth--;
    return dict;
}

/* How many entries a map has that comes next; 0 where no map with entries does. */
static int
read_map_header(Reading *reading, uint64_t *count)
{
    if (reading->at == reading->end)
        return 0;
    unsigned char marker = *reading->at;
    if (marker > 0x80 && marker < 0x90) {
        *count = marker & 15;
        reading->at++;
        return 1;
    }
    return (marker == 0xde || marker == 0xdf) && read_number(reading, marker == 0xde ? 2 : 4, count);
}

/* Note the fields of a state, where all names are plain, for those that follow. */
static int
note_fields(Made *made, PyObject *state)
{
    PyObject *key, *value, *template = PyDict_New();
    Py_ssize_t at = 0;
    if (template == NULL)
        return -1;
    while (PyDict_Next(state, &at, &key, &value))
        if (!PyUnicode_IS_ASCII(key) || PyDict_SetItem(template, key, Py_None) < 0) {
            Py_DECREF(template);
            return PyErr_Occurred() ? -1 : 0;
        }
    PyObject *keys = PyDict_Keys(template);
    Py_XSETREF(made->keys, keys == NULL ? NULL : PyList_AsTuple(keys));
    Py_XDECREF(keys);
    Py_XSETREF(made->template, template);
    return made->keys == NULL ? -1 : 0;
}

/* How objects of a name are built; NULL where the codec has no function for it yet. */
static Made *
find_made(Reading *reading, const unsigned char *name, size_t size)
{
    for (int place = 0; place < reading->count; place++) {
        Made *made = &reading->made[place];
        if ((size_t)PyBytes_GET_SIZE(made->name) == size && !memcmp(PyBytes_AS_STRING(made->name), name, size))
            return made;
    }
    if (reading->count == MOST_MADE)
        return NULL;
    PyObject *key = PyBytes_FromStringAndSize((const char *)name, (Py_ssize_t)size);
    PyObject *builder = key == NULL ? NULL : PyDict_GetItemWithError(reading->builders, key); /* borrowed */
    if (builder == NULL) {
        Py_XDECREF(key);
        return NULL;
    }
    Made *made = &reading->made[reading->count];
    *made = (Made){key, Py_NewRef(builder), NULL, NULL, NULL};
    reading->count++;
    if ((PyObject *)Py_TYPE(builder) == reading->together) {
        made->plan = PyObject_GetAttrString(builder, "plan");
        if (made->plan == NULL)
            return NULL;
        if (!is_plan(made->plan))
            Py_CLEAR(made->plan);
    }
    return made;
}

/* The object of a state that comes next. */
static PyObject *
read_state(Reading *reading, Made *made)
{
    uint64_t count;
    PyObject *state, *found = NULL;
    int fits = 0;
    if (made->plan != NULL && read_map_header(reading, &count)) {
        state = read_map(reading, count, made);
        fits = state != NULL && (reading->is_alike || has_fields(state, PyTuple_GET_ITEM(made->plan, NAMES)) > 0);
        if (fits && !reading->is_alike && note_fields(made, state) < 0)
            Py_CLEAR(state);
    } else
        state = read_value(reading);
    if (state != NULL && !PyErr_Occurred())
        found = fits ? built_one(made->plan, state, reading->nothing) : call_out(reading, made->builder, state, NULL);
    Py_XDECREF(state);
    return found;
}

static PyObject *
read_object(Reading *reading, const unsigned char *stop)
{
    const unsigned char *name = reading->at + 1, *end = reading->end;
    size_t size = *reading->at, owed = reading->owed;
    if ((size_t)(stop - name) < size || reading->depth + 2 > DEEPEST_READ)
        return NULL;
    Made *made = find_made(reading, name, size);
    if (made == NULL)
        return NULL;
    reading->at = name + size;
    reading->end = stop;
    reading->owed = 0;
    reading->depth += 2;
    PyObject *found = read_state(reading, made);
    reading->depth -= 2;
    if (reading->at != stop)
        Py_CLEAR(found);
    reading->end = end;
    reading->owed = owed;
    return found;
}

/* An extension with a content of so many bytes, whose type comes next. */
static PyObject *
read_extension(Reading *reading, uint64_t size)
{
    if (left_of(reading) < 1 || size > left_of(reading) - 1)
        return NULL;
    int code = (signed char)*reading->at++;
    const unsigned char *start = reading->at, *stop = start + size;
    if (code == EXT_OBJECT && size) {
        PyObject *found = read_object(reading, stop);
        if (found != NULL || PyErr_Occurred() || reading->at != start)
            return found;
    }
    PyObject *content = PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size), *found = NULL;
    PyObject *type = PyLong_FromLong(code);
    if (content != NULL && type != NULL)
        found = call_out(reading, reading->hook, type, content);
    Py_XDECREF(content);
    Py_XDECREF(type);
    reading->at = stop;
    return found;
}

static PyObject *
read_float(Reading *reading, int width)
{
    uint64_t bits;
    if (!read_number(reading, width, &bits))
        return NULL;
    if (width == 8) {
        double number;
        memcpy(&number, &bits, sizeof number);
        return PyFloat_FromDouble(number);
    }
    uint32_t low = (uint32_t)bits;
    float number;
    memcpy(&number, &low, sizeof number);
    return PyFloat_FromDouble(number);
}

static PyObject *
read_integer(Reading *reading, int width, int is_signed)
{
    uint64_t bits;
    if (!read_number(reading, width, &bits))
        return NULL;
    if (!is_signed)
        return PyLong_FromUnsignedLongLong(bits);
    int shift = 64 - 8 * width;
    return PyLong_FromLongLong((int64_t)(bits << shift) >> shift);
}

static PyObject *
read_bytes(Reading *reading, int width)
{
    uint64_t size;
    if (!read_number(reading, width, &size) || size > left_of(reading))
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize((const char *)reading->at, (Py_ssize_t)size);
    reading->at += size;
    return found;
}

/* The next value; NULL without an error where it is nothing for this pass. */
static PyObject *
read_value(Reading *reading)
{
    uint64_t size;
    if (reading->at == reading->end)
        return NULL;
    unsigned char marker = *reading->at;
    if (marker < 0x80 || marker >= 0xe0) {
        reading->at++;
        return PyLong_FromLong((signed char)marker);
    }
    if (marker < 0xc0) {
        reading->at++;
        if (marker >= 0xa0)
            return read_text(reading, marker & 31);
        return marker < 0x90 ? read_map(reading, marker & 15, NULL) : read_array(reading, marker & 15);
    }
    switch (marker) {
    case 0xc0:
        reading->at++;
        return Py_NewRef(Py_None);
    case 0xc2:
    case 0xc3:
        reading->at++;
        return PyBool_FromLong(marker & 1);
    case 0xc4: case 0xc5: case 0xc6:
        return read_bytes(reading, 1 << (marker - 0xc4));
    case 0xc7: case 0xc8: case 0xc9:
        return read_number(reading, 1 << (marker - 0xc7), &size) ? read_extension(reading, size) : NULL;
    case 0xca: case 0xcb:
        return read_float(reading, marker == 0xca ? 4 : 8);
    case 0xcc: case 0xcd: case 0xce: case 0xcf:
        return read_integer(reading, 1 << (marker - 0xcc), 0);
    case 0xd0: case 0xd1: case 0xd2: case 0xd3:
        return read_integer(reading, 1 << (marker - 0xd0), 1);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
        reading->at++;
        return read_extension(reading, 1 << (marker - 0xd4));
    case 0xd9: case 0xda: case 0xdb:
        return read_number(reading, 1 << (marker - 0xd9), &size) ? read_text(reading, (size_t)size) : NULL;
    case 0xdc: case 0xdd:
        return read_number(reading, marker == 0xdc ? 2 : 4, &size) ? read_array(reading, size) : NULL;
    case 0xde: case 0xdf:
        return read_number(reading, marker == 0xde ? 2 : 4, &size) ? read_map(reading, size, NULL) : NULL;
    }
    return NULL;
}

/* A value that stands behind a header: the name of its type with its length, or nothing. */
static PyObject *
read_headed(Reading *reading, PyObject *head)
{
    if (!PyBytes_CheckExact(head))
        return NULL;
    size_t size = (size_t)PyBytes_GET_SIZE(head);
    if (!size)
        return read_value(reading);
    const unsigned char *name = (const unsigned char *)PyBytes_AS_STRING(head);
    if (*name + (size_t)1 != size || (size == 2 && name[1] == '*'))
        return NULL;
    Made *made = find_made(reading, name + 1, size - 1);
    if (made == NULL)
        return NULL;
    reading->depth = 2;
    PyObject *found = read_state(reading, made);
    reading->depth = 0;
    return found;
}

/* All values of some parts: one of each, or one for each header side by side. NULL where they cannot be read. */
static PyObject *
read_parts(Reading *reading, PyObject *parts, PyObject *heads)
{
    Py_ssize_t count = heads == NULL ? PyTuple_GET_SIZE(parts) : PyTuple_GET_SIZE(heads), next = 0;
    PyObject *values = PyList_New(0);
    for (Py_ssize_t at = 0; values != NULL && at < PyTuple_GET_SIZE(parts); at++) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(parts, at), &buffer, PyBUF_SIMPLE) < 0) {
            Py_CLEAR(values);
            break;
        }
        reading->at = buffer.buf;
        reading->end = reading->at + buffer.len;
        do {
            if (heads == NULL ? reading->at == reading->end : next == count || reading->at == reading->end)
                break;
            reading->owed = 0;
            reading->depth = 0;
            PyObject *value = heads == NULL ? read_value(reading) : read_headed(reading, PyTuple_GET_ITEM(heads, next));
            if (value == NULL || PyList_Append(values, value) < 0)
                Py_CLEAR(values);
            Py_XDECREF(value);
            next++;
        } while (values != NULL && heads != NULL);
        if (reading->at != reading->end)
            Py_CLEAR(values);
        PyBuffer_Release(&buffer);
    }
    if (next != count)
        Py_CLEAR(values);
    return values;
}

PyDoc_STRVAR(values_doc, "values(parts, heads, builders, together, hook)\n--\n\n"
"The values of packed bytes: one of each part, or, side by side in the parts, one for each of the headers (type names\n"
"with their length; empty for what is no object). `builders` has a function for each name of a type, which is given a\n"
"state; where it is a `together` with a plan, the object is built by that. All other extensions are asked of the hook.\n"
"None where that goes wrong, or values are unusual: then another way must be taken.");

static PyObject *
values(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyList_CheckExact(args[0]) || (args[1] != Py_None && !PyList_CheckExact(args[1])) ||
        !PyDict_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "values() takes two lists, a dict, a type and a function");
        return NULL;
    }
    Reading reading = {.own = PyModule_GetState(module), .builders = args[2], .together = args[3], .hook = args[4]};
    PyObject *parts = PyList_AsTuple(args[0]), *found = NULL;
    PyObject *heads = parts == NULL || args[1] == Py_None ? NULL : PyList_AsTuple(args[1]);
    reading.nothing = PyTuple_New(0);
    if (parts != NULL && reading.nothing != NULL && (heads != NULL || args[1] == Py_None)) {
        reading.collects = PyGC_Disable();
        found = read_parts(&reading, parts, heads);
        if (reading.collects)
            PyGC_Enable();
    }
    while (reading.count) {
        Made *made = &reading.made[--reading.count];
        Py_DECREF(made->name);
        Py_DECREF(made->builder);
        Py_XDECREF(made->plan);
        Py_XDECREF(made->keys);
        Py_XDECREF(made->template);
    }
    Py_XDECREF(parts);
    Py_XDECREF(heads);
    Py_XDECREF(reading.nothing);
    if (found != NULL || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)))
        return found;
    PyErr_Clear();
    Py_RETURN_NONE;
}
