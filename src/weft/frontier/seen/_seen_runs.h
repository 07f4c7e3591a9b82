/* The sorted runs of a seen set, compiled: the same as seen_run.py, which says how a run is laid out. */
#ifndef WEFT_SEEN_RUNS_H
#define WEFT_SEEN_RUNS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  PyObject_HEAD
  Py_buffer file;
  const uint8_t *guide;
  const uint64_t *keys;
  const uint32_t *lines, *sums;
  uint64_t count, blocks;
  uint8_t *checked; /* one for each page that has a checksum */
} Run;

/* Which numbers are excluded although a run has them. */
typedef int (*IsGone)(const void *gone, uint64_t number);

typedef struct {
  Run **runs; /* borrowed from the tuple or list that the caller holds */
  Py_ssize_t size;
} Runs;

int runs_from(PyObject *listed, Runs *runs); /* to be freed with PyMem_Free(runs->runs) */

/* Sets `known[at]` for each number that a run has; skips those where it is set. -1 with an exception on damage. */
int runs_mark(const Runs *runs, const uint64_t *numbers, Py_ssize_t count, uint8_t *known, IsGone is_gone,
              const void *gone);

int add_runs(PyObject *module); /* the type and the functions */
extern PyMethodDef run_functions[];
#endif
