/* How often a letter is in a text: what `str.count` does, sixteen letters at a time. It is asked about every page. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { BLOCK = 240 }; /* letters whose count fits a byte, so that a compiler makes sums of sixteen or more bytes at a time */

#define COUNT(TYPE)                                                                                     \
  do {                                                                                                  \
    const TYPE *letters = PyUnicode_DATA(text);                                                         \
    for (; size >= BLOCK; size -= BLOCK, letters += BLOCK) {                                            \
      uint8_t some = 0;                                                                                 \
      for (int at = 0; at < BLOCK; at++) some = (uint8_t)(some + (letters[at] == (TYPE)letter));        \
      count += some;                                                                                    \
    }                                                                                                   \
    for (Py_ssize_t at = 0; at < size; at++) count += letters[at] == (TYPE)letter;                      \
  } while (0)

static PyObject *times(PyObject *Py_UNUSED(module), PyObject *args) {
  PyObject *text;
  int letter;
  if (!PyArg_ParseTuple(args, "UC", &text, &letter)) return NULL;
  if (letter > 127) return PyErr_Format(PyExc_ValueError, "not an ASCII letter");
  Py_ssize_t size = PyUnicode_GET_LENGTH(text), count = 0;
  switch (PyUnicode_KIND(text)) {
    case PyUnicode_1BYTE_KIND: COUNT(Py_UCS1); break;
    case PyUnicode_2BYTE_KIND: COUNT(Py_UCS2); break;
    default: COUNT(Py_UCS4);
  }
  return PyLong_FromSsize_t(count);
}

static PyMethodDef methods[] = {
    {"times", times, METH_VARARGS, "How often a letter is in a text."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_letters", "Letters counted, compiled.", 0, methods,
                                 NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__letters(void) { return PyModuleDef_Init(&definition); }
