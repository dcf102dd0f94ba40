/*
 * Runs a fuzz target over a folder of saved inputs, so every past crash is an
 * ordinary test. An empty or missing folder fails: a replay of nothing proves nothing.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t data[1 << 20];

static int replay(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return perror(name), -1;
    ssize_t n = read(fd, data, sizeof(data));
    close(fd);
    if (n < 0)
        return perror(name), -1;
    LLVMFuzzerTestOneInput(data, (size_t)n);
    return 0;
}

int main(int argc, char **argv) {
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    if (!d)
        return fprintf(stderr, "usage: %s FOLDER (of saved inputs)\n", argv[0]), 2;
    int count = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        if (replay(dirfd(d), e->d_name) < 0)
            return 1;
        count++;
    }
    closedir(d);
    printf("%d inputs replayed\n", count);
    return count == 0;
}
