/* Output that changes after it was written: the pipe holds the writer's own page. */
#include "page.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096 };

int page_output(void) {
    char *page =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    char go;
    if (page == MAP_FAILED)
        return 1;
    memset(page, 'G', PAGE);
    if (vmsplice(STDOUT_FILENO, &(struct iovec){page, PAGE}, 1, 0) != PAGE)
        return 2;
    if (read(STDIN_FILENO, &go, 1) != 1)
        return 3;
    memset(page, 'E', PAGE);
    /* The page must not be freed before the test has read the pipe. */
    return write(STDERR_FILENO, "changed\n", 8) == 8 && read(STDIN_FILENO, &go, 1) == 0 ? 0 : 4;
}
