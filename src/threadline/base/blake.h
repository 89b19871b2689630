/* BLAKE2b of one short message, in parts: rows and items of a usual put are hashed where they are made.
 *
 * The same as `hashlib.blake2b`, without an object for each hash. Messages of many kilobytes are for hashlib, or for the
 * vectors of lanes.h. RFC 7693 has the algorithm.
 */

#define HASH_BLOCK 128
#define MOST_KEY_BYTES 64

typedef struct {
    uint64_t h[8], counted;
    unsigned char block[HASH_BLOCK];
    size_t filled;
} Hash;

static const uint64_t hash_iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static inline uint64_t
word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint64_t
rotated(uint64_t word, int by)
{
    return word >> by | word << (64 - by);
}

#define STIR(a, b, c, d, x, y)        \
    a = a + b + x;                    \
    d = rotated(d ^ a, 32);           \
    c = c + d;                        \
    b = rotated(b ^ c, 24);           \
    a = a + b + y;                    \
    d = rotated(d ^ a, 16);           \
    c = c + d;                        \
    b = rotated(b ^ c, 63);

#define ROUND(i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, ia, ib, ic, id, ie, if_) \
    STIR(v[0], v[4], v[8], v[12], m[i0], m[i1])                               \
    STIR(v[1], v[5], v[9], v[13], m[i2], m[i3])                               \
    STIR(v[2], v[6], v[10], v[14], m[i4], m[i5])                              \
    STIR(v[3], v[7], v[11], v[15], m[i6], m[i7])                              \
    STIR(v[0], v[5], v[10], v[15], m[i8], m[i9])                              \
    STIR(v[1], v[6], v[11], v[12], m[ia], m[ib])                              \
    STIR(v[2], v[7], v[8], v[13], m[ic], m[id])                               \
    STIR(v[3], v[4], v[9], v[14], m[ie], m[if_])

static void
hash_block(Hash *hash, const unsigned char *block, int is_last)
{
    uint64_t m[16], v[16];
    for (int at = 0; at < 16; at++)
        m[at] = word_at(block + 8 * at);
    for (int at = 0; at < 8; at++) {
        v[at] = hash->h[at];
        v[at + 8] = hash_iv[at];
    }
    v[12] ^= hash->counted;
    v[14] ^= is_last ? ~0ULL : 0;
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
    for (int at = 0; at < 8; at++)
        hash->h[at] ^= v[at] ^ v[at + 8];
}

static void
hash_part(Hash *hash, const void *part, size_t size)
{
    const unsigned char *at = part;
    while (size) {
        if (hash->filled == HASH_BLOCK) { /* and more follows, so it is not the last */
            hash->counted += HASH_BLOCK;
            hash_block(hash, hash->block, 0);
            hash->filled = 0;
        }
        while (!hash->filled && size > HASH_BLOCK) {
            hash->counted += HASH_BLOCK;
            hash_block(hash, at, 0);
            at += HASH_BLOCK;
            size -= HASH_BLOCK;
        }
        size_t taken = HASH_BLOCK - hash->filled < size ? HASH_BLOCK - hash->filled : size;
        memcpy(hash->block + hash->filled, at, taken);
        hash->filled += taken;
        at += taken;
        size -= taken;
    }
}

/* Begin a hash of so many bytes, under a key of at most 64 bytes and a person of at most 8. */
static void
hash_begin(Hash *hash, size_t digest_size, const char *person, const void *key, size_t key_size)
{
    unsigned char named[8] = {0};
    memcpy(hash->h, hash_iv, sizeof hash->h);
    memcpy(named, person, strlen(person));
    hash->h[0] ^= 0x01010000ULL ^ ((uint64_t)key_size << 8) ^ (uint64_t)digest_size;
    hash->h[6] ^= word_at(named);
    hash->counted = hash->filled = 0;
    if (key_size) {
        unsigned char first[HASH_BLOCK] = {0};
        memcpy(first, key, key_size);
        hash_part(hash, first, sizeof first);
    }
}

static void
hash_end(Hash *hash, unsigned char *digest, size_t digest_size)
{
    hash->counted += hash->filled;
    memset(hash->block + hash->filled, 0, HASH_BLOCK - hash->filled);
    hash_block(hash, hash->block, 1);
    for (size_t at = 0; at < digest_size; at++)
        digest[at] = (unsigned char)(hash->h[at / 8] >> (8 * (at % 8)));
}
