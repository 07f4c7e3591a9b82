/* A page's references that need no URL parser, joined: the same as `join_plain` in plain_links.py, which says what is plain
 * and is used where this was not built. What is not plain is left to the parser, so this may be narrower than that one but
 * never wider than the standard.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { BEGINS = 1, SEGMENT = 2, QUERY = 4, WORD = 8, FIRST = 16, HOST = 32, DIGIT = 64 };
enum { LONGEST_HOST = 253, LONGEST_LABEL = 63 };

static uint8_t classes[256]; /* of each character: what it may be a part of without being changed by the parser */

static void classify(const char *characters, int class) {
  for (; *characters; characters++) classes[(uint8_t)*characters] |= (uint8_t)class;
}

static void fill_classes(void) {
  const char *lower = "abcdefghijklmnopqrstuvwxyz", *upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", *digits = "0123456789";
  int everywhere = BEGINS | SEGMENT | QUERY | WORD | FIRST;
  classify(lower, everywhere | HOST);
  classify(digits, everywhere | HOST | DIGIT);
  classify(upper, everywhere);
  classify("_~-", everywhere);
  classify("-", HOST);
  classify("!$&()*+,;=:@", BEGINS | SEGMENT | QUERY);
  classify(".%", SEGMENT | QUERY | WORD); /* at the beginning of a segment they may be a step: `.`, `..`, `%2e` */
  classify("/?", QUERY);
}

/* Where a path and query end that begin at `at` with a slash: at the end of the text or before a fragment; -1 where a
 * character needs the parser. */
static Py_ssize_t end_of_path(const uint8_t *text, Py_ssize_t at, Py_ssize_t size) {
  while (at < size && text[at] == '/') {
    at++;
    if (at < size && classes[text[at]] & BEGINS)
      do at++;
      while (at < size && classes[text[at]] & SEGMENT);
  }
  if (at < size && text[at] == '?')
    do at++;
    while (at < size && classes[text[at]] & QUERY);
  return at == size || text[at] == '#' ? at : -1;
}

/* Where the host and port end that begin at `at`; -1 where they may not be canonical as they stand: in capitals, numbers
 * that may be an address, labels that are encoded, a port that is the scheme's own. */
static Py_ssize_t end_of_host(const uint8_t *text, Py_ssize_t at, Py_ssize_t size, int is_https) {
  Py_ssize_t start = at, label = at;
  for (;; at++) {
    if (at < size && classes[text[at]] & HOST) continue;
    Py_ssize_t length = at - label;
    if (length < 1 || length > LONGEST_LABEL || (length > 3 && text[label + 2] == '-' && text[label + 3] == '-')) return -1;
    if (at == size || text[at] != '.') break;
    label = at + 1;
  }
  if (classes[text[label]] & DIGIT || at - start > LONGEST_HOST) return -1;
  if (at == size || text[at] != ':') return at;
  long port = 0;
  Py_ssize_t digits = ++at;
  for (; at < size && classes[text[at]] & DIGIT && at - digits < 6; at++) port = port * 10 + (text[at] - '0');
  if (at == digits || text[digits] == '0' || port > 65535 || port == (is_https ? 443 : 80)) return -1;
  return at;
}

/* A new str of three pieces. */
static PyObject *glued(const uint8_t *head, Py_ssize_t head_size, const char *middle, const uint8_t *tail, Py_ssize_t size) {
  Py_ssize_t between = (Py_ssize_t)strlen(middle);
  PyObject *url = PyUnicode_New(head_size + between + size, 127);
  if (url == NULL) return NULL;
  uint8_t *to = PyUnicode_1BYTE_DATA(url);
  memcpy(to, head, (size_t)head_size);
  memcpy(to + head_size, middle, (size_t)between);
  memcpy(to + head_size + between, tail, (size_t)size);
  return url;
}

/* A reference with a scheme and a host; None where it is not plain. */
static PyObject *whole(PyObject *href, const uint8_t *text, Py_ssize_t size, Py_ssize_t longest) {
  int is_https = text[4] == 's';
  Py_ssize_t path = end_of_host(text, 7 + is_https, size, is_https);
  Py_ssize_t end = path < 0 ? -1 : end_of_path(text, path, size);
  if (end < 0 || end >= longest) return Py_NewRef(Py_None);
  if (path == size || text[path] != '/') return glued(text, path, "/", text + path, end - path);
  return end == size ? Py_NewRef(href) : glued(text, 0, "", text, end);
}

/* One reference joined; None where it is not plain. */
static PyObject *joined_one(PyObject *href, PyObject *origin, PyObject *directory, Py_ssize_t longest) {
  if (!PyUnicode_Check(href)) return PyErr_Format(PyExc_TypeError, "a reference is not a str");
  if (!PyUnicode_IS_COMPACT_ASCII(href)) return Py_NewRef(Py_None);
  const uint8_t *text = PyUnicode_1BYTE_DATA(href);
  Py_ssize_t size = PyUnicode_GET_LENGTH(href), path = 0;
  PyObject *head = NULL;
  if (size > 8 && (memcmp(text, "http://", 7) == 0 || memcmp(text, "https://", 8) == 0)) return whole(href, text, size, longest);
  if (size > 0 && text[0] == '/') {
    if (size == 1 || text[1] != '/') head = origin;
  } else if (size > 0 && classes[text[0]] & FIRST) {
    while (++path < size && classes[text[path]] & WORD) continue;
    head = directory;
  }
  Py_ssize_t start = head == NULL ? 0 : PyUnicode_GET_LENGTH(head); /* an empty one: the caller has none */
  Py_ssize_t end = start ? end_of_path(text, path, size) : -1;
  if (end < 0 || start + end > longest) return Py_NewRef(Py_None);
  return glued(PyUnicode_1BYTE_DATA(head), start, "", text, end);
}

static PyObject *join_plain(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *origin, *directory, *hrefs;
  Py_ssize_t longest, left = 0;
  if (!PyArg_ParseTuple(args, "UUO!n", &origin, &directory, &PyList_Type, &hrefs, &longest)) return NULL;
  if (!PyUnicode_IS_COMPACT_ASCII(origin) || !PyUnicode_IS_COMPACT_ASCII(directory))
    return PyErr_Format(PyExc_ValueError, "a canonical URL is ASCII");
  PyObject *joined = PyList_New(PyList_GET_SIZE(hrefs));
  for (Py_ssize_t at = 0; joined != NULL && at < PyList_GET_SIZE(joined); at++) {
    PyObject *url = joined_one(PyList_GET_ITEM(hrefs, at), origin, directory, longest);
    if (url == NULL) {
      Py_CLEAR(joined);
      break;
    }
    left += url == Py_None;
    PyList_SET_ITEM(joined, at, url);
  }
  return joined == NULL ? NULL : Py_BuildValue("Nn", joined, left);
}

static PyMethodDef methods[] = {
    {"join_plain", join_plain, METH_VARARGS, "The URLs of references that are plain, None for others; and how many others."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *Py_UNUSED(module)) {
  fill_classes();
  return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_plain_links", "Plain references joined, compiled.", 0, methods,
                                 slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__plain_links(void) { return PyModuleDef_Init(&definition); }
