/* A TCP connection over loopback, with the system's defaults. */
#include "loop.h"
#include "descriptors.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int listener, connector;

static void transport_open(size_t size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    connector = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || connector < 0) die("socket");
    if (bind(listener, (struct sockaddr *)&address, len) < 0 || listen(listener, 1) < 0) die("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &len) < 0) die("getsockname");
    if (connect(connector, (struct sockaddr *)&address, len) < 0) die("connect");
    inbox_make(size);
}

static void transport_side(int child) {
    int end = connector;
    if (child) {
        close(connector);
        end = accept(listener, 0, 0);
        if (end < 0) die("accept");
    }
    close(listener);
    out_fd = in_fd = end;
}
