/* Output that changes after it was written. */
#pragma once

/*
 * Puts a page of 'G' into stdout with vmsplice(2), so that the pipe refers to this process's
 * memory. Waits for a byte on stdin, makes it a page of 'E', says so on stderr, and waits for the
 * end of stdin. Returns the exit status.
 */
int page_output(void);
