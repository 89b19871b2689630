"""numpy and pandas: what comes back is the same to the last bit, or was refused."""

import datetime as dt
import decimal
import uuid

import codec_kinds as kinds
import numpy as np
import pandas as pd
import pytest
from codec_anatomy import anatomy
from codec_stores import put, values_at

from threadline import NotSerializable
from threadline.codec import Codec

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass", "ignore:The DataFrame has column names")


def again(value):
    codec = Codec()
    packed = codec.encode(value)
    found = codec.decode(packed)
    assert codec.encode(found) == packed
    return found


def same_or_refused(value):
    """Whether a value came back the same; False when it was refused instead. Anything between is an error."""
    try:
        Codec().encode(value)
    except NotSerializable:
        return False
    assert anatomy(again(value)) == anatomy(value)
    return True


SCALARS = {
    "bool": np.bool_(True),
    "int8": np.int8(-5),
    "uint64": np.uint64(2**64 - 1),
    "float16": np.float16(1.5),
    "float32": np.float32(0.1),
    "float64": np.float64(-0.0),
    "nan": np.float64("nan"),
    "long double": np.longdouble("1.1"),
    "complex64": np.complex64(1 - 0j),
    "complex128": np.complex128(1j),
    "text": np.str_("añ\U0001f9f5"),
    "empty text": np.str_(""),
    "bytes": np.bytes_(b"a\xff"),
    "empty bytes": np.bytes_(b""),
    "datetime": np.datetime64("2024-02-29T12:00:00.123456789"),
    "date": np.datetime64("2024-02-29"),
    "no datetime": np.datetime64("NaT"),
    "timedelta": np.timedelta64(-5, "ms"),
    "void": np.void(b"\x00\xff\x01"),
    "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])[0],
}

ARRAYS = {
    "ints": np.arange(6),
    "floats": np.array([0.1, -0.0, np.nan, np.inf]),
    "bools": np.array([True, False]),
    "texts": np.array(["a", "bcd", ""]),
    "empty texts": np.array(["", ""]),
    "bytes": np.array([b"a", b"bc"]),
    "datetimes": np.array(["2024-01-01", "NaT"], dtype="M8[us]"),
    "complex": np.array([1j, -0.0]),
    "big endian": np.array([1, 2], dtype=">i2"),
    "halves": np.array([1.5], dtype="f2"),
    "nothing": np.array([]),
    "nothing of a shape": np.zeros((0, 3), dtype="i1"),
    "a single number": np.array(5),
    "a single object": np.array({"a": (1,)}, dtype=object),
    "matrix": np.arange(6).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "columns first, objects": np.asfortranarray(np.array([[1, "a"], [None, (2,)]], dtype=object)),
    "three dimensions": np.arange(24, dtype="u1").reshape(2, 3, 4),
    "objects": np.array([1, "a", None, [2], kinds.Point(1), bytearray(b"b"), 2**70], dtype=object),
    "arrays as objects": np.array([np.arange(2), np.array("x")], dtype=object),
    "structured": np.array([(1, 2.5), (3, -0.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "structured within": np.zeros(2, dtype=[("a", "i4", (2, 2)), ("n", [("x", "f4"), ("y", "u1")])]),
    "titled": np.zeros(1, dtype=[(("title", "a"), "i4")]),
    "void": np.array([b"\x00\x01"], dtype="V2"),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_comes_back_as_a_scalar_of_its_type(name):
    assert anatomy(again(SCALARS[name])) == anatomy(SCALARS[name])
    assert anatomy(again({"deep": [SCALARS[name]]})) == anatomy({"deep": [SCALARS[name]]})


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_with_its_type_shape_and_order(name):
    assert anatomy(again(ARRAYS[name])) == anatomy(ARRAYS[name])
    assert anatomy(again((ARRAYS[name], 1))) == anatomy((ARRAYS[name], 1))


def test_an_array_that_came_back_can_be_changed():
    for name in ("ints", "matrix", "columns first", "objects", "structured", "a single number"):
        found = again(ARRAYS[name])
        found[...] = found.ravel()[0]
        assert found.flags.writeable


def test_a_view_comes_back_as_what_it_shows():
    whole = np.arange(20).reshape(4, 5)
    for view in (whole[::2], whole[:, 1], whole[::-1, ::-1], whole.T[1:], np.broadcast_to(whole[0], (3, 5))):
        found = again(view)
        assert found.dtype == view.dtype
        assert np.array_equal(found, view)


def test_a_scalar_of_numpy_is_not_taken_for_a_number_of_python():
    packed = {Codec().encode(value) for value in (1.0, np.float64(1.0), np.float32(1.0), 1, np.int64(1), np.array(1.0))}
    assert len(packed) == 6
    assert type(again({np.int64(1): np.float64(2)}).popitem()[0]) is np.int64


def test_a_dtype_comes_back():
    for dtype in (np.dtype("f4"), np.dtype(">i8"), np.dtype("M8[ns]"), np.dtype([("a", "i4"), ("b", "S3")])):
        assert again(dtype) == dtype


MORE_THAN_BYTES = {
    "masked": lambda: np.ma.array([1, 2], mask=[True, False]),
    "matrix": lambda: np.matrix([[1, 2]]),
    "records": lambda: np.rec.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]),
    "structured objects": lambda: np.array([(1, [2])], dtype=[("a", "i4"), ("b", "O")]),
    "a structured object": lambda: np.array([(1, [2])], dtype=[("a", "i4"), ("b", "O")])[0],
    "aligned": lambda: np.array([(1, 2.5)], dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "offsets": lambda: np.zeros(
        2, dtype=np.dtype({"names": ["a", "b"], "formats": ["u1", "u4"], "offsets": [4, 0], "itemsize": 16})
    ),
    "texts of any length": lambda: np.array(["a", "bc"], dtype=np.dtypes.StringDType()),
    "aligned dtype": lambda: np.dtype([("a", "i1"), ("b", "f8")], align=True),
    "dtype of texts": np.dtypes.StringDType,
}


@pytest.mark.parametrize("name", MORE_THAN_BYTES)
def test_an_array_that_is_more_than_its_bytes_comes_back_whole_or_is_refused(name):
    same_or_refused(MORE_THAN_BYTES[name]())


FRAMES = {
    "plain": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, float("nan")], "d": [True, False]}),
    "numbers as names": lambda: pd.DataFrame([[1, 2], [3, 4]]),
    "small types": lambda: pd.DataFrame({"a": np.array([1], dtype="i1"), "b": np.array([1.5], dtype="f4")}),
    "index of two levels": lambda: pd.DataFrame(
        {"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["k", "n"])
    ),
    "named index": lambda: pd.DataFrame({"a": [1]}, index=pd.Index([5], name="i")),
    "index of dates": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.DatetimeIndex(["2024-01-01", "2024-01-03"])),
    "columns of two levels": lambda: pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("b", "y")])
    ),
    "named columns": lambda: pd.DataFrame([[1]], columns=pd.Index(["a"], name="cn")),
    "categories": lambda: pd.DataFrame(
        {"a": pd.Categorical(["x", "y", "x"], categories=["y", "x", "z"], ordered=True)}
    ),
    "zones": lambda: pd.DataFrame({"a": [pd.Timestamp("2024-01-01", tz="Europe/Paris")]}),
    "nothing": pd.DataFrame,
    "no rows": lambda: pd.DataFrame({"a": pd.Series([], dtype="int32")}),
    "nullable": lambda: pd.DataFrame(
        {"a": pd.array([1, None], dtype="Int64"), "b": pd.array([None, True], dtype="boolean")}
    ),
    "decimals": lambda: pd.DataFrame({"a": [decimal.Decimal("1.10")]}),
    "dates": lambda: pd.DataFrame({"a": [dt.date(2024, 1, 1)]}),
    "bytes": lambda: pd.DataFrame({"a": [b"x\xff"]}),
    "periods": lambda: pd.DataFrame({"a": pd.period_range("2024", periods=2, freq="M")}),
    "series": lambda: pd.Series([1, 2], name="value"),
    "series without a name": lambda: pd.Series([1.5, -0.0]),
    "series with a tuple for a name": lambda: pd.Series([1, 2], name=("a", 1)),
    "series of dates": lambda: pd.Series(["a"], index=[dt.date(2024, 1, 1)], name=0),
    "empty series": lambda: pd.Series([], dtype="f8"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_back_with_its_types_names_and_index(name):
    frame = FRAMES[name]()
    found = again([frame])[0]
    assert anatomy(found) == anatomy(frame)
    compare = pd.testing.assert_frame_equal if isinstance(frame, pd.DataFrame) else pd.testing.assert_series_equal
    compare(found, frame, check_exact=True, check_freq=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pd.DataFrame({"a": pd.Series([1, None], dtype=object)}),
        lambda: pd.DataFrame({"a": pd.Series([True, None], dtype=object)}),
        lambda: pd.DataFrame({"a": pd.Series([float("nan"), "x"], dtype=object)}),
        lambda: pd.DataFrame({"a": [{"x": 1}, {"y": 2}]}),
        lambda: pd.DataFrame({"a": [[1], [2, 3]]}),
        lambda: pd.DataFrame({"a": [(1, 2), (3, 4)]}),
        lambda: pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)}),
        lambda: pd.DataFrame({"a": [uuid.UUID(int=1)]}),
        lambda: pd.DataFrame({"a": [1j]}),
        lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
        lambda: pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}),
        lambda: pd.DataFrame({"a": [np.array([1, 2])]}),
        lambda: pd.DataFrame({"a": pd.Series([kinds.Plain.RED], dtype=object)}),
        lambda: pd.DataFrame({"a": pd.Series([2**70], dtype=object)}),
        lambda: pd.DataFrame({1: [1], "a": [2]}),
        lambda: pd.Series([{"x": 1}, {"x": None}]),
        lambda: pd.Series([1, None], dtype=object),
        lambda: pd.DataFrame({"a": [{"x": 1}, [2]], "b": [1, 2]}, index=[7, 7]),
        lambda: pd.Series([1, 2], index=pd.Index([1, "a"], dtype=object)),
        lambda: pd.Series([1, 2], index=pd.Index([None, "a"], dtype=object)),
    ],
    ids=range(20),
)
def test_a_frame_that_arrow_would_change_comes_back_the_same_or_is_refused(make):
    same_or_refused(make())


@pytest.mark.parametrize(
    "value", [pd.Timestamp("2024-01-01"), pd.NaT, pd.NA, pd.Index([1]), pd.Timedelta(1, "s")], ids=repr
)
def test_other_values_of_pandas_come_back_the_same_or_are_refused(value):
    same_or_refused(value)


def test_a_store_gives_arrays_and_frames_back(connect):
    saver = connect()
    state = {
        "arrays": list(ARRAYS.values()),
        "scalars": SCALARS,
        "frames": [make() for make in FRAMES.values()],
        "large": np.arange(100_000.0),
        "large objects": np.array([str(at) for at in range(10_000)], dtype=object),
    }
    config = put(saver, state)
    saver.clear_cache()
    assert anatomy(values_at(saver, config)) == anatomy(state)
    assert anatomy(values_at(connect(), config)) == anatomy(state)


def test_arrays_and_frames_are_read_once_the_process_has_imported_their_libraries_and_never_import_them(run_script):
    array, series = (Codec().encode(value).hex() for value in (np.arange(3), pd.Series([1, 2])))
    script = f"""
        import sys
        from threadline import NotAllowed
        from threadline.codec import Codec
        codec = Codec()
        array, series = map(bytes.fromhex, ("{array}", "{series}"))
        for content, library in ((array, "numpy"), (series, "pandas")):
            try:
                codec.decode(content)
            except NotAllowed as refusal:
                assert f"import {{library}}" in str(refusal), refusal
            else:
                raise AssertionError(library)
        assert not {{"numpy", "pandas", "pyarrow"}} & sys.modules.keys()
        import numpy, pandas
        print(codec.decode(array).tolist(), codec.decode(series).tolist())
    """
    assert run_script(script) == "[0, 1, 2] [1, 2]"


def test_without_pyarrow_the_error_names_the_extra(run_script):
    packed = Codec().encode(pd.Series([1])).hex()
    script = f"""
        import sys
        sys.modules["pyarrow"] = None
        import pandas
        from threadline import MissingExtra
        from threadline.codec import Codec
        try:
            Codec().decode(bytes.fromhex("{packed}"))
        except MissingExtra as error:
            print("threadline[pandas]" in str(error))
    """
    assert run_script(script) == "True"


def test_altered_bytes_of_a_frame_end_in_an_error_of_ours_and_not_the_process(run_script):
    """In a process of its own, because what went wrong here once was the end of the process."""
    script = """
        import random, warnings
        import pandas as pd
        from threadline import ThreadlineError
        from threadline.codec import Codec

        warnings.simplefilter("ignore")
        codec, chance = Codec(), random.Random(7)
        frames = [
            pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.Categorical(["x", "y"])}, index=[3, 4]),
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [{"k": 1}, (2,)]}),
            pd.Series([pd.Timestamp("2024-01-01", tz="UTC")], index=["i"], name="n"),
        ]
        for packed in map(codec.encode, frames):
            for _ in range(1000):
                altered = bytearray(packed)
                for _ in range(chance.randint(1, 3)):
                    altered[chance.randrange(len(altered))] = chance.randrange(256)
                for data in (altered, altered[: chance.randrange(len(altered))]):
                    try:
                        codec.decode(bytes(data))
                    except ThreadlineError:
                        pass
        print("done")
    """
    assert run_script(script) == "done"
