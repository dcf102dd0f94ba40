/*
 * The serial console of a vm: keeps the last bytes that the vm wrote, and shows them to clients who
 * may also type. One process, which ends when QEMU does.
 *
 * It runs inside the jail of the vm (spawn/vm/launch.h), so the console works while no daemon is
 * there, and when the guest of the machine answers no more. A client first sends a line with an
 * offset. It gets a line with the offset at which its bytes begin, and then the bytes. What it
 * sends afterwards is typed. If it ends its side, it gets the bytes that are there, and the end. A
 * client that reads so slowly that bytes are lost is disconnected.
 *
 * If the last words of the vm's kernel say that it restarts, panics or turns off, the process stays
 * until it is killed, and tells every new client which (VM_SAID_*, base/wire/vm_line.h).
 */
#pragma once

/* What is kept, clients at a time, the longest first line. */
enum { SERIAL_KEPT = 256 << 10, SERIAL_CLIENTS = 8, SERIAL_LINE = 24 };

/* Serves the console until QEMU ends. qemu: a stream socket; listener: where clients connect. */
void serial_serve(int qemu, int listener);

/* Runs `carrel-spawn --serve-serial QEMU LISTENER`. Returns the exit status of the program. */
int serial_main(int argc, char **argv);
