/* The call of a store (at most one): starts it, runs it in slices of fuel, answers host calls. */
#include "wasm/interp.h"

#include <sys/mman.h>

/* ---- The guest stack ---- */

bool stack_make(struct wasm_store *s) {
    if (s->stack)
        return true;
    const struct wasm_config *cfg = &s->engine->cfg;
    size_t frames = (cfg->frames + 2) * sizeof(struct frame), slots = (size_t)cfg->stack_slots * 8;
    struct spare_stack *spare = &s->engine->spare;
    uint8_t *p = spare->base;
    spare->base = NULL;
    if (!p) {
        p = mmap(NULL, frames + slots, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return false;
    }
    s->stack_mapped = frames + slots;
    s->frames = (struct frame *)p;
    s->frames_end = s->frames + cfg->frames + 1;
    s->stack = (uint64_t *)(p + frames);
    s->stack_end = s->stack + cfg->stack_slots;
    s->frames[0] = (struct frame){0};
    return true;
}

/* The engine keeps one stack for the next store, so a short program needs no new mapping. */
void stack_free(struct wasm_store *s) {
    if (!s->frames)
        return;
    if (!s->engine->spare.base) {
        s->engine->spare.base = (uint8_t *)s->frames;
        s->engine->spare.size = s->stack_mapped;
    } else {
        munmap(s->frames, s->stack_mapped);
    }
    s->frames = NULL;
    s->stack = NULL;
}

/* ---- Fuel ---- */

void wasm_fuel_add(struct wasm_store *s, uint64_t n) {
    uint64_t room = INT64_MAX / 2 - s->budget;
    s->budget += n < room ? n : room;
}

void wasm_fuel_limit(struct wasm_store *s, uint64_t left) {
    s->budget = left < INT64_MAX / 2 ? left : INT64_MAX / 2;
}

uint64_t wasm_fuel_left(const struct wasm_store *s) {
    return s->budget;
}

bool wasm_fuel_spend(struct wasm_store *s, uint64_t n) {
    if (s->budget < n)
        return false;
    s->budget -= n;
    s->used += n;
    return true;
}

uint64_t wasm_fuel_used(const struct wasm_store *s) {
    return s->used;
}

/* ---- Starting ---- */

static int check_args(const struct wasm_store *s, const struct type *t,
                      const struct wasm_value *args, uint32_t n, struct err *err) {
    if (n != t->n_params)
        return err_set(err, ERR_INVALID, "the function takes %u arguments, %u were given",
                       t->n_params, n);
    for (uint32_t i = 0; i < n; i++)
        if (!value_fits(s, &args[i], t->vals[i])) {
            char want[32], got[32];
            return err_set(err, ERR_INVALID, "argument %u is %s, the function takes %s", i + 1,
                           wasm_type_name(args[i].type, got, sizeof got),
                           wasm_type_name(t->vals[i], want, sizeof want));
        }
    return 0;
}

static void values_to_slots(struct wasm_store *s, const struct wasm_value *v, const uint32_t *types,
                            uint32_t n, uint64_t *slots) {
    for (uint32_t i = 0; i < n; i++) {
        store_note_handle(s, &v[i]);
        value_to_slots(&v[i], slots);
        slots += slots_of(types[i]);
    }
}

static void begin_call(struct wasm_store *s, struct fn *fn, struct wasm_instance *inst) {
    s->start_fn = fn;
    s->inst = inst;
    s->fp = s->stack;
    s->top = s->frames;
    s->pc = NULL;
    s->answered = false;
    s->call_type = fn->type;
    s->state = RUN_READY;
}

int wasm_call(struct wasm_store *s, struct wasm_extern func, const struct wasm_value *args,
              uint32_t n_args, struct err *err) {
    if (s->state != RUN_IDLE)
        return err_set(err, ERR_BUSY, "another call of this store is in progress");
    struct wasm_instance *inst;
    struct fn *fn = func.kind == WASM_FUNC ? store_fn(s, func.id, &inst) : NULL;
    if (!fn)
        return err_set(err, ERR_INVALID, "the function to call does not belong to this store");
    if (check_args(s, fn->type, args, n_args, err) < 0)
        return -1;
    if (!stack_make(s))
        return err_set(err, ERR_LIMIT, "out of memory for the stack of the WebAssembly program");
    if (fn->param_slots > s->engine->cfg.stack_slots ||
        fn->result_slots > s->engine->cfg.stack_slots)
        return err_set(err, ERR_LIMIT,
                       "the parameters or results of the function do not fit on the stack");
    s->init.active = false;
    begin_call(s, fn, inst);
    values_to_slots(s, args, fn->type->vals, n_args, s->stack);
    return 0;
}

/* ---- Instance initialisation ---- */

/*
 * Pays `cost` fuel like an instruction: it may exceed the slice (the fuel of this run), but not
 * the budget of the store. False: the slice is spent or the budget too small; s->needed is the
 * cost.
 */
static bool init_pay(struct wasm_store *s, int64_t *fuel, uint64_t cost) {
    if ((uint64_t)*fuel < cost) {
        uint64_t more = cost - (uint64_t)*fuel;
        if (*fuel <= 0 || s->budget < more) {
            s->needed = cost;
            return false;
        }
        s->budget -= more;
        s->grant += more;
        *fuel += (int64_t)more;
    }
    *fuel -= (int64_t)cost;
    return true;
}

/*
 * Cost of the memories and tables that an instance begins with, as if the program had grown them.
 * The program may touch all of them, and the collector reads tables.
 */
static uint64_t making_cost(const struct wasm_module *m) {
    uint64_t pages = 0, elems = 0;
    for (uint32_t i = m->imported_mems; i < m->n_mems; i++)
        pages += m->mems[i].l.min;
    for (uint32_t i = m->imported_tables; i < m->n_tables; i++)
        elems += m->tables[i].l.min;
    return pages * (PAGE_SIZE / 64) + elems / 8;
}

/*
 * Copies the next active element or data segment to its table or memory. Returns a trap or NULL. If
 * s->needed is not 0 afterwards, there was not enough fuel for the segment.
 */
static const char *init_segment(struct wasm_store *s, struct init_job *job, int64_t *fuel) {
    struct wasm_instance *i = job->inst;
    struct wasm_module *m = i->mod;
    uint32_t seg = job->next - 1;
    bool is_elem = seg < m->n_elems;
    uint32_t k = is_elem ? seg : seg - m->n_elems;
    uint8_t mode = is_elem ? m->elems[k].mode : m->datas[k].mode;
    if (mode == SEG_PASSIVE)
        return job->next++, NULL;
    if (mode == SEG_ACTIVE) {
        uint64_t at[2], slots[3] = {0, 0, is_elem ? m->elems[k].n : m->datas[k].size};
        instance_eval(i, is_elem ? m->elems[k].offset : m->datas[k].offset, at);
        slots[0] = at[0];
        struct bulk b = {.row = is_elem ? OP_TABLE_INIT : OP_MEMORY_INIT,
                         .x = k,
                         .y = is_elem ? m->elems[k].table : m->datas[k].mem,
                         .slots = slots};
        const char *trap = bulk_check(i, &b);
        if (!init_pay(s, fuel, 1 + (trap ? 0 : b.cost)))
            return NULL;
        if (trap)
            return trap;
        if (!bulk_do(s, i, &b))
            return trap_no_memory;
    }
    *(is_elem ? &i->dropped_elems[k] : &i->dropped_datas[k]) = 1;
    job->next++;
    return NULL;
}

/* Copies all active segments, then calls the start function, which runs like any call. */
static enum exit_code init_run(struct wasm_store *s, int64_t *fuel, const char **ret_trap) {
    struct init_job *job = &s->init;
    struct wasm_module *m = job->inst->mod;
    s->needed = 0;
    if (job->next == 0) {
        uint64_t cost = making_cost(m);
        if (cost && !init_pay(s, fuel, cost))
            return EXIT_FUEL;
        job->next = 1;
    }
    while (job->next <= m->n_elems + m->n_datas) {
        *ret_trap = init_segment(s, job, fuel);
        if (*ret_trap)
            return EXIT_TRAP;
        if (s->needed)
            return EXIT_FUEL;
    }
    if (m->start == NO_TYPE) {
        job->active = false;
        s->call_type = NULL;
        return EXIT_DONE;
    }
    if (*fuel < 1) {
        s->needed = 1;
        return EXIT_FUEL;
    }
    *fuel -= 1;
    if (!stack_make(s)) {
        *ret_trap = trap_no_memory;
        return EXIT_TRAP;
    }
    struct wasm_instance *inst;
    struct fn *fn = store_fn(s, instance_func_ref(job->inst, m->start), &inst);
    job->active = false;
    begin_call(s, fn, inst);
    return interp_run(s, fuel, ret_trap);
}

/* ---- Events ---- */

/* Returns the abstract type of a reference, because the embedder does not know defined types. */
static uint32_t abstract_type(const struct wasm_store *s, uint64_t ref, uint32_t type) {
    const struct object *o = store_object(s, ref);
    if (types_sub(s->engine, type, WASM_ANYREF) && ref)
        return !o ? object_dynamic_type(s, ref)
                  : (WASM_ANYREF & ~WASM_NULLABLE & ~0xffu) |
                        (s->engine->types[o->type]->kind == TYPE_STRUCT ? 0x6bu : 0x6au);
    if (type & WASM_ABSTRACT)
        return type;
    uint32_t top = types_sub(s->engine, type, WASM_FUNCREF) ? WASM_FUNCREF : WASM_ANYREF;
    return type & WASM_NULLABLE ? top : top & ~WASM_NULLABLE;
}

static bool event_values(struct wasm_store *s, const uint64_t *slots, const uint32_t *types,
                         uint32_t n) {
    s->event.values = NULL;
    s->event.n_values = 0;
    if (!engine_grow(s->engine, &s->values, &s->cap_values, n + 1, sizeof *s->values))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        s->values[i] = value_from_slots(slots, types[i]);
        if (is_ref(types[i]))
            s->values[i].type = abstract_type(s, s->values[i].ref, types[i]);
        slots += slots_of(types[i]);
    }
    s->event.values = s->values;
    s->event.n_values = n;
    return true;
}

static void event_done(struct wasm_store *s) {
    s->state = RUN_IDLE;
    s->event.outcome = WASM_DONE;
    const struct type *t = s->call_type;
    if (t)
        event_values(s, s->stack, t->vals + t->n_params, t->n_results);
    /* An idle store needs no stack; the next call of any store of the engine reuses this one. */
    stack_free(s);
    s->top = NULL;
}

static void event_trap(struct wasm_store *s, const char *text) {
    s->state = RUN_IDLE;
    s->init.active = false;
    s->event.outcome = WASM_TRAPPED;
    s->event.text = text;
}

static void event_thrown(struct wasm_store *s) {
    const struct exn *x = store_exn(s, s->thrown);
    const struct type *t = s->engine->types[s->tags[x->tag].canon];
    s->state = RUN_IDLE;
    s->event.outcome = WASM_THROWN;
    s->event.tag = (struct wasm_extern){WASM_TAG, x->tag};
    s->event.text = "unhandled exception";
    event_values(s, x->slots, t->vals, t->n_params);
}

void call_event_host(struct wasm_store *s) {
    const struct fn *fn = &s->host_fns[s->host_fn];
    s->state = RUN_HOST;
    s->event.outcome = WASM_HOST;
    s->event.module = fn->host->module;
    s->event.name = fn->host->name;
    s->event.sequence = s->sequence;
    event_values(s, s->host_slots, fn->type->vals, fn->type->n_params);
}

static void event_fuel(struct wasm_store *s) {
    s->event.outcome = s->budget >= s->needed ? WASM_SLICE : WASM_OUT_OF_FUEL;
    s->event.needed = s->needed;
}

static void settle_event(struct wasm_store *s, enum exit_code code, const char *trap) {
    s->event = (struct wasm_event){.outcome = WASM_IDLE};
    switch (code) {
    case EXIT_DONE:
        event_done(s);
        break;
    case EXIT_TRAP:
        event_trap(s, trap);
        break;
    case EXIT_THROW:
        event_thrown(s);
        break;
    case EXIT_FUEL:
        event_fuel(s);
        break;
    default:
        s->sequence++;
        call_event_host(s);
    }
}

const struct wasm_event *wasm_run(struct wasm_store *s, uint64_t slice) {
    if (s->state == RUN_IDLE) {
        s->event = (struct wasm_event){.outcome = WASM_IDLE};
        return &s->event;
    }
    if (s->state == RUN_HOST)
        return &s->event;
    s->grant = slice < s->budget ? slice : s->budget;
    s->budget -= s->grant;
    int64_t fuel = (int64_t)s->grant;
    const char *trap = NULL;
    s->ran_since_seal = true;
    enum exit_code code = s->init.active ? init_run(s, &fuel, &trap) : interp_run(s, &fuel, &trap);
    s->used += s->grant - (uint64_t)fuel;
    s->budget += (uint64_t)fuel;
    settle_event(s, code, trap);
    return &s->event;
}

/* ---- Answers ---- */

int wasm_answer(struct wasm_store *s, const struct wasm_value *results, uint32_t n,
                struct err *err) {
    if (s->state != RUN_HOST)
        return err_set(err, ERR_INVALID, "cannot answer a host call: none is pending");
    const struct type *t = s->host_fns[s->host_fn].type;
    const uint32_t *types = t->vals + t->n_params;
    if (n != t->n_results)
        return err_set(err, ERR_INVALID, "host function '%s' has %u results, %u were given",
                       s->event.name, t->n_results, n);
    for (uint32_t i = 0; i < n; i++)
        if (!value_fits(s, &results[i], types[i]))
            return err_set(err, ERR_INVALID, "result %u of host function '%s' has the wrong type",
                           i + 1, s->event.name);
    values_to_slots(s, results, types, n, s->host_slots);
    s->answered = true;
    s->state = RUN_READY;
    return 0;
}

int wasm_answer_trap(struct wasm_store *s, const char *text, struct err *err) {
    if (s->state != RUN_HOST)
        return err_set(err, ERR_INVALID, "cannot end a host call with a trap: none is pending");
    s->event = (struct wasm_event){0};
    event_trap(s, text);
    return 0;
}

void wasm_cancel(struct wasm_store *s) {
    s->state = RUN_IDLE;
    s->init.active = false;
    s->start_fn = NULL;
    s->answered = false;
    s->top = s->frames;
    s->event = (struct wasm_event){.outcome = WASM_IDLE};
}

/* ---- Position of the call ---- */

uint32_t wasm_frames(const struct wasm_store *s) {
    return s->top && s->pc ? (uint32_t)(s->top - s->frames) : 0;
}

bool wasm_frame_at(const struct wasm_store *s, uint32_t i, struct wasm_frame *ret) {
    if (i >= wasm_frames(s))
        return false;
    const struct frame *f = s->top - i;
    const uint64_t *pc = i ? f[1].ret : s->pc;
    struct code *c = fn_code_at(f->fn, pc);
    const struct mark *m = code_mark_at(f->fn, c, pc, i ? MARK_RETURN : MARK_STEP | MARK_OP);
    ret->instance = i ? f[1].inst : s->inst;
    ret->func = f->fn->index;
    ret->offset = m ? m->offset : f->fn->body;
    return true;
}
