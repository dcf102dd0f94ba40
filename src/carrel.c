/* The program carrel: it only calls the command line interface. */
#include "base/fdio.h"
#include "cli/cli.h"

int main(int argc, char **argv) {
    stdio_hold();
    return cli_main(argc, argv);
}
