/*
 * Functions that must not be used, because each has a safe alternative.
 *
 * base/err.h includes this, so it is everywhere. System headers are included
 * first below: poisoning a name before its own declaration would break them.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gets
#pragma GCC poison gmtime localtime ctime asctime tmpnam tempnam mktemp
