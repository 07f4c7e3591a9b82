"""The pool of processes that survives the death of its workers."""
