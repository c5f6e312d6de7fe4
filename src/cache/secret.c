/* Key files and SipHash tags; see secret.h. As SipHash is defined, bytes are read as little-endian
 * numbers. */
#include "cache/secret.h"

#include "base/error.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static inline void add_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

void hr__mac_begin(struct hr__mac *tag, const struct hr__secret *secret)
{
    *tag = (struct hr__mac){.v = {
                                secret->key[0] ^ UINT64_C(0x736f6d6570736575),
                                secret->key[1] ^ UINT64_C(0x646f72616e646f6d),
                                secret->key[0] ^ UINT64_C(0x6c7967656e657261),
                                secret->key[1] ^ UINT64_C(0x7465646279746573),
                            }};
}

void hr__mac_add(struct hr__mac *tag, const void *bytes, size_t length)
{
    const uint8_t *at = bytes, *end = at + length;
    uint64_t v[4], word;
    /* Bytes that do not fill a word are kept in `tail`. */
    for (; at < end && tag->length % 8; tag->length++) {
        tag->tail |= (uint64_t)*at++ << (8 * (tag->length % 8));
        if (tag->length % 8 == 7) {
            add_word(tag->v, tag->tail);
            tag->tail = 0;
        }
    }
    memcpy(v, tag->v, sizeof v);
    for (; end - at >= 8; at += 8, tag->length += 8) {
        memcpy(&word, at, 8);
        add_word(v, le64toh(word));
    }
    memcpy(tag->v, v, sizeof v);
    for (; at < end; tag->length++)
        tag->tail |= (uint64_t)*at++ << (8 * (tag->length % 8));
}

uint64_t hr__mac_end(struct hr__mac *tag)
{
    add_word(tag->v, tag->tail | tag->length << 56);
    tag->v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(tag->v);
    return tag->v[0] ^ tag->v[1] ^ tag->v[2] ^ tag->v[3];
}

static uint64_t derive(const struct hr__secret *from, uint8_t number, const void *bytes,
                       size_t length)
{
    struct hr__mac tag;
    hr__mac_begin(&tag, from);
    hr__mac_add(&tag, &number, 1);
    hr__mac_add(&tag, bytes, length);
    return hr__mac_end(&tag);
}

uint64_t hr__secret_mark(const struct hr__secret *secret)
{
    static const char text[] = "headrace: which secret";
    return secret->is_set ? derive(secret, 2, text, sizeof text) | 1 : 0;
}

static int check_file(int fd, const char *path, struct hr_error *error)
{
    struct stat st;
    if (fstat(fd, &st))
        return hr__fail(error, -errno, "cannot look at key_file=%s: %s", path,
                        hr__errno_text(errno));
    if (!S_ISREG(st.st_mode))
        return hr__fail(error, -EINVAL, "key_file=%s is no file", path);
    if (st.st_mode & 077 || (st.st_uid != geteuid() && st.st_uid != 0))
        return hr__fail(error, -EACCES,
                        "key_file=%s can be read or changed by others, so it is no secret: make it "
                        "this user's (chown) and its owner's alone (chmod 600)",
                        path);
    return 0;
}

/* Derives the key from all bytes of the file: hashes them with the first bytes as the key. */
static int make_key(struct hr__secret *out, const uint8_t *bytes, size_t length)
{
    struct hr__secret first = {.is_set = 1};
    if (length < HR__KEY_LEAST)
        return -EINVAL;
    memcpy(first.key, bytes, sizeof first.key);
    first.key[0] = le64toh(first.key[0]);
    first.key[1] = le64toh(first.key[1]);
    out->key[0] = derive(&first, 0, bytes, length);
    out->key[1] = derive(&first, 1, bytes, length);
    out->is_set = 1;
    explicit_bzero(&first, sizeof first);
    return 0;
}

int hr__secret_read(struct hr__secret *out, const char *path, struct hr_error *error)
{
    uint8_t bytes[HR__KEY_MOST];
    size_t length = 0;
    ssize_t got = 0;
    *out = (struct hr__secret){.is_set = 0};
    if (!*path)
        return 0;
    /* O_NONBLOCK: do not wait if the file is a FIFO */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hr__fail(error, -errno, "cannot open key_file=%s: %s", path, hr__errno_text(errno));
    int r = check_file(fd, path, error);
    while (!r && length < sizeof bytes &&
           (got = read(fd, bytes + length, sizeof bytes - length)) > 0)
        length += (size_t)got;
    if (!r && got < 0)
        r = hr__fail(error, -errno, "cannot read key_file=%s: %s", path, hr__errno_text(errno));
    close(fd);
    if (!r && make_key(out, bytes, length))
        r = hr__fail(error, -EINVAL,
                     "key_file=%s has to have %d bytes or more: make one with `head -c 32 "
                     "/dev/urandom > FILE; chmod 600 FILE`",
                     path, HR__KEY_LEAST);
    explicit_bzero(bytes, sizeof bytes);
    return r;
}
