"""Models in a folder of this machine, read by the packages that trained them.

Nothing is downloaded and no code of a model is run: a folder is read, and weights that would have
to be unpickled are refused.
"""

import os
from abc import abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure.embedding.contract import Embedder
from perdure.errors import EmbedderUnavailable, InvalidValue
from perdure.lenses.registry import told
from perdure.model import values
from perdure.runtime import Runtime

__all__ = ["LocalEmbedder", "Model2VecEmbedder", "SentenceTransformersEmbedder"]

_PIECE_BYTES = 1 << 20
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_MODULES = "modules.json"
_PACKAGE = "sentence_transformers."


class LocalEmbedder(Embedder):
    """A model in a folder; `model` has a digest of all files in it."""

    name: str
    package: str

    def __init__(self, folder: str, runtime: Runtime) -> None:
        """Load the model.

        Raises:
            EmbedderUnavailable: the package is not installed, the folder is not there, or holds no
                model that it can read.

        """
        if not folder:
            hint = f"{self.name}:/path/to/the/model"
            raise InvalidValue("embedder", f"{self.name} needs a folder", hint=hint)
        home = runtime.environment("HOME")
        whole = f"{home}{folder[1:]}" if home and folder.startswith("~/") else folder
        self.spec = f"{self.name}:{Path(whole).absolute()}"
        if not _is_folder(Path(whole)):
            hint = "give a folder of this machine; nothing is downloaded"
            raise EmbedderUnavailable(self.spec, "there is no such folder", hint=hint)
        try:
            module = import_module(self.package)
        except ImportError as error:
            hint = f"install the package {self.package.replace('_', '-')}"
            raise EmbedderUnavailable(self.spec, f"{told(error)}", hint=hint) from error
        except Exception as error:  # a package may raise anything
            reason = f"the package {self.package} cannot be loaded: {told(error)}"
            raise EmbedderUnavailable(self.spec, reason) from error
        try:
            self._model = self._load(module, whole)
            # What a model says of its own dimension is not always what it gives.
            self.dimension = len(self.embed_query("text"))
            found = _digest(Path(whole))
        except EmbedderUnavailable:
            raise
        except Exception as error:  # a package may raise anything
            reason = f"its model cannot be read: {told(error)}"
            raise EmbedderUnavailable(self.spec, reason) from error
        self.model = f"{self.name}/{Path(whole).absolute().name}/{found}/{self.dimension}"

    @abstractmethod
    def _load(self, module: Any, folder: str) -> Any:
        """The model in a folder, by its package."""

    def embed_documents(self, texts: Sequence[str]) -> Any:
        """See `Embedder.embed_documents`."""
        try:
            # What has no form in UTF-8, no tokenizer takes.
            return self._model.encode([values.text(text) for text in texts])
        except Exception as error:  # a package may raise anything
            raise EmbedderUnavailable(self.spec, f"it failed: {told(error)}") from error

    def embed_query(self, text: str) -> Any:
        """See `Embedder.embed_query`."""
        return self.embed_documents([text])[0]


class Model2VecEmbedder(LocalEmbedder):
    """A static model of the package model2vec."""

    name = package = "model2vec"

    def _load(self, module: Any, folder: str) -> Any:
        return module.StaticModel.from_pretrained(folder)


class SentenceTransformersEmbedder(LocalEmbedder):
    """A model of the package sentence-transformers."""

    name, package = "sentence-transformers", "sentence_transformers"

    def _load(self, module: Any, folder: str) -> Any:
        names = [Path(place) / name for place, _, some in os.walk(folder, followlinks=True)
                 for name in some]  # fmt: skip
        if any(path.suffix in _PICKLES for path in names):
            hint = "convert them to safetensors, and take the others away"
            raise EmbedderUnavailable(self.spec, "its weights are pickles", hint=hint)
        for path in names:
            if path.name == _MODULES and not _are_of_package(path):
                # Some versions import a file of the model that is called so.
                raise EmbedderUnavailable(self.spec, "it is made of modules of its own")
        return module.SentenceTransformer(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        # A name that is too long, say, or a folder that may not be entered.
        return False


def _are_of_package(path: Path) -> bool:
    """Whether all modules that a model is made of come with sentence-transformers."""
    modules = values.decode(path.read_bytes())
    if not isinstance(modules, list):
        return False
    kinds = [each.get("type") if isinstance(each, dict) else None for each in modules]
    return all(isinstance(kind, str) and kind.startswith(_PACKAGE) for kind in kinds)


def _digest(folder: Path) -> str:
    """Of the names and the bytes of all files in a folder."""
    found = blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                found.update(piece)
    return found.hexdigest()
