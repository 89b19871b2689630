/* BLAKE2b of many messages at a time, four or eight side by side: each lane of a vector has a message of its own.
 *
 * One message leaves most of a processor idle, because each step of BLAKE2b waits for the one before. Some that do not
 * depend on each other take hardly longer than one. Needs AVX2, or AVX-512 for eight, which is asked for when the module
 * is loaded; elsewhere LANES is 0, and whoever wants digests asks Python for each of them.
 */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define LANES 8 /* at most */
#define BLOCK 128
#define WITH_AVX2 __attribute__((target("avx2")))
#define WITH_AVX512 __attribute__((target("avx512f")))

static const uint64_t blake2b_iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const unsigned char blake2b_order[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

/* What is hashed: the key as a block of its own where there is one, the prefix, the content. */
typedef struct {
    const unsigned char *content, *prefix, *key;
    size_t size, prefix_size, key_size;
} Message;

typedef struct {
    uint64_t h[8][LANES], counted[LANES], is_last[LANES];
    const unsigned char *block[LANES];
} Lanes __attribute__((aligned(64)));

WITH_AVX2 static inline __m256i
turned(__m256i word, int by)
{
    return _mm256_or_si256(_mm256_srli_epi64(word, by), _mm256_slli_epi64(word, 64 - by));
}

#define MIX(a, b, c, d, x, y)                                                              \
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), x);                                       \
    d = _mm256_shuffle_epi32(_mm256_xor_si256(d, a), _MM_SHUFFLE(2, 3, 0, 1));             \
    c = _mm256_add_epi64(c, d);                                                            \
    b = _mm256_shuffle_epi8(_mm256_xor_si256(b, c), by24);                                 \
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), y);                                       \
    d = _mm256_shuffle_epi8(_mm256_xor_si256(d, a), by16);                                 \
    c = _mm256_add_epi64(c, d);                                                            \
    b = turned(_mm256_xor_si256(b, c), 63);

/* Take a block of each of four lanes in. */
WITH_AVX2 static void
compress_four(Lanes *lanes)
{
    const __m256i by24 = _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10,
                                          3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10);
    const __m256i by16 = _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9,
                                          2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9);
    __m256i m[16], v[16];
    for (int at = 0; at < 16; at += 4) {
        __m256i row[4];
        for (int lane = 0; lane < 4; lane++)
            row[lane] = _mm256_loadu_si256((const __m256i *)(lanes->block[lane] + 8 * at));
        __m256i low = _mm256_unpacklo_epi64(row[0], row[1]), high = _mm256_unpackhi_epi64(row[0], row[1]);
        __m256i low2 = _mm256_unpacklo_epi64(row[2], row[3]), high2 = _mm256_unpackhi_epi64(row[2], row[3]);
        m[at] = _mm256_permute2x128_si256(low, low2, 0x20);
        m[at + 1] = _mm256_permute2x128_si256(high, high2, 0x20);
        m[at + 2] = _mm256_permute2x128_si256(low, low2, 0x31);
        m[at + 3] = _mm256_permute2x128_si256(high, high2, 0x31);
    }
    for (int at = 0; at < 8; at++) {
        v[at] = _mm256_load_si256((const __m256i *)lanes->h[at]);
        v[at + 8] = _mm256_set1_epi64x((long long)blake2b_iv[at]);
    }
    v[12] = _mm256_xor_si256(v[12], _mm256_load_si256((const __m256i *)lanes->counted));
    v[14] = _mm256_xor_si256(v[14], _mm256_load_si256((const __m256i *)lanes->is_last));
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const unsigned char *order = blake2b_order[round];
        MIX(v[0], v[4], v[8], v[12], m[order[0]], m[order[1]])
        MIX(v[1], v[5], v[9], v[13], m[order[2]], m[order[3]])
        MIX(v[2], v[6], v[10], v[14], m[order[4]], m[order[5]])
        MIX(v[3], v[7], v[11], v[15], m[order[6]], m[order[7]])
        MIX(v[0], v[5], v[10], v[15], m[order[8]], m[order[9]])
        MIX(v[1], v[6], v[11], v[12], m[order[10]], m[order[11]])
        MIX(v[2], v[7], v[8], v[13], m[order[12]], m[order[13]])
        MIX(v[3], v[4], v[9], v[14], m[order[14]], m[order[15]])
    }
    for (int at = 0; at < 8; at++) {
        __m256i *h = (__m256i *)lanes->h[at];
        _mm256_store_si256(h, _mm256_xor_si256(_mm256_load_si256(h), _mm256_xor_si256(v[at], v[at + 8])));
    }
}

#define MIX_EIGHT(a, b, c, d, x, y)                                                        \
    a = _mm512_add_epi64(_mm512_add_epi64(a, b), x);                                       \
    d = _mm512_ror_epi64(_mm512_xor_si512(d, a), 32);                                      \
    c = _mm512_add_epi64(c, d);                                                            \
    b = _mm512_ror_epi64(_mm512_xor_si512(b, c), 24);                                      \
    a = _mm512_add_epi64(_mm512_add_epi64(a, b), y);                                       \
    d = _mm512_ror_epi64(_mm512_xor_si512(d, a), 16);                                      \
    c = _mm512_add_epi64(c, d);                                                            \
    b = _mm512_ror_epi64(_mm512_xor_si512(b, c), 63);

/* Words of eight rows, one of each row side by side: four of the rows' eight words, every other one from `first` on. */
WITH_AVX512 static inline void
turn_half(const __m512i *pairs, __m512i *words, int first)
{
    __m512i even = _mm512_shuffle_i64x2(pairs[0], pairs[1], 0x88), odd = _mm512_shuffle_i64x2(pairs[0], pairs[1], 0xdd);
    __m512i even2 = _mm512_shuffle_i64x2(pairs[2], pairs[3], 0x88), odd2 = _mm512_shuffle_i64x2(pairs[2], pairs[3], 0xdd);
    words[first] = _mm512_shuffle_i64x2(even, even2, 0x88);
    words[first + 2] = _mm512_shuffle_i64x2(odd, odd2, 0x88);
    words[first + 4] = _mm512_shuffle_i64x2(even, even2, 0xdd);
    words[first + 6] = _mm512_shuffle_i64x2(odd, odd2, 0xdd);
}

/* The same of eight lanes. */
WITH_AVX512 static void
compress_eight(Lanes *lanes)
{
    __m512i m[16], v[16];
    for (int at = 0; at < 16; at += 8) {
        __m512i low[4], high[4];
        for (int pair = 0; pair < 4; pair++) {
            __m512i one = _mm512_loadu_si512(lanes->block[2 * pair] + 8 * at);
            __m512i other = _mm512_loadu_si512(lanes->block[2 * pair + 1] + 8 * at);
            low[pair] = _mm512_unpacklo_epi64(one, other);
            high[pair] = _mm512_unpackhi_epi64(one, other);
        }
        turn_half(low, m + at, 0);
        turn_half(high, m + at, 1);
    }
    for (int at = 0; at < 8; at++) {
        v[at] = _mm512_load_si512(lanes->h[at]);
        v[at + 8] = _mm512_set1_epi64((long long)blake2b_iv[at]);
    }
    v[12] = _mm512_xor_si512(v[12], _mm512_load_si512(lanes->counted));
    v[14] = _mm512_xor_si512(v[14], _mm512_load_si512(lanes->is_last));
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const unsigned char *order = blake2b_order[round];
        MIX_EIGHT(v[0], v[4], v[8], v[12], m[order[0]], m[order[1]])
        MIX_EIGHT(v[1], v[5], v[9], v[13], m[order[2]], m[order[3]])
        MIX_EIGHT(v[2], v[6], v[10], v[14], m[order[4]], m[order[5]])
        MIX_EIGHT(v[3], v[7], v[11], v[15], m[order[6]], m[order[7]])
        MIX_EIGHT(v[0], v[5], v[10], v[15], m[order[8]], m[order[9]])
        MIX_EIGHT(v[1], v[6], v[11], v[12], m[order[10]], m[order[11]])
        MIX_EIGHT(v[2], v[7], v[8], v[13], m[order[12]], m[order[13]])
        MIX_EIGHT(v[3], v[4], v[9], v[14], m[order[14]], m[order[15]])
    }
    for (int at = 0; at < 8; at++)
        _mm512_store_si512(lanes->h[at], _mm512_xor_si512(_mm512_load_si512(lanes->h[at]), _mm512_xor_si512(v[at], v[at + 8])));
}

/* How many lanes the processor has. */
static int
lanes_here(void)
{
    return __builtin_cpu_supports("avx512f") ? 8 : __builtin_cpu_supports("avx2") ? 4 : 0;
}

/* The block of a message that begins at `done`: where it lies, or put together in `room`. */
static const unsigned char *
block_of(const Message *message, size_t done, unsigned char *room)
{
    size_t behind_key = message->key_size ? BLOCK : 0, before = behind_key + message->prefix_size;
    if (done >= before && done + BLOCK <= before + message->size)
        return message->content + (done - before);
    memset(room, 0, BLOCK);
    if (done < behind_key) {
        memcpy(room, message->key, message->key_size);
        return room;
    }
    size_t filled = 0;
    if (done < before) {
        filled = message->prefix_size;
        memcpy(room, message->prefix, filled);
    }
    size_t start = done + filled - before, left = message->size - start;
    if (left)
        memcpy(room + filled, message->content + start, left < BLOCK - filled ? left : BLOCK - filled);
    return room;
}

/* The digests of messages, of `digest_size` bytes each; the first words of the state are the parameters of all. */
static void
hash_messages(const Message *messages, unsigned char **digests, Py_ssize_t count, const uint64_t *first, size_t digest_size)
{
    const int here = count > 4 ? lanes_here() : 4;
    void (*compress)(Lanes *) = here == 8 ? compress_eight : compress_four;
    static const unsigned char nothing[BLOCK];
    unsigned char room[LANES][BLOCK];
    Py_ssize_t of_lane[LANES], next = 0;
    size_t done[LANES];
    Lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    for (int lane = 0; lane < LANES; lane++) {
        of_lane[lane] = -1;
        lanes.block[lane] = nothing;
    }
    for (;;) {
        int busy = 0;
        for (int lane = 0; lane < here; lane++) {
            if (of_lane[lane] < 0 && next < count) {
                of_lane[lane] = next++;
                done[lane] = 0;
                for (int at = 0; at < 8; at++)
                    lanes.h[at][lane] = first[at];
            }
            if (of_lane[lane] < 0)
                continue;
            busy = 1;
            const Message *message = &messages[of_lane[lane]];
            size_t total = (message->key_size ? BLOCK : 0) + message->prefix_size + message->size;
            lanes.block[lane] = block_of(message, done[lane], room[lane]);
            done[lane] += BLOCK;
            lanes.is_last[lane] = done[lane] >= total ? ~0ULL : 0;
            lanes.counted[lane] = done[lane] >= total ? total : done[lane];
        }
        if (!busy)
            return;
        compress(&lanes);
        for (int lane = 0; lane < here; lane++) {
            if (of_lane[lane] < 0 || !lanes.is_last[lane])
                continue;
            uint64_t words[8];
            for (int at = 0; at < 8; at++)
                words[at] = lanes.h[at][lane];
            memcpy(digests[of_lane[lane]], words, digest_size);
            of_lane[lane] = -1;
            lanes.block[lane] = nothing;
        }
    }
}

#else
#define LANES 0
static int
lanes_here(void)
{
    return 0;
}
#endif

PyDoc_STRVAR(hashed_doc, "hashed(contents, prefix, key, person, size)\n--\n\n"
"BLAKE2b of each of these bytes, with a prefix of at most 64 bytes before each. Only where LANES is not 0.");

static PyObject *
hashed(PyObject *module, PyObject *args)
{
#if LANES
    PyObject *given;
    const char *prefix, *key, *person;
    Py_ssize_t prefix_size, key_size, person_size, size;
    if (!PyArg_ParseTuple(args, "Oy#y#y#n", &given, &prefix, &prefix_size, &key, &key_size, &person, &person_size, &size))
        return NULL;
    if (!lanes_here() || prefix_size > 64 || key_size > 64 || person_size > 16 || size < 1 || size > 64) {
        PyErr_SetString(PyExc_ValueError, "hashed() cannot hash like this, or not on this machine");
        return NULL;
    }
    uint64_t first[8], words[2] = {0, 0};
    memcpy(first, blake2b_iv, sizeof first);
    memcpy(words, person, (size_t)person_size);
    first[0] ^= 0x01010000ULL ^ ((uint64_t)key_size << 8) ^ (uint64_t)size;
    first[6] ^= words[0];
    first[7] ^= words[1];
    PyObject *contents = PySequence_Tuple(given); /* holds them while other threads run */
    if (contents == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(contents);
    size_t total = 0;
    PyObject *found = PyList_New(count);
    Message *messages = PyMem_New(Message, (size_t)count);
    unsigned char **digests = PyMem_New(unsigned char *, (size_t)count);
    if (found == NULL)
        goto error;
    if (messages == NULL || digests == NULL) {
        PyErr_NoMemory();
        goto error;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *content = PyTuple_GET_ITEM(contents, at), *digest;
        if (!PyBytes_CheckExact(content)) {
            PyErr_SetString(PyExc_TypeError, "hashed() takes bytes");
            goto error;
        }
        if ((digest = PyBytes_FromStringAndSize(NULL, size)) == NULL)
            goto error;
        PyList_SET_ITEM(found, at, digest);
        digests[at] = (unsigned char *)PyBytes_AS_STRING(digest);
        messages[at] = (Message){(const unsigned char *)PyBytes_AS_STRING(content), (const unsigned char *)prefix,
                                 (const unsigned char *)key, (size_t)PyBytes_GET_SIZE(content), (size_t)prefix_size,
                                 (size_t)key_size};
        total += messages[at].size;
    }
    if (total > 1 << 16) {
        Py_BEGIN_ALLOW_THREADS
        hash_messages(messages, digests, count, first, (size_t)size);
        Py_END_ALLOW_THREADS
    } else
        hash_messages(messages, digests, count, first, (size_t)size);
    PyMem_Free(messages);
    PyMem_Free(digests);
    Py_DECREF(contents);
    return found;
error:
    PyMem_Free(messages);
    PyMem_Free(digests);
    Py_XDECREF(found);
    Py_DECREF(contents);
    return NULL;
#else
    PyErr_SetString(PyExc_ValueError, "hashed() cannot hash on this machine");
    return NULL;
#endif
}
