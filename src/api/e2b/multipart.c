#include "api/e2b/multipart.h"

#include <stdio.h>
#include <string.h>

enum { IN_MAX = 1 << 20 };

enum state { PREAMBLE, AFTER_DELIMITER, HEAD, CONTENT, OVER };

/* ---- parameters of a field: form-data; name="file"; filename="a.txt" ---- */

static struct http_text text_trim(struct http_text t) {
    while (t.n && (*t.s == ' ' || *t.s == '\t')) {
        t.s++;
        t.n--;
    }
    while (t.n && (t.s[t.n - 1] == ' ' || t.s[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* The end of a parameter: the next semicolon outside of quotes. */
static size_t parameter_end(struct http_text t) {
    bool quoted = false;
    size_t i = 0;
    for (; i < t.n && (quoted || t.s[i] != ';'); i++) {
        if (quoted && t.s[i] == '\\' && i + 1 < t.n)
            i++;
        else if (t.s[i] == '"')
            quoted = !quoted;
    }
    return i;
}

/* Copies a value without its quotes and backslashes. False: too long, or an open quote. */
static bool copy_value(struct http_text v, char *ret, size_t size) {
    size_t n = 0;
    bool quoted = v.n >= 2 && v.s[0] == '"' && v.s[v.n - 1] == '"';
    if (v.n && v.s[0] == '"' && !quoted)
        return false;
    if (quoted)
        v = (struct http_text){v.s + 1, v.n - 2};
    for (size_t i = 0; i < v.n; i++) {
        if (quoted && v.s[i] == '\\' && i + 1 < v.n)
            i++;
        if (n + 1 >= size || !v.s[i])
            return false;
        ret[n++] = v.s[i];
    }
    ret[n] = '\0';
    return true;
}

/* 1: found; 0: not given; -1: malformed. */
static int parameter(struct http_text value, const char *name, char *ret, size_t size) {
    struct http_text rest = value;
    for (size_t end = parameter_end(rest); end < rest.n; end = parameter_end(rest)) {
        rest = (struct http_text){rest.s + end + 1, rest.n - end - 1};
        struct http_text one = text_trim((struct http_text){rest.s, parameter_end(rest)});
        const char *is = memchr(one.s, '=', one.n);
        if (!is || !http_text_is_like((struct http_text){one.s, (size_t)(is - one.s)}, name))
            continue;
        one = (struct http_text){is + 1, one.n - (size_t)(is + 1 - one.s)};
        return copy_value(text_trim(one), ret, size) ? 1 : -1;
    }
    return 0;
}

int multipart_init(struct multipart *m, struct http_text type, struct err *err) {
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    memset(m, 0, sizeof(*m));
    m->in = BUF(IN_MAX);
    if (parameter(type, "boundary", boundary, sizeof(boundary)) != 1 || !*boundary)
        return err_set(err, ERR_INVALID, "the header 'Content-Type' has no valid boundary");
    m->delimiter_len = (size_t)snprintf(m->delimiter, sizeof(m->delimiter), "\r\n--%s", boundary);
    m->state = PREAMBLE;
    if (!buf_add(&m->in, "\r\n", 2)) /* the first delimiter may start the body */
        return err_set(err, ERR_LIMIT, "out of memory");
    return 0;
}

void multipart_done(struct multipart *m) {
    buf_done(&m->in);
}

/* ---- the body ---- */

static int malformed(const char *what, struct err *err) {
    return err_set(err, ERR_INVALID, "the multipart body is malformed: %s", what);
}

/* Drops what comes before the first delimiter. */
static int skip_preamble(struct multipart *m) {
    const char *at = memmem(m->in.data, m->in.len, m->delimiter, m->delimiter_len);
    if (at) {
        buf_drop(&m->in, (size_t)(at - m->in.data) + m->delimiter_len);
        m->state = AFTER_DELIMITER;
        return 1;
    }
    if (m->in.len >= m->delimiter_len)
        buf_drop(&m->in, m->in.len - m->delimiter_len + 1);
    return MULTIPART_MORE;
}

/* A delimiter ends with a line end, or with "--" if it is the last. Blanks may stand before. */
static int after_delimiter(struct multipart *m, struct err *err) {
    size_t blanks = 0;
    if (m->in.len < 2)
        return MULTIPART_MORE;
    if (memcmp(m->in.data, "--", 2) == 0) {
        m->state = OVER;
        return MULTIPART_END;
    }
    while (blanks < m->in.len && (m->in.data[blanks] == ' ' || m->in.data[blanks] == '\t'))
        blanks++;
    if (blanks > MULTIPART_BOUNDARY_MAX)
        return malformed("blanks after a boundary", err);
    if (m->in.len < blanks + 2)
        return MULTIPART_MORE;
    if (memcmp(m->in.data + blanks, "\r\n", 2) != 0)
        return malformed("a boundary does not end its line", err);
    buf_drop(&m->in, blanks); /* the line end stays: a head may be empty */
    m->state = HEAD;
    return 1;
}

static int read_disposition(struct multipart *m, struct http_text value, struct err *err) {
    if (parameter(value, "name", m->part_name, sizeof(m->part_name)) < 0)
        return malformed("the name of a part", err);
    int has = parameter(value, "filename", m->file_name, sizeof(m->file_name));
    if (has < 0)
        return malformed("the file name of a part", err);
    m->has_file_name = has;
    return 0;
}

static int read_fields(struct multipart *m, struct http_text head, struct err *err) {
    m->part_name[0] = m->file_name[0] = '\0';
    m->has_file_name = false;
    while (head.n) {
        const char *end = memmem(head.s, head.n, "\r\n", 2);
        size_t n = end ? (size_t)(end - head.s) : head.n;
        const char *colon = memchr(head.s, ':', n);
        if (!colon)
            return malformed("a field without a colon", err);
        struct http_text name = {head.s, (size_t)(colon - head.s)};
        if (http_text_is_like(text_trim(name), "Content-Disposition") &&
            read_disposition(m, (struct http_text){colon + 1, n - name.n - 1}, err) < 0)
            return -1;
        n += end ? 2 : 0;
        head = (struct http_text){head.s + n, head.n - n};
    }
    return 0;
}

/* The fields of a part stand between the line end of the delimiter and an empty line. */
static int read_head(struct multipart *m, struct err *err) {
    const char *end = memmem(m->in.data, m->in.len, "\r\n\r\n", 4);
    size_t n = end ? (size_t)(end - m->in.data) : m->in.len;
    if (n > MULTIPART_HEAD_MAX)
        return malformed("the fields of a part are too long", err);
    if (!end)
        return MULTIPART_MORE;
    struct http_text head = {m->in.data + 2, n > 2 ? n - 2 : 0};
    if (read_fields(m, head, err) < 0)
        return -1;
    buf_drop(&m->in, n + 4);
    m->state = CONTENT;
    return MULTIPART_PART;
}

static int read_content(struct multipart *m, struct http_text *ret) {
    const char *at =
        m->in.len ? memmem(m->in.data, m->in.len, m->delimiter, m->delimiter_len) : NULL;
    size_t n = at                              ? (size_t)(at - m->in.data)
               : m->in.len >= m->delimiter_len ? m->in.len - m->delimiter_len + 1
                                               : 0;
    if (at && n == 0) {
        buf_drop(&m->in, m->delimiter_len);
        m->state = AFTER_DELIMITER;
        return MULTIPART_PART_END;
    }
    if (n == 0)
        return MULTIPART_MORE;
    m->taken = n < MULTIPART_DATA_MAX ? n : MULTIPART_DATA_MAX;
    *ret = (struct http_text){m->in.data, m->taken};
    return MULTIPART_DATA;
}

int multipart_next(struct multipart *m, struct http_text *ret, struct err *err) {
    int turn = 1;
    buf_drop(&m->in, m->taken);
    m->taken = 0;
    if (m->state == PREAMBLE)
        turn = skip_preamble(m);
    if (turn > 0 && m->state == AFTER_DELIMITER)
        turn = after_delimiter(m, err);
    if (turn <= 0 || m->state == OVER)
        return turn <= 0 ? turn : MULTIPART_END;
    return m->state == HEAD ? read_head(m, err) : read_content(m, ret);
}
