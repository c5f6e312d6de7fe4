"""A second implementation of an epoch's order, in plain Python, from the
definition: Philox4x32-10, the stream's key, Lemire's bounded draw, Fisher-Yates.

Prints the rows of golden_digests in tests/unit/order/test_order.c.
"""

M32 = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def words(seed, purpose, a, b):
    mixed = philox(
        [purpose & M32, purpose >> 32, a & M32, a >> 32], [seed & M32, seed >> 32]
    )
    block = 0
    while True:
        low, high = block & M32, block >> 32
        yield from philox([mixed[2] ^ low, mixed[3] ^ high, b & M32, b >> 32], mixed[:2])
        block += 1


def below(stream, n):
    while True:
        m = next(stream) * n
        if (m & M32) >= (1 << 32) % n:
            return m >> 32


def order(samples, seed, epoch):
    stream = words(seed, 1, epoch, 0)
    at = list(range(samples))
    for i in range(samples, 1, -1):
        j = below(stream, i)
        at[j], at[i - 1] = at[i - 1], at[j]
    return at


def digest(values):
    hash = 0xCBF29CE484222325
    for value in values:
        for byte in value.to_bytes(8, "little"):
            hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return hash


if __name__ == "__main__":
    for case in [(10, 0, 0), (1000, 0, 0), (1000, 0, 1), (4096, 2**63 + 5, 90), (100003, 42, 2**40)]:
        print("        {%d, %du, %du, 0x%016xu}," % (*case, digest(order(*case))))
