/* Lists of a page's links, looked through and written down at once: the same as link_lists.py, which says what is done and
 * is used where this was not built.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { SCHEME = 8, MOST_COMPARED = 64, MOST_EXTENSION = 16 };

typedef struct {
  long earliest_year, latest_year;
  Py_ssize_t most_segments, longest_extension;
  PyObject *extensions;
  char last[MOST_EXTENSION]; /* the extension that was looked up last, in small letters, and what was found */
  Py_ssize_t last_size;
  int last_is_skipped;
} Look;

static int is_digit(uint8_t letter) { return letter >= '0' && letter <= '9'; }

/* Whether `at` begins with a year and a separator, as in `/1234/` or `/1234-`, and the year is none that a calendar has. */
static int is_odd_year(const Look *look, const uint8_t *at, Py_ssize_t left) {
  if (left < 5 || !(is_digit(at[0]) && is_digit(at[1]) && is_digit(at[2]) && is_digit(at[3]))) return 0;
  if (at[4] != '/' && at[4] != '-') return 0;
  long year = (at[0] - '0') * 1000 + (at[1] - '0') * 100 + (at[2] - '0') * 10 + (at[3] - '0');
  return year < look->earliest_year || year > look->latest_year;
}

/* Whether a segment of the path is there three times. */
static int is_repetitive(const uint8_t *path, const Py_ssize_t *starts, Py_ssize_t segments) {
  for (Py_ssize_t one = 0; one + 2 < segments; one++) {
    Py_ssize_t size = starts[one + 1] - starts[one], times = 1;
    if (size == 1) continue; /* nothing between two slashes */
    for (Py_ssize_t other = one + 1; other < segments; other++)
      times += starts[other + 1] - starts[other] == size && memcmp(path + starts[one], path + starts[other], (size_t)size - 1) == 0;
    if (times >= 3) return 1;
  }
  return 0;
}

/* Whether the path ends in an extension of those that are skipped; -1 with an error. */
static int is_skipped(Look *look, const uint8_t *path, Py_ssize_t size) {
  Py_ssize_t dot = size - 1, least = size - 1 - look->longest_extension;
  while (dot >= 0 && dot >= least && path[dot] != '.') dot--;
  if (dot < 0 || dot < least) return 0;
  char extension[MOST_EXTENSION];
  Py_ssize_t length = size - dot - 1;
  for (Py_ssize_t at = 0; at < length; at++) {
    uint8_t letter = path[dot + 1 + at];
    extension[at] = (char)(letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter);
  }
  if (length == look->last_size && memcmp(extension, look->last, (size_t)length) == 0) return look->last_is_skipped;
  PyObject *text = PyUnicode_FromStringAndSize(extension, length);
  int found = text == NULL ? -1 : PySequence_Contains(look->extensions, text);
  Py_XDECREF(text);
  if (found < 0) return -1;
  memcpy(look->last, extension, (size_t)length);
  look->last_size = length;
  look->last_is_skipped = found;
  return found;
}

/* Whether a URL must be looked at more closely: 1, 0, or -1 with an error. `path` begins with the first slash behind the
 * host. */
static int is_odd(Look *look, const uint8_t *path, Py_ssize_t size) {
  Py_ssize_t starts[MOST_COMPARED + 1], segments = 0;
  for (Py_ssize_t at = 0; at < size; at++) {
    if (path[at] == '?' || path[at] == '=') return 1;
    if (path[at] != '/') continue;
    if (segments >= look->most_segments || segments >= MOST_COMPARED) return 1;
    starts[segments++] = at + 1;
    if (is_odd_year(look, path + at + 1, size - at - 1)) return 1;
  }
  starts[segments] = size + 1;
  if (segments >= 3 && is_repetitive(path, starts, segments)) return 1;
  return is_skipped(look, path, size);
}

/* The group of an origin, made if there is none: a tuple of origin, URLs and the odd ones, borrowed. */
static PyObject *group_of(PyObject *groups, PyObject *by_origin, PyObject *url, Py_ssize_t size) {
  PyObject *origin = PyUnicode_Substring(url, 0, size);
  if (origin == NULL) return NULL;
  PyObject *group = PyDict_GetItemWithError(by_origin, origin);
  if (group == NULL && !PyErr_Occurred()) {
    group = Py_BuildValue("ONN", origin, PyList_New(0), PySet_New(NULL));
    if (group != NULL && (PyDict_SetItem(by_origin, origin, group) < 0 || PyList_Append(groups, group) < 0)) Py_CLEAR(group);
    Py_XDECREF(group); /* the list has it */
  }
  Py_DECREF(origin);
  return group;
}

static int put_in(PyObject *groups, PyObject *by_origin, PyObject **last, PyObject *url, Look *look) {
  if (!PyUnicode_Check(url) || !PyUnicode_IS_COMPACT_ASCII(url)) {
    PyErr_SetString(PyExc_ValueError, "a canonical URL is ASCII");
    return -1;
  }
  const uint8_t *text = PyUnicode_1BYTE_DATA(url);
  Py_ssize_t size = PyUnicode_GET_LENGTH(url);
  const uint8_t *slash = size > SCHEME ? memchr(text + SCHEME, '/', (size_t)(size - SCHEME)) : NULL;
  if (slash == NULL) {
    PyErr_SetString(PyExc_ValueError, "a canonical URL has a path");
    return -1;
  }
  Py_ssize_t start = slash - text;
  PyObject *origin = *last == NULL ? NULL : PyTuple_GET_ITEM(*last, 0);
  if (origin == NULL || PyUnicode_GET_LENGTH(origin) != start || memcmp(PyUnicode_1BYTE_DATA(origin), text, (size_t)start) != 0)
    *last = group_of(groups, by_origin, url, start);
  if (*last == NULL || PyList_Append(PyTuple_GET_ITEM(*last, 1), url) < 0) return -1;
  int odd = is_odd(look, slash, size - start);
  return odd > 0 ? PySet_Add(PyTuple_GET_ITEM(*last, 2), url) : odd;
}

static PyObject *grouped(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *links, *last = NULL;
  Look look = {.last_size = -1};
  if (!PyArg_ParseTuple(args, "O!llnnO", &PyList_Type, &links, &look.earliest_year, &look.latest_year, &look.most_segments,
                        &look.longest_extension, &look.extensions))
    return NULL;
  if (look.longest_extension < 0 || look.longest_extension > MOST_EXTENSION)
    return PyErr_Format(PyExc_ValueError, "extensions have at most %d letters", MOST_EXTENSION);
  PyObject *groups = PyList_New(0), *by_origin = PyDict_New();
  int failed = groups == NULL || by_origin == NULL;
  for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(links); at++)
    failed = put_in(groups, by_origin, &last, PyList_GET_ITEM(links, at), &look) < 0;
  Py_XDECREF(by_origin);
  if (failed) Py_CLEAR(groups);
  return groups;
}

static char *put_number(char *to, unsigned long long number) {
  char digits[20], *at = digits + sizeof digits;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  size_t size = (size_t)(digits + sizeof digits - at);
  memcpy(to, at, size);
  return to + size;
}

static PyObject *numbered(PyObject *Py_UNUSED(module), PyObject *args) {
  unsigned long long first;
  const char *middle;
  Py_ssize_t middle_size, cut, bytes = 0;
  PyObject *urls;
  if (!PyArg_ParseTuple(args, "Ks#O!n", &first, &middle, &middle_size, &PyList_Type, &urls, &cut)) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(urls);
  for (Py_ssize_t at = 0; at < count; at++) {
    PyObject *url = PyList_GET_ITEM(urls, at);
    if (!PyUnicode_Check(url) || !PyUnicode_IS_COMPACT_ASCII(url) || cut < 0 || cut > PyUnicode_GET_LENGTH(url))
      return PyErr_Format(PyExc_ValueError, "a canonical URL is ASCII, and longer than its origin");
    bytes += PyUnicode_GET_LENGTH(url) - cut;
  }
  PyObject *lines = PyBytes_FromStringAndSize(NULL, bytes + count * (20 + middle_size + 1));
  if (lines == NULL) return NULL;
  char *start = PyBytes_AS_STRING(lines), *to = start;
  for (Py_ssize_t at = 0; at < count; at++) {
    PyObject *url = PyList_GET_ITEM(urls, at);
    size_t size = (size_t)(PyUnicode_GET_LENGTH(url) - cut);
    to = put_number(to, first + (unsigned long long)at);
    memcpy(to, middle, (size_t)middle_size);
    memcpy(to + middle_size, PyUnicode_1BYTE_DATA(url) + cut, size);
    to += middle_size + (Py_ssize_t)size;
    *to++ = '\n';
  }
  _PyBytes_Resize(&lines, to - start);
  return lines;
}

static PyMethodDef methods[] = {
    {"grouped", grouped, METH_VARARGS, "URLs by origin, and which of each origin's must be judged one by one."},
    {"numbered", numbered, METH_VARARGS, "A line for each URL: its number, what all have in common, and its end."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_link_lists", "Lists of links, compiled.", 0, methods,
                                 NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__link_lists(void) { return PyModuleDef_Init(&definition); }
