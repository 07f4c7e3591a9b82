/* The table behind a seen set, compiled: the same as `Table` in seen_table.py, which says how it works and is used where
 * this was not built. Both give and take the same dumps, so a crawl may go on with either.
 *
 * A bucket is one block: the number of its entries, then seven bytes for each. A bucket without entries is NULL.
 */
#include "_seen_runs.h"

enum { ENTRIES = 48, FIRST = 256, KEPT = 7, HEAD = sizeof(uint32_t), GRAIN = 16 };

typedef struct {
  PyObject_HEAD
  uint8_t **buckets;
  Py_ssize_t size, room, split, count;
  uint64_t mask;
} Table;

static uint32_t entries_of(const uint8_t *bucket) {
  uint32_t entries = 0;
  if (bucket != NULL) memcpy(&entries, bucket, HEAD);
  return entries;
}

static size_t block_bytes(uint32_t entries) { /* blocks of the allocator come in steps of GRAIN anyway */
  return (HEAD + (size_t)entries * KEPT + GRAIN - 1) / GRAIN * GRAIN;
}

static void put_entry(uint8_t *place, uint64_t number) { /* all but the last byte, the first one first */
  for (int at = 0; at < KEPT; at++) place[at] = (uint8_t)(number >> (8 * (KEPT - at)));
}

static Py_ssize_t place_of(const Table *self, uint64_t number) {
  Py_ssize_t place = (Py_ssize_t)(number & self->mask);
  return place >= self->split ? place : (Py_ssize_t)(number & (self->mask * 2 + 1));
}

static uint8_t **bucket_of(const Table *self, uint64_t number) { return &self->buckets[place_of(self, number)]; }

static Py_ssize_t found_at(const uint8_t *bucket, uint64_t number) { /* -1: it is not there */
  uint8_t entry[KEPT];
  put_entry(entry, number);
  uint32_t entries = entries_of(bucket);
  const uint8_t *at = bucket + HEAD;
  for (uint32_t one = 0; one < entries; one++, at += KEPT)
    if (memcmp(at, entry, KEPT) == 0) return one;
  return -1;
}

static int append(uint8_t **bucket, const uint8_t entry[KEPT]) {
  uint32_t entries = entries_of(*bucket);
  if (*bucket == NULL || block_bytes(entries) != block_bytes(entries + 1)) {
    uint8_t *larger = PyMem_Realloc(*bucket, block_bytes(entries + 1));
    if (larger == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    *bucket = larger;
  }
  memcpy(*bucket + HEAD + (size_t)entries * KEPT, entry, KEPT);
  entries++;
  memcpy(*bucket, &entries, HEAD);
  return 0;
}

static int make_room(Table *self, Py_ssize_t wanted) {
  if (wanted <= self->room) return 0;
  Py_ssize_t room = self->room + self->room / 8 > wanted ? self->room + self->room / 8 : wanted;
  uint8_t **larger = PyMem_Realloc(self->buckets, (size_t)room * sizeof *larger);
  if (larger == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  self->buckets = larger;
  self->room = room;
  return 0;
}

static void clear(Table *self) {
  for (Py_ssize_t at = 0; at < self->size; at++) PyMem_Free(self->buckets[at]);
  self->size = self->count = 0;
}

/* Shares the entries of the next bucket in turn with a new one. */
static int split_one(Table *self) {
  if (make_room(self, self->size + 1) < 0) return -1;
  uint8_t *bucket = self->buckets[self->split], *stays = NULL, *moves = NULL;
  uint32_t entries = entries_of(bucket);
  int shift = 0;
  while ((self->mask + 1) >> (shift + 1)) shift++;
  int column = KEPT - shift / 8, bit = 1 << (shift % 8);
  for (uint32_t one = 0; one < entries; one++) {
    const uint8_t *entry = bucket + HEAD + (size_t)one * KEPT;
    if (append(entry[column] & bit ? &moves : &stays, entry) < 0) { /* then the bucket stays as it was */
      PyMem_Free(stays);
      PyMem_Free(moves);
      return -1;
    }
  }
  PyMem_Free(bucket);
  self->buckets[self->split] = stays;
  self->buckets[self->size++] = moves;
  if ((uint64_t)++self->split > self->mask) {
    self->mask = self->mask * 2 + 1;
    self->split = 0;
  }
  return 0;
}

/* What `unknown` and `add_new` are given. */
typedef struct {
  PyObject *urls, *numbers, *gone;
  Runs runs;
  Py_ssize_t count;
  uint64_t *values;
  uint8_t *known; /* in the table, or in a run */
} Given;

static int is_gone(const void *gone, uint64_t number) {
  const Table *table = gone;
  return found_at(*bucket_of(table, number), number) >= 0;
}

/* Has the buckets of all numbers brought into the processor's caches, side by side: in a table of millions each would be
 * waited for in turn. */
static void fetch_ahead(const Table *self, const Given *given) {
#ifdef __GNUC__
  for (int pass = 0; pass < 2; pass++)
    for (Py_ssize_t at = 0; at < given->count; at++) {
      Py_ssize_t place = place_of(self, given->values[at]);
      if (pass == 0) __builtin_prefetch(&self->buckets[place]);
      else if (self->buckets[place] != NULL) {
        for (int line = 0; line < 6; line++) __builtin_prefetch(self->buckets[place] + line * 64);
      }
    }
#endif
}

static void let_go(Given *given) {
  PyMem_Free(given->values);
  PyMem_Free(given->known);
  PyMem_Free(given->runs.runs);
}

/* Reads the arguments, and looks all numbers up unless they `are_missing`. */
static int look_up(const Table *self, Given *given, PyObject *runs, int are_missing) {
  if (!PyList_Check(given->urls) || !PyList_Check(given->numbers) ||
      PyList_GET_SIZE(given->urls) != PyList_GET_SIZE(given->numbers)) {
    PyErr_SetString(PyExc_ValueError, "urls and numbers are not two lists of one length");
    return -1;
  }
  if (given->gone != NULL && given->gone != Py_None && !Py_IS_TYPE(given->gone, Py_TYPE((PyObject *)self))) {
    PyErr_SetString(PyExc_TypeError, "gone is not a table");
    return -1;
  }
  given->count = PyList_GET_SIZE(given->urls);
  given->values = PyMem_Malloc(((size_t)given->count + 1) * sizeof *given->values);
  given->known = PyMem_Calloc((size_t)given->count + 1, 1);
  if (given->values == NULL || given->known == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t at = 0; at < given->count; at++) {
    uint64_t value = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(given->numbers, at));
    if (value == (uint64_t)-1 && PyErr_Occurred()) return -1;
    given->values[at] = value;
  }
  fetch_ahead(self, given);
  if (are_missing) return 0;
  for (Py_ssize_t at = 0; at < given->count; at++)
    given->known[at] = found_at(*bucket_of(self, given->values[at]), given->values[at]) >= 0;
  if (runs_from(runs, &given->runs) < 0) return -1;
  if (!given->runs.size) return 0;
  int has_gone = given->gone != NULL && given->gone != Py_None;
  return runs_mark(&given->runs, given->values, given->count, given->known, has_gone ? is_gone : NULL, given->gone);
}

static PyObject *unknown(Table *self, PyObject *args) {
  PyObject *missed, *runs = NULL, *found = NULL;
  Given given = {0};
  if (!PyArg_ParseTuple(args, "OOO!|OO", &given.urls, &given.numbers, &PyDict_Type, &missed, &runs, &given.gone)) return NULL;
  if (look_up(self, &given, runs, 0) == 0) found = PyList_New(0);
  for (Py_ssize_t at = 0; found != NULL && at < given.count; at++) {
    if (given.known[at]) continue;
    PyObject *url = PyList_GET_ITEM(given.urls, at);
    if (PyList_Append(found, url) < 0 || PyDict_SetItem(missed, url, PyList_GET_ITEM(given.numbers, at)) < 0)
      Py_CLEAR(found);
  }
  let_go(&given);
  return found;
}

static PyObject *add_new(Table *self, PyObject *args) {
  PyObject *runs = NULL, *added = NULL;
  Given given = {0};
  int are_missing = 0;
  if (!PyArg_ParseTuple(args, "OO|pOO", &given.urls, &given.numbers, &are_missing, &runs, &given.gone)) return NULL;
  if (look_up(self, &given, runs, are_missing) == 0) added = PyList_New(0);
  for (Py_ssize_t at = 0; added != NULL && at < given.count; at++) {
    uint64_t number = given.values[at];
    uint8_t entry[KEPT], **bucket = bucket_of(self, number);
    if (given.known[at] || (!are_missing && found_at(*bucket, number) >= 0)) continue; /* one may come twice */
    put_entry(entry, number);
    if (append(bucket, entry) < 0) {
      Py_CLEAR(added);
      break;
    }
    self->count++;
    if (PyList_Append(added, PyList_GET_ITEM(given.urls, at)) < 0) Py_CLEAR(added);
    else if (self->count > self->size * ENTRIES && split_one(self) < 0) Py_CLEAR(added);
  }
  let_go(&given);
  return added;
}

static int contains(Table *self, PyObject *value) {
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == (uint64_t)-1 && PyErr_Occurred()) return -1;
  return found_at(*bucket_of(self, number), number) >= 0;
}

static PyObject *discard(Table *self, PyObject *value) {
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == (uint64_t)-1 && PyErr_Occurred()) return NULL;
  uint8_t **bucket = bucket_of(self, number);
  Py_ssize_t at = found_at(*bucket, number);
  if (at >= 0) {
    uint32_t entries = entries_of(*bucket) - 1;
    uint8_t *place = *bucket + HEAD + at * KEPT;
    memmove(place, place + KEPT, (size_t)(entries - (uint32_t)at) * KEPT);
    memcpy(*bucket, &entries, HEAD);
    self->count--;
    uint8_t *smaller = PyMem_Realloc(*bucket, block_bytes(entries));
    if (smaller != NULL) *bucket = smaller; /* or it stays larger than it must be, which `append` can bear */
  }
  Py_RETURN_NONE;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
  if (!PyArg_ParseTuple(args, "")) return NULL;
  Table *self = (Table *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  self->buckets = PyMem_Calloc(FIRST, sizeof *self->buckets);
  if (self->buckets == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  self->size = self->room = FIRST;
  self->mask = FIRST - 1;
  return (PyObject *)self;
}

static void drop(Table *self) {
  PyTypeObject *type = Py_TYPE(self);
  clear(self);
  PyMem_Free(self->buckets);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static Py_ssize_t length(Table *self) { return self->count; }

static PyMethodDef methods[] = {
    {"unknown", (PyCFunction)unknown, METH_VARARGS, "Those that are not in the table; their numbers go into `missed`."},
    {"add_new", (PyCFunction)add_new, METH_VARARGS, "Adds all, and returns those that were new, once each."},
    {"discard", (PyCFunction)discard, METH_O, "Removes a number."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},           {Py_tp_dealloc, drop},       {Py_tp_methods, methods},
    {Py_sq_length, length},      {Py_sq_contains, contains},  {Py_tp_doc, "A table of fingerprints; see seen_table.py."},
    {0, NULL},
};

static PyType_Spec spec = {"weft.frontier.seen._seen_table.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, slots};

static int fill(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  if (type == NULL) return -1;
  int failed = PyModule_AddObjectRef(module, "Table", type);
  Py_DECREF(type);
  return failed < 0 ? -1 : add_runs(module);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_seen_table", "The seen set's table, compiled.", 0, NULL,
                             module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__seen_table(void) { return PyModuleDef_Init(&module); }
