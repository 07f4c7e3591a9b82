"""The code of a run: what belongs to it, what a hand takes for the same, and which zip it does not unpack."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from weft.cluster.batches import installed_code
from weft.cluster.batches.batch_messages import CodeFile
from weft.cluster.batches.installed_code import first_trouble, unpack
from weft.cluster.batches.shipped_code import gather, zipped
from weft.errors import BadInput


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a module that imports two others, and a script."""
    root = tmp_path / "author"
    (root / "shop" / "parts").mkdir(parents=True)
    (root / "shop" / "__init__.py").touch()
    (root / "shop" / "parts" / "__init__.py").touch()
    (root / "shop" / "parts" / "price.py").write_text("TAX = 2\n")
    (root / "shop" / "work.py").write_text("from shop.parts import price\nimport json\ndef work(item, context): ...\n")
    (root / "script.py").write_text("import shop.work\ndef run(item, context): ...\n")
    (root / "rules.txt").write_text("one\n")
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.chdir(root)
    forget_shop()
    return root


def forget_shop() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        del sys.modules[name]


def test_code_is_the_module_and_the_authors_own_that_it_imports(author: Path) -> None:
    code = gather(["shop.work:work"], ["rules.txt"])
    assert [(one.module, one.path) for one in code.files] == [
        ("", "rules.txt"), ("shop", "shop/__init__.py"), ("shop.parts", "shop/parts/__init__.py"),
        ("shop.parts.price", "shop/parts/price.py"), ("shop.work", "shop/work.py"),
    ]  # fmt: skip
    assert set(code.shipped) == {one.path for one in code.files}


def test_a_script_is_shipped_beside_what_it_imports_and_weft_is_not(author: Path) -> None:
    code = gather([f"{author}/script.py:run", "weft.pipelines.runner:run_item"])
    assert "script.py" in code.shipped
    assert "shop/work.py" in code.shipped
    assert "weft.pipelines.runner" in {one.module for one in code.files}
    assert not [name for name in code.shipped if "weft" in name]


def test_a_hand_has_the_same_code_or_says_what_it_lacks(author: Path, tmp_path: Path) -> None:
    files, shipped = gather(["shop.work:work"])
    here = tmp_path / "hand"
    sys.path.remove(str(author))
    forget_shop()
    assert "module 'shop' cannot be imported" in (first_trouble(files, [str(tmp_path / "nowhere")]) or "")
    unpack(zipped(shipped), here)
    assert first_trouble(files, [str(here)]) is None
    (here / "shop" / "parts" / "price.py").write_text("TAX = 3\n")
    assert "module 'shop.parts.price' is another version there" in (first_trouble(files, [str(here)]) or "")
    (here / "shop" / "parts" / "price.py").unlink()
    assert "module 'shop.parts.price' cannot be imported" in (first_trouble(files, [str(here)]) or "")


def test_nothing_of_the_author_is_imported_to_find_it(author: Path) -> None:
    (author / "shop" / "__init__.py").write_text("raise SystemExit('imported')\n")
    assert first_trouble([CodeFile("shop.work", "shop/work.py", "0" * 64)], [str(author)]) is not None


@pytest.mark.parametrize("name", ["../outside.py", "/etc/outside.py", "a/../../outside.py", "folder/"])
def test_a_zip_with_something_else_than_files_below_it_is_refused(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "print('here')")
    with pytest.raises(BadInput, match="no file below it"):
        unpack(buffer.getvalue(), tmp_path / "code")
    assert not list(tmp_path.rglob("outside.py"))


def test_a_zip_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_code, "MOST_UNPACKED_BYTES", 1000)
    with pytest.raises(BadInput, match="unpacks to more than"):
        unpack(zipped({"a.py": b"#" * 1001}), tmp_path / "code")
