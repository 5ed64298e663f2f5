/* The check that these programs use. If it fails, it prints its line and ends the process with _exit, so that a child
   does not flush what its parent has buffered. */
#include <stdio.h>
#include <unistd.h>

#define HOLDS(what)                                                   \
    do {                                                              \
        if (!(what)) {                                                \
            fprintf(stderr, "line %d failed: %s\n", __LINE__, #what); \
            _exit(1);                                                 \
        }                                                             \
    } while (0)
