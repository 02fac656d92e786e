"""Functions as users might write them, good and bad."""

import pyarrow as pa


def same(batch):
    return batch


def nothing(batch):
    return batch.slice(0, 0)


def raises(batch):
    raise KeyError("no such field")


def returns_none(batch):
    return None


def reverses(batch):
    return batch.take(pa.array(range(len(batch) - 1, -1, -1)))


not_a_function = 5
