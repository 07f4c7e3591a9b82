"""What Python code imports, read from its syntax tree: no code is run, and comments and texts are no imports. Pure."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_BYTES = 1_000_000
# Modules that are called otherwise than the package that brings them.
PACKAGES = dict(
    pair.split("=")
    for pair in (
        "attr=attrs bs4=beautifulsoup4 cairosvg=cairosvg Crypto=pycryptodome cv2=opencv-python "
        "dateutil=python-dateutil discord=discord-py docx=python-docx dotenv=python-dotenv fitz=pymupdf git=gitpython "
        "github=pygithub gi=pygobject google.protobuf=protobuf jose=python-jose jwt=pyjwt Levenshtein=levenshtein "
        "ldap=python-ldap magic=python-magic markdown_it=markdown-it-py MySQLdb=mysqlclient nacl=pynacl "
        "OpenSSL=pyopenssl paho=paho-mqtt PIL=pillow pkg_resources=setuptools pptx=python-pptx "
        "psycopg2=psycopg2-binary pywintypes=pywin32 redis=redis rest_framework=djangorestframework RPi=rpi-gpio "
        "ruamel=ruamel-yaml serial=pyserial sklearn=scikit-learn skimage=scikit-image slugify=python-slugify "
        "socks=pysocks telegram=python-telegram-bot tlz=toolz usb=pyusb websocket=websocket-client win32api=pywin32 "
        "win32con=pywin32 wx=wxpython Xlib=python-xlib yaml=pyyaml zmq=pyzmq"
    ).split()
)
# Packages of which one brings what another is known for.
SAME = {"psycopg2-binary": {"psycopg2"}, "opencv-python": {"opencv-python-headless", "opencv-contrib-python"}}


@dataclass(slots=True)
class PythonImports:
    """The modules that files import, as they are written (`google.cloud.storage`), and files that are no Python."""

    needed: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)  # in `try … except ImportError`, or for type checkers alone
    unreadable: int = 0


def read(source: bytes, into: PythonImports) -> None:
    """Adds the imports of one file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source[:MAX_BYTES])
        imported = list(_find_imports(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        into.unreadable += 1
        return
    for name, is_optional in imported:
        (into.optional if is_optional else into.needed).add(name)


def _find_imports(root: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every import, and whether it is optional. A stack, not recursion: a sum of a thousand terms is as deep."""
    stack = [(root, False)]
    while stack:
        node, is_optional = stack.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_optional) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and node.module:
                # `from google.cloud import storage` imports a module, as far as the text says
                yield from ((f"{node.module}.{alias.name}".removesuffix(".*"), is_optional) for alias in node.names)
        elif isinstance(node, ast.Try) and any(_catches_import_error(handler) for handler in node.handlers):
            stack += [(child, True) for child in ast.iter_child_nodes(node)]
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            stack += [(child, True) for child in node.body]
            stack += [(child, is_optional) for child in node.orelse]
        else:
            stack += [(child, is_optional) for child in ast.iter_child_nodes(node)]


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    kinds: Iterable[ast.AST] = ast.walk(handler.type) if handler.type else ()
    names = {node.id for node in kinds if isinstance(node, ast.Name)}
    return handler.type is None or bool(names & {"ImportError", "ModuleNotFoundError", "Exception"})


def _is_type_checking(test: ast.AST) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"
