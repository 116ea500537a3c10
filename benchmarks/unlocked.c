// Measures the CPU time that threads spend without the interpreter's lock: see lock.py, which preloads this library. It
// replaces the functions that extension modules call to release the lock and to acquire it again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

typedef struct _ts PyThreadState;

static _Thread_local long long released_at;
static _Atomic long long unlocked_ns, releases;

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

PyThreadState *PyEval_SaveThread(void) {
    static PyThreadState *(*original)(void);
    if (!original) original = (PyThreadState * (*)(void)) dlsym(RTLD_NEXT, "PyEval_SaveThread");
    PyThreadState *state = original();
    released_at = cpu_ns();
    return state;
}

void PyEval_RestoreThread(PyThreadState *state) {
    static void (*original)(PyThreadState *);
    if (!original) original = (void (*)(PyThreadState *))dlsym(RTLD_NEXT, "PyEval_RestoreThread");
    if (released_at) unlocked_ns += cpu_ns() - released_at, ++releases;
    released_at = 0;
    original(state);
}

long long total_unlocked_ns(void) { return unlocked_ns; }
long long total_releases(void) { return releases; }
