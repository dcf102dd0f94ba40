/*
 * Functions that must not be used, because each has a safe alternative.
 *
 * This applies to all files that include base/err.h or this file. System headers come first below:
 * to poison a name before its declaration would break them.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gets
#pragma GCC poison gmtime localtime ctime asctime tmpnam tempnam mktemp
