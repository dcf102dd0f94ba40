/* Using up one resource until it is refused, and telling how much there was. */
#pragma once

/* Prints "NAME COUNT ERRNO" and returns the exit status; most stay until killed. */
int bomb(const char *name, long most);
