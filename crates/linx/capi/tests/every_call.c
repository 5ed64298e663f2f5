/* Tests that every call of linx.h works as documented. */
#include <errno.h>
#include <linx.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

union LINX_SIGNAL {
    LINX_SIGSELECT sig_no;
    char bytes[64];
};

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); \
            exit(1);                                                     \
        }                                                                \
    } while (0)

#define BASE 0x10000000

static union LINX_SIGNAL *signal_of(LINX *linx, LINX_SIGSELECT number) {
    union LINX_SIGNAL *sig = linx_alloc(linx, 32, number);
    CHECK(sig != LINX_NIL && sig->sig_no == number);
    return sig;
}

static LINX_SIGSELECT next(LINX *linx, LINX_SPID *from) {
    union LINX_SIGNAL *sig;
    LINX_SIGSELECT number;
    CHECK(linx_receive(linx, &sig, LINX_NO_SIG_SEL) >= 4);
    number = sig->sig_no;
    if (from != NULL) *from = linx_sender(linx, &sig);
    CHECK(linx_free_buf(linx, &sig) == 0 && sig == LINX_NIL);
    return number;
}

/*
 * On a node with the shared-memory transport: sends large signals from one endpoint of this thread to another and back.
 * They are larger than the channel, which nobody reads meanwhile, so sending a copy would never return.
 */
static void by_reference(const char *how) {
    const LINX_OSBUFSIZE size = 4 << 20;
    LINX *a = linx_open("a", 0, NULL), *b = linx_open("b", 0, NULL);
    union LINX_SIGNAL *sig, *kept;
    unsigned round;
    CHECK(a != NULL && b != NULL);
    sig = signal_of(a, BASE);
    CHECK(linx_send(a, &sig, linx_get_spid(b)) == 0 && next(b, NULL) == BASE);
    for (round = 1; round < 100; round++) {
        sig = linx_s_alloc(a, size, BASE + round, 0);
        CHECK(sig != LINX_NIL && linx_sigsize(a, &sig) == size);
        memset((char *)sig + 4, round, size - 4);
        if (strcmp(how, "shared-overrun") == 0) ((char *)sig)[size] = 1;
        CHECK(linx_send(a, &sig, linx_get_spid(b)) == 0 && sig == LINX_NIL);
        CHECK(linx_receive(b, &sig, LINX_NO_SIG_SEL) == (int)size && sig->sig_no == BASE + round);
        CHECK(((char *)sig)[4] == (char)round && ((char *)sig)[size - 1] == (char)round);
        CHECK(linx_sender(b, &sig) == linx_get_spid(a));
        CHECK(linx_set_sigsize(b, &sig, size - 1) == 0);
        if (strcmp(how, "shared-stranger") == 0) linx_free_buf(a, &sig);
        if (round % 3 == 0) {
            CHECK(linx_free_buf(b, &sig) == 0 && sig == LINX_NIL);
            continue;
        }
        sig->sig_no = BASE;
        CHECK(linx_send(b, &sig, linx_get_spid(a)) == 0 && sig == LINX_NIL);
        CHECK(linx_receive(a, &sig, LINX_NO_SIG_SEL) == (int)size - 1 && sig->sig_no == BASE);
        CHECK(((char *)sig)[size - 2] == (char)round && linx_free_buf(a, &sig) == 0);
    }
    sig = linx_s_alloc(a, 32, BASE, 0);
    sig->sig_no = 0;
    CHECK(linx_send(a, &sig, linx_get_spid(b)) == -1 && errno == EINVAL && sig == LINX_NIL);
    kept = linx_s_alloc(b, size, BASE, 0);
    CHECK(kept != LINX_NIL && linx_close(a) == 0 && linx_close(b) == 0);
    puts("shared signals held");
}

int main(int argc, char **argv) {
    static const LINX_SIGSELECT not_two[] = {(LINX_SIGSELECT)-1, BASE + 2};
    LINX *a, *b, *c;
    LINX_SPID of_a, of_b, of_c, from;
    LINX_OSATTREF attach;
    LINX_OSTMOREF tmo;
    LINX_NLREF links;
    union LINX_SIGNAL *sig;
    struct pollfd poller;
    int32_t oob[] = {LINX_SIG_OPT_OOB, 1, LINX_SIG_OPT_END};
    char *name, version[14];
    struct linx_info_stat *stat;
    unsigned char attribute[2];
    union LINX_SIGNAL *nothing;

    if (argc == 2 && strncmp(argv[1], "shared", 6) == 0) {
        alarm(60);
        by_reference(argv[1]);
        return 0;
    }
    CHECK(linx_get_version(NULL) == linx_get_version(version) && strlen(version) > 0);
    a = linx_open("a", 0, NULL);
    b = linx_open("b", 0, NULL);
    c = linx_open("c", 0, NULL);
    CHECK(a != NULL && b != NULL && c != NULL);
    of_a = linx_get_spid(a);
    of_b = linx_get_spid(b);
    of_c = linx_get_spid(c);
    errno = 0;
    CHECK(linx_open("a/b", 0, NULL) == NULL && errno == EINVAL);

    CHECK(linx_alloc(a, 3, BASE) == LINX_NIL && errno == EMSGSIZE);
    CHECK(linx_s_alloc(a, 3, BASE, 0) == LINX_NIL && errno == EMSGSIZE);
    /* It has not communicated with any endpoint yet, so this is an ordinary signal. */
    sig = linx_s_alloc(a, 32, BASE, 0);
    CHECK(sig != LINX_NIL && sig->sig_no == BASE && linx_sigsize(a, &sig) == 32);
    CHECK(linx_free_buf(a, &sig) == 0 && sig == LINX_NIL);
    sig = signal_of(a, BASE);
    if (argc == 2 && strcmp(argv[1], "overrun") == 0) ((char *)sig)[32] = 1;
    if (argc == 2 && strcmp(argv[1], "stranger") == 0) linx_send(b, &sig, of_a);
    CHECK(linx_sigsize(a, &sig) == 32);
    CHECK(linx_set_sigsize(a, &sig, 3) == -1 && errno == EMSGSIZE);
    memset((char *)sig + 4, 7, 28);
    CHECK(linx_set_sigsize(a, &sig, 33) == 0 && linx_sigsize(a, &sig) == 33 && sig->sig_no == BASE);
    CHECK(linx_set_sigsize(a, &sig, 1000) == 0 && linx_sigsize(a, &sig) == 1000);
    CHECK(((char *)sig)[31] == 7 && ((char *)sig)[32] == 0 && ((char *)sig)[999] == 0);
    CHECK(linx_set_sigsize(a, &sig, 8) == 0 && linx_sigsize(a, &sig) == 8);
    CHECK(linx_sender(a, &sig) == LINX_ILLEGAL_SPID);

    poller.fd = linx_get_descriptor(b);
    poller.events = POLLIN;
    CHECK(poller.fd >= 0);
    CHECK(linx_send(a, &sig, of_b) == 0 && sig == LINX_NIL);
    CHECK(poll(&poller, 1, 60000) == 1);
    CHECK(linx_receive_w_tmo(b, &sig, 60000, NULL) == 8);
    CHECK(sig->sig_no == BASE && linx_sender(b, &sig) == of_a);
    memset(attribute, 0x55, sizeof attribute);
    CHECK(linx_sigattr(b, (const union LINX_SIGNAL **)&sig, LINX_SIG_ATTR_OOB, (void **)attribute) == 0);
    CHECK(attribute[0] == 0xff && attribute[1] == 0x55);
    CHECK(linx_sigattr(b, (const union LINX_SIGNAL **)&sig, 2, (void **)attribute) == -1 && errno == EINVAL);
    /* A received signal that grows is still a received one. */
    CHECK(linx_set_sigsize(b, &sig, 64) == 0 && linx_sender(b, &sig) == of_a && sig->sig_no == BASE);
    CHECK(linx_free_buf(b, &sig) == 0);
    CHECK(linx_receive_w_tmo(b, &sig, 0, LINX_NO_SIG_SEL) == 0 && sig == LINX_NIL);

    sig = signal_of(a, BASE + 2);
    CHECK(linx_send(a, &sig, of_b) == 0);
    sig = signal_of(a, BASE + 3);
    CHECK(linx_send_w_s(a, &sig, of_c, of_b) == 0);
    CHECK(linx_receive(b, &sig, not_two) == 32 && sig->sig_no == BASE + 3);
    CHECK(linx_sender(b, &sig) == of_c && linx_free_buf(b, &sig) == 0);
    sig = signal_of(a, BASE + 4);
    CHECK(linx_send_w_opt(a, &sig, of_a, of_b, oob) == 0);
    CHECK(linx_receive_from(b, &sig, 100, LINX_NO_SIG_SEL, of_c) == 0);
    CHECK(linx_receive(b, &sig, LINX_NO_SIG_SEL) == 32 && sig->sig_no == BASE + 4);
    CHECK(linx_sigattr(b, (const union LINX_SIGNAL **)&sig, LINX_SIG_ATTR_OOB, (void **)attribute) == 0);
    CHECK(attribute[0] == 1);
    CHECK(linx_receive_from(b, &nothing, 0, NULL, of_c) == 0 && nothing == LINX_NIL);
    CHECK(linx_free_buf(b, &sig) == 0);
    CHECK(next(b, NULL) == BASE + 2);

    CHECK(linx_hunt(a, "late", NULL) == 0);
    sig = signal_of(a, BASE + 5);
    CHECK(linx_hunt_from(a, "b", &sig, of_c) == 0 && sig == LINX_NIL);
    CHECK(next(a, &from) == BASE + 5 && from == of_b);
    CHECK(linx_hunt(a, "no//path", NULL) == -1 && errno == EINVAL);

    tmo = linx_request_tmo(a, 1, NULL);
    CHECK(tmo != LINX_ILLEGAL_TMOREF && next(a, &from) == LINX_OS_TMO_SIG && from == of_a);
    CHECK(linx_cancel_tmo(a, &tmo) == -1 && errno == EINVAL);
    sig = signal_of(a, BASE + 6);
    tmo = linx_request_tmo(a, 1000000, &sig);
    CHECK(linx_modify_tmo(a, &tmo, 1) == 0 && next(a, NULL) == BASE + 6);
    tmo = linx_request_tmo(a, 1000000, NULL);
    CHECK(linx_cancel_tmo(a, &tmo) == 0 && tmo == LINX_ILLEGAL_TMOREF);
    links = linx_request_new_link(a, 0);
    CHECK(links != LINX_ILLEGAL_NLREF && linx_cancel_new_link(a, &links) == 0);

    CHECK(linx_get_name(a, of_b, &name) == 0 && strcmp(name, "b") == 0);
    CHECK(linx_free_name(a, &name) == 0 && name == NULL);
    CHECK(linx_get_owner(a, of_b) == getpid());
    CHECK(linx_get_owner(a, 0xffffff) == -1 && errno == EINVAL);

    /* b, whose numbers are known exactly, asks for its own. */
    CHECK(linx_get_stat(b, of_b, &stat) == 0 && stat->spid == of_b);
    CHECK(stat->no_sent_signals == 0 && stat->no_recv_local_signals == 4 && stat->no_recv_signals == 4);
    CHECK(stat->no_recv_local_bytes == 8 + 3 * 32 && stat->no_recv_bytes == 8 + 3 * 32);
    CHECK(stat->no_recv_remote_signals == 0 && stat->no_queued_signals == 0 && stat->no_queued_bytes == 0);
    CHECK(linx_free_stat(b, &stat) == 0 && stat == NULL && linx_free_stat(b, &stat) == -1);
    CHECK(linx_get_stat(a, of_a, &stat) == 0 && stat->no_sent_local_signals == 4);
    CHECK(stat->no_sent_local_bytes == 8 + 3 * 32 && linx_free_stat(a, &stat) == 0);
    /* This thread is not in a call of c, so that c does not report. */
    CHECK(linx_get_stat(a, of_c, &stat) == -1 && errno == ETIMEDOUT && stat == NULL);
    CHECK(linx_get_stat(a, 0xffffff, &stat) == -1 && errno == EINVAL);

    attach = linx_attach(a, NULL, of_c);
    CHECK(attach != LINX_ILLEGAL_ATTREF && linx_detach(a, &attach) == 0);
    CHECK(attach == LINX_ILLEGAL_ATTREF && linx_detach(a, &attach) == -1);
    CHECK(linx_attach(a, NULL, of_c) != LINX_ILLEGAL_ATTREF);
    CHECK(linx_close(c) == 0);
    CHECK(next(a, &from) == LINX_OS_ATTACH_SIG && from == of_c);
    sig = signal_of(a, BASE);
    CHECK(linx_send(a, &sig, of_c) == -1 && errno == ECONNRESET && sig == LINX_NIL);
    CHECK(linx_get_stat(a, of_c, &stat) == -1 && errno == ECONNRESET);
    CHECK(linx_close(a) == 0 && linx_close(b) == 0);
    puts("all calls held");
    return 0;
}
