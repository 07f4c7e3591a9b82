/* The table behind a seen set, compiled: the same as `Table` in seen_table.py, which says how it works and is used where
 * this was not built. Both give and take the same dumps, so a crawl may go on with either.
 *
 * A bucket is one block: the number of its entries, then seven bytes for each. A bucket without entries is NULL.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

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

/* The bucket of a number; NULL with an IndexError where a dump is not loaded to its end. */
static uint8_t **bucket_of(const Table *self, uint64_t number) {
  Py_ssize_t place = place_of(self, number);
  if (place < self->size) return &self->buckets[place];
  PyErr_SetString(PyExc_IndexError, "no such bucket");
  return NULL;
}

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
  if (self->split >= self->size) {
    PyErr_SetString(PyExc_IndexError, "no such bucket");
    return -1;
  }
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

/* The arguments `urls` and `numbers`: two lists of one length. */
static int two_lists(PyObject *args, const char *format, PyObject **urls, PyObject **numbers, void *third) {
  if (!PyArg_ParseTuple(args, format, &PyList_Type, urls, &PyList_Type, numbers, third)) return -1;
  if (PyList_GET_SIZE(*urls) == PyList_GET_SIZE(*numbers)) return 0;
  PyErr_SetString(PyExc_ValueError, "urls and numbers differ in length");
  return -1;
}

static int number_at(PyObject *numbers, Py_ssize_t at, uint64_t *number) {
  *number = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(numbers, at));
  return *number == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

/* Has the buckets of all numbers brought into the processor's caches, side by side: in a table of millions each would be
 * waited for in turn. */
static void fetch_ahead(const Table *self, PyObject *numbers) {
#ifdef __GNUC__
  for (int pass = 0; pass < 2; pass++)
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(numbers); at++) {
      Py_ssize_t place = place_of(self, PyLong_AsUnsignedLongLongMask(PyList_GET_ITEM(numbers, at)));
      if (place >= self->size) continue;
      if (pass == 0) __builtin_prefetch(&self->buckets[place]);
      else if (self->buckets[place] != NULL) {
        for (int line = 0; line < 6; line++) __builtin_prefetch(self->buckets[place] + line * 64);
      }
    }
  PyErr_Clear();
#endif
}

static PyObject *unknown(Table *self, PyObject *args) {
  PyObject *urls, *numbers, *missed;
  if (two_lists(args, "O!O!O", &urls, &numbers, &missed) < 0) return NULL;
  if (!PyDict_Check(missed)) return PyErr_Format(PyExc_TypeError, "missed is not a dict");
  fetch_ahead(self, numbers);
  PyObject *found = PyList_New(0);
  for (Py_ssize_t at = 0; found != NULL && at < PyList_GET_SIZE(urls); at++) {
    uint64_t number;
    uint8_t **bucket = number_at(numbers, at, &number) < 0 ? NULL : bucket_of(self, number);
    if (bucket == NULL) {
      Py_CLEAR(found);
    } else if (found_at(*bucket, number) < 0) {
      PyObject *url = PyList_GET_ITEM(urls, at);
      if (PyList_Append(found, url) < 0 || PyDict_SetItem(missed, url, PyList_GET_ITEM(numbers, at)) < 0)
        Py_CLEAR(found);
    }
  }
  return found;
}

static PyObject *add_new(Table *self, PyObject *args) {
  PyObject *urls, *numbers;
  int are_missing = 0;
  if (two_lists(args, "O!O!|p", &urls, &numbers, &are_missing) < 0) return NULL;
  PyObject *added = PyList_New(0);
  for (Py_ssize_t at = 0; added != NULL && at < PyList_GET_SIZE(urls); at++) {
    uint64_t number;
    uint8_t entry[KEPT], **bucket = number_at(numbers, at, &number) < 0 ? NULL : bucket_of(self, number);
    if (bucket == NULL) {
      Py_CLEAR(added);
      break;
    }
    if (!are_missing && found_at(*bucket, number) >= 0) continue;
    put_entry(entry, number);
    if (append(bucket, entry) < 0) {
      Py_CLEAR(added);
      break;
    }
    self->count++;
    if (PyList_Append(added, PyList_GET_ITEM(urls, at)) < 0) Py_CLEAR(added);
    else if (self->count > self->size * ENTRIES && split_one(self) < 0) Py_CLEAR(added);
  }
  return added;
}

static int contains(Table *self, PyObject *value) {
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == (uint64_t)-1 && PyErr_Occurred()) return -1;
  uint8_t **bucket = bucket_of(self, number);
  return bucket == NULL ? -1 : found_at(*bucket, number) >= 0;
}

static PyObject *discard(Table *self, PyObject *value) {
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == (uint64_t)-1 && PyErr_Occurred()) return NULL;
  uint8_t **bucket = bucket_of(self, number);
  if (bucket == NULL) return NULL;
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

static PyObject *shape(Table *self, PyObject *Py_UNUSED(none)) {
  return Py_BuildValue("Knn", (unsigned long long)self->mask, self->split, self->size);
}

static PyObject *piece(Table *self, PyObject *args) {
  Py_ssize_t start, count, bytes = 0;
  if (!PyArg_ParseTuple(args, "nn", &start, &count)) return NULL;
  if (start < 0 || count < 0 || start > self->size) return PyErr_Format(PyExc_ValueError, "no such buckets");
  if (count > self->size - start) count = self->size - start;
  PyObject *sizes = PyList_New(count);
  if (sizes == NULL) return NULL;
  for (Py_ssize_t at = 0; at < count; at++) {
    Py_ssize_t size = (Py_ssize_t)entries_of(self->buckets[start + at]) * KEPT;
    PyObject *number = PyLong_FromSsize_t(size);
    if (number == NULL) {
      Py_DECREF(sizes);
      return NULL;
    }
    PyList_SET_ITEM(sizes, at, number);
    bytes += size;
  }
  PyObject *content = PyBytes_FromStringAndSize(NULL, bytes);
  if (content == NULL) {
    Py_DECREF(sizes);
    return NULL;
  }
  char *to = PyBytes_AS_STRING(content);
  for (Py_ssize_t at = start; at < start + count; at++) {
    size_t size = (size_t)entries_of(self->buckets[at]) * KEPT;
    if (size) memcpy(to, self->buckets[at] + HEAD, size);
    to += size;
  }
  return Py_BuildValue("NN", sizes, content);
}

static PyObject *reset(Table *self, PyObject *args) {
  unsigned long long mask;
  Py_ssize_t split;
  if (!PyArg_ParseTuple(args, "Kn", &mask, &split)) return NULL;
  clear(self);
  self->mask = mask;
  self->split = split;
  Py_RETURN_NONE;
}

static PyObject *load(Table *self, PyObject *args) {
  PyObject *sizes;
  const char *content;
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "O!y#", &PyList_Type, &sizes, &content, &bytes)) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(sizes);
  if (make_room(self, self->size + count) < 0) return NULL;
  for (Py_ssize_t at = 0; at < count; at++) {
    Py_ssize_t size = PyLong_AsSsize_t(PyList_GET_ITEM(sizes, at));
    if (size == -1 && PyErr_Occurred()) return NULL;
    if (size < 0 || size % KEPT || size > bytes) return PyErr_Format(PyExc_ValueError, "not a piece of a dump");
    uint32_t entries = (uint32_t)(size / KEPT);
    uint8_t *bucket = NULL;
    if (entries) {
      if ((bucket = PyMem_Malloc(block_bytes(entries))) == NULL) return PyErr_NoMemory();
      memcpy(bucket, &entries, HEAD);
      memcpy(bucket + HEAD, content, (size_t)size);
    }
    self->buckets[self->size++] = bucket;
    self->count += entries;
    content += size;
    bytes -= size;
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
    {"shape", (PyCFunction)shape, METH_NOARGS, "Mask, next bucket to split, and how many buckets there are."},
    {"piece", (PyCFunction)piece, METH_VARARGS, "The sizes of some buckets, and their content end to end."},
    {"reset", (PyCFunction)reset, METH_VARARGS, "Empties the table, for pieces to be loaded."},
    {"load", (PyCFunction)load, METH_VARARGS, "Adds the buckets of a piece behind those that there are."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make},           {Py_tp_dealloc, drop},       {Py_tp_methods, methods},
    {Py_sq_length, length},      {Py_sq_contains, contains},  {Py_tp_doc, "A table of fingerprints; see seen_table.py."},
    {0, NULL},
};

static PyType_Spec spec = {"weft.frontier._seen_table.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, slots};

static int fill(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  if (type == NULL) return -1;
  int failed = PyModule_AddObjectRef(module, "Table", type);
  Py_DECREF(type);
  return failed;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_seen_table", "The seen set's table, compiled.", 0, NULL,
                             module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__seen_table(void) { return PyModuleDef_Init(&module); }
