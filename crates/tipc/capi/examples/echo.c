/* A server and a client in one program: binds service 1000, instance 1, sends itself a message and prints the answer.
 *
 *   cc echo.c $(pkg-config --cflags --libs crossway-tipc) -o echo && ./echo [PATH-OF-A-TIPCD] */
#include <crossway_tipc.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *call, int64_t code)
{
    fprintf(stderr, "%s: %s\n", call, code < 0 ? strerror((int)-code) : "unexpected answer");
    return 1;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : NULL;
    ctipc_socket *server, *client;
    int code = ctipc_open(CTIPC_RDM, path, &server);
    if (code == 0)
        code = ctipc_open(CTIPC_RDM, path, &client);
    if (code < 0) {
        fprintf(stderr, "%s\n", ctipc_error());
        return 1;
    }
    ctipc_address name = { 30, CTIPC_SERVICE_RANGE, CTIPC_CLUSTER, 1000, 1, 1 };
    if ((code = ctipc_bind(server, &name)) < 0)
        return failed("bind", code);
    ctipc_address to = { 30, CTIPC_SERVICE, CTIPC_CLUSTER, 1000, 1, 0 };
    int64_t len = ctipc_send(client, "hello", 5, &to, -1);
    if (len != 5)
        return failed("send", len);

    char text[64];
    ctipc_message message;
    len = ctipc_recv(server, text, sizeof text, &message, 5000);
    if (len != 5 || message.event != CTIPC_DATA || message.lower != 1)
        return failed("receive", len);
    len = ctipc_send(server, text, (size_t)len, &message.from, -1);
    if (len != 5)
        return failed("answer", len);
    len = ctipc_recv(client, text, sizeof text, NULL, 5000);
    if (len != 5)
        return failed("receive the answer", len);
    printf("%.*s\n", (int)len, text);

    ctipc_close(server);
    to.a = 4711;
    len = ctipc_send(client, "nobody", 6, &to, 0);
    if (len >= 0)
        return failed("send to nobody", len);
    printf("nobody: %s\n", strerror((int)-len));
    ctipc_close(client);
    return 0;
}
