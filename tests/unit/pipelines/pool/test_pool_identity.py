"""Whether a descriptor is still the file it was."""

from __future__ import annotations

import os
import socket
import tempfile

from weft.pipelines.pool.worker.descriptors import Descriptors, identity


def test_an_identity_goes_with_the_file_and_not_with_the_number() -> None:
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        first = identity(one.fileno())
        copy = os.dup(one.fileno())
        assert (identity(copy) == first, identity(other.fileno()) == first) == (True, False)
        os.dup2(other.fileno(), copy)
        assert identity(copy) == identity(other.fileno())
        os.close(copy)
        assert identity(copy) is None


def test_closed_and_replaced_descriptors_are_noticed() -> None:
    ours, theirs = socket.socketpair()
    numbers = [os.memfd_create("one"), ours.detach()]
    for number in numbers:
        descriptors = Descriptors(numbers)
        assert (descriptors.open(), descriptors.intact()) == (True, True)
        kept = os.dup(number)
        os.close(number)
        assert (descriptors.open(), descriptors.intact()) == (False, False)
        os.dup2(theirs.fileno(), number)
        assert (descriptors.open(), descriptors.intact()) == (True, False)  # the quick look sees only what is closed
        os.dup2(kept, number)
        assert (descriptors.open(), descriptors.intact()) == (True, True)
        os.close(kept)
    theirs.close()
    # its other end has hung up, which poll reports every time: the thorough look says that nothing is wrong
    assert (descriptors.open(), descriptors.intact()) == (True, True)
    for number in numbers:
        os.close(number)
