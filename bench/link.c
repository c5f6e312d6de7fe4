/*
 * A link between two network namespaces, with a rate and a delay, for kernels without netem.
 *
 *   bench_link NAMESPACE NAMESPACE BITS_A_SECOND DELAY_US QUEUE_MS
 *
 * Makes a TUN device "far0" in each namespace, prints a line, and passes packets between them until
 * its standard input ends: each direction has the rate, a queue of so many milliseconds that drops
 * what does not fit, and the delay. The kernel hands over large TCP segments (TSO), which count as
 * the packets that a real device would make of them, with Ethernet's headers and gaps. So TCP
 * behaves as over a real link, and the cost is some thousand system calls a second. Packets are
 * lost only for this link's queue: the devices' own are long, and this process runs before others.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PACKET_BYTES (65536 + 256)
#define PACKETS      4096 /* of a direction, in its queue and on the way */
#define FRAME_BYTES  38   /* preamble, Ethernet's header and checksum, gap */
#define HEADER_BYTES 66   /* IP's and TCP's, repeated with each segment, and those of a frame */

/* Of a device's own queue, which drops without a word what does not fit; 500 unless told. */
#define DEVICE_PACKETS 20000

struct link_packet {
    uint64_t due_ns;
    size_t length;
    char *bytes; /* PACKET_BYTES, allocated at its first use */
};

struct link_direction {
    int from, to;
    uint64_t free_ns; /* when the link has sent all that it was given */
    size_t first, count;
    uint64_t dropped;
    struct link_packet packets[PACKETS];
};

static double ns_per_byte;
static uint64_t delay_ns, queue_ns;

static void die(const char *what)
{
    fprintf(stderr, "bench_link: %s: %s\n", what, strerror(errno));
    exit(3);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int open_device(const char *namespace)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET))
        die(path);
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(request.ifr_name, sizeof request.ifr_name, "far0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
        die("/dev/net/tun");
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_qlen = DEVICE_PACKETS;
    if (any < 0 || ioctl(any, SIOCSIFTXQLEN, &request))
        die("the device's queue");
    close(any);
    return fd;
}

/* Returns the bytes that a packet takes on the wire. */
static size_t wire_bytes(const struct link_packet *p)
{
    struct virtio_net_hdr head;
    memcpy(&head, p->bytes, sizeof head);
    size_t bytes = p->length - sizeof head, segments = 1;
    if (head.gso_type != VIRTIO_NET_HDR_GSO_NONE && head.gso_size && bytes > head.hdr_len)
        segments = (bytes - head.hdr_len + head.gso_size - 1) / head.gso_size;
    return bytes + FRAME_BYTES + (segments - 1) * (HEADER_BYTES + FRAME_BYTES);
}

static void take(struct link_direction *d)
{
    while (d->count < PACKETS) {
        struct link_packet *p = &d->packets[(d->first + d->count) % PACKETS];
        if (!p->bytes && !(p->bytes = malloc(PACKET_BYTES)))
            die("a packet");
        ssize_t got = read(d->from, p->bytes, PACKET_BYTES);
        if (got < (ssize_t)sizeof(struct virtio_net_hdr))
            return;
        uint64_t now = now_ns();
        p->length = (size_t)got;
        if (d->free_ns < now)
            d->free_ns = now;
        if (d->free_ns - now > queue_ns) {
            d->dropped++;
            continue;
        }
        d->free_ns += (uint64_t)((double)wire_bytes(p) * ns_per_byte);
        p->due_ns = d->free_ns + delay_ns;
        d->count++;
    }
}

/* Delivers what is due. Returns when the next packet is, or UINT64_MAX. */
static uint64_t give(struct link_direction *d)
{
    uint64_t now = now_ns();
    while (d->count && d->packets[d->first].due_ns <= now) {
        struct link_packet *p = &d->packets[d->first];
        if (write(d->to, p->bytes, p->length) < 0)
            d->dropped++;
        d->first = (d->first + 1) % PACKETS;
        d->count--;
    }
    return d->count ? d->packets[d->first].due_ns : UINT64_MAX;
}

int main(int argc, char **argv)
{
    static struct link_direction ways[2];
    if (argc != 6) {
        fprintf(stderr, "bench_link NAMESPACE NAMESPACE BITS_A_SECOND DELAY_US QUEUE_MS\n");
        return 2;
    }
    ns_per_byte = 8e9 / atof(argv[3]);
    delay_ns = (uint64_t)atoll(argv[4]) * 1000;
    queue_ns = (uint64_t)atoll(argv[5]) * 1000000;
    int a = open_device(argv[1]), b = open_device(argv[2]);
    ways[0].from = ways[1].to = a;
    ways[0].to = ways[1].from = b;
    /* A link does not wait for a core. Where this is not allowed, it may. */
    (void)sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t due = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            uint64_t next = give(&ways[i]);
            due = next < due ? next : due;
        }
        /* a device whose queue is full is not read */
        struct pollfd fds[3] = {{.fd = ways[0].count < PACKETS ? a : -1, .events = POLLIN},
                                {.fd = ways[1].count < PACKETS ? b : -1, .events = POLLIN},
                                {.fd = 0, .events = POLLIN}};
        uint64_t now = now_ns(), left = due > now ? due - now : 0;
        struct timespec wait = {.tv_sec = (time_t)(left / 1000000000),
                                .tv_nsec = (long)(left % 1000000000)};
        if (ppoll(fds, 3, due == UINT64_MAX ? NULL : &wait, NULL) < 0 && errno != EINTR)
            die("ppoll");
        if (fds[2].revents)
            break;
        for (int i = 0; i < 2; i++)
            if (fds[i].revents)
                take(&ways[i]);
    }
    printf("%llu dropped\n", (unsigned long long)(ways[0].dropped + ways[1].dropped));
    return 0;
}
