/*
 * vm-boot-lab STATE GUEST KERNEL: prepare the boot of a vm, and print the paths of the kernel and
 * the initramfs, and the kernel command line. An empty KERNEL: choose one.
 */
#include <stdio.h>

#include "machine/vm/boot.h"

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    struct err err = {0};
    struct vm_boot boot;
    struct vm_boot_options options = {.state_dir = argv[1], .guest = argv[2], .kernel = argv[3]};
    if (vm_boot_prepare(&options, &boot, &err) < 0) {
        fprintf(stderr, "%s; %s\n", err.text, err.remedy);
        return 1;
    }
    printf("%s\n%s\n%s\n", boot.kernel.path, boot.initrd, boot.line);
    return 0;
}
