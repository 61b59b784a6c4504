"""Inputs of any type are kept without a pickle and read again as they were."""

import numpy as np

from tasks.evaluate.inputs import pack_inputs, read_inputs


def test_strings_keep_their_zero_bytes_and_arrays_their_types(tmp_path):
    kept = {
        "photo": np.array([b"\x89PNG\0\0", b"", b"\0"], object),
        "nothing": np.array([b"", b"", b""], object),
        "petal width (cm)": np.array([0.5, np.nan, -1]),
        "pixels": np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1),
    }
    file = tmp_path / "kept.npz"
    np.savez(file, allow_pickle=False, ids=np.arange(3), **pack_inputs(kept))
    found = read_inputs(file)
    assert found.keys() == kept.keys()
    for name, values in kept.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
