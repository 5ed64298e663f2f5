/* A server that answers requests, and a client that finds it, whichever starts first. If the server dies, the client
 * finds the next one that is started.
 *
 *     crossway linx node &
 *     cc basic.c -lcrossway_linx -o basic
 *     ./basic server & ./basic client */
#include <linx.h>
#include <stdio.h>
#include <string.h>

#define REQUEST 0x10000000
#define REPLY 0x10000001

struct request {
    LINX_SIGSELECT sig_no;
    uint32_t number;
};

union LINX_SIGNAL {
    LINX_SIGSELECT sig_no;
    struct request request;
};

static int server(void) {
    LINX *linx = linx_open("example_server", 0, NULL);
    if (linx == NULL) {
        perror("linx_open");
        return 1;
    }
    for (;;) {
        union LINX_SIGNAL *sig;
        LINX_SPID client;
        if (linx_receive(linx, &sig, LINX_NO_SIG_SEL) == -1) return 0;
        client = linx_sender(linx, &sig);
        if (sig->sig_no == LINX_OS_ATTACH_SIG) {
            printf("the client %#x has ended\n", (unsigned)client);
            fflush(stdout);
            linx_free_buf(linx, &sig);
            continue;
        }
        if (sig->request.number == 0) linx_attach(linx, NULL, client);
        /* The buffer is reused for the answer. */
        sig->sig_no = REPLY;
        linx_send(linx, &sig, client);
    }
}

/* Waits until there is a server, and attaches to it. */
static LINX_SPID find(LINX *linx) {
    union LINX_SIGNAL *sig;
    LINX_SPID spid;
    linx_hunt(linx, "example_server", NULL);
    if (linx_receive(linx, &sig, LINX_OS_HUNT_SIG_SEL) == -1) return LINX_ILLEGAL_SPID;
    spid = linx_sender(linx, &sig);
    linx_free_buf(linx, &sig);
    linx_attach(linx, NULL, spid);
    return spid;
}

static int client(void) {
    static const LINX_SIGSELECT any[] = {2, REPLY, LINX_OS_ATTACH_SIG};
    uint32_t number = 0, answered = 0;
    LINX_SPID spid;
    LINX *linx = linx_open("example_client", 0, NULL);
    if (linx == NULL) {
        perror("linx_open");
        return 1;
    }
    spid = find(linx);
    while (spid != LINX_ILLEGAL_SPID && answered < 2) {
        union LINX_SIGNAL *sig = linx_alloc(linx, sizeof(struct request), REQUEST);
        sig->request.number = number++;
        /* The signal of the attach reports the end of a server. */
        linx_send(linx, &sig, spid);
        if (linx_receive(linx, &sig, any) == -1) return 1;
        if (sig->sig_no == LINX_OS_ATTACH_SIG) {
            printf("the server is gone\n");
            fflush(stdout);
            linx_free_buf(linx, &sig);
            spid = find(linx);
            number = 0;
            continue;
        }
        if (sig->request.number == 0) {
            answered++;
            printf("the server answers\n");
            fflush(stdout);
        }
        linx_free_buf(linx, &sig);
    }
    linx_close(linx);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "server") == 0) return server();
    if (argc == 2 && strcmp(argv[1], "client") == 0) return client();
    fprintf(stderr, "usage: %s server | client\n", argv[0]);
    return 2;
}
