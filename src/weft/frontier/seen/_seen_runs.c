/* See _seen_runs.h. Everything that reads a run checks the checksum of each page before it is used for the first time. */
#include "_seen_runs.h"
#include <stdlib.h>

enum { PAGE = 4096, WORDS = 8, BLOCK = 32, AHEAD = 16 };

static PyObject *unsound, *run_type;
static uint32_t crc_table[8][256];

static void make_crc_table(void) {
  for (uint32_t at = 0; at < 256; at++) {
    uint32_t crc = at;
    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    crc_table[0][at] = crc;
  }
  for (int row = 1; row < 8; row++)
    for (int at = 0; at < 256; at++)
      crc_table[row][at] = crc_table[row - 1][at] >> 8 ^ crc_table[0][crc_table[row - 1][at] & 255];
}

static uint32_t crc_of(const uint8_t *data, size_t size) { /* that of zlib */
  uint32_t crc = ~0u;
  for (; size >= 8; size -= 8, data += 8) {
    uint32_t low = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
    crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
          crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
          crc_table[0][data[7]];
  }
  while (size--) crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 255];
  return ~crc;
}

/* ── looking up ──────────────────────────────────────────────────────────────────────────────────────────────────── */

static uint64_t block_of(uint64_t number, uint64_t blocks) { return (number >> 32) * blocks >> 32; }

static int is_sound(const Run *run, const void *first, const void *end) {
  size_t page = (size_t)((const uint8_t *)first - (const uint8_t *)run->file.buf) / PAGE;
  size_t last = (size_t)((const uint8_t *)end - 1 - (const uint8_t *)run->file.buf) / PAGE;
  for (; page <= last; page++) {
    if (run->checked[page]) continue;
    if (crc_of((const uint8_t *)run->file.buf + page * PAGE, PAGE) != run->sums[page]) return 0;
    run->checked[page] = 1;
  }
  return 1;
}

static uint32_t rank_at(const Run *run, uint64_t block) {
  uint32_t rank;
  memcpy(&rank, run->guide + block * BLOCK, sizeof rank);
  return rank;
}

/* The index of a number; -1: the run does not have it; -2: the run is damaged. */
static int64_t index_in(const Run *run, uint64_t number) {
  uint64_t block = block_of(number, run->blocks);
  const uint8_t *guide = run->guide + block * BLOCK;
  if (!is_sound(run, guide, guide + BLOCK + 4)) return -2;
  uint32_t words[WORDS];
  memcpy(words, guide, BLOCK);
  for (int word = 1; word < WORDS; word++)
    if (!(words[word] >> (number >> (5 * (word - 1)) & 31) & 1)) return -1;
  uint64_t low = words[0], high = rank_at(run, block + 1);
  if (low >= high) return low > high || high > run->count ? -2 : -1;
  if (high > run->count || !is_sound(run, run->keys + low, run->keys + high)) return -2;
  for (; low < high; low++)
    if (run->keys[low] >= number) return run->keys[low] == number ? (int64_t)low : -1;
  return -1;
}

static void damaged(const Run *run) { PyErr_SetObject(unsound, (PyObject *)run); }

int runs_from(PyObject *listed, Runs *runs) {
  runs->runs = NULL;
  runs->size = 0;
  if (listed == NULL || listed == Py_None) return 0;
  if (!PyTuple_Check(listed)) {
    PyErr_SetString(PyExc_TypeError, "runs is not a tuple");
    return -1;
  }
  Py_ssize_t size = PyTuple_GET_SIZE(listed);
  if (!size) return 0;
  for (Py_ssize_t at = 0; at < size; at++)
    if (!Py_IS_TYPE(PyTuple_GET_ITEM(listed, at), (PyTypeObject *)run_type)) {
      PyErr_SetString(PyExc_TypeError, "not a Run");
      return -1;
    }
  runs->runs = PyMem_Malloc((size_t)size * sizeof *runs->runs);
  if (runs->runs == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t at = 0; at < size; at++) runs->runs[at] = (Run *)PyTuple_GET_ITEM(listed, at);
  runs->size = size;
  return 0;
}

int runs_mark(const Runs *runs, const uint64_t *numbers, Py_ssize_t count, uint8_t *known, IsGone is_gone,
              const void *gone) {
  for (Py_ssize_t start = 0; start < count; start += AHEAD) {
    Py_ssize_t end = start + AHEAD < count ? start + AHEAD : count;
#ifdef __GNUC__ /* the guides' lines are brought into the caches side by side: each would be waited for in turn */
    for (Py_ssize_t which = 0; which < runs->size; which++)
      for (Py_ssize_t at = start; at < end; at++) {
        const Run *run = runs->runs[which];
        if (!known[at]) __builtin_prefetch(run->guide + block_of(numbers[at], run->blocks) * BLOCK);
      }
#endif
    for (Py_ssize_t at = start; at < end; at++)
      for (Py_ssize_t which = 0; which < runs->size && !known[at]; which++) {
        int64_t index = index_in(runs->runs[which], numbers[at]);
        if (index == -2) {
          damaged(runs->runs[which]);
          return -1;
        }
        if (index < 0) continue;
        if (is_gone != NULL && is_gone(gone, numbers[at])) break;
        known[at] = 1;
      }
  }
  return 0;
}

static PyObject *find(Run *self, PyObject *value) {
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == (uint64_t)-1 && PyErr_Occurred()) return NULL;
  int64_t index = index_in(self, number);
  if (index >= 0 && !is_sound(self, self->lines + index, self->lines + index + 1)) index = -2;
  if (index == -2) {
    damaged(self);
    return NULL;
  }
  return PyLong_FromLongLong(index < 0 ? -1 : (long long)self->lines[index]);
}

/* ── merging ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  const Run *run;
  const uint32_t *dead;
  Py_ssize_t dead_size;
  uint64_t at;
  uint32_t shift;
} Input;

static int is_dead(const Input *input, uint32_t line) {
  Py_ssize_t low = 0, high = input->dead_size;
  while (low < high) {
    Py_ssize_t middle = (low + high) / 2;
    if (input->dead[middle] < line) low = middle + 1;
    else high = middle;
  }
  return low < input->dead_size && input->dead[low] == line;
}

/* Puts the next entries into `keys` and `lines`; returns their number, or -1 and the damaged run. */
static Py_ssize_t merge_some(Input *inputs, Py_ssize_t size, uint64_t *keys, uint32_t *lines, Py_ssize_t most,
                             const Run **broken) {
  Py_ssize_t made = 0;
  while (made < most) {
    Py_ssize_t first = -1;
    uint64_t least = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
      const Run *run = inputs[at].run;
      if (inputs[at].at >= run->count) continue;
      if (inputs[at].at % (PAGE / 8) == 0 &&
          !(is_sound(run, run->keys + inputs[at].at, run->keys + inputs[at].at + 1) &&
            is_sound(run, run->lines + inputs[at].at, run->lines + inputs[at].at + 1))) {
        *broken = run;
        return -1;
      }
      uint64_t key = run->keys[inputs[at].at];
      if (first < 0 || key < least) {
        first = at;
        least = key;
      }
    }
    if (first < 0) break;
    uint32_t newest = 0;
    int is_live = 0;
    for (Py_ssize_t at = first; at < size; at++) { /* a URL that came back is in several: the last line counts */
      Input *input = &inputs[at];
      if (input->at >= input->run->count || input->run->keys[input->at] != least) continue;
      uint32_t line = input->run->lines[input->at++];
      if (input->dead_size && is_dead(input, line)) continue;
      line += input->shift;
      if (!is_live || line > newest) newest = line;
      is_live = 1;
    }
    if (is_live) {
      keys[made] = least;
      lines[made++] = newest;
    }
  }
  return made;
}

static void release_all(Py_buffer *views, Py_ssize_t count) {
  for (Py_ssize_t at = 0; at < count; at++) PyBuffer_Release(&views[at]);
}

static PyObject *merge(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *listed, *positions, *shifts, *dead;
  Py_ssize_t most, viewed = 0, made = -1;
  if (!PyArg_ParseTuple(args, "O!O!O!O!n", &PyTuple_Type, &listed, &PyList_Type, &positions, &PyTuple_Type, &shifts,
                        &PyTuple_Type, &dead, &most))
    return NULL;
  Py_ssize_t size = PyTuple_GET_SIZE(listed);
  if (PyList_GET_SIZE(positions) != size || PyTuple_GET_SIZE(shifts) != size || PyTuple_GET_SIZE(dead) != size || most < 0)
    return PyErr_Format(PyExc_ValueError, "lists of different lengths");
  Runs runs;
  if (runs_from(listed, &runs) < 0) return NULL;
  Input *inputs = PyMem_Calloc((size_t)size + 1, sizeof *inputs);
  Py_buffer *views = PyMem_Calloc((size_t)size + 1, sizeof *views);
  PyObject *keys = PyBytes_FromStringAndSize(NULL, most * 8), *lines = PyBytes_FromStringAndSize(NULL, most * 4);
  const Run *broken = NULL;
  if (inputs == NULL || views == NULL || keys == NULL || lines == NULL) goto done;
  for (; viewed < size; viewed++) {
    Input *input = &inputs[viewed];
    input->run = runs.runs[viewed];
    input->at = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(positions, viewed));
    input->shift = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(shifts, viewed));
    if (PyErr_Occurred() || PyObject_GetBuffer(PyTuple_GET_ITEM(dead, viewed), &views[viewed], PyBUF_SIMPLE) < 0) goto done;
    input->dead = views[viewed].buf;
    input->dead_size = views[viewed].len / 4;
  }
  Py_BEGIN_ALLOW_THREADS
  made = merge_some(inputs, size, (uint64_t *)PyBytes_AS_STRING(keys), (uint32_t *)PyBytes_AS_STRING(lines), most, &broken);
  Py_END_ALLOW_THREADS
  if (broken != NULL) damaged(broken);
  for (Py_ssize_t at = 0; made >= 0 && at < size; at++) {
    PyObject *position = PyLong_FromUnsignedLongLong(inputs[at].at);
    if (position == NULL || PyList_SetItem(positions, at, position) < 0) made = -1;
  }
  if (made >= 0 && (_PyBytes_Resize(&keys, made * 8) < 0 || _PyBytes_Resize(&lines, made * 4) < 0)) made = -1;
done:
  if (views != NULL) release_all(views, viewed);
  PyMem_Free(views);
  PyMem_Free(inputs);
  PyMem_Free(runs.runs);
  if (made >= 0) return Py_BuildValue("NN", keys, lines);
  if (!PyErr_Occurred()) PyErr_NoMemory();
  Py_XDECREF(keys);
  Py_XDECREF(lines);
  return NULL;
}

typedef struct {
  uint64_t key;
  uint32_t line;
} Entry;

static int compare(const void *one, const void *other) {
  const Entry *left = one, *right = other;
  if (left->key != right->key) return left->key < right->key ? -1 : 1;
  return left->line < right->line ? -1 : left->line > right->line;
}

/* Fingerprints are spread evenly: shared out by their upper bits, four or so of them are left to be compared. */
static int sort_entries(const uint64_t *numbers, const uint32_t *lines, Entry *entries, size_t count) {
  int bits = 0;
  while (bits < 24 && (size_t)4 << bits < count) bits++;
  size_t *ends = PyMem_RawCalloc(((size_t)1 << bits) + 1, sizeof *ends);
  if (ends == NULL) return -1;
#define BUCKET(number) (bits ? (size_t)((number) >> (64 - bits)) : 0)
  for (size_t at = 0; at < count; at++) ends[BUCKET(numbers[at]) + 1]++;
  for (size_t bucket = 0; bucket < (size_t)1 << bits; bucket++) ends[bucket + 1] += ends[bucket];
  for (size_t at = 0; at < count; at++) entries[ends[BUCKET(numbers[at])]++] = (Entry){numbers[at], lines[at]};
  for (size_t bucket = 0, start = 0; bucket < (size_t)1 << bits; start = ends[bucket++])
    if (ends[bucket] - start > 1) qsort(entries + start, ends[bucket] - start, sizeof *entries, compare);
#undef BUCKET
  PyMem_RawFree(ends);
  return 0;
}

static PyObject *arranged(PyObject *Py_UNUSED(module), PyObject *args) {
  Py_buffer numbers, lines;
  if (!PyArg_ParseTuple(args, "y*y*", &numbers, &lines)) return NULL;
  Py_ssize_t count = numbers.len / 8, made = 0;
  Entry *entries = PyMem_RawMalloc(((size_t)count + 1) * sizeof *entries);
  PyObject *keys = NULL, *sorted = NULL, *both = NULL;
  if (lines.len != count * 4) {
    PyErr_SetString(PyExc_ValueError, "numbers and lines differ in length");
    goto done;
  }
  if (entries == NULL) {
    PyErr_NoMemory();
    goto done;
  }
  int failed;
  Py_BEGIN_ALLOW_THREADS
  failed = sort_entries(numbers.buf, lines.buf, entries, (size_t)count);
  for (Py_ssize_t at = 0; !failed && at < count; at++) /* of one key, the last line */
    if (at + 1 == count || entries[at + 1].key != entries[at].key) entries[made++] = entries[at];
  Py_END_ALLOW_THREADS
  if (failed) {
    PyErr_NoMemory();
    goto done;
  }
  keys = PyBytes_FromStringAndSize(NULL, made * 8);
  sorted = PyBytes_FromStringAndSize(NULL, made * 4);
  if (keys == NULL || sorted == NULL) goto done;
  for (Py_ssize_t at = 0; at < made; at++) {
    ((uint64_t *)PyBytes_AS_STRING(keys))[at] = entries[at].key;
    ((uint32_t *)PyBytes_AS_STRING(sorted))[at] = entries[at].line;
  }
  both = PyTuple_Pack(2, keys, sorted);
done:
  Py_XDECREF(keys);
  Py_XDECREF(sorted);
  PyMem_RawFree(entries);
  PyBuffer_Release(&numbers);
  PyBuffer_Release(&lines);
  return both;
}

/* ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

static PyObject *guide(PyObject *Py_UNUSED(module), PyObject *args) {
  Py_buffer keys, out;
  unsigned long long rank, blocks, first, ranked;
  if (!PyArg_ParseTuple(args, "y*KKKKw*", &keys, &rank, &blocks, &first, &ranked, &out)) return NULL;
  const uint64_t *numbers = keys.buf;
  Py_ssize_t count = keys.len / 8;
  uint64_t end = first + (uint64_t)out.len / BLOCK;
  int fits = ranked >= first && ranked <= end && (!count || block_of(numbers[count - 1], blocks) < end);
  Py_BEGIN_ALLOW_THREADS
  for (Py_ssize_t at = 0; fits && at < count; at++) {
    uint64_t block = block_of(numbers[at], blocks);
    if (block < first || block >= end) { /* they are not in order */
      fits = 0;
      break;
    }
    uint32_t words[WORDS], before = (uint32_t)(rank + (uint64_t)at);
    for (; ranked <= block; ranked++) memcpy((uint8_t *)out.buf + (ranked - first) * BLOCK, &before, sizeof before);
    uint8_t *place = (uint8_t *)out.buf + (block - first) * BLOCK;
    memcpy(words, place, BLOCK);
    for (int word = 1; word < WORDS; word++) words[word] |= 1u << (numbers[at] >> (5 * (word - 1)) & 31);
    memcpy(place, words, BLOCK);
  }
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&keys);
  PyBuffer_Release(&out);
  if (!fits) return PyErr_Format(PyExc_ValueError, "the guide has no room for these numbers");
  return PyLong_FromUnsignedLongLong(ranked);
}

static PyObject *checksums(PyObject *Py_UNUSED(module), PyObject *args) {
  Py_buffer data;
  if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
  Py_ssize_t pages = data.len / PAGE;
  PyObject *sums = PyBytes_FromStringAndSize(NULL, pages * 4);
  if (sums != NULL) {
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t page = 0; page < pages; page++)
      ((uint32_t *)PyBytes_AS_STRING(sums))[page] = crc_of((const uint8_t *)data.buf + page * PAGE, PAGE);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&data);
  return sums;
}

/* ── the type ────────────────────────────────────────────────────────────────────────────────────────────────────── */

static PyObject *make_run(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named)) {
  PyObject *file;
  unsigned long long count, blocks, guide_at, keys_at, lines_at, sums_at;
  if (!PyArg_ParseTuple(args, "OKKKKKK", &file, &count, &blocks, &guide_at, &keys_at, &lines_at, &sums_at)) return NULL;
  Run *self = (Run *)type->tp_alloc(type, 0);
  if (self == NULL) return NULL;
  if (PyObject_GetBuffer(file, &self->file, PyBUF_SIMPLE) < 0) {
    Py_DECREF(self);
    return NULL;
  }
  uint64_t size = (uint64_t)self->file.len, most = UINT32_MAX;
  uint64_t pages = sums_at / PAGE;
  if (count > most || !blocks || blocks > most || guide_at > size || keys_at > size || lines_at > size || sums_at > size ||
      (guide_at | keys_at | lines_at | sums_at) % PAGE || (size - sums_at) / 4 < pages ||
      guide_at + (blocks + 1) * BLOCK > keys_at || keys_at + count * 8 > lines_at || lines_at + count * 4 > sums_at) {
    Py_DECREF(self);
    return PyErr_Format(PyExc_ValueError, "not the parts of a run");
  }
  const uint8_t *data = self->file.buf;
  self->guide = data + guide_at;
  self->keys = (const uint64_t *)(data + keys_at);
  self->lines = (const uint32_t *)(data + lines_at);
  self->sums = (const uint32_t *)(data + sums_at);
  self->count = count;
  self->blocks = blocks;
  self->checked = PyMem_Calloc(pages + 1, 1);
  if (self->checked == NULL) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return (PyObject *)self;
}

static void drop_run(Run *self) {
  PyTypeObject *type = Py_TYPE(self);
  if (self->file.obj != NULL) PyBuffer_Release(&self->file);
  PyMem_Free(self->checked);
  type->tp_free((PyObject *)self);
  Py_DECREF(type);
}

static Py_ssize_t run_length(Run *self) { return (Py_ssize_t)self->count; }

static PyMethodDef run_methods[] = {
    {"find", (PyCFunction)find, METH_O, "The line of a number, -1 where the run does not have it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_new, make_run},       {Py_tp_dealloc, drop_run}, {Py_tp_methods, run_methods},
    {Py_sq_length, run_length},  {Py_tp_doc, "A mapped run of fingerprints."}, {0, NULL},
};

static PyType_Spec run_spec = {"weft.frontier.seen._seen_table.Run", sizeof(Run), 0, Py_TPFLAGS_DEFAULT, run_slots};

PyMethodDef run_functions[] = {
    {"merge", merge, METH_VARARGS, "The next entries of several runs."},
    {"arranged", arranged, METH_VARARGS, "Numbers in order, once each, with their last lines."},
    {"guide", guide, METH_VARARGS, "Enters numbers into a part of the guide."},
    {"checksums", checksums, METH_VARARGS, "Those of the pages of a file."},
    {NULL, NULL, 0, NULL},
};

int add_runs(PyObject *module) {
  make_crc_table();
  if (run_type == NULL) run_type = PyType_FromSpec(&run_spec);
  if (unsound == NULL) unsound = PyErr_NewException("weft.frontier.seen._seen_table.Unsound", NULL, NULL);
  if (run_type == NULL || unsound == NULL) return -1;
  if (PyModule_AddObjectRef(module, "Run", run_type) < 0 || PyModule_AddObjectRef(module, "Unsound", unsound) < 0) return -1;
  return PyModule_AddFunctions(module, run_functions);
}
