"""Preparing a data set: what is written can be read, and one line says why nothing was."""

import shutil
import types

import pytest
import requests
import tensorflow_datasets as tfds

from train.data import prepare
from train.data.dataset import DataError
from train.data.registry import DATASETS, load_dataset
from train.errors import InputError

TEXT = "hello, world\n" * 20


def small_builder(data_dir, error=None):
    """A builder of TFDS for a short text, in the place of Tiny Shakespeare."""

    class TinyShakespeare(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = data_dir  # without a file of descriptions

        def _info(self):
            features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            if error is not None:
                raise error
            return {name: self._generate_examples() for name in ("train", "validation", "test")}

        def _generate_examples(self):
            yield 0, {"text": TEXT}

    return TinyShakespeare(data_dir=data_dir)


@pytest.fixture
def offline(monkeypatch):
    """Everything that preparing needs, without a network: a function that sets what goes wrong."""
    errors = []

    def builder(name, data_dir):
        assert name == "tiny_shakespeare"
        return small_builder(data_dir, *errors)

    monkeypatch.setattr(prepare.tfds, "builder", builder)
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"):
        monkeypatch.setenv(name, "")  # so that they are as before after the test
    monkeypatch.setattr(prepare, "_PACKAGES", ("numpy",))
    monkeypatch.setattr(prepare, "_check_network", lambda *_: None)
    return errors.append


def test_what_is_prepared_can_be_read(offline, tmp_path, capfd):
    line = prepare.prepare("tiny_shakespeare", str(tmp_path))
    assert line == f"tiny_shakespeare is now prepared: {tmp_path / 'tiny_shakespeare' / '1.0.0'}"
    assert len(load_dataset("tiny_shakespeare", str(tmp_path)).train) == len(TEXT)
    assert "Generating train examples" in capfd.readouterr().err  # the progress bars of TFDS


def test_what_is_prepared_already_stays_as_it_is(offline, tmp_path, monkeypatch):
    prepare.prepare("tiny_shakespeare", str(tmp_path))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    # It needs no TensorFlow.
    monkeypatch.setattr(prepare, "_PACKAGES", ("a_missing_package",))
    assert "is already prepared" in prepare.prepare("tiny_shakespeare", str(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written


def test_the_environment_names_the_folder(offline, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    prepare.prepare("tiny_shakespeare")
    assert prepare.place("tiny_shakespeare") == tmp_path / "tiny_shakespeare" / "1.0.0"
    assert prepare.place("tiny_shakespeare").exists()


def test_a_damaged_data_set_is_reported(offline, tmp_path):
    prepare.prepare("tiny_shakespeare", str(tmp_path))
    for shard in tmp_path.rglob("*train.array_record*"):
        shard.unlink()
    with pytest.raises(DataError, match=f"remove {tmp_path / 'tiny_shakespeare'} first"):
        prepare.prepare("tiny_shakespeare", str(tmp_path))


def test_a_failed_preparation_says_why_and_leaves_nothing_unfinished(offline, tmp_path):
    offline(OSError(28, "No space left on device"))
    with pytest.raises(DataError) as raised:
        prepare.prepare("tiny_shakespeare", str(tmp_path))
    assert str(raised.value) == (
        "tiny_shakespeare was not prepared: [Errno 28] No space left on device. Repeat the command."
    )
    assert not list((tmp_path / "tiny_shakespeare").iterdir())


@pytest.mark.parametrize("lacks", [("a_missing_package",), ("a_missing_package", "another")])
def test_missing_packages_are_named_and_nothing_is_written(lacks, offline, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "_PACKAGES", ("numpy", *lacks))
    with pytest.raises(InputError) as raised:
        prepare.prepare("tiny_shakespeare", str(tmp_path / "new"))
    assert f"needs {' and '.join(lacks)}. " in str(raised.value)
    assert "pip install -e '.[prepare]'" in str(raised.value)
    assert not any(tmp_path.iterdir())


def refuses(status):
    """A `requests.get` whose server answers with this status."""

    def get(url, **_):
        answer = requests.Response()
        answer.status_code, answer.url, answer._content_consumed = status, url, True
        return answer

    return get


def is_not_there(url, **_):
    raise requests.ConnectionError("no route, in a hundred words")


@pytest.mark.parametrize(
    ("get", "words"),
    [(is_not_there, "(ConnectionError)"), (refuses(403), "(HTTPError, HTTP status 403)")],
)
@pytest.mark.parametrize("name", prepare.SIZES)
def test_a_server_without_an_answer_is_reported_at_once(name, get, words, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "_PACKAGES", ())
    monkeypatch.setattr(requests, "get", get)
    with pytest.raises(InputError) as raised:
        prepare.prepare(name, str(tmp_path / "new"))
    message = str(raised.value)
    assert f"{name} cannot be downloaded: no answer from " in message
    assert words in message
    assert str(tmp_path / "new" / name) in message
    assert "\n" not in message
    assert not any(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_reported(offline, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"the data folder .*file' cannot be used"):
        prepare.prepare("tiny_shakespeare", str(tmp_path / "file"))


def test_a_disk_without_room_is_reported(offline, tmp_path, monkeypatch):
    full = types.SimpleNamespace(free=4e6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(InputError, match=f"needs 5 MB in {tmp_path}, which has 4 MB"):
        prepare.prepare("tiny_shakespeare", str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_every_data_set_is_prepared_or_needs_no_preparation():
    assert set(prepare.SIZES) == set(DATASETS) - {"digits"}


@pytest.mark.parametrize("name", prepare.SIZES)
def test_the_sizes_are_those_of_the_files_that_tfds_downloads(name):
    size = prepare.SIZES[name]
    files = tfds.builder_cls(name).url_infos.values()
    assert size.download == round(sum(file.size for file in files) / 1e6)
    assert size.disk > 2 * size.download
