/* The check of these programs: one that fails prints its line and ends the process, in a child without flushing what its parent has buffered. */
#include <stdio.h>
#include <unistd.h>

#define HOLDS(what)                                                   \
    do {                                                              \
        if (!(what)) {                                                \
            fprintf(stderr, "line %d failed: %s\n", __LINE__, #what); \
            _exit(1);                                                 \
        }                                                             \
    } while (0)
